/** What a body whose prompt is not known counts as. */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { estimatePrompt, scanRequest } from '../src/index.ts'

const IMAGE = 1024
const fourBytes = (bytes: number) => Math.ceil(bytes / 4)

function estimated(body: unknown, text = JSON.stringify(body)): { tokens: number; tokensMax: number } {
  const bytes = new TextEncoder().encode(text)
  return estimatePrompt(bytes, scanRequest(bytes), fourBytes)
}

const tokensOf = (body: unknown): number => estimated(body).tokens
const base64 = (bytes: number): string => 'QUJD'.repeat(Math.ceil(bytes / 4))
const chat = (...parts: readonly unknown[]) => ({ messages: [{ role: 'user', content: parts }] })

t.test('text counts by its bytes, with names for what templates add', async t => {
  const text = 'word '.repeat(800)
  const tokens = tokensOf({ model: 'm', messages: [{ role: 'user', content: text }] })
  t.ok(tokens >= 1000 && tokens < 1020, `${tokens}`)
  t.equal(tokensOf({ prompt: 'x'.repeat(400) }), fourBytes(400))
  t.equal(tokensOf({ prompt: ['x'.repeat(400), 'y'.repeat(4000)] }), fourBytes(4400), 'all texts of a list')
  t.equal(
    tokensOf({
      prompt: [
        [1, 2, 3],
        [-4, 5e3],
      ],
    }),
    5,
    'a token for each id',
  )
  const tools = [{ type: 'function', function: { name: 'f', parameters: { image_url: { type: 'image' } } } }]
  t.ok(tokensOf({ tools }) < 30, 'a schema is text, whatever its names')
})

t.test('escapes count as what they stand for', async t => {
  const plain = '日本語のテキスト 😀 ж é'.repeat(20)
  const escaped = [...plain]
    .flatMap(one => [...one.split('')])
    .map(unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  const asEscapes = estimated(undefined, `{"prompt":"${escaped.join('')}"}`).tokens
  t.equal(asEscapes, tokensOf({ prompt: plain }))
  t.equal(tokensOf({ prompt: '\n"\\\t'.repeat(100) }), 100)
})

t.test('media count by their type, never by their encoded bytes', async t => {
  const url = `data:image/png;base64,${base64(5_000_000)}`
  const near = (body: unknown, expected: number, name: string) => {
    const tokens = tokensOf(body)
    t.ok(tokens >= expected && tokens <= expected + 40, `${name}: ${tokens} of ${expected}`)
  }
  near(chat({ type: 'image_url', image_url: { url } }), IMAGE, 'a data: URL')
  near(chat({ type: 'image_url', image_url: { url: 'https://a.example/b.png' } }), IMAGE, 'a URL')
  near(chat({ image_url: 'https://a.example/b.png' }), IMAGE, 'without a type')
  near(chat({ type: 'input_image', image_url: url }), IMAGE, 'of a Responses request')
  near(
    chat({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64(9000) } }),
    IMAGE,
    'of a Messages request',
  )
  near(chat({ type: 'input_audio', input_audio: { data: base64(9000), format: 'wav' } }), 750, 'audio')
  near(chat({ type: 'video_url', video_url: { url } }), 8192, 'video')
  near({ input: [url, url] }, 2 * IMAGE, 'without any type')
  near(chat({ type: 'thinking', thinking: '', signature: base64(9000) }), 0, 'a signature')
  near({ prompt_embeds: base64(81_920) }, 10, 'embeds')
})

t.test('what no engine puts into a prompt does not count', async t => {
  const long = 'x'.repeat(100_000)
  t.ok(tokensOf({ prompt: 'a', nvext: { token_data: Array(9999).fill(1) }, metadata: { long } }) < 10)
  t.ok(tokensOf({ prompt: 'a', unheard_of: long }) > 25_000, 'but what is not known does')
})

t.test('bounds what an engine is believed to count', async t => {
  const { tokens, tokensMax } = estimated({ prompt: 'x'.repeat(4000) })
  t.strictSame([tokens, tokensMax], [1000, 4000 + 8192])
  const image = estimated(chat({ type: 'image_url', image_url: { url: 'https://a.example' } }))
  t.ok(image.tokensMax > 32_768 && image.tokensMax < 50_000)
  t.equal(estimated({ input: 'x', previous_response_id: 'r' }).tokensMax, Number.POSITIVE_INFINITY)
  // Where the engine does not truncate, it counts the whole prompt.
  const truncated = estimated({ prompt: 'x'.repeat(4000), truncate_prompt_tokens: 7 })
  t.equal(truncated.tokens, 7)
  t.ok(truncated.tokensMax > 4000)
  for (const given of ['1.5', '0.001', '1e400', '1e-400', 'true', '"7"', '[7]', 'null', '1e17']) {
    const text = `{"prompt":"${'x'.repeat(4000)}","truncate_prompt_tokens":${given}}`
    const { tokens } = estimated(undefined, text)
    t.ok(Number.isSafeInteger(tokens) && tokens >= 1000, `${given}: ${tokens}`)
  }
  t.equal(tokensOf({ prompt: 'x'.repeat(4000), truncate_prompt_tokens: -1 }), 1001)
})

t.test('takes time in proportion to the body', async t => {
  // Quadratic, each of these would take minutes.
  t.ok(tokensOf({ prompt: '\\"'.repeat(500_000) }) > 0)
  t.ok(tokensOf({ messages: Array(200_000).fill('') }) >= 0)
  t.ok(tokensOf({ input: Array(5000).fill(`data:${base64(200)}`) }) > 0)
})

t.test('escapes count as the bytes of what they stand for, near each other and far apart', async t => {
  const pieces = [
    'a'.repeat(31),
    'b'.repeat(70),
    'é',
    '😀',
    '"',
    '\\',
    '\n',
    '<',
    '߿',
    'ࠀ',
    '\u0001',
    '\\"',
    '',
  ]
  for (let seed = 1; seed <= 200; seed++) {
    const random = seededRandom(seed)
    const text = Array.from({ length: 1 + random.below(40) }, () => pieces[random.below(pieces.length)]).join(
      '',
    )
    const escaped = Array.from(text, character =>
      random.below(3) === 0
        ? [...character.split('')]
            .map(unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
            .map(unit => (random.below(2) === 0 ? unit : `\\u${unit.slice(2).toUpperCase()}`))
            .join('')
        : JSON.stringify(character).slice(1, -1),
    ).join('')
    t.equal(JSON.parse(`"${escaped}"`), text)
    const { tokens } = estimated(undefined, `{"prompt":"${escaped}"}`)
    t.equal(tokens, fourBytes(Buffer.byteLength(text)), `seed ${seed}`)
  }
})

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type StreamForm, UsageTap } from '../src/index.ts'

function tapAll(form: 'sse' | 'json', text: string, cuts: readonly number[] = []) {
  const bytes = Buffer.from(text)
  const tap = new UsageTap(form)
  const places = [0, ...cuts.map(cut => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]
  for (let i = 1; i < places.length; i++) tap.push(bytes.subarray(places[i - 1], places[i]))
  return tap.finish()
}

const nothing = {
  promptTokens: undefined,
  completionTokens: undefined,
  cachedTokens: undefined,
  responseId: undefined,
  sawError: false,
  isDone: false,
  eventsCount: 0,
  isInside: false,
}

const chunk = (rest: string) => `data: {"id":"chatcmpl-1","object":"chat.completion.chunk",${rest}}\n\n`
const streamed =
  chunk('"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null') +
  chunk('"choices":[{"index":0,"delta":{"content":"Hé"}}]') +
  chunk('"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]') +
  chunk(
    '"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0}}',
  ) +
  'data: [DONE]\n\n'
const failed =
  chunk('"choices":[{"index":0,"delta":{"content":"H"}}]') +
  'data: {"error":{"message":"…","type":"InternalServerError","code":500}}\n\ndata: [DONE]\n\n'

t.test('finds usage and the end of a stream', async t => {
  t.strictSame(tapAll('sse', streamed), {
    promptTokens: 9,
    completionTokens: 1,
    cachedTokens: 0,
    responseId: undefined,
    sawError: false,
    isDone: true,
    eventsCount: 4,
    isInside: false,
  })
})

t.test('sees an error inside a stream', async t => {
  t.strictSame(tapAll('sse', failed), { ...nothing, sawError: true, isDone: true, eventsCount: 2 })
  t.equal(tapAll('sse', 'data: {"object":"error","message":"flat"}\n\n').sawError, true)
  t.equal(tapAll('sse', 'data: {"error":null,"object":"x"}\n\n').sawError, false)
})

t.test('a split inside a character and inside an empty line changes nothing', async t => {
  const bytes = Buffer.from(streamed)
  const inCharacter = bytes.indexOf('é') + 1
  const inEmptyLine = bytes.indexOf('\n\n') + 1
  t.strictSame(tapAll('sse', streamed, [inCharacter, inEmptyLine]), tapAll('sse', streamed))
})

t.test('the last usage counts, and usage inside other objects or in text does not', async t => {
  const text =
    chunk(
      '"choices":[{"usage":{"prompt_tokens":1},"delta":{"content":"\\"usage\\":{\\"prompt_tokens\\":2}"}}]',
    ) +
    chunk('"usage":{"prompt_tokens":3,"completion_tokens":4}') +
    chunk(
      '"usage": { "prompt_tokens" : 5, "completion_tokens":6,"prompt_tokens_details":null } ,"choices":[]',
    )
  t.match(tapAll('sse', text), {
    promptTokens: 5,
    completionTokens: 6,
    cachedTokens: undefined,
    isDone: false,
  })
})

t.test('comments, other fields, CR LF, CR and data over several lines are event streams too', async t => {
  const text =
    ': ping\r\nevent: x\r\ndata:{"a":1,\r\ndata: "usage":{"prompt_tokens":7}}\r\n\r\n' +
    'data: {"usage":{"completion_tokens":8,"prompt_tokens":7}}\r\rid: 3\rdata: [DONE]\r\r'
  t.match(tapAll('sse', text), { promptTokens: 7, completionTokens: 8, isDone: true, eventsCount: 2 })
})

t.test('a byte order mark before the first event is left out, wherever the bytes are cut', async t => {
  const text = `\ufeff${streamed}`
  for (let cut = 0; cut <= 5; cut++) {
    t.strictSame(tapAll('sse', text, [cut]), tapAll('sse', streamed), `${cut}`)
    const tap = new UsageTap('sse')
    const bytes = Buffer.from(text)
    const passed = Buffer.concat([tap.push(bytes.subarray(0, cut)), tap.push(bytes.subarray(cut))])
    t.equal(passed.toString(), streamed, `${cut}`)
  }
  t.equal(tapAll('sse', '\ufeffdata: {"error":{"message":"x"}}\n\n').sawError, true)
  const tap = new UsageTap('sse')
  const parts = [Uint8Array.of(0xef, 0xbb), Uint8Array.of(0x61, 0x0a, 0x0a)].map(part => tap.push(part))
  t.equal(Buffer.concat(parts).toString('latin1'), '\u00ef\u00bba\n\n', 'a part of a mark is none')
})

t.test('a JSON body is read wherever its usage stands', async t => {
  const body = `{"id":"x","choices":[{"text":"${'a}"'.replaceAll('"', '\\"').repeat(5000)}"}],"usage":{"prompt_tokens":9,
    "completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}},"prompt_logprobs":[${'null,'.repeat(20_000)}null]}`
  t.strictSame(tapAll('json', body, [7, 5000, 20_000]), {
    ...nothing,
    promptTokens: 9,
    completionTokens: 1,
    cachedTokens: 8,
  })
  t.equal(tapAll('json', '{"error":{"message":"x"}}').sawError, true)
})

t.test('what is not JSON, or too long to be usage, teaches nothing and does not throw', async t => {
  t.strictSame(tapAll('json', '<html>}}{"usage":'), { ...nothing, isInside: true })
  t.strictSame(tapAll('json', `{"usage":{"x":"${'a'.repeat(5000)}","prompt_tokens":1}}`), nothing)
  t.strictSame(tapAll('json', '{"usage":{"prompt_tokens":-1,"completion_tokens":"2"}}'), nothing)
  t.strictSame(tapAll('sse', ''), nothing)
})

t.test('the bound on a value is the same in one chunk and in many', async t => {
  for (const spaces of [4000, 4050, 4070, 4095, 4096, 4097, 9000]) {
    const text = `{"error":${' '.repeat(spaces)}7,"usage":${' '.repeat(spaces)}{"prompt_tokens":5},"object":"x"}`
    const cuts = Array.from({ length: text.length }, (_, i) => i)
    t.strictSame(tapAll('json', text, cuts), tapAll('json', text), `${spaces}`)
  }
})

t.test('tells where an answer stops that ends too early, and that one ended', async t => {
  const insideOf = (form: 'sse' | 'json', text: string) => tapAll(form, text).isInside
  for (const whole of ['{"a":[1,{"b":"}"}]}', '[{"a":1}]\n', ' "text"']) {
    t.equal(insideOf('json', whole), false, whole)
  }
  for (const part of ['', '{', '{"a":[1,{"b":"}"}]', '[{"a":1}']) t.equal(insideOf('json', part), true, part)
  t.equal(insideOf('sse', ''), false)
  t.equal(insideOf('sse', ': ping\n\n'), false)
  t.equal(insideOf('sse', 'data: {}\n'), true)
  for (const type of [
    'message_stop',
    'response.completed',
    'response.incomplete',
    'response.failed',
    'error',
  ]) {
    t.equal(tapAll('sse', `event: ${type}\ndata: {"x":1,"type":"${type}"}\n\n`).isDone, true, type)
  }
  t.equal(tapAll('sse', 'data: {"type":"message_delta","delta":{"type":"message_stop"}}\n\n').isDone, false)
})

t.test('hasBytes turns true with the first byte', async t => {
  const tap = new UsageTap('sse')
  tap.push(new Uint8Array(0))
  t.equal(tap.hasBytes, false)
  tap.push(Buffer.from(':'))
  t.equal(tap.hasBytes, true)
})

const line = fc.constantFrom(
  ...streamed.trim().split('\n\n'),
  ...failed.trim().split('\n\n'),
  ': comment',
  'event: x',
  'data',
  'data:',
  'data: [DON',
  'datax: {"error":1}',
  'data: {"usage":{"prompt_tokens":3',
  'data: ,"completion_tokens":4}}',
  'data: {"us\\"age":{"prompt_tokens":1},"é":"\\\\","usage":{"prompt_tokens":1}}',
)
const stream = fc
  .array(fc.tuple(line, fc.constantFrom('\n', '\r\n', '\r', '\n\n', '\r\n\r\n')), { maxLength: 8 })
  .map(lines => lines.flat().join(''))

/** The definition: whole text, split into lines and events, JSON.parse. */
function naive(text: string) {
  let report: Record<string, unknown> = { ...nothing }
  let data: string[] = []
  for (const line of `${text}\n`.split(/\r\n|\n|\r/)) {
    if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''))
    if (line !== '' || data.length === 0) continue
    const payload = data.join('\n')
    data = []
    if (payload.startsWith('[DONE]')) {
      report = { ...report, isDone: true }
      continue
    }
    report = { ...report, eventsCount: Number(report['eventsCount']) + 1 }
    let value: Record<string, unknown>
    try {
      value = JSON.parse(payload) as Record<string, unknown>
    } catch {
      continue
    }
    if (value['error'] !== undefined) report = { ...report, sawError: true }
    const usage = value['usage'] as Record<string, unknown> | null | undefined
    if (usage == null) continue
    const details = usage['prompt_tokens_details'] as Record<string, unknown> | undefined
    report = {
      ...report,
      promptTokens: usage['prompt_tokens'],
      completionTokens: usage['completion_tokens'],
      cachedTokens: details?.['cached_tokens'],
    }
  }
  return report
}

t.test('any chunking of any stream gives the same answer', async t => {
  const agree = fc.property(stream, fc.array(fc.nat(), { maxLength: 30 }), (text, cuts) => {
    assert.deepEqual(tapAll('sse', text, cuts), tapAll('sse', text))
    const bytes = [...Buffer.from(text).keys()]
    assert.deepEqual(tapAll('sse', text, bytes), tapAll('sse', text), 'byte by byte')
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
})

t.test('agrees with splitting and parsing the whole text, where every event is whole JSON', async t => {
  const whole = fc
    .array(
      fc.tuple(
        fc.constantFrom(...streamed.trim().split('\n\n'), ...failed.trim().split('\n\n'), ': c', 'event: x'),
        fc.constantFrom('\n\n', '\r\n\r\n', '\r\r'),
      ),
    )
    .map(events => events.flat().join(''))
  const agree = fc.property(whole, text => assert.deepEqual(tapAll('sse', text), naive(text)))
  t.doesNotThrow(() => fc.assert(agree))
})

/** What stands around a text in the events of engines, and what only looks like it. */
const AROUND = [
  [
    'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"',
    '"},"finish_reason":null}]}',
  ],
  ['data: {"choices":[{"index":0,"text":"', '","finish_reason":null}],"usage":null}'],
  ['data: {"choices":[{"index":0,"text":"', '","finish_reason":"stop"}]}'],
  ['data:{"choices": [{"index": 0, "text": "', '"}], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'],
  ['data: {"usage":{"text":"', '","prompt_tokens":5}}'],
  ['data: {"error":{"content":"', '"}}'],
  ['data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"', '"}}'],
  ['data: {"type":"response.output_text.delta","delta":"', '"}'],
  [
    'data: {"type":"response.completed","response":{"object":"response","output":[{"text":"',
    '"}],"id":"resp_1","usage":{"input_tokens":2}}}',
  ],
  ['data: {"a":"\\"text\\":","text":"', '","usage":{"prompt_tokens":6}}'],
  ['event: x\ndata: {"choices":[{"text":"', '"}]}'],
  ['data: {"choices":[{"text":"', '"}]}\ndata: {"usage":{"prompt_tokens":7}}'],
  ['data: {"error":{},"choices":[{"index":0,"text":"', '","finish_reason":null}]}'],
  // What looks like the beginning of a text is the end of one.
  ['data: {"a":"b"text":"', '"","usage":{"prompt_tokens":8}}'],
  [': "text":"', '"'],
] as const
const TEXTS = [
  '',
  ' two',
  'finish_reason',
  'usage',
  '\\"',
  '\\\\',
  '\\',
  '"',
  '\n',
  '\r',
  '\\\n',
  '{',
  ']}',
  'é',
  '[DONE]',
]
const likeEvents = fc
  .array(
    fc.record({
      around: fc.constantFrom(...AROUND),
      texts: fc.array(fc.constantFrom(...TEXTS), { minLength: 1, maxLength: 5 }),
      end: fc.constantFrom('\n\n', '\n\n', '\n\n', '\r\n\r\n', '\r\r', '\n'),
    }),
    { maxLength: 6 },
  )
  .map(groups =>
    groups
      .flatMap(({ around: [before, behind], texts, end }) => texts.map(text => before + text + behind + end))
      .join(''),
  )

t.test('events that are like the one before say what they say byte by byte', async t => {
  const forms = (['absent', 'null'] as const).map(usage => ({
    sendsUsage: false,
    usage,
    lastMembers: ['id'],
  }))
  const tapped = (form: StreamForm, pieces: readonly Uint8Array[]) => {
    const events: string[] = []
    const observe = (event: Uint8Array): void => void events.push(Buffer.from(event).toString('latin1'))
    const tap = new UsageTap('sse', { mendsTo: form, observe })
    const passed = pieces.map(piece => Buffer.from(tap.push(piece)).toString('latin1')).join('')
    const { hasObject, hasEvent, hasOutput, hasBytes } = tap
    const rest = Buffer.from(tap.takeRest()).toString('latin1')
    return { events, passed, rest, report: tap.finish(), hasObject, hasEvent, hasOutput, hasBytes }
  }
  const cuts = fc.array(fc.nat(), { maxLength: 3 })
  const agree = fc.property(likeEvents, cuts, fc.constantFrom(...forms), (text, cuts, form) => {
    const bytes = Buffer.from(text)
    const expected = tapped(
      form,
      Array.from(bytes, byte => Uint8Array.of(byte)),
    )
    assert.deepEqual(tapped(form, [bytes]), expected)
    const places = [0, ...cuts.map(cut => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]
    const pieces = places.slice(1).map((to, i) => bytes.subarray(places[i]!, to))
    assert.deepEqual(tapped(form, pieces), expected, 'cut')
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 2000 }))
})

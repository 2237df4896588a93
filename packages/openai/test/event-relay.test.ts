import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type StreamForm, UsageTap } from '../src/index.ts'

/** An engine whose chunks have no usage and nothing special at the end. */
const PLAIN: StreamForm = { sendsUsage: false, usage: 'absent', lastMembers: ['choices'] }
/** vLLM 0.32. */
const VLLM: StreamForm = { ...PLAIN, lastMembers: ['id', 'choices', 'system_fingerprint'] }
const WITH_NULL: StreamForm = { ...PLAIN, usage: 'null' }

/** What passes, in the pieces in which it passes. */
function relay(text: string, cuts: readonly number[], mendsTo: StreamForm | undefined) {
  const bytes = Buffer.from(text, 'latin1')
  const tap = new UsageTap('sse', { mendsTo })
  const places = [0, ...cuts.map(cut => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]
  const pieces: string[] = []
  for (let i = 1; i < places.length; i++) {
    const chunk = Buffer.from(bytes.subarray(places[i - 1], places[i]))
    pieces.push(Buffer.from(tap.push(chunk)).toString('latin1'))
    // A transport may use its memory again.
    chunk.fill(0)
  }
  pieces.push(Buffer.from(tap.takeRest()).toString('latin1'))
  return { pieces, tap }
}

const relayed = (text: string, form: StreamForm | undefined, cuts: readonly number[] = []): string =>
  relay(text, cuts, form).pieces.join('')

const USAGE = '"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}'
const DONE = 'data: [DONE]\n\n'
const head = 'data: {"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m",'
const token = `${head}"choices":[{"index":0,"delta":{"content":"H\\u00e9]"},"finish_reason":null}]}`
const last = `${head}"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
const extra = `${head}"choices":[],${USAGE}}`
const extraSpaced = `${head}"choices": [ ] , ${USAGE.replace(':', ' : ')} }`
const extraTurned = `data:{${USAGE},"choices":[]}`
const EXTRA = [extra, extraSpaced, extraTurned]
const KEPT = [
  token,
  last,
  `${head}"choices":[{"delta":{"content":"\\"choices\\":[],\\"finish_reason\\":\\"stop\\","}}]}`,
  `${head}"choices":[{"delta":{"content":"finish_reason"}}]}`,
  `${head}"choices":[],"usage":null}`,
  `${head}"choices":[],"prompt_filter_results":[{"choices":[],${USAGE}}]}`,
  `${head}"choices":null,${USAGE}}`,
  `data: {${USAGE}}`,
  'data: {"error":{"message":"x","usage":{}},"choices":[],"usage":{"prompt_tokens":1}}',
  ': ping',
  'event: x',
  'data: [DONE]',
  'data: [DONx',
  'data',
  'data:',
  'data: {"choices":[{"finish_reason":"stop"}],"usage":',
  'datax: {"choices":[],"usage":{}}',
  `: comment\n${extra}`,
  `${extra}\ndata: x`,
  `${extra}\nid: 7`,
  `${head}"choices":[${'[1],'.repeat(9000)}[2]]}`,
]

t.test('the event with usage and without choices is taken out, and nothing else', async t => {
  const before = `${token}\n\n`
  t.equal(relayed(`${before}${extra}\n\n${DONE}`, PLAIN), before + DONE)
  t.equal(relayed(`${extra}\r\n\r\n${DONE}`, PLAIN), DONE)
  t.equal(relayed(`${extra}\r\r${DONE}`, PLAIN), DONE)
  for (const kept of KEPT)
    t.equal(relayed(`${kept}\n\n${DONE}`, PLAIN), `${kept}\n\n${DONE}`, kept.slice(0, 60))
})

t.test('the usage that is taken out is read all the same', async t => {
  const { tap } = relay(`${extra}\n\n${DONE}`, [40, 90], PLAIN)
  t.match(tap.finish(), { promptTokens: 9, completionTokens: 1, cachedTokens: 8, isDone: true })
})

t.test('a stream that was not asked passes as it is, whole chunks without a copy', async t => {
  const tap = new UsageTap('sse')
  const chunk = Buffer.from(`${token}\n\n${extra}\n\n`)
  t.equal(tap.push(chunk), chunk)
  const asked = new UsageTap('sse', { mendsTo: PLAIN })
  const tokens = Buffer.from(`${token}\n\n${token}\n\n`)
  t.equal(asked.push(tokens), tokens, 'nor does one that was, where there is nothing to undo')
})

t.test('the fingerprint that asking moved into the event with usage is put back', async t => {
  const asked = `${token}\n\n${last}\n\n${extra.replace(/\}$/, ',"system_fingerprint":"fp 1"}')}\n\n${DONE}`
  const unasked = `${token}\n\n${last.replace(/\}$/, ',"system_fingerprint":"fp 1"}')}\n\n${DONE}`
  t.equal(relayed(asked, VLLM), unasked)
  t.equal(relayed(asked.replaceAll('\n', '\r\n'), VLLM), unasked.replaceAll('\n', '\r\n'))
  t.equal(relayed(asked.replaceAll('\n', '\r'), VLLM), unasked.replaceAll('\n', '\r'))
  const everywhere = Array.from(asked, (_, at) => at)
  t.equal(relayed(asked, VLLM, everywhere), unasked, 'byte by byte')
  t.equal(relayed(asked.replaceAll('\n', '\r\n'), VLLM, everywhere), unasked.replaceAll('\n', '\r\n'))
  t.equal(relayed(asked, PLAIN), `${token}\n\n${last}\n\n${DONE}`, 'only where it belongs')
  const kept = last.replace(/\}$/, ',"system_fingerprint":"fp 0"}')
  t.equal(relayed(`${kept}\n\n${extra}\n\n`, VLLM), `${kept}\n\n`, 'and only where it is missing')
})

t.test('the last chunk waits for the event with usage, and for nothing else', async t => {
  const tap = new UsageTap('sse', { mendsTo: VLLM })
  const push = (text: string): string => Buffer.from(tap.push(Buffer.from(text))).toString()
  t.equal(push(`${token}\n\n${last}\n\n`), `${token}\n\n`)
  t.equal(push(`${token}\n\n`), `${last}\n\n${token}\n\n`, 'another event: it passes as it came')
  t.equal(push(`${last}\n\n`), '')
  t.equal(push(DONE), `${last}\n\n${DONE}`)
  t.equal(push(`${last}\n\n`), '')
  t.equal(push(`data: {"half`), '')
  t.equal(Buffer.from(tap.takeWhole()).toString(), `${last}\n\n`, 'a cut: the whole event, not the half one')
})

t.test('usage that asking put into chunks is taken out of them, and null put back', async t => {
  const withNull = token.replace(/\}$/, ',"usage":null}')
  const withUsage = last.replace(/\}$/, `,${USAGE}}`)
  const asked = `${withNull}\n\n${withUsage}\n\n${extra}\n\n${DONE}`
  t.equal(relayed(asked, PLAIN), `${token}\n\n${last}\n\n${DONE}`)
  const nulled = last.replace(/\}$/, ',"usage":null}')
  t.equal(relayed(asked, WITH_NULL), `${withNull}\n\n${nulled}\n\n${DONE}`)
  t.equal(relayed(`${token}\n\n`, WITH_NULL), `${withNull}\n\n`)
})

t.test('an event passes when it is whole', async t => {
  const event = `${token}\n\n`
  for (const form of [undefined, PLAIN]) {
    for (let cut = 0; cut < event.length; cut++) {
      const { pieces } = relay(event, [cut], form)
      t.equal(pieces[0], '', `${cut}`)
    }
  }
})

t.test('an answer that ends inside an event ends with the bytes that came', async t => {
  const { pieces, tap } = relay(extra, [50], PLAIN)
  t.equal(pieces.join(''), extra)
  t.equal(tap.finish().isInside, true)
  t.equal(relay(`${extra}\n\n`, [50], PLAIN).tap.finish().isInside, false)
})

t.test('an event that is too long to be held passes as it comes', async t => {
  const tap = new UsageTap('sse', { mendsTo: PLAIN })
  const start = Buffer.from(`data: {"x":"${'a'.repeat(200_000)}`)
  t.equal(tap.push(start).length, 0)
  t.equal(tap.push(Buffer.from('b'.repeat(100_000))).length, start.length + 100_000)
  t.equal(tap.push(Buffer.from('"}\n')).length, 3)
  t.equal(tap.push(Buffer.from(`\n${extra}\n\n`)).length, 1, 'the next one is held again')
})

t.test('any stream in any chunking loses exactly the events that were added', async t => {
  const event = fc.oneof(
    fc.constantFrom(...EXTRA).map(text => ({ text, isExtra: true })),
    fc.constantFrom(...KEPT).map(text => ({ text, isExtra: false })),
  )
  const stream = fc.array(fc.tuple(event, fc.constantFrom('\n', '\r\n', '\r')), { maxLength: 8 })
  const holds = fc.property(
    stream,
    fc.array(fc.nat(), { maxLength: 40 }),
    fc.constantFrom(PLAIN, VLLM),
    (events, cuts, form) => {
      // A line end of its own kind in every event; a lone LF after a CR would be read as one line end.
      const texts = events.map(([{ text, isExtra }, end]) => ({
        isExtra,
        bytes: `${text.replaceAll('\n', end)}${end}${end}`,
      }))
      const all = texts.map(({ bytes }) => bytes).join('')
      if (/\r\r\n/.test(all)) return
      const expected = texts.map(({ isExtra, bytes }) => (isExtra ? '' : bytes)).join('')
      assert.equal(relayed(all, form, cuts), expected)
      assert.equal(relayed(all, undefined, cuts), all, 'not asked')
      if (all.length < 4000) {
        const everywhere = Array.from(all, (_, at) => at)
        assert.equal(relayed(all, form, everywhere), expected, 'byte by byte')
      }
    },
  )
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 500 }))
})

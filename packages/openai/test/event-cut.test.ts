import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { UsageTap } from '../src/index.ts'

/** What passes, in the pieces in which it passes. */
function relay(text: string, cuts: readonly number[]): { readonly pieces: string[]; readonly tap: UsageTap } {
  const bytes = Buffer.from(text, 'latin1')
  const tap = new UsageTap('sse', { cutsUsageEvent: true })
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

const relayed = (text: string, cuts: readonly number[] = []): string => relay(text, cuts).pieces.join('')

const USAGE = '"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}'
const head = 'data: {"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m",'
const extra = `${head}"choices":[],${USAGE}}`
const extraSpaced = `${head}"choices": [ ] , ${USAGE.replace(':', ' : ')} }`
const extraTurned = `data:{${USAGE},"choices":[]}`
const EXTRA = [extra, extraSpaced, extraTurned]
const KEPT = [
  `${head}"choices":[{"index":0,"delta":{"content":"H\\u00e9]"}}],"usage":null}`,
  `${head}"choices":[{"index":0,"delta":{"content":"\\"choices\\":[],"}}],${USAGE}}`,
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
  'datax: {"choices":[],"usage":{}}',
  `: comment\n${extra}`,
  `${extra}\ndata: x`,
  `${extra}\nid: 7`,
  `${head}"choices":[${'[1],'.repeat(9000)}[2]]}`,
]

t.test('the event with usage and without choices is taken out, and nothing else', async t => {
  const before = `${KEPT[0]}\n\n`
  const after = 'data: [DONE]\n\n'
  t.equal(relayed(`${before}${extra}\n\n${after}`), before + after)
  t.equal(relayed(`${extra}\r\n\r\n${after}`), after)
  t.equal(relayed(`${extra}\r\r${after}`), after)
  for (const kept of KEPT) t.equal(relayed(`${kept}\n\n${after}`), `${kept}\n\n${after}`, kept.slice(0, 60))
})

t.test('the usage that is taken out is read all the same', async t => {
  const { tap } = relay(`${extra}\n\ndata: [DONE]\n\n`, [40, 90])
  t.match(tap.finish(), { promptTokens: 9, completionTokens: 1, cachedTokens: 8, isDone: true })
})

t.test('without the option nothing is taken out, and every chunk passes as it is', async t => {
  const tap = new UsageTap('sse')
  const chunk = Buffer.from(`${extra}\n\n`)
  t.equal(tap.push(chunk), chunk)
})

t.test('a chunk in which nothing is cut passes as it is', async t => {
  const tap = new UsageTap('sse', { cutsUsageEvent: true })
  const chunk = Buffer.from(`${KEPT[0]}\n\n${KEPT[1]}\n\n`)
  t.equal(tap.push(chunk), chunk)
})

t.test('what passes waits for nothing but the first choice of its own event', async t => {
  const event = `${KEPT[0]}\n\n`
  const decided = event.indexOf('"choices":[{') + '"choices":[{'.length
  for (let cut = 0; cut < event.length; cut++) {
    const { pieces } = relay(event, [cut])
    t.equal(pieces[0]!.length, cut >= decided ? cut : 0, `${cut}`)
  }
})

t.test('an answer that breaks off inside an event ends with the bytes that came', async t => {
  const { pieces } = relay(extra, [50])
  t.equal(pieces.join(''), extra)
})

t.test('an event that is too long to be usage is not held back', async t => {
  const tap = new UsageTap('sse', { cutsUsageEvent: true })
  const start = Buffer.from(`data: {"x":"${'a'.repeat(10_000)}`)
  t.equal(tap.push(start).length, 0)
  t.equal(tap.push(Buffer.from('b'.repeat(10_000))).length, start.length + 10_000)
})

t.test('any stream in any chunking loses exactly the events that were added', async t => {
  const event = fc.oneof(
    fc.constantFrom(...EXTRA).map(text => ({ text, isExtra: true })),
    fc.constantFrom(...KEPT).map(text => ({ text, isExtra: false })),
  )
  const stream = fc.array(fc.tuple(event, fc.constantFrom('\n', '\r\n', '\r')), { maxLength: 8 })
  const holds = fc.property(stream, fc.array(fc.nat(), { maxLength: 40 }), (events, cuts) => {
    // A line end of its own kind in every event; a lone LF after a CR would be read as one line end.
    const texts = events.map(([{ text, isExtra }, end]) => ({
      isExtra,
      bytes: `${text.replaceAll('\n', end)}${end}${end}`,
    }))
    const all = texts.map(({ bytes }) => bytes).join('')
    if (/\r\r\n/.test(all)) return
    const expected = texts.map(({ isExtra, bytes }) => (isExtra ? '' : bytes)).join('')
    assert.equal(relayed(all, cuts), expected)
    if (all.length < 4000)
      assert.equal(
        relayed(
          all,
          Array.from(all, (_, at) => at),
        ),
        expected,
        'byte by byte',
      )
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 500 }))
})

import { seededRandom } from '@homing/base'
import t from 'tap'
import { AnswerReader } from '../src/answer-reader.ts'

const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`
const chunk = (content: string): string => event({ choices: [{ delta: { content } }] })
const STREAM = [
  event({ choices: [{ delta: { role: 'assistant', content: '' } }] }),
  ': a comment\n\n',
  chunk('grün'),
  event({ choices: [{ delta: { reasoning_content: 'so' } }], usage: null }),
  event({ choices: [{ delta: { tool_calls: [{ id: 'a' }] } }] }),
  event({
    choices: [],
    usage: { prompt_tokens: 7, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 4 } },
  }),
  'data: [DONE]\n\n',
]

function readWhole(text: string, isStream = true): AnswerReader {
  const reader = new AnswerReader(isStream, () => {})
  reader.push(Buffer.from(text), 1)
  reader.end(2)
  return reader
}

t.test('times are those of parts with tokens, counts those of the usage', async t => {
  const gaps: number[] = []
  const reader = new AnswerReader(true, ms => gaps.push(ms))
  for (const [i, text] of STREAM.entries()) reader.push(Buffer.from(text), 10 * (i + 1))
  reader.end(100)
  t.equal(reader.fault, undefined)
  t.strictSame([reader.firstMs, reader.lastMs, reader.chunks], [30, 50, 3])
  t.strictSame(gaps, [10, 10])
  t.strictSame(reader.counts, { promptTokens: 7, completionTokens: 3, cachedTokens: 4 })
})

t.test(
  'bytes may be cut anywhere, also inside of a character, and lines may end with CR LF or CR',
  async t => {
    const random = seededRandom(7)
    const written = STREAM.join('')
    const inLines = written.replaceAll(',"', ',\ndata: "')
    for (const text of [
      written,
      `\ufeff${written}`,
      inLines,
      ...['\r\n', '\r'].map(end => inLines.replaceAll('\n', end)),
    ]) {
      for (let run = 0; run < 200; run++) {
        const reader = new AnswerReader(true, () => {})
        let left = Buffer.from(text)
        while (left.length > 0) {
          const size = 1 + random.below(40)
          reader.push(left.subarray(0, size), 1)
          left = left.subarray(size)
        }
        reader.end(1)
        t.equal(reader.fault, undefined)
        t.strictSame([reader.chunks, reader.counts.promptTokens], [3, 7], `run ${run}`)
      }
    }
  },
)

t.test('what is no whole answer is a fault', async t => {
  for (const [text, why] of [
    [chunk('a'), /ended without \[DONE\]/],
    ['data: [DONE]\n\n', /no token/],
    [`${chunk('a')}data: {"choices": [\n\n`, /not JSON/],
    [
      `${chunk('a')}${event({ error: { message: 'out of memory' } })}`,
      /an error in the answer: .*out of memory/,
    ],
    [event({ choices: [{ delta: {} }] }), /ended without/],
    ['', /ended without/],
  ] as const)
    t.match(readWhole(text).fault, why, text)
  for (const [text, why] of [
    ['{"choices": [', /not JSON/],
    ['', /not JSON/],
    ['{"choices": []}', /no token/],
    ['{"error": {"message": "no"}}', /an error in the answer/],
  ] as const)
    t.match(readWhole(text, false).fault, why, text)
})

t.test('an answer that is no stream has one time, whichever form it has', async t => {
  for (const choice of [{ message: { content: 'a' } }, { text: 'a' }, { message: { tool_calls: [{}] } }]) {
    const reader = readWhole(JSON.stringify({ choices: [choice], usage: { completion_tokens: 4 } }), false)
    t.equal(reader.fault, undefined)
    t.equal(reader.lastMs, 2)
    t.equal(reader.counts.completionTokens, 4)
    t.equal(reader.counts.cachedTokens, undefined)
  }
})

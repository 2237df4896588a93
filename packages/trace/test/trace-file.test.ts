import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { openTrace, readTrace, type TraceRequest, traceText } from '../src/index.ts'

const REQUESTS: readonly TraceRequest[] = [
  { timestampMs: 0, inputTokens: 700, outputTokens: 5, hashIds: [0, 1] },
  { timestampMs: 12, inputTokens: 512, outputTokens: 0, hashIds: [0], sessionId: 'a', model: 'm' },
  { timestampMs: 12, inputTokens: 0, outputTokens: 1, hashIds: [] },
]
const TEXT = traceText(REQUESTS)

async function streamed(path: string, options = {}): Promise<TraceRequest[]> {
  const requests: TraceRequest[] = []
  for await (const request of openTrace(path, options)) requests.push(request)
  return requests
}

t.test('what is written is read, whole and as a stream, compressed and not', async t => {
  const directory = t.testdir()
  writeFileSync(join(directory, 'a.jsonl'), TEXT)
  writeFileSync(join(directory, 'a.jsonl.gz'), gzipSync(TEXT))
  for (const name of ['a.jsonl', 'a.jsonl.gz']) {
    const path = join(directory, name)
    t.strictSame(readTrace(path), REQUESTS)
    t.strictSame(await streamed(path), REQUESTS)
  }
  t.equal(readFileSync(join(directory, 'a.jsonl'), 'utf8'), traceText(readTrace(join(directory, 'a.jsonl'))))
})

t.test('a stream can be read again, from its start', async t => {
  const path = join(t.testdir({ 'a.jsonl': TEXT }), 'a.jsonl')
  const trace = openTrace(path)
  for (let round = 0; round < 2; round++) {
    let count = 0
    for await (const _ of trace) count++
    t.equal(count, 3)
  }
})

t.test('a line that is not of the form is named with its number and what would be right', async t => {
  const bad: readonly [line: string, message: RegExp][] = [
    ['{"timestamp":1', /line 4: it is not JSON/],
    ['7', /line 4: it is not a JSON object/],
    ['{"timestamp":-1}', /line 4: timestamp must be a number ≥ 0/],
    ['{"timestamp":20,"input_length":1e9,"output_length":1,"hash_ids":[]}', /line 4: input_length must be/],
    ['{"timestamp":20,"input_length":5,"hash_ids":[0]}', /line 4: output_length must be/],
    ['{"timestamp":20,"input_length":5,"output_length":1,"hash_ids":[-1]}', /line 4: hash_ids must be/],
    ['{"timestamp":20,"input_length":513,"output_length":1,"hash_ids":[]}', /0 hash_ids for 513 tokens.* 2$/],
    [
      '{"timestamp":20,"input_length":5,"output_length":1,"hash_ids":[0],"session_id":3}',
      /session_id must be a text/,
    ],
    [
      '{"timestamp":20,"input_length":5,"output_length":1,"hash_ids":[0],"tenant":3}',
      /tenant must be a text/,
    ],
    [
      '{"timestamp":11,"input_length":5,"output_length":1,"hash_ids":[0]}',
      /line 4: timestamp 11 is before 12: sort/,
    ],
  ]
  const path = join(t.testdir(), 'bad.jsonl')
  for (const [line, message] of bad) {
    writeFileSync(path, `${TEXT}${line}\n`)
    const expected = { code: 'HOMING_TRACE_MALFORMED', message }
    t.throws(() => readTrace(path), expected, line)
    await t.rejects(streamed(path), expected, line)
  }
  t.equal(readTrace(path, { anyOrder: true }).length, 4)
})

t.test('a partial last block may be without an id, as decision logs have it', async t => {
  const path = join(t.testdir(), 'a.jsonl')
  writeFileSync(path, '{"timestamp":0,"input_length":40,"output_length":1,"hash_ids":[7,9]}\n')
  t.strictSame(readTrace(path, { blockTokens: 16 })[0]!.hashIds, [7, 9])
})

t.test('a file that was cut is an error, or ends where it was cut', async t => {
  const path = join(t.testdir(), 'cut.jsonl')
  writeFileSync(path, TEXT.slice(0, -9))
  const malformed = { code: 'HOMING_TRACE_MALFORMED', message: /line 3: it is not JSON/ }
  t.throws(() => readTrace(path), malformed)
  await t.rejects(streamed(path), malformed)
  t.strictSame(await streamed(path, { cut: 'end' }), REQUESTS.slice(0, 2))
  t.strictSame(readTrace(path, { cut: 'end' }), REQUESTS.slice(0, 2))

  const many = Array.from({ length: 50_000 }, (_, i) => ({ ...REQUESTS[0]!, timestampMs: i }))
  const bytes = gzipSync(traceText(many))
  const cutPath = join(t.testdir(), 'cut.jsonl.gz')
  writeFileSync(cutPath, bytes.subarray(0, bytes.length - 1000))
  const unreadable = { code: 'HOMING_TRACE_UNREADABLE', message: /the compressed file was cut/ }
  t.throws(() => readTrace(cutPath), unreadable)
  await t.rejects(streamed(cutPath), unreadable)
  const upToCut = await streamed(cutPath, { cut: 'end' })
  t.ok(upToCut.length > 40_000 && upToCut.length < 50_000, `${upToCut.length} of 50,000`)
})

t.test('a file that is not there or not what its name says is one clear error', async t => {
  const directory = t.testdir({ 'a.jsonl.gz': 'not compressed' })
  for (const name of ['none.jsonl', 'none.jsonl.gz', 'a.jsonl.gz']) {
    const expected = { code: 'HOMING_TRACE_UNREADABLE', message: /^cannot read trace .*: / }
    t.throws(() => readTrace(join(directory, name)), expected, name)
    await t.rejects(streamed(join(directory, name)), expected, name)
  }
})

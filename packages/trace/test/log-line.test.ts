/** Lines of a decision log, written and read again. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  beginsAsDecisionLog,
  headerLine,
  type LoggedRequest,
  type LogHeader,
  lossLine,
  readLogLine,
  requestLine,
} from '../src/index.ts'

const HEADER: LogHeader = {
  life: 'abc',
  originMs: 1_700_000_000_000,
  timestampMs: 12,
  selection: { mode: 'kv', policy: 'linear', overlapWeight: 1, temperature: 0, followsEvents: true },
  workers: [
    { key: 'a:8001/0', models: ['m'], blockTokens: 16, kvBlocks: 27_501, stepTokensMax: 8192, isUp: true },
    {
      key: 'b:8001/0',
      models: [],
      blockTokens: undefined,
      kvBlocks: undefined,
      stepTokensMax: 8192,
      isUp: false,
    },
  ],
}

const REQUEST: LoggedRequest = {
  timestampMs: 1200,
  inputTokens: 40,
  outputTokens: 7,
  blockTokens: 16,
  hashIds: [0, 1, 2],
  sessionId: '3',
  model: 'm',
  worker: 'a:8001/0',
  policy: 'linear',
  predictedTokens: 32,
  cachedTokens: 16,
  routerMs: 0.25,
  firstTokenMs: 40.125,
  totalMs: 99.5,
  outcome: 'ok',
  error: undefined,
  attempts: 1,
  wasTaken: true,
  knowledge: 'tokens',
}

t.test('a header is read as it was written', async t => {
  t.strictSame(readLogLine(headerLine(HEADER)), { kind: 'header', header: HEADER })
  t.ok(beginsAsDecisionLog(headerLine(HEADER)))
  t.ok(beginsAsDecisionLog(headerLine(HEADER).slice(0, 5)), 'one that was cut')
  t.notOk(beginsAsDecisionLog(requestLine(REQUEST)))
})

t.test('a lost line is said in the log', async t => {
  t.strictSame(readLogLine(lossLine(17)), { kind: 'loss', requests: 17 })
})

t.test('a request line is a line of a trace, with what the router knows beside it', async t => {
  const line = JSON.parse(requestLine(REQUEST)) as Record<string, unknown>
  t.match(line, { timestamp: 1200, input_length: 40, output_length: 7, hash_ids: [0, 1, 2] })
  t.strictSame(Object.keys(line), [
    'timestamp',
    'input_length',
    'output_length',
    'hash_ids',
    'block_size',
    'session_id',
    'model',
    'worker',
    'policy',
    'predicted_tokens',
    'cached_tokens',
    'router_ms',
    'ttft_ms',
    'total_ms',
    'outcome',
  ])
})

t.test('every request is read as it was written, to the microsecond', async t => {
  const optional = <T>(of: fc.Arbitrary<T>) => fc.option(of, { nil: undefined })
  const ms = fc.integer({ min: 0, max: 1e9 }).map(microseconds => microseconds / 1000)
  const requests: fc.Arbitrary<LoggedRequest> = fc
    .record({
      timestampMs: fc.nat(),
      inputTokens: fc.nat({ max: 300 }),
      outputTokens: fc.nat(),
      blockTokens: fc.integer({ min: 1, max: 64 }),
      sessionId: optional(fc.string()),
      model: fc.string(),
      worker: optional(fc.string()),
      policy: fc.string(),
      predictedTokens: fc.nat(),
      cachedTokens: optional(fc.nat()),
      routerMs: ms,
      firstTokenMs: optional(ms),
      totalMs: ms,
      outcome: fc.constantFrom('ok', 'error', 'aborted', 'refused'),
      error: optional(fc.string()),
      attempts: fc.nat({ max: 9 }),
      wasTaken: fc.boolean(),
      knowledge: fc.constantFrom('tokens', 'text', 'none'),
    })
    .chain(fields => {
      const length = Math.ceil(fields.inputTokens / fields.blockTokens)
      return fc
        .array(fc.maxSafeNat(), { minLength: length, maxLength: length })
        .map(hashIds => ({ ...fields, hashIds }))
    })
  const same = fc.property(requests, request => {
    assert.deepEqual(readLogLine(requestLine(request)), { kind: 'request', request })
  })
  t.doesNotThrow(() => fc.assert(same))
})

t.test('a line that cannot be read says which field is at fault', async t => {
  const change = (fields: object, text = requestLine(REQUEST)): string =>
    JSON.stringify({ ...(JSON.parse(text) as object), ...fields })
  const faults: readonly (readonly [string, string])[] = [
    ['{"timestamp":12', 'it is not JSON'],
    ['[]', 'it is not a JSON object'],
    [change({ timestamp: -1 }), 'timestamp is -1; it must be an integer ≥ 0'],
    [change({ model: undefined }), 'model is missing; it must be a text'],
    [change({ hash_ids: [0, 1] }), '2 hash_ids for 40 tokens in blocks of 16'],
    [change({ hash_ids: [0, 1, 'x'] }), 'hash_ids is [0,1,"x"]; it must be a list of integers ≥ 0'],
    [change({ block_size: 0 }), 'block_size is 0; it must be an integer ≥ 1'],
    [change({ outcome: 'lost' }), 'outcome is "lost"; it must be one of ok, error, aborted, refused'],
    [change({ total_ms: null }), 'total_ms is null; it must be a number ≥ 0'],
    [change({ decision_log: 2 }, headerLine(HEADER)), 'decision_log is 2, and this program reads 1'],
    [change({ workers: [{ worker: 7 }] }, headerLine(HEADER)), 'worker is 7; it must be a text'],
    [change({ selection: 1 }, headerLine(HEADER)), 'selection is 1; it must be an object'],
  ]
  for (const [text, fault] of faults) t.equal(readLogLine(text), fault)
})

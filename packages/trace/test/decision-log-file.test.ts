/** Files of a decision log: cut, broken, out of order, of several lives, and of lost requests. */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import {
  headerLine,
  isDecisionLog,
  type LoggedRequest,
  type LoggedWorker,
  lossLine,
  readDecisionLog,
  requestLine,
} from '../src/index.ts'

const WORKER: LoggedWorker = {
  key: 'a/0',
  models: ['m'],
  blockTokens: 16,
  kvBlocks: 100,
  stepTokensMax: 8192,
  isUp: true,
}

const header = (life = 'one', originMs = 1000, workers: readonly LoggedWorker[] = [WORKER]) =>
  headerLine({
    life,
    originMs,
    timestampMs: 0,
    selection: { mode: 'kv', policy: 'linear', overlapWeight: 1, temperature: 0, followsEvents: true },
    workers,
  })

const request = (timestampMs: number, hashIds: readonly number[], extra: Partial<LoggedRequest> = {}) =>
  requestLine({
    timestampMs,
    inputTokens: hashIds.length * 16,
    outputTokens: 1,
    blockTokens: 16,
    hashIds,
    sessionId: undefined,
    model: 'm',
    worker: 'a/0',
    policy: 'linear',
    predictedTokens: 0,
    cachedTokens: 0,
    routerMs: 1,
    firstTokenMs: 2,
    totalMs: 3,
    outcome: 'ok',
    error: undefined,
    attempts: 1,
    wasTaken: true,
    knowledge: 'tokens',
    ...extra,
  })

async function files(t: Test, texts: Readonly<Record<string, string | Uint8Array>>) {
  const folder = await mkdtemp(join(tmpdir(), 'homing-log-'))
  t.teardown(() => rm(folder, { recursive: true }))
  const paths: string[] = []
  for (const [name, text] of Object.entries(texts)) {
    const path = join(folder, name)
    await writeFile(path, text)
    paths.push(path)
  }
  return paths
}

t.test('requests are in order of arrival, whatever the order of their ends', async t => {
  const paths = await files(t, { log: header() + request(50, [0, 1]) + request(10, [0, 2]) })
  const log = await readDecisionLog(paths)
  t.strictSame(
    log.requests.map(({ timestampMs, hashIds }) => [timestampMs, Array.from(hashIds)]),
    [
      [10, [0, 2]],
      [50, [0, 1]],
    ],
  )
  t.match(log, { workers: [WORKER], cuts: [], droppedRequests: 0, fleetChanges: 0 })
})

t.test('numbers mean the same in files of one life, and never in those of another', async t => {
  const paths = await files(t, {
    log: header() + request(50, [0, 7]),
    'log.1': header() + request(10, [0, 3]),
    'log.2': header('two', 0) + request(5, [0, 3]),
  })
  const { requests } = await readDecisionLog(paths)
  const [ofTwo, first, second] = requests.map(({ hashIds }) => Array.from(hashIds))
  t.strictSame(
    requests.map(({ timestampMs }) => timestampMs),
    [5, 1010, 1050],
    'on one clock',
  )
  t.equal(first![0], second![0])
  t.notOk(ofTwo!.some(id => first!.includes(id) || second!.includes(id)))
})

t.test('a file that was cut counts up to the cut, which is said', async t => {
  const whole = header() + request(1, [0]) + request(2, [0])
  const paths = await files(t, { log: whole.slice(0, -20), gzip: '' })
  const [path, gzip] = paths as [string, string]
  const log = await readDecisionLog([path])
  t.equal(log.requests.length, 1)
  t.strictSame(log.cuts, [{ path, line: 3 }])
  await writeFile(`${gzip}.gz`, gzipSync(whole.repeat(3)).subarray(0, -12))
  const zipped = await readDecisionLog([`${gzip}.gz`])
  t.ok(zipped.requests.length > 0 && zipped.requests.length <= 6)
  const noFeed = await files(t, { log: whole.slice(0, -1) })
  t.match(
    await readDecisionLog(noFeed),
    { cuts: [], requests: { length: 2 } },
    'only its line end is missing',
  )
})

t.test('any other line that cannot be read is an error with its number', async t => {
  const broken = await files(t, { log: `${header()}{"timestamp":1\n${request(1, [0])}` })
  await t.rejects(readDecisionLog(broken), {
    code: 'HOMING_TRACE_MALFORMED',
    message: /log: line 2: it is not JSON/,
  })
  const headless = await files(t, { log: request(1, [0]) })
  await t.rejects(readDecisionLog(headless), {
    message: /line 1: there is no header of a decision log before it/,
  })
  await t.rejects(readDecisionLog(['/nowhere']), { code: 'HOMING_TRACE_UNREADABLE' })
})

t.test('what is missing, and changes of the fleet, are counted', async t => {
  const two = [WORKER, { ...WORKER, key: 'b/0' }]
  const text =
    header() + request(1, [0]) + lossLine(3) + header('one', 1000, two) + request(2, [0]) + lossLine(4)
  const log = await readDecisionLog(await files(t, { log: text }))
  t.match(log, { droppedRequests: 7, fleetChanges: 1, workers: two, selections: [{ policy: 'linear' }] })
})

t.test('a decision log is told from a trace by its first line', async t => {
  const [log, trace, empty] = (await files(t, { log: header(), trace: request(1, [0]), empty: '' })) as [
    string,
    string,
    string,
  ]
  t.equal(await isDecisionLog(log), true)
  t.equal(await isDecisionLog(trace), false)
  t.equal(await isDecisionLog(empty), false)
})

t.test('what the latest header says counts, whatever the order of the files', async t => {
  const selection = { mode: 'kv', policy: 'linear', overlapWeight: 1, temperature: 0, followsEvents: true }
  const later = headerLine({
    life: 'two',
    originMs: 9000,
    timestampMs: 0,
    selection: { ...selection, followsEvents: false },
    workers: [{ ...WORKER, stepTokensMax: 2048 }],
  })
  const [newer, older] = await files(t, { log: later, 'log.1': header() })
  for (const paths of [
    [newer!, older!],
    [older!, newer!],
  ]) {
    const log = await readDecisionLog(paths)
    t.equal(log.selections.at(-1)?.followsEvents, false)
    t.equal(log.workers[0]?.stepTokensMax, 2048)
  }
})

t.test('a worker that went down keeps what was known of it', async t => {
  const down = { ...WORKER, models: [], blockTokens: undefined, kvBlocks: undefined, isUp: false }
  const log = await readDecisionLog(await files(t, { log: header() + header('one', 1000, [down]) }))
  t.strictSame(log.workers, [{ ...WORKER, isUp: false }])
})

t.test('an empty line before the first one does not make a trace a decision log', async t => {
  const [trace, log] = await files(t, { trace: '\n{"timestamp":0}\n', log: `\n${header()}` })
  t.equal(await isDecisionLog(trace!), false)
  t.equal(await isDecisionLog(log!), true)
})

t.test('sessions of different lives are different, those of one life are not', async t => {
  const line = (ms: number) => request(ms, [0], { sessionId: '0' })
  const [first, next, other] = await files(t, {
    'log.2': header() + line(10),
    'log.1': header() + line(20),
    log: header('two', 5000) + line(10),
  })
  const { requests } = await readDecisionLog([first!, next!, other!])
  const sessions = requests.map(({ sessionId }) => sessionId)
  t.equal(sessions[0], sessions[1])
  t.not(sessions[0], sessions[2])
})

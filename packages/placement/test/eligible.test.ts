/** Which workers may take a request: failures, trials, short contexts, names that none lists. */

import type { Fleet, WorkerRecord } from '@homing/fleet'
import t from 'tap'
import { eligibleByAffinity, type RoutingRequest, type UnlistedModels, WorkerHealth } from '../src/index.ts'

const FAILED = { kind: 'failed', reason: 'answered 500' } as const

function worker(id: string, maxModelTokens?: number): WorkerRecord {
  return {
    id,
    instanceId: 0,
    joinedMs: 1,
    state: 'up',
    stateReason: 'answers',
    models: [{ name: 'm', maxModelTokens }],
    taints: [],
    keys: [{ key: `${id}/0`, dpRank: 0, workerSlot: 0 }],
  } as unknown as WorkerRecord
}

function find(
  workers: readonly WorkerRecord[],
  {
    health = new WorkerHealth(),
    nowMs = 0,
    mayTry = true,
    unlisted,
    ...more
  }: Partial<RoutingRequest> & {
    readonly unlisted?: UnlistedModels
    readonly health?: WorkerHealth
    readonly nowMs?: number
    readonly mayTry?: boolean
  } = {},
) {
  const request = { model: 'm', promptTokens: 100, excludedWorkers: [], override: {}, ...more }
  const fleet: Fleet = { version: 1, workers }
  const found = eligibleByAffinity({
    fleet,
    request: request as unknown as RoutingRequest,
    questions: 0,
    affinity: undefined,
    health,
    mayTry,
    unlisted,
    nowMs,
  })
  return 'code' in found
    ? { code: found.code, error: found.message, may: [], not: {} }
    : {
        may: found.candidates.map(({ worker }) => worker.id),
        not: Object.fromEntries(found.excluded.map(({ worker: key, reason }) => [key, reason])),
      }
}

function ejected(...ids: readonly string[]): WorkerHealth {
  const health = new WorkerHealth()
  for (const id of ids) for (let i = 0; i < 3; i++) health.failed(id, 1, 'm', FAILED, 0, 0)
  return health
}

t.test('an ejected worker gets nothing, then one trial, which goes nowhere else', async t => {
  const workers = [worker('a'), worker('b'), worker('c')]
  const health = ejected('a')
  t.strictSame(find(workers, { health }), { may: ['b', 'c'], not: { 'a/0': 'ejected: answered 500' } })
  const due = { health, nowMs: 1000 }
  const others = { 'b/0': 'the request is the trial of a', 'c/0': 'the request is the trial of a' }
  t.strictSame(find(workers, due), { may: ['a'], not: others })
  t.strictSame(find(workers, { ...due, mayTry: false }).may, ['b', 'c'], 'not to explain a decision')
  t.strictSame(find(workers, { ...due, excludedWorkers: ['b'] }).may, ['c'], 'not what failed once already')
  health.decided('a', 'm', 'trial', 1000)
  t.strictSame(find(workers, due).may, ['b', 'c'], 'not before the trial is over')
})

t.test('when all are ejected, those that failed least are tried', async t => {
  const health = ejected('a', 'b')
  for (let i = 0; i < 3; i++) health.served('b', 'm', -1, 0)
  t.strictSame(find([worker('a'), worker('b')], { health }), {
    may: ['b'],
    not: { 'a/0': 'ejected: answered 500' },
  })
  t.strictSame(find([worker('a')], { health, pinnedInstanceId: 0 }).may, ['a'])
})

const TOO_LONG = 'prompt and answer may have more tokens than it takes (max_model_len)'

t.test('a prompt goes to a worker whose context has room for it, if there is one', async t => {
  const workers = [worker('small', 100), worker('large', 101), worker('unsaid')]
  t.strictSame(find(workers), { may: ['large', 'unsaid'], not: { 'small/0': TOO_LONG } })
  t.strictSame(find(workers, { promptTokens: 99 }).may.length, 3)
  t.strictSame(find([workers[0]!], { promptTokens: 5000 }).may, ['small'], 'its engine says why not')
})

t.test('room for the answer that the client allows counts, too', async t => {
  const workers = [worker('small', 2000), worker('large', 32_000)]
  t.strictSame(find(workers, { promptTokens: 1000, outputTokensMax: 1000 }).may, ['small', 'large'])
  t.strictSame(find(workers, { promptTokens: 1000, outputTokensMax: 1001 }).may, ['large'])
  t.strictSame(find(workers, { promptTokens: 1999, outputTokensMax: 0 }).may, ['small', 'large'])
  t.strictSame(
    find(workers, { promptTokens: 1000, outputTokensMax: 32_000 }).may,
    ['large'],
    'of those that are all too small, the one that takes most',
  )
})

t.test('a text counts as more tokens than it probably has, one that is not known as none', async t => {
  const workers = [worker('small', 2000), worker('large', 32_000)]
  const text = { textBlocksReason: 'no tokenizer' }
  t.strictSame(find(workers, { ...text, promptTokens: 5006 }).may, ['large'])
  t.strictSame(find(workers, { ...text, promptTokens: 1000 }).may, ['large'], 'two bytes a token')
  t.strictSame(find(workers, { ...text, promptTokens: 999 }).may, ['small', 'large'])
  const unknown = { unknownPromptReason: 'no text', promptTokens: 0, outputTokensMax: 5000 }
  t.strictSame(find(workers, unknown).may, ['small', 'large'])
})

t.test('of several prompts each needs room for itself', async t => {
  const workers = [worker('small', 2000), worker('large', 32_000)]
  const many = { promptTokens: 9000, estimate: { tokensMax: 50_000 }, blockSizeTokens: 16 }
  const may = (blocks: number) => find(workers, { ...many, localHashes: new Int32Array(2 * blocks) }).may
  t.strictSame(may(100), ['small', 'large'])
  t.strictSame(may(126), ['large'])
})

t.test('a model that no worker lists may be one that is still loading, for a while', async t => {
  const loading = {
    ...worker('b'),
    state: 'down',
    stateReason: 'refused',
    models: [],
    unansweredSinceMs: 1000,
  }
  const up = worker('a')
  const ask = (workers: readonly WorkerRecord[], wallMs = 2000, loadingMsMax = 5000) =>
    find(workers, { model: 'new', unlisted: { adapterBase: undefined, loadingMsMax, wallMs } })
  const fleet = [up, loading as unknown as WorkerRecord]
  t.match(ask(fleet), {
    code: 'HOMING_ROUTER_MODEL_NOT_LISTED_YET',
    error: /"new" now: no worker that answers has it, and these do not answer yet: b \(refused\)/,
  })
  t.match(ask(fleet, 6000), { code: 'HOMING_ROUTER_MODEL_NOT_FOUND', error: /known models: m/ })
  t.match(ask(fleet, 2000, 0), { code: 'HOMING_ROUTER_MODEL_NOT_FOUND' })
  t.match(ask([up]), { code: 'HOMING_ROUTER_MODEL_NOT_FOUND' }, 'all have answered')
  const draining = { ...loading, isDraining: true } as unknown as WorkerRecord
  t.match(ask([up, draining]), { code: 'HOMING_ROUTER_MODEL_NOT_FOUND' }, 'it brings nothing any more')
  t.match(find(fleet, { model: 'new' }), { code: 'HOMING_ROUTER_MODEL_NOT_FOUND' })
  t.strictSame(find(fleet, { unlisted: { adapterBase: undefined, loadingMsMax: 5000, wallMs: 0 } }).may, [
    'a',
  ])
})

t.test('a model that no worker lists may be an adapter of a base model', async t => {
  const other = { ...worker('b'), models: [{ name: 'other' }] } as unknown as WorkerRecord
  const adapter = { ...worker('c'), models: [{ name: 'm' }, { name: 'listed', base: 'm' }] }
  const workers = [worker('a', 100), other, adapter as unknown as WorkerRecord]
  const unlisted = { adapterBase: 'm', loadingMsMax: 0, wallMs: 0 }
  t.strictSame(find(workers, { model: 'new', promptTokens: 1, unlisted }).may, ['a', 'c'])
  t.strictSame(find(workers, { model: 'new', unlisted }).may, ['c'], 'by the length of its base')
  t.strictSame(find(workers, { model: 'listed', unlisted }).may, ['c'])
  t.strictSame(find(workers, { model: 'other', unlisted }).may, ['b'])
  const health = new WorkerHealth()
  health.failed('a', 1, 'new', { kind: 'lacksModel', reason: '404' }, 0, 0)
  t.strictSame(find(workers, { model: 'new', promptTokens: 1, unlisted, health }).may, ['c'])
})

t.test('a part of a request goes to workers of its role', async t => {
  const given = <T>(value: T) => ({ value, source: 'given' }) as const
  const [prefill, decode, both] = [worker('p'), worker('d'), worker('b')]
  const workers = [
    { ...prefill, role: given('prefill' as const), taints: ['topology/zone=a'] },
    { ...decode, role: given('decode' as const), taints: ['topology/zone=a'] },
    both,
  ]
  t.match(find(workers), { may: ['d', 'b'], not: { 'p/0': 'computes prompts only (role=prefill)' } })
  t.match(find(workers, { leg: { kind: 'prefill' } }), {
    may: ['p'],
    not: { 'd/0': 'is no prefill worker (role=decode)', 'b/0': 'is no prefill worker (role=both)' },
  })
  const leg = {
    kind: 'decode',
    handover: 'kv_transfer',
    prefillId: 'x',
    topology: ['topology/zone=a'],
  } as const
  t.match(find(workers, { leg }), { may: ['d'], not: { 'b/0': /lacks topology\/zone=a/ } })
  t.match(find(workers, { leg: { ...leg, topology: [] } }), { may: ['d', 'b'] })
  t.match(find([workers[0]!, both], { leg: { kind: 'prefill' } }), {
    code: 'HOMING_ROUTER_NO_WORKER',
    error: /no decode worker that is up takes over from it by kv_transfer in topology\/zone=a/,
  })

  const bootstrap = { handover: given('bootstrap' as const) }
  const sglang = [
    { ...workers[0]!, ...bootstrap },
    { ...workers[1]!, ...bootstrap },
    { ...both, ...bootstrap },
  ]
  t.match(find(sglang), {
    may: ['b'],
    not: { 'd/0': 'takes no prompt that no prefill worker has computed (role=decode)' },
  })
  t.match(find(sglang, { leg: { ...leg, handover: 'bootstrap' } }), { may: ['d'] })
})

/** Which workers may take a request: failures, trials, and contexts that are too short. */

import type { Fleet, WorkerRecord } from '@homing/fleet'
import t from 'tap'
import { eligibleByAffinity, type RoutingRequest, WorkerHealth } from '../src/index.ts'

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
    ...more
  }: Partial<RoutingRequest> & {
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
    nowMs,
  })
  return 'code' in found
    ? { error: found.message, may: [], not: {} }
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

t.test('a prompt goes to a worker whose context has room for it, if there is one', async t => {
  const workers = [worker('small', 100), worker('large', 101), worker('unsaid')]
  t.strictSame(find(workers), {
    may: ['large', 'unsaid'],
    not: { 'small/0': 'the prompt has more tokens than it takes (max_model_len)' },
  })
  t.strictSame(find(workers, { promptTokens: 99 }).may.length, 3)
  t.strictSame(find([workers[0]!], { promptTokens: 5000 }).may, ['small'], 'its engine says why not')
  t.strictSame(find(workers, { textBlocksReason: 'no tokenizer' }).may.length, 3, 'the length is a guess')
})

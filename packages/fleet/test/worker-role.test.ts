import t from 'tap'
import {
  canHandOver,
  type Fleet,
  factsOf,
  parseWorkerSpec,
  prefillStates,
  type ReachedOutcome,
  type Sourced,
  takesWhole,
  type WorkerRecord,
  type WorkerRole,
} from '../src/index.ts'

const OUTCOME = { reached: true, engine: 'vllm', models: [] } as unknown as ReachedOutcome

function worker(role: WorkerRole, change: Partial<WorkerRecord> = {}): WorkerRecord {
  const sourced: Sourced<WorkerRole> = { value: role, source: 'given' }
  return { state: 'up', models: [{ name: 'm' }], taints: [], role: sourced, ...change } as WorkerRecord
}
const bootstrap = { value: 'bootstrap', source: 'probed' } as const
const fleetOf = (...workers: readonly WorkerRecord[]): Fleet => ({ version: 1, workers })
const stateOf = (...workers: readonly WorkerRecord[]) => prefillStates(fleetOf(...workers)).get('m')

t.test('what is given counts before what the engine says, and that before what is assumed', async t => {
  const facts = (url: string, outcome: Partial<ReachedOutcome> = {}) =>
    factsOf(parseWorkerSpec(url, 0), { ...OUTCOME, ...outcome }, undefined, { blockSizeTokens: undefined })
  t.match(facts('http://h:1'), {
    role: { value: 'both', source: 'default' },
    handover: { value: 'kv_transfer', source: 'probed' },
    bootstrap: undefined,
  })
  t.match(facts('http://h:1?role=prefill'), {
    role: { value: 'prefill', source: 'given' },
    bootstrap: undefined,
  })
  const legs = { role: 'prefill', bootstrapPort: 9000 } as const
  t.match(facts('http://h:1', { engine: 'sglang', legs }), {
    role: { value: 'prefill', source: 'probed' },
    handover: { value: 'bootstrap', source: 'probed' },
    bootstrap: { host: 'h', port: { value: 9000, source: 'probed' } },
  })
  const given = 'http://h:1?role=prefill&handover=bootstrap&bootstrap_host=b&bootstrap_port=7'
  t.match(facts(given), { bootstrap: { host: 'b', port: { value: 7, source: 'given' } } })
  t.match(facts('http://h:1?role=prefill&handover=bootstrap'), { bootstrap: { port: { value: 8998 } } })
})

t.test('a wrong role is one clear error', async t => {
  for (const [url, message] of [
    ['http://h:1?role=prefil', /role is none of prefill, decode, both/],
    ['http://h:1?handover=nixl', /handover is none of kv_transfer, bootstrap/],
    ['http://h:1?bootstrap_port=0', /bootstrap_port=0 is not a whole number from 1 to 65535/],
    ['http://h:1?bootstrap_host=a:1', /bootstrap_host is no host/],
  ] as const)
    t.throws(() => parseWorkerSpec(url, 0), { message })
})

t.test('prefill comes to life with both kinds, and ends with the last of one', async t => {
  t.equal(stateOf(worker('both'), worker('both')), undefined)
  t.equal(stateOf(worker('prefill')), 'pending')
  t.equal(stateOf(worker('decode')), 'pending')
  t.equal(stateOf(worker('decode'), worker('both')), 'pending')
  t.equal(stateOf(worker('prefill'), worker('decode')), 'active')
  t.equal(stateOf(worker('both'), worker('prefill')), 'active')
  t.equal(stateOf(worker('prefill', { state: 'down' }), worker('decode')), 'unavailable')
  t.equal(stateOf(worker('prefill'), worker('decode', { state: 'draining' })), 'unavailable')
  t.equal(stateOf(worker('prefill', { models: [] }), worker('decode')), 'pending', 'of another model')
  t.equal(stateOf(worker('prefill'), worker('decode', { handover: bootstrap })), 'unavailable')
})

t.test('blocks are handed over in one way, and within a domain', async t => {
  const taints = ['gpu', 'topology/zone=a']
  const from = worker('prefill', { taints })
  t.ok(canHandOver(from, worker('decode', { taints: ['topology/zone=a'] })))
  t.notOk(canHandOver(from, worker('decode', { taints: ['topology/zone=b'] })))
  t.notOk(canHandOver(from, worker('decode')))
  t.notOk(canHandOver(worker('prefill'), worker('prefill')))
  // An engine of SGLang without a role would compute the prompt, and leave the other waiting.
  const sglang = worker('prefill', { handover: bootstrap })
  t.ok(canHandOver(sglang, worker('decode', { handover: bootstrap })))
  t.notOk(canHandOver(sglang, worker('both', { handover: bootstrap })))
  t.notOk(takesWhole(worker('decode', { handover: bootstrap })))
  t.ok(takesWhole(worker('decode')))
})

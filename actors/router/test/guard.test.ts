/**
 * The guard in the router: which decisions are experiments, what receipts say of them, and what first tokens
 * change.
 */

import { createTestSystem } from '@homing/actor/testing'
import { recordingLog } from '@homing/base'
import type { Delivery, RoutingGuardState, RoutingRequest } from '@homing/placement'
import { CustomPolicy, selectionSettings } from '@homing/selection'
import t, { type Test } from 'tap'
import type { RouterArgs, RouterKeeperMessage } from '../src/index.ts'
import { ASK, BLOCK, DELIVERED, fleetOf, LEFT, request, start } from './router-world.ts'

const FLEET = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
const AUTO = selectionSettings({ policy: 'auto' })
/** So long that its cached blocks are worth more than anything else. */
const LONG = 'ABCDEFGH'.repeat(100)
const STREAM = { ...DELIVERED, streamEvents: 4, timeToFirstByteMs: 12 }

const errorOf = (code: string) => ({ code, message: 'as the test has it', details: {} })

/** Everything is held by a, which has a request more than b: affinity and control differ. */
async function world(
  t: Test,
  share: number,
  extra: Partial<RouterArgs> = {},
  fleet = FLEET,
  system = createTestSystem(),
) {
  const settings = { selection: AUTO, guard: { share }, decisionsKept: 1000, ...extra }
  const router = await start(t, fleet, settings, system)
  router.hold(0, LONG)
  await router.decide(request('', { pinnedInstanceId: 0 }))
  const place = async (given: Partial<RoutingRequest> = {}, delivery: Delivery = STREAM) => {
    const { id, worker } = await router.decide(request(LONG, { isStream: true, ...given }))
    const { guard, candidates } = (await router.ref.ask({ type: 'receipt', id }, ASK))!
    router.ref.tell({ type: 'firstToken', id, firstTokenMs: 2000 })
    router.ref.tell({ type: 'settled', id, delivery, wasTaken: true })
    return { worker, guard, candidates }
  }
  const status = () => router.ref.ask({ type: 'guard' }, ASK)
  return { ...router, place, status }
}

t.test('half of the experiments go by least-loaded, and their receipts say so', async t => {
  const { place, status } = await world(t, 0.5)
  let controls = 0
  for (let i = 0; i < 100; i++) {
    const { worker, guard, candidates } = await place()
    if (guard?.arm === undefined) {
      t.equal(guard?.extraTokens, 0)
      continue
    }
    t.ok(guard.extraTokens > 100 && guard.extraTokens <= LONG.length * BLOCK + 1, `${guard.extraTokens}`)
    if (guard.arm === 'control') controls++
    t.equal(worker, guard.arm === 'control' ? 'b/0' : 'a/0')
    const [held, other] = candidates.map(({ cost }) => cost)
    const regret = guard.arm === 'control' ? other! - held! : 0
    t.ok(Math.abs(guard.regretMs.product - regret) < 1e-9, 'product goes where the prompt is')
    t.ok(guard.predictedFirstTokenMs > 0)
    const sum = candidates.reduce((all, { probability }) => all + probability, 0)
    t.ok(Math.abs(sum - 1) < 1e-9)
    t.ok(candidates.every(({ probability }) => probability > 0))
  }
  const { affinity, control, decisions, calibration } = (await status())!
  t.equal(decisions, 101)
  t.ok(controls > 10, `${controls} controls`)
  t.equal(control.decisions, controls)
  t.ok(affinity.outcomes > 10 && control.outcomes > 10)
  t.ok(calibration > 0)
})

t.test('what is not free to go elsewhere is no experiment', async t => {
  const { place, status } = await world(t, 0.5)
  const bound: Partial<RoutingRequest>[] = [
    { pinnedInstanceId: 0 },
    { pinnedRank: 0 },
    { excludedWorkers: ['c'] },
    { override: { overlapWeight: 2 } },
    { override: { overlapCredit: 0.5 } },
    { override: { temperature: 0.1 } },
  ]
  for (const given of bound) {
    for (let i = 0; i < 8; i++) t.equal((await place(given)).guard?.arm, undefined, JSON.stringify(given))
  }
  const unknown = await place({ unknownPromptReason: 'an image', localHashes: new Int32Array(0) })
  t.equal(unknown.guard, undefined, 'load decides')
  t.match(await status(), { affinity: { decisions: 0 }, control: { decisions: 0 } })
})

t.test('one worker is no choice, and another policy no matter of the guard', async t => {
  const alone = await world(t, 0.5, {}, fleetOf({ id: 'a', slots: [0] }))
  for (let i = 0; i < 8; i++) t.equal((await alone.place()).guard?.arm, undefined)
  const named = new CustomPolicy({ name: 'auto', unit: 'blocks', score: ({ newTokens }) => newTokens })
  for (const selection of [selectionSettings({ policy: 'linear' }), selectionSettings({ custom: named })]) {
    const other = await world(t, 0.5, { selection })
    t.equal((await other.place()).guard, undefined)
    t.equal(await other.status(), undefined)
  }
})

t.test('a question is no experiment and counts nothing', async t => {
  const { ref, status } = await world(t, 0.5)
  const before = await status()
  for (let i = 0; i < 16; i++) {
    const receipt = await ref.ask({ type: 'explain', request: request(LONG) }, ASK)
    t.match(receipt, { worker: 'a/0', guard: { phase: 'trusting' } })
    t.ok('guard' in receipt && receipt.guard?.arm === undefined)
  }
  t.strictSame(await status(), before)
})

t.test('what was left, or failed by the client or by us, teaches nothing; a whole answer does', async t => {
  const { decide, ref, status } = await world(t, 0.5)
  const ended = [
    DELIVERED,
    LEFT,
    { ...STREAM, outcome: 'error' as const, status: 400 },
    { ...STREAM, outcome: 'error' as const, error: errorOf('HOMING_GATEWAY_RESTARTED') },
  ]
  for (let i = 0; i < 80; i++) {
    const { id } = await decide(request(LONG))
    ref.tell({ type: 'settled', id, delivery: ended[i % 4]!, wasTaken: true })
  }
  const { affinity, control, unseen } = (await status())!
  t.ok(affinity.decisions > 0 && control.decisions > 0)
  t.strictSame([affinity.outcomes, control.outcomes, unseen], [0, 0, 20])
  t.strictSame([affinity.failed, control.failed], [0, 0])
  t.ok(affinity.finished > 0 && affinity.finished + control.finished <= 20)
})

t.test('every fault of a worker counts as failed, also after the first token', async t => {
  const faults: Partial<Delivery>[] = [
    { status: 500 },
    { status: 429 },
    { status: 200 },
    { status: 200, error: errorOf('HOMING_DISPATCH_UPSTREAM_FAILED') },
    { status: undefined, error: errorOf('HOMING_DISPATCH_NO_ANSWER') },
  ]
  for (const fault of faults) {
    const { place, status } = await world(t, 0.5)
    for (let i = 0; i < 8; i++) await place({}, { ...STREAM, ...fault, outcome: 'error' })
    const { affinity, control, workers } = (await status())!
    t.equal(affinity.failed + control.failed, affinity.decisions + control.decisions, JSON.stringify(fault))
    t.ok(affinity.failed + control.failed > 0)
    const failed = workers.find(({ worker }) => worker === 'a/0')!.policy
    t.match(failed, { errorShare: 1 }, 'the worker is named')
  }
})

t.test('what the guard knows outlives a crash of the router, and not the worker keys that left', async t => {
  const system = createTestSystem()
  const keeper = system.probe<RouterKeeperMessage>('keeper')
  let kept: RoutingGuardState | undefined
  /** The keeper's part, until the router has asked for what was kept. */
  const answer = async (): Promise<void> => {
    const message = await keeper.next()
    if (message.type === 'keptGuard') return message.reply(kept)
    kept = message.guard
    return answer()
  }
  const started = world(t, 0.5, { keeper: keeper.ref }, FLEET, system)
  await answer()
  const { decide, ref, status } = await started
  for (let i = 0; i < 400 && (await status())!.phase !== 'shrunk'; i++) {
    const { id, worker } = await decide(request(LONG, { isStream: true }))
    const fails = worker === 'a/0' && i > 100
    const delivery = { ...STREAM, ...(fails && { outcome: 'error' as const, status: 500 }) }
    ref.tell({ type: 'settled', id, delivery, wasTaken: true })
  }
  const before = (await status())!
  t.match(before, { phase: 'shrunk', shrinks: 1 })
  await system.advance('5s')
  ref.tell({ type: 'fleet', fleet: undefined as never })
  await system.advance('1s')
  await answer()
  const after = (await status())!
  t.equal(kept!.guard.standing.phase, 'shrunk', 'it was told')
  t.strictSame(
    { ...after, decisions: 0, meanRegretMs: 0, calibration: 0 },
    { ...before, decisions: 0, meanRegretMs: 0, calibration: 0 },
  )
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'b', slots: [1] }, { id: 'c', slots: [0] }) })
  t.strictSame(
    (await status())!.workers.map(({ worker }) => worker),
    ['b/0'],
    'c has the slot of a, and not its outcomes',
  )
})

t.test('a first token of nothing that is open changes nothing', async t => {
  const { ref, status } = await world(t, 0.5)
  const before = await status()
  ref.tell({ type: 'firstToken', id: 'unheard of', firstTokenMs: 5 })
  t.strictSame(await status(), before)
})

t.test('without a share nothing is tried, and the start says what is lost', async t => {
  const log = recordingLog()
  const { place } = await world(t, 0, {}, FLEET, createTestSystem({ log }))
  for (let i = 0; i < 20; i++) {
    const { worker, guard } = await place()
    t.strictSame([worker, guard?.arm], ['a/0', undefined])
  }
  t.match(
    log.lines.filter(({ level }) => level === 'warn').map(({ text }) => text),
    [/guard is off .*if following the caches does harm, nobody notices/],
  )
})

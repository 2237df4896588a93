/**
 * The guard in the router: which decisions are experiments, what receipts say of them, and what first tokens
 * change.
 */

import { createTestSystem } from '@homing/actor/testing'
import { recordingLog } from '@homing/base'
import type { RoutingRequest } from '@homing/placement'
import { CustomPolicy, selectionSettings } from '@homing/selection'
import t, { type Test } from 'tap'
import type { RouterArgs } from '../src/index.ts'
import { ASK, DELIVERED, fleetOf, LEFT, request, start } from './router-world.ts'

const FLEET = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
const AUTO = selectionSettings({ policy: 'auto' })
/** So long that its cached blocks are worth more than anything else. */
const LONG = 'ABCDEFGH'.repeat(100)
const STREAM = { ...DELIVERED, streamEvents: 4, timeToFirstByteMs: 12 }

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
  const place = async (given: Partial<RoutingRequest> = {}, delivery = STREAM) => {
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
    if (guard?.arm === undefined) continue
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

t.test('what failed, was left, or does not stream teaches nothing', async t => {
  const { decide, ref, status } = await world(t, 0.5)
  const ended = [DELIVERED, { ...STREAM, outcome: 'error' as const }, LEFT]
  for (let i = 0; i < 60; i++) {
    const { id } = await decide(request(LONG))
    ref.tell({ type: 'settled', id, delivery: ended[i % 3]!, wasTaken: true })
  }
  const { affinity, control, unseen } = (await status())!
  t.ok(affinity.decisions > 0 && control.decisions > 0)
  t.strictSame([affinity.outcomes, control.outcomes, unseen], [0, 0, 20])
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

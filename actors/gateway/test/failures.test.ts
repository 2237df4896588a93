/** What the gateway remembers of failures: stalled workers, deadly prompts, the budget of retries. */

import type { WorkerState } from '@homing/fleet'
import { RetryBudget } from '@homing/placement'
import t from 'tap'
import { BadAnswers } from '../src/bad-answers.ts'
import { DeadlyPrompts } from '../src/deadly-prompts.ts'
import { TriedWorkers } from '../src/tried-workers.ts'
import { WorkerProgress } from '../src/worker-progress.ts'
import { fleetOf, WORKER } from './sample-records.ts'

t.test('a call is stalled only if its worker sends nothing while others do, for long enough', async t => {
  const progress = new WorkerProgress(10_000)
  const call = { workerId: 'a', isStream: true, promptTokens: 100, calledMs: 0 }
  progress.sent('b', 9000)
  t.notOk(progress.isStalled(call, 20_000), 'nothing is known of first bytes yet')
  for (let i = 0; i < 16; i++) progress.answered(call, 300)
  t.notOk(progress.isStalled(call, 9999), 'ten seconds at least')
  t.ok(progress.isStalled(call, 10_000))
  t.notOk(
    progress.isStalled({ ...call, isStream: false }, 20_000),
    'whole answers are judged by whole answers',
  )
  t.notOk(progress.isStalled({ ...call, promptTokens: 100_000 }, 90_000), 'a long prompt takes long')
  t.ok(progress.isStalled({ ...call, promptTokens: 100_000 }, 100_000))
  t.notOk(progress.isStalled({ ...call, calledMs: 9500 }, 30_000), 'nobody else has sent anything since')
  progress.answered(call, 3000)
  t.notOk(progress.isStalled(call, 20_000), 'ten times the slowest')
  t.ok(progress.isStalled(call, 30_000))
  progress.sent('a', 1)
  t.notOk(progress.isStalled(call, 30_000), 'it sends something')
  t.strictSame(progress.alive(9000), ['b'])
  t.notOk(new WorkerProgress(0).isStalled(call, 1e9), 'switched off')
})

t.test('a call is lost only if probes call its worker down, and other workers are well', async t => {
  const fleet = (states: Readonly<Record<string, WorkerState>>) =>
    fleetOf(...Object.entries(states).map(([id, state]) => ({ ...WORKER, id, state })))
  const progress = new WorkerProgress(10_000)
  progress.takeFleet(fleet({ a: 'up', b: 'up' }), 0)
  progress.sent('b', 99_500)
  t.notOk(progress.isLost('a', 0, 100_000), 'it answers its probes, and is slow')
  progress.takeFleet(fleet({ a: 'down', b: 'up' }), 100_000)
  t.notOk(progress.isLost('a', 90_001, 100_000), 'ten seconds at least')
  t.ok(progress.isLost('a', 90_000, 100_000))
  progress.sent('a', 91_000)
  t.notOk(progress.isLost('a', 90_000, 100_500), 'it has sent something since, to another request')
  t.ok(progress.isLost('a', 91_000, 101_000))
  t.ok(progress.isLost('a', 90_999, 101_000), 'its last bytes came to another stream')
  t.notOk(
    progress.isLost('a', 91_000, 101_500),
    'no worker sends: this router may be the one that is cut off',
  )
  t.notOk(progress.isLost('a', 91_000, 109_999))
  t.ok(progress.isLost('a', 91_000, 110_000), 'for so long the other one stays up: it only has no requests')
  progress.takeFleet(fleet({ a: 'down', b: 'down' }), 110_001)
  t.notOk(progress.isLost('a', 91_000, 200_000), 'all are down')
  progress.takeFleet(fleet({ b: 'up' }), 200_001)
  t.notOk(progress.isLost('a', 91_000, 210_000), 'the other one is back, and this one may follow')
  t.ok(progress.isLost('a', 91_000, 210_001), 'it has left, and was down before')
  progress.takeFleet(fleet({ a: 'up', b: 'up' }), 210_002)
  t.notOk(progress.isLost('a', 91_000, 300_000), 'it is back')
  progress.takeFleet(fleet({ b: 'up' }), 300_000)
  t.notOk(
    progress.isLost('a', 300_000, 359_999, true),
    'no probe goes to one that has left: it may be slow for a minute',
  )
  t.ok(progress.isLost('a', 300_000, 360_000, true))
  t.notOk(progress.isLost('a', 300_000, 900_000), 'an answer that is no stream is silent until its end')
  progress.takeFleet(fleet({ a: 'up', b: 'up' }), 1_000_000)
  const ending = fleet({ a: 'down', b: 'up' })
  const [a, b] = ending.workers
  progress.takeFleet({ workers: [{ ...a!, isDownByAnswer: true }, b!] }, 1_000_000)
  t.notOk(progress.isLost('a', 0, 1_900_000), 'it says that it ends, and may end what it has')
  progress.takeFleet(ending, 2_000_000)
  t.ok(progress.isLost('a', 0, 2_010_000), 'it says nothing any more')
  const off = new WorkerProgress(0)
  off.takeFleet(fleet({ a: 'down', b: 'up' }), 0)
  t.notOk(off.isLost('a', 0, 1e9), 'switched off')
})

t.test('a body with which two workers broke is deadly for two minutes, unless it was served', async t => {
  const prompts = new DeadlyPrompts()
  const body = new TextEncoder().encode('{"prompt":"x"}')
  t.equal(prompts.brokenBy(body, 0), undefined)
  prompts.broke(body, 'a', 0)
  prompts.broke(body, 'a', 1)
  t.equal(prompts.brokenBy(body, 2), undefined, 'one worker is no proof')
  prompts.broke(body, 'b', 2)
  t.strictSame(prompts.brokenBy(body, 3), ['a', 'b'])
  t.equal(prompts.brokenBy(new TextEncoder().encode('{"prompt":"y"}'), 3), undefined)
  t.equal(prompts.brokenBy(body, 120_002), undefined)
  prompts.broke(body, 'a', 120_003)
  prompts.served(body)
  prompts.broke(body, 'b', 120_004)
  t.equal(prompts.brokenBy(body, 120_005), undefined)
  for (let i = 0; i < 3000; i++) prompts.broke(new TextEncoder().encode(`${i}`), 'a', 120_006)
  prompts.broke(body, 'a', 120_007)
  t.equal(prompts.brokenBy(body, 120_008), undefined, 'the oldest are forgotten')
})

t.test('the retry budget holds neither the rest of a stream nor what a worker loses', async t => {
  const tried = () =>
    new TriedWorkers({ limits: { retriesMax: 2 }, retryBudget: { isEmpty: true } }, () => t.fail())
  const request = tried()
  t.notOk(request.mayTryOther(false), 'a worker that answers 503')
  t.ok(request.isUntaken && request.mayTryOther(true, false), 'the first one that breaks')
  request.taken()
  t.notOk(request.isUntaken || request.mayTryOther(true, false), 'no third worker')
  const rest = tried()
  rest.leftCut('a')
  t.ok(rest.mayTryOther(false), 'a worker that answers 503 to the rest')
  for (const worker of ['b', 'c']) rest.left(worker)
  t.notOk(rest.mayTryOther(false), 'within the retries')
})

t.test(
  'only what a worker has when it begins to answer badly is lost, until it was well for a minute',
  async t => {
    const answers = new BadAnswers()
    const SECOND = 1000
    // An overloaded engine answers 504 to each request after a minute.
    const lost = Array.from({ length: 300 }, (_, second) =>
      answers.note('a', second * SECOND, (second + 60) * SECOND),
    )
    t.equal(lost.filter(isLoss => isLoss).length, 61, 'what it had at the first of them')
    t.notOk(lost.slice(61).includes(true))
    const lastMs = 359 * SECOND
    t.notOk(answers.note('a', lastMs + 1, lastMs + 59 * SECOND))
    t.ok(answers.note('b', lastMs, lastMs + SECOND), 'another worker')
    t.ok(answers.note('a', lastMs + 118 * SECOND, lastMs + 119 * SECOND), 'a minute without a bad answer')
  },
)

t.test('after few bad answers, a burst of them is what a worker has when its core dies', async t => {
  const SECOND = 1000
  for (const gap of [50 * SECOND, 10 * SECOND, 2 * SECOND]) {
    const answers = new BadAnswers()
    const trickle = Array.from({ length: 100 }, (_, i) => answers.note('a', i * gap, i * gap + 100))
    t.strictSame(trickle, [true, ...Array.from({ length: 99 }, () => false)], 'malformed requests')
    const diesMs = 100 * gap + 100
    const calls = Array.from({ length: 200 }, (_, i) => diesMs - 1 - i * 100)
    const lost = calls.map((calledMs, i) => answers.note('a', calledMs, diesMs + i))
    t.strictSame(lost, [false, ...Array.from({ length: 199 }, () => true)], 'what was under way')
    t.notOk(answers.note('a', diesMs + 300, diesMs + 400), 'what it gets later')
  }
})

t.test('of slow bad answers with calms between them, few are lost after the first minute', async t => {
  const SECOND = 1000
  for (const [groupSize, lostMax] of [
    [1, 0],
    [2, 4 * 10],
  ] as const) {
    const answers = new BadAnswers()
    const lost: boolean[] = []
    // Every 3 s, each after a minute.
    for (let atMs = 60 * SECOND; atMs < 720 * SECOND; atMs += 3 * SECOND)
      for (let i = 0; i < groupSize; i++) lost.push(answers.note('a', atMs - 60 * SECOND + i, atMs + i))
    const later = lost.slice(21 * groupSize)
    t.notOk(lost.slice(0, 20 * groupSize).includes(false), 'what it had at the first of them')
    t.ok(later.filter(isLoss => isLoss).length <= lostMax, `${later.filter(isLoss => isLoss).length}`)
  }
})

t.test('of slow bad answers that come all the time, little is lost after a chance calm', async t => {
  const answers = new BadAnswers()
  let lostCount = 0
  // Ten each second, each after a minute, with a pause of 2.5 s in every ten.
  for (let ms = 0; ms < 600_000; ms += 100) {
    if (ms % 10_000 < 2500) continue
    const isLost = answers.note('a', ms, ms + 60_000)
    if (isLost && ms > 62_500) lostCount++
  }
  t.ok(lostCount <= 9 * 4 * 20, `${lostCount}`)
})

t.test('retries are a share of the traffic, beyond a reserve', async t => {
  const budget = new RetryBudget(0.2)
  let retries = 0
  for (let request = 0; request < 1000; request++) {
    budget.requested()
    if (budget.isEmpty) continue
    budget.placedAgain()
    retries++
  }
  t.ok(retries >= 200 && retries <= 233, `${retries} of 1000`)
})

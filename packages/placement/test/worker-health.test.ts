/** Worker health by examples, and over random histories. */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { WorkerHealth } from '../src/index.ts'

const FAILED = { kind: 'failed', reason: 'answered 500' } as const
const CUT = { kind: 'cut', reason: 'broke off' } as const
const JOINED = 1

/** A health with one worker, and a clock. */
function world(hasOthers = false) {
  const health = new WorkerHealth()
  let nowMs = 0
  const fail = (fault: typeof FAILED | typeof CUT = FAILED, decidedMs = nowMs) =>
    health.failed('a', JOINED, 'm', fault, decidedMs, nowMs, hasOthers)
  return {
    health,
    pass(ms: number) {
      nowMs += ms
    },
    now: () => nowMs,
    fail,
    eject: () => [fail(), fail(), fail()].some(Boolean),
    against: (model = 'm') => health.reasonAgainst('a', model, nowMs),
  }
}

t.test('three failures in a row eject, two and a success do not', async t => {
  const w = world()
  w.fail()
  w.fail()
  w.health.served('a', 'm', 0, 0)
  w.fail()
  w.fail()
  t.equal(w.against(), undefined)
  t.ok(w.fail())
  t.equal(w.against(), 'ejected: answered 500')
  t.match(w.health.report(0), [{ worker: 'a', state: 'ejected', trialInMs: 1000, ejections: 1 }])
})

t.test('six failures among the last twenty eject, though none follow each other thrice', async t => {
  const w = world()
  for (let i = 0; i < 5; i++) {
    w.fail()
    w.health.served('a', 'm', 0, 0)
    w.health.served('a', 'm', 0, 0)
  }
  t.equal(w.against(), undefined)
  t.ok(w.fail())
})

t.test('a trial that is served brings it back; one that fails doubles the back-off up to 10 s', async t => {
  const w = world()
  w.eject()
  for (const backoffMs of [1000, 2000, 4000, 8000, 10_000, 10_000]) {
    t.notOk(w.health.isTrialDue('a', 'm', w.now()))
    w.pass(backoffMs)
    t.ok(w.health.isTrialDue('a', 'm', w.now()), `after ${backoffMs} ms`)
    t.match(w.health.report(w.now()), [{ state: 'trial', trialInMs: 0 }])
    w.health.decided('a', 'm', 'trial', w.now())
    t.notOk(w.health.isTrialDue('a', 'm', w.now()), 'one trial at a time')
    t.ok(w.fail())
    w.health.ended('a', 'trial')
  }
  w.pass(10_000)
  w.health.decided('a', 'm', 'trial', w.now())
  t.ok(w.health.served('a', 'm', w.now(), w.now()))
  t.equal(w.against(), undefined)
})

t.test('what was decided before the ejection neither ends nor prolongs it', async t => {
  const w = world()
  w.pass(100)
  w.eject()
  t.notOk(w.health.served('a', 'm', 50, w.now()))
  w.pass(1000)
  t.notOk(w.fail(FAILED, 50))
  t.ok(w.health.isTrialDue('a', 'm', w.now()))
})

t.test('a first token ends a trial, unless the worker broke off its answers', async t => {
  const w = world()
  w.eject()
  w.pass(1000)
  t.ok(w.health.progressed('a', 'm', w.now(), w.now()))
  for (let i = 0; i < 3; i++) w.fail(CUT)
  w.pass(2000)
  t.notOk(w.health.progressed('a', 'm', w.now(), w.now()))
  t.ok(w.health.served('a', 'm', w.now(), w.now()))
})

t.test('a trial that hangs, or whose decision ended without a word, makes room for another', async t => {
  const w = world()
  w.eject()
  w.pass(1000)
  w.health.decided('a', 'm', 'one', w.now())
  w.health.ended('a', 'one')
  t.ok(w.health.isTrialDue('a', 'm', w.now()))
  w.health.decided('a', 'm', 'two', w.now())
  w.pass(60_000)
  t.ok(w.health.isTrialDue('a', 'm', w.now()))
})

t.test(
  'a model that it lacks leaves it out for that model, for five seconds or until it is read',
  async t => {
    const w = world()
    const lacks = { kind: 'lacksModel', reason: 'answered 404' } as const
    w.health.failed('a', JOINED, 'm', lacks, 0, 0)
    t.match(w.against(), /does not serve m/)
    t.equal(w.against('other'), undefined)
    w.pass(5000)
    t.equal(w.against(), undefined)
    w.health.failed('a', JOINED, 'm', lacks, w.now(), w.now())
    w.health.modelsRead('a')
    t.equal(w.against(), undefined)
    for (let i = 0; i < 1000; i++) w.health.failed('a', JOINED, `m${i}`, lacks, w.now(), w.now())
    t.equal(w.against('m0'), undefined, 'the oldest is forgotten')
    t.match(w.against('m999'), /does not serve/)
  },
)

t.test('a worker that fails one of its models leaves for that model only', async t => {
  const w = world(true)
  const serve = (model: string): boolean => w.health.served('a', model, w.now(), w.now())
  w.fail()
  for (let i = 0; i < 5; i++) {
    serve('other')
    t.equal(w.against(), undefined)
    w.fail()
  }
  t.equal(w.against(), 'ejected for m: answered 500')
  t.equal(w.against('other'), undefined)
  t.match(w.health.report(w.now()), [{ state: 'up', models: [{ model: 'm', reason: 'answered 500' }] }])
  t.notOk(serve('other'), 'says nothing of m')
  w.pass(1000)
  t.ok(w.health.isTrialDue('a', 'm', w.now()))
  t.notOk(w.health.isTrialDue('a', 'other', w.now()))
  w.health.decided('a', 'm', 'trial', w.now())
  t.ok(w.fail(), 'for two seconds now')
  w.pass(1999)
  t.notOk(w.health.isTrialDue('a', 'm', w.now()))
  w.pass(1)
  t.ok(serve('m'))
  t.equal(w.against(), undefined)
})

t.test('a second model that fails takes it as a whole; a trial brings back what it serves', async t => {
  const w = world(true)
  w.eject()
  t.equal(w.against('other'), undefined)
  t.ok(w.health.failed('a', JOINED, 'other', FAILED, w.now(), w.now(), true), 'the fourth in a row')
  t.equal(w.against('third'), 'ejected: answered 500')
  w.pass(1000)
  t.ok(w.health.served('a', 'third', w.now(), w.now()))
  t.equal(w.against('third'), undefined)
  t.equal(w.against(), 'ejected for m: answered 500')
  t.equal(w.against('other'), 'ejected for other: answered 500')
})

t.test('a worker that left and came back is new', async t => {
  const w = world()
  w.eject()
  const worker = { id: 'a', joinedMs: 2 }
  w.health.keepOnly({ version: 1, workers: [worker as never] })
  t.equal(w.against(), undefined)
  t.strictSame(w.health.report(0), [])
})

t.test('random histories: a worker that always fails leaves, one that is mended comes back', async t => {
  // One in a hundred is no reason: three in a row are one in a million.
  let healthyEjections = 0
  for (let seed = 1; seed <= 2000; seed++) {
    const random = seededRandom(seed)
    const health = new WorkerHealth()
    const failing = random.below(3)
    const chances = [0.01, 0.01, 0.01]
    chances[failing] = 1
    const names = ['a', 'b', 'c']
    let nowMs = 0
    let got = 0
    let mendedMs: number | undefined
    let backMs: number | undefined
    for (let request = 0; request < 600; request++) {
      nowMs += random.below(40)
      if (request === 300) {
        chances[failing] = 0
        mendedMs = nowMs
      }
      const due = names.findIndex(name => health.isTrialDue(name, 'm', nowMs))
      const open = names.flatMap((name, i) =>
        health.reasonAgainst(name, 'm', nowMs) === undefined ? [i] : [],
      )
      if (due < 0 && open.length === 0) continue
      const at = due >= 0 ? due : open[random.below(open.length)]!
      const name = names[at]!
      health.decided(name, 'm', `${request}`, nowMs)
      if (at === failing && mendedMs === undefined) got++
      if (random.below(1000) < chances[at]! * 1000) health.failed(name, JOINED, 'm', FAILED, nowMs, nowMs)
      else {
        health.served(name, 'm', nowMs, nowMs)
        if (at === failing) backMs ??= nowMs
      }
      health.ended(name, `${request}`)
    }
    for (const { worker, ejections } of health.report(nowMs)) {
      if (worker !== names[failing]) healthyEjections += ejections
    }
    // It gets 3 requests, and then a trial after 1, 2, 4 … s, for some 6 s.
    if (got > 8) t.fail(`seed ${seed}: it got ${got} requests`)
    if (mendedMs === undefined || backMs === undefined || backMs - mendedMs > 8500)
      t.fail(`seed ${seed}: mended at ${mendedMs}, back at ${backMs}`)
  }
  t.ok(healthyEjections <= 10, `2,000 seeds: ${healthyEjections} ejections of workers that fail 1 %`)
})

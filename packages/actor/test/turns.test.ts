/** Turns: the time that counts as time on turn, and when a message has its turn. */

import { setImmediate } from 'node:timers/promises'
import { textOfEvent } from '@homing/actor'
import t, { type Test } from 'tap'
import { actor, startSystem } from './inline-actors.ts'

/** An actor that takes `ms` of the simulated clock for each message. */
function start(t: Test) {
  const system = startSystem(t)
  const handled: number[] = []
  const worker = actor<{ readonly type: 'work'; readonly ms: number }>(() => ({
    work({ ms }) {
      system.clock.advance(ms)
      handled.push(ms)
    },
  }))
  const ref = system.spawn(worker, { name: 'worker', args: undefined })
  const busyMs = (): number => system.counters().total.busyMs
  const longTurns = (): string[] =>
    (system.flight('main', 1000) ?? []).filter(({ kind }) => kind === 'longTurn').map(textOfEvent)
  return { system, ref, handled, busyMs, longTurns }
}

t.test('a thread that waits is not busy, also after a burst that was cut', async t => {
  const { system, ref, handled, busyMs, longTurns } = start(t)
  await system.settle()
  t.equal(busyMs(), 0)

  // Past a millisecond the rest of the burst waits until the event loop has gone round.
  for (let n = 0; n < 6; n++) ref.tell({ type: 'work', ms: 2 })
  await system.settle()
  t.equal(handled.length, 6)
  for (let minute = 0; minute < 3; minute++) {
    await system.advance('1m')
    ref.tell({ type: 'work', ms: 1 })
    await system.settle()
  }
  t.equal(busyMs(), 6 * 2 + 3)
  t.same(longTurns(), [])
})

t.test('a message to a thread that waited has its turn at once, also after a burst that was cut', async t => {
  const { system, ref, handled } = start(t)
  await system.settle()
  for (let n = 0; n < 6; n++) ref.tell({ type: 'work', ms: 2 })
  await system.settle()
  await system.advance('1m')

  ref.tell({ type: 'work', ms: 7 })
  await Promise.resolve()
  t.equal(handled.at(-1), 7)
})

t.test('what else the event loop does in its round is not time on turn', async t => {
  const { system, ref, busyMs, longTurns } = start(t)
  await system.settle()
  ref.tell({ type: 'work', ms: 3 })
  await Promise.resolve()
  // Somebody's callback, before the event loop goes round.
  system.clock.advance(500)
  await setImmediate()
  t.equal(busyMs(), 3)
  t.same(longTurns(), ['a round of the event loop with turns of actors took 503 ms'])
})

/** How a watchdog treats its own lateness: main shares the processor with the threads that it watches. */

import type { Clock } from '@homing/base'
import t from 'tap'
import type { ThreadSlot } from '../src/threads/thread-slot.ts'
import { Watchdog } from '../src/threads/watchdog.ts'

const HUNG_AFTER_MS = 100

/** A watchdog whose looks come when the test says. */
function watched() {
  let nowMs = 0
  let look = () => {}
  let beats = 0
  let hangs = 0
  const slot = { isServing: true, hungAfterMs: systemMs => systemMs } as ThreadSlot
  const clock: Clock = {
    nowMs: () => nowMs,
    wallMs: () => nowMs,
    after(_delayMs, callback) {
      look = callback
      return { cancel() {} }
    },
  }
  const watchdog = new Watchdog(
    { clock, slots: () => [slot], beatsOf: () => beats, hangs: () => void hangs++ },
    HUNG_AFTER_MS,
  )
  watchdog.start()
  watchdog.ready(slot)
  return {
    intervalMs: watchdog.intervalMs,
    hangs: () => hangs,
    beat: () => void beats++,
    /** Main comes to look after so long. */
    lookAfter(ms: number): void {
      nowMs += ms
      look()
    },
  }
}

t.test('a thread is not taken for hung for the time in which main did not run', async t => {
  const w = watched()
  w.lookAfter(w.intervalMs)
  w.lookAfter(50 * HUNG_AFTER_MS)
  t.equal(w.hangs(), 0, 'the whole process may have been halted')
  w.beat()
  for (let ms = 0; ms < HUNG_AFTER_MS - w.intervalMs; ms += w.intervalMs) w.lookAfter(w.intervalMs)
  t.equal(w.hangs(), 0)
})

t.test('a main that is late now and then puts the end of a hung thread off by no more than that', async t => {
  const w = watched()
  const lateMs = 3 * w.intervalMs
  let passedMs = 0
  let lateness = 0
  while (w.hangs() === 0 && passedMs < 10 * HUNG_AFTER_MS) {
    const ms = passedMs % (8 * w.intervalMs) < w.intervalMs ? lateMs : w.intervalMs
    if (ms === lateMs) lateness += lateMs - w.intervalMs
    w.lookAfter(ms)
    passedMs += ms
  }
  t.ok(passedMs <= HUNG_AFTER_MS + lateness + lateMs, `hung after ${passedMs} ms, late by ${lateness}`)
})

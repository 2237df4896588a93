/**
 * Patient clock: a real clock for parts that share this process, without the time in which the process stood
 * still. A wait passes in slices, and between two of them the sockets are looked at: so a machine that stalls
 * for seconds ends no wait for an answer that is there.
 */

import { type Clock, systemClock, type Timer } from '@homing/base'

const SLICE_MS = 20
/** Of the time between two looks, more than this is a stall. */
const LOOK_MS_MAX = 2 * SLICE_MS

export function patientClock(): Clock {
  let nowMs = 0
  let seenMs = systemClock.nowMs()
  const look = (): number => {
    const realMs = systemClock.nowMs()
    nowMs += Math.min(realMs - seenMs, LOOK_MS_MAX)
    seenMs = realMs
    return nowMs
  }
  return {
    ...systemClock,
    nowMs: look,
    after(delayMs, callback, options): Timer {
      let leftMs = delayMs
      let slice: Timer
      const wait = (): void => {
        const sliceMs = Math.min(leftMs, SLICE_MS)
        slice = systemClock.after(sliceMs, () => pass(sliceMs), options)
      }
      const pass = (sliceMs: number): void => {
        look()
        leftMs -= sliceMs
        if (leftMs > 0) wait()
        else callback()
      }
      wait()
      return { cancel: () => slice.cancel() }
    },
  }
}

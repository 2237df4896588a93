/** Runs the waiting microtasks from plain code: all of them, including those that they queue. */

import { SimulationError } from './errors.ts'

/**
 * What Node itself calls between two callbacks of the event loop: ticks, microtasks, unhandled rejections.
 */
const drain = (process as unknown as { _tickCallback?: () => void })._tickCallback

/** Does nothing within a microtask: call it from a callback of the event loop only. */
export const drainMicrotasks: () => void =
  drain ??
  (() => {
    throw new SimulationError('run microtasks', 'this Node has no process._tickCallback')
  })

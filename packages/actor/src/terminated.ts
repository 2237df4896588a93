/** The signal for a watched actor that ended. */

import { type ErrorRecord, fromErrorRecord, RouterError } from '@homing/errors'
import type { AnyRef } from './refs.ts'
import type { ActorRef, Terminated, TerminationReason } from './types.ts'

export function terminatedOf(
  ref: AnyRef,
  reason: TerminationReason,
  error: RouterError | ErrorRecord | undefined,
): Terminated {
  const known = error === undefined || error instanceof RouterError ? error : fromErrorRecord(error)
  return {
    type: 'terminated',
    ref: ref as ActorRef<never>,
    reason,
    ...(known === undefined ? {} : { error: known }),
  }
}

/** True when an actor ended only because its thread did: with directive `restart` it comes back, under the same ref. */
export function isThreadLoss(reason: TerminationReason): boolean {
  return reason === 'threadExit' || reason === 'threadHung' || reason === 'threadOom'
}

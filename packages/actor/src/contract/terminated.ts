/** The signal for a watched actor that ended. */

import { CodedError, type ErrorRecord } from '@homing/base'
import { errorOf } from '../values/thrown.ts'
import type { ActorRef, Terminated, TerminationReason } from './types.ts'

export function terminatedOf(
  ref: ActorRef<never>,
  reason: TerminationReason,
  error: CodedError | ErrorRecord | undefined,
): Terminated {
  const known = error === undefined || error instanceof CodedError ? error : errorOf(error)
  return {
    type: 'terminated',
    ref,
    reason,
    ...(known === undefined ? {} : { error: known }),
  }
}

/**
 * True when an actor ended only because its thread did: with directive `restart` it comes back, under the
 * same ref.
 */
export function isThreadLoss(reason: TerminationReason): boolean {
  return reason === 'threadExit' || reason === 'threadHung' || reason === 'threadOom'
}

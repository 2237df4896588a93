/**
 * The delivery of a request that its caller sends itself: the router hears only of its first token and its
 * end.
 */

import type { ErrorRecord } from '@homing/base'
import type { Delivery } from './receipt.ts'

/**
 * `firstTokenMs`, `durationMs`: since it was booked; without a first token its caller may not have sent it.
 * `error`: why it was not booked, or is not known to be.
 */
export function callerDelivery(
  firstTokenMs: number | undefined,
  durationMs: number,
  error: ErrorRecord | undefined,
): { readonly delivery: Delivery; readonly wasTaken: boolean } {
  const wasTaken = firstTokenMs !== undefined
  const delivery: Delivery = {
    outcome: error !== undefined ? 'error' : wasTaken ? 'ok' : 'aborted',
    status: undefined,
    promptTokens: undefined,
    completionTokens: undefined,
    cachedTokens: undefined,
    waitedMs: 0,
    timeToFirstByteMs: firstTokenMs,
    durationMs,
    streamEvents: undefined,
    error,
  }
  return { delivery, wasTaken }
}

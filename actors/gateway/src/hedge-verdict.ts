/**
 * Hedge verdict: what the end of a second worker's call (hedge.ts) says of that worker. It is blamed as one
 * that a request has alone: not for a request that is bad, nor for a full connection or a machine without
 * sockets.
 */

import type { WorkerFault } from '@homing/placement'
import type { BrokenCall, Refusal } from './worker-call.ts'
import { FAILING_STATUSES, isTaking, lacksModel, SHEDDING_STATUSES } from './worker-statuses.ts'

export type HedgeEnd =
  /** Its answer begins, and is no stream of tokens. */
  | { readonly kind: 'answered'; readonly status: number; readonly beganBadly: boolean }
  | { readonly kind: 'refused'; readonly status: number; readonly refusal: Refusal | undefined }
  | { readonly kind: 'broke'; readonly broken: BrokenCall }

export interface HedgeVerdict {
  readonly reason: string
  /** Undefined: it is not to blame. `isSure`: nor is the request. */
  readonly fault?: { readonly kind: WorkerFault['kind']; readonly isSure: boolean }
  /** The directory is to look at it. */
  readonly suspect?: { readonly reason: string; readonly isUnreachable: boolean }
  /** The directory is to read its models again. */
  readonly lacksModel?: boolean
  /** It has worked on the request. */
  readonly wasTaken: boolean
}

/** `usesKey`: the router has a key for it. */
export function hedgeVerdict(end: HedgeEnd, usesKey: boolean): HedgeVerdict {
  if (end.kind === 'broke') return onBroken(end.broken)
  const { status } = end
  const reason = `answered ${status}`
  if (end.kind === 'answered' && end.beganBadly)
    return {
      reason: 'sent an error, or gave up the request',
      fault: { kind: 'failed', isSure: false },
      wasTaken: true,
    }
  if (FAILING_STATUSES.has(status)) {
    const fault = { kind: 'failed' as const, isSure: SHEDDING_STATUSES.has(status) }
    return { reason, fault, wasTaken: isTaking(status) }
  }
  if (end.kind === 'answered') return { reason, wasTaken: false }
  if (status === 404 && lacksModel(end.refusal))
    return { reason, fault: { kind: 'lacksModel', isSure: true }, lacksModel: true, wasTaken: false }
  if (!usesKey || (status !== 401 && status !== 403)) return { reason, wasTaken: false }
  const suspicion = `it answered ${status}: it does not accept the key that the router has for it`
  return { reason, suspect: { reason: suspicion, isUnreachable: false }, wasTaken: false }
}

function onBroken({ reason, failure, servedBy }: BrokenCall): HedgeVerdict {
  if (failure === 'connect' || servedBy !== undefined)
    return { reason, suspect: { reason, isUnreachable: true }, wasTaken: false }
  // One with many calls is well, and what this machine cannot write or open is not its fault.
  if (failure === 'full' || failure === 'local' || failure === 'request') return { reason, wasTaken: false }
  return {
    reason,
    fault: { kind: 'failed', isSure: false },
    suspect: { reason, isUnreachable: false },
    wasTaken: true,
  }
}

/** Settings: the options of a spawn, checked, in milliseconds, with defaults filled in. */

import { toMs } from './durations.ts'
import type { Settings } from './frames.ts'
import type { MailboxOptions, SpawnOptions, Supervision } from './types.ts'

const CAPACITY_DEFAULT = 1024
const SHUTDOWN_MS_DEFAULT = 5000
const SHUTDOWN_MS_GUARDIAN = 2 ** 31 - 1

const DEFAULTS: Settings = {
  directive: 'stop',
  restartsMax: 0,
  withinMs: 0,
  backoffMsMin: 0,
  backoffMsMax: 0,
  jitter: 0,
  capacity: CAPACITY_DEFAULT,
  overflow: 'reject',
  shutdownMs: SHUTDOWN_MS_DEFAULT,
}

export const GUARDIAN_SETTINGS: Settings = { ...DEFAULTS, shutdownMs: SHUTDOWN_MS_GUARDIAN }

/** Throws RangeError for an option out of its range: a mistake in the caller's code. */
export function toSettings(options: SpawnOptions<unknown>): Settings {
  const { supervision, mailbox, shutdown } = options
  if (supervision === undefined && mailbox === undefined && shutdown === undefined) return DEFAULTS
  return {
    ...DEFAULTS,
    ...(supervision === undefined ? {} : supervisionSettings(supervision)),
    ...(mailbox === undefined ? {} : mailboxSettings(mailbox)),
    ...(shutdown === undefined ? {} : { shutdownMs: toMs(shutdown) }),
  }
}

function supervisionSettings(supervision: Supervision): Partial<Settings> {
  if (supervision.directive !== 'restart') return { directive: supervision.directive }
  const { max, within, backoff } = supervision
  const jitter = backoff.jitter ?? 0
  if (!Number.isInteger(max) || max < 0)
    throw new RangeError(`cannot allow ${max} restarts: use an integer ≥ 0`)
  if (!(jitter >= 0 && jitter <= 1))
    throw new RangeError(`cannot use ${jitter} as jitter: it is a share, 0 … 1`)
  return {
    directive: 'restart',
    restartsMax: max,
    withinMs: toMs(within),
    backoffMsMin: toMs(backoff.min),
    backoffMsMax: toMs(backoff.max),
    jitter,
  }
}

function mailboxSettings({ capacity, overflow }: MailboxOptions): Partial<Settings> {
  if (!Number.isInteger(capacity) || capacity < 1) {
    throw new RangeError(`cannot use ${capacity} as the capacity of a mailbox: use an integer ≥ 1`)
  }
  return { capacity, overflow: overflow ?? 'reject' }
}

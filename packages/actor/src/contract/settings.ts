/** Settings: the options of a spawn, checked, in milliseconds, with defaults filled in. */

import type { Duration } from '@homing/base'
import { toMs } from '../values/durations.ts'
import type { ActorDefinition, MailboxOptions, SpawnOptions, StopOptions, Supervision } from './types.ts'

/** Options of an actor with durations in milliseconds and defaults filled in. */
export interface Settings {
  readonly directive: 'stop' | 'resume' | 'restart' | 'escalate'
  /** Restarted also when it stops itself. */
  readonly isPermanent: boolean
  /** What past the restart budget. */
  readonly whenExhausted: 'stop' | 'escalate'
  readonly restartsMax: number
  readonly withinMs: number
  readonly backoffMsMin: number
  readonly backoffMsMax: number
  readonly jitter: number
  readonly capacity: number
  readonly overflow: NonNullable<MailboxOptions['overflow']>
  /** Infinity when only the system bounds it. */
  readonly shutdownMs: number
  /** A stop ends it at once, without signals. */
  readonly isKilled: boolean
}

/** The bounds of a dedicated thread that are not those of the system. */
export interface ThreadBounds {
  readonly heapMb?: number
  readonly hungAfterMs?: number
}

const CAPACITY_DEFAULT = 1024
const SHUTDOWN_MS_DEFAULT = 5000

const DEFAULTS: Settings = {
  directive: 'stop',
  isPermanent: false,
  whenExhausted: 'stop',
  restartsMax: 0,
  withinMs: 0,
  backoffMsMin: 0,
  backoffMsMax: 0,
  jitter: 0,
  capacity: CAPACITY_DEFAULT,
  overflow: 'reject',
  shutdownMs: SHUTDOWN_MS_DEFAULT,
  isKilled: false,
}

export const ROOT_SETTINGS: Settings = { ...DEFAULTS, shutdownMs: Number.POSITIVE_INFINITY }

/** Throws RangeError for an option out of its range: a mistake in the caller's code. */
export function toSettings(
  options: SpawnOptions<unknown>,
  definition?: Pick<ActorDefinition<never, never>, 'coalesce'>,
): Settings {
  checkedSpawnOptions(options)
  const { supervision, mailbox, shutdown } = options
  if (supervision === undefined && mailbox === undefined && shutdown === undefined) return DEFAULTS
  if (mailbox?.overflow === 'coalesce' && definition?.coalesce === undefined) {
    throw new RangeError(`cannot coalesce the messages of ${options.name}: its definition has no coalesce`)
  }
  if (mailbox !== undefined) checkedFields('mailbox', mailbox, MAILBOX_FIELDS)
  if (supervision !== undefined) checkedFields('supervision', supervision, SUPERVISION_FIELDS)
  return {
    ...DEFAULTS,
    ...(supervision === undefined ? {} : supervisionSettings(supervision)),
    ...(mailbox === undefined ? {} : mailboxSettings(mailbox)),
    ...(shutdown === undefined ? {} : shutdownSettings(shutdown)),
  }
}

/**
 * How long a stop lets the actor drain; `shutdown`: as long as its shutdown time; undefined: it does not.
 * Throws RangeError for options that are none.
 */
export function drainMsOf(options: StopOptions | undefined): number | 'shutdown' | undefined {
  if (options === undefined) return undefined
  checkedFields('the options of a stop', options, STOP_FIELDS)
  const { after = 'message' } = options
  checkedWord('after', after, ['message', 'mailbox'])
  const { within } = options as { readonly within?: Duration }
  if (after === 'message') {
    if (within !== undefined)
      throw new RangeError("cannot bound a stop by within: use it with after: 'mailbox'")
    return undefined
  }
  return within === undefined ? 'shutdown' : toMs(within)
}

function supervisionSettings(supervision: Supervision): Partial<Settings> {
  checkedWord('directive', supervision.directive, ['stop', 'resume', 'restart', 'escalate'])
  if (supervision.directive !== 'restart') return { directive: supervision.directive }
  const { max, within, backoff, type, whenExhausted } = supervision
  checkedWord('type', type ?? 'transient', ['transient', 'permanent'])
  checkedWord('whenExhausted', whenExhausted ?? 'stop', ['stop', 'escalate'])
  // The types say so; callers without them learn it here.
  if ((backoff as unknown) === undefined) throw new RangeError('cannot restart without a backoff')
  checkedFields('backoff', backoff, BACKOFF_FIELDS)
  const jitter = backoff.jitter ?? 0
  if (!Number.isInteger(max) || max < 0)
    throw new RangeError(`cannot allow ${max} restarts: use an integer ≥ 0`)
  if (!(jitter >= 0 && jitter <= 1))
    throw new RangeError(`cannot use ${jitter} as jitter: it is a share, 0 … 1`)
  return {
    directive: 'restart',
    isPermanent: type === 'permanent',
    whenExhausted: whenExhausted ?? 'stop',
    restartsMax: max,
    withinMs: toMs(within),
    backoffMsMin: toMs(backoff.min),
    backoffMsMax: toMs(backoff.max),
    jitter,
  }
}

function shutdownSettings(shutdown: NonNullable<SpawnOptions<unknown>['shutdown']>): Partial<Settings> {
  if (shutdown === 'kill') return { isKilled: true }
  return { shutdownMs: shutdown === 'infinity' ? Number.POSITIVE_INFINITY : toMs(shutdown) }
}

function mailboxSettings({ capacity, overflow }: MailboxOptions): Partial<Settings> {
  if (!Number.isInteger(capacity) || capacity < 1) {
    throw new RangeError(`cannot use ${capacity} as the capacity of a mailbox: use an integer ≥ 1`)
  }
  checkedWord('overflow', overflow ?? 'reject', ['reject', 'dropOldest', 'dropNewest', 'coalesce'])
  return { capacity, overflow: overflow ?? 'reject' }
}

/** The smallest heap of a thread. */
const THREAD_HEAP_MB_MIN = 16

/** `heapMb`, where it is a heap limit. Throws RangeError otherwise. */
export function checkedHeapMb(heapMb: number): number {
  if (Number.isFinite(heapMb) && heapMb >= THREAD_HEAP_MB_MIN) return heapMb
  throw new RangeError(`cannot give threads a heap of ${heapMb} MB: use at least ${THREAD_HEAP_MB_MIN}`)
}

const SPAWN_FIELDS = ['name', 'args', 'thread', 'supervision', 'mailbox', 'shutdown'] as const
const SUPERVISION_FIELDS = ['directive', 'type', 'max', 'within', 'backoff', 'whenExhausted'] as const
const STOP_FIELDS = ['after', 'within'] as const
const MAILBOX_FIELDS = ['capacity', 'overflow'] as const
export const BACKOFF_FIELDS = ['min', 'max', 'jitter'] as const

/** Spawns are many, so their few fields are compared one by one. */
function checkedSpawnOptions(options: SpawnOptions<unknown>): void {
  if (!isObject(options)) throw new RangeError('cannot spawn an actor without options')
  if (typeof options.name !== 'string') throw new RangeError('cannot spawn an actor without a name')
  for (const field in options) {
    switch (field) {
      case 'name':
      case 'args':
      case 'thread':
      case 'supervision':
      case 'mailbox':
      case 'shutdown':
        continue
      default:
        throw unknownField(field, `the spawn of ${options.name}`, SPAWN_FIELDS)
    }
  }
}

/**
 * Throws RangeError for what is no object, and for a field that `where` does not know: a misspelt one would
 * do nothing.
 */
export function checkedFields(where: string, given: object, known: readonly string[]): void {
  if (!isObject(given)) throw new RangeError(`cannot use ${shown(given)} as ${where}: use an object`)
  for (const field of Object.keys(given)) if (!known.includes(field)) throw unknownField(field, where, known)
}

/** The error for a field that `where` does not know. */
export function unknownField(field: string, where: string, known: readonly string[]): RangeError {
  return new RangeError(`cannot use '${field}' in ${where}: use ${known.join(', ')}`)
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Any value, for a message. */
export function shown(value: unknown): string {
  try {
    return typeof value === 'string' ? `'${value}'` : String(value)
  } catch {
    return `a value of type ${typeof value}`
  }
}

/** Throws RangeError for a word that an option does not know. */
export function checkedWord<W extends string>(option: string, given: W, known: readonly W[]): void {
  if (known.includes(given)) return
  throw new RangeError(`cannot use ${shown(given)} as ${option}: use ${known.join(', ')}`)
}

/**
 * A worker and its keys, as the modules of the directory share them.
 *
 * All of it lives on the directory's thread and is changed only while it handles a message. Everybody may
 * read a field; one module writes it, named above it. State that only one module needs (misses of probes,
 * free slots) is inside that module.
 */

import type { Listened } from '@homing/actors/listener'
import type { ReachedOutcome, WorkerSpec, WorkerState } from '@homing/fleet'
import type { Trust } from '@homing/index'

export interface Worker {
  readonly spec: WorkerSpec

  // worker-probes.ts
  state: WorkerState
  stateReason: string
  /** Unix milliseconds; undefined: it answers. */
  unansweredSinceMs: number | undefined
  /** It is down, and answered the last probe. */
  isDownByAnswer: boolean
  /** A probe has ended, whatever it found. */
  wasProbed: boolean

  // fleet-changes.ts
  /** `joinedMs` of its record. */
  readonly joinedMs: number
  /** Undefined: it takes requests. */
  drain: { readonly turn: number; readonly sinceMs: number; readonly due: { cancel(): void } } | undefined
  /** Why it gets no new requests for now, for people; undefined: it gets some. */
  pause: string | undefined

  // directory.ts
  /** Result of the full probes that reached it; kept while it is down. */
  outcome: ReachedOutcome | undefined
  /** Block size seen in its events; forgotten when its engine restarts. */
  learnedBlockSizeTokens: number | undefined

  // prompt-audits.ts
  /** As in its record. */
  promptsEpoch: number

  // worker-keys.ts
  /** By dp rank; fewer than its ranks while slots are short or an old key of a rank has not ended. */
  readonly keys: Key[]

  // worker-announcements.ts
  wasAnnounced: boolean

  // worker-trials.ts
  /** It was added at run time, and its cache may be known soon. */
  isOnTrial: boolean
}

/** A worker key and its listener. */
export interface Key extends Listened {
  /** `<worker id>/<dp rank>`. */
  readonly name: string
  readonly worker: Worker

  // worker-keys.ts
  /** The worker no longer has this rank: the key ends when its listener has. */
  isGone: boolean

  // key-listeners.ts
  /** What the running listener was started for. */
  startedFor: string

  // directory.ts
  /**
   * Grows by one whenever everything known about its cache is forgotten, from its events and from requests
   * sent there.
   */
  epoch: number

  // key-audits.ts
  /** The last verdict of answers on the events; undefined: none since they last agreed or began again. */
  audit: { readonly verdict: 'contradicted' | 'confirmed'; readonly reason: string } | undefined

  // key-silence.ts
  /**
   * Since `sinceMs` (of the clock) events are expected, because an answer showed that blocks were computed.
   * `reason`, for people: set if they did not come in time. Undefined: no events are expected.
   */
  silence: { readonly sinceMs: number; readonly reason: string | undefined } | undefined

  // key-trust.ts
  trust: Trust
  trustReason: string
  /** Unix milliseconds. */
  trustSinceMs: number
}

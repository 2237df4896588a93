/**
 * Listener lives: starts the listeners of worker keys as children of an actor, follows their lives, and has
 * the indexer forget a slot afterwards.
 *
 *   idle      ──start──▶                               running
 *   running   ──stop──▶                                stopping
 *   stopping  ──ended──▶                               releasing
 *   running   ──failed for good──▶                     releasing
 *   releasing ──the indexer has forgotten the slot──▶  idle
 *
 * Owns   `phase`, `listener` and, while there is no listener to report, `heard` of every key. Its owner
 *        decides when to start and stop.
 * Order  a listener starts only in `idle`: then no earlier listener writes to the slot, and the indexer holds
 *        nothing for it. An indexer that does not answer, because it restarts or is slow, is asked again
 *        until it does.
 * Fails  a listener that fails is restarted; if it fails for good, the owner is told after LISTENER_PAUSE_MS.
 *        When its event thread dies, it comes back under the same ref, but the watch has ended: `resume`
 *        watches it again.
 */

import {
  type ActorContext,
  type ActorRef,
  isThreadLoss,
  type Message,
  type Supervision,
  type Terminated,
} from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import type { StreamOptions } from '@homing/transport'
import type { CheckpointOptions } from './checkpoints.ts'
import { LISTENER_LIMITS } from './limits.ts'
import { type ListenerArgs, listener } from './listener.ts'
import type { ListenerMessage, SourceMessage, SourceTrust, StoredSnapshotMessage } from './messages.ts'

export type ListenerPhase = 'idle' | 'running' | 'stopping' | 'releasing'

/** The listener of a worker key, and what it reported. */
export interface Listened {
  readonly workerSlot: number
  readonly shard: number
  readonly dpRank: number
  phase: ListenerPhase
  /** Undefined while idle or releasing. */
  listener: ActorRef<ListenerMessage> | undefined
  /** The last report of the running listener, or the report in its place. */
  heard: SourceTrust
}

/** What a listener is started for. */
export interface ListenedSource
  extends Pick<
    ListenerArgs,
    | 'eventsEndpoint'
    | 'replayEndpoint'
    | 'topic'
    | 'blockSizeTokens'
    | 'processStartSeconds'
    | 'indexer'
    | 'otherIndexers'
  > {
  /** The rank that its batches name; undefined: that of the key. */
  readonly namedRank?: number | undefined
}

export type ReleaseMessage = Extract<IndexerMessage, { readonly type: 'release' }>

export interface ListenerLivesOptions<K extends Listened, M extends Message> {
  readonly context: ActorContext<M>
  /** The actor that the listeners report to. */
  readonly directory: ActorRef<SourceMessage>
  /** The thread `<pool>-<shard>` hosts the listeners of a shard. */
  readonly eventPool: string
  /** Silence after which a replay has ended. */
  readonly replayTimeoutMs: number
  /** Undefined: none are kept. */
  readonly checkpoints: CheckpointOptions | undefined
  /** Undefined: events are followed in no stream. */
  readonly stream?: StreamOptions | undefined
  /** Has the snapshots beside it; undefined: there are none. */
  readonly snapshots?: ActorRef<StoredSnapshotMessage> | undefined
  /** For logs. */
  readonly nameOf: (key: K) => string
  /** The indexer that must forget the slot of a key whose listener has ended. */
  readonly releaserOf: (key: K) => ActorRef<ReleaseMessage>
  /** To the owner: the indexer has forgotten the slot (true), or did not answer. */
  readonly released: (key: K, isReleased: boolean) => M
  /** To the owner: a pause is over. */
  readonly due: (key: K) => M
}

const LISTENER_PAUSE_MS = 1000
const RELEASE_TIMEOUT_MS = 5000
/** Replies of one replay may all wait: engines keep 10,000 batches. */
const LISTENER_MAILBOX = 32_768

const LISTENER_SUPERVISION: Supervision = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '50ms', max: '5s', jitter: 0.2 },
}

export class ListenerLives<K extends Listened, M extends Message> {
  readonly #options: ListenerLivesOptions<K, M>
  readonly #context: ActorContext<M>

  constructor(options: ListenerLivesOptions<K, M>) {
    this.#options = options
    this.#context = options.context
  }

  /** `name`: of the actor. */
  start(key: K, name: string, source: ListenedSource): void {
    const { directory, eventPool, replayTimeoutMs, checkpoints, stream, snapshots, nameOf } = this.#options
    const { workerSlot } = key
    const { namedRank: dpRank = key.dpRank, ...listened } = source
    key.phase = 'running'
    key.heard = unheard(`no connection to ${source.eventsEndpoint} yet`)
    key.listener = this.#context.spawn(listener, {
      name,
      args: {
        ...listened,
        workerSlot,
        key: nameOf(key),
        dpRank,
        directory,
        checkpoints,
        stream,
        snapshots,
        limits: { ...LISTENER_LIMITS, replayTimeoutMs },
      },
      thread: `${eventPool}-${key.shard}`,
      supervision: LISTENER_SUPERVISION,
      mailbox: { capacity: LISTENER_MAILBOX },
    })
    this.#context.watch(key.listener)
  }

  stop(key: K, why: string): void {
    key.phase = 'stopping'
    key.heard = unheard(why)
    // The watch may have ended with the thread; without a watch the end of the listener would not be noticed.
    this.#context.watch(key.listener!)
    this.#context.stop(key.listener!)
  }

  /**
   * The listener of this key has ended (true: its slot must be released), or its thread has, and the listener
   * comes back.
   */
  terminated(key: K, { reason, error }: Terminated): boolean {
    const why = error?.message ?? reason
    if (key.phase === 'running' && isThreadLoss(reason)) {
      key.heard = unheard(`its event thread has ended (${why})`)
      this.pause(key)
      return false
    }
    if (key.phase === 'running') {
      const fields = { key: this.#options.nameOf(key), reason: why }
      this.#context.log.error(fields, 'listener has ended; it is restarted')
      key.heard = unheard(`its listener has ended (${why})`)
    }
    key.listener = undefined
    return true
  }

  release(key: K): void {
    const { releaserOf, released } = this.#options
    key.phase = 'releasing'
    const message = { type: 'release', workerSlot: key.workerSlot } as const
    this.#context.pipe(
      releaserOf(key).ask(message, { timeout: RELEASE_TIMEOUT_MS }),
      () => released(key, true),
      () => released(key, false),
    )
  }

  /** Tells the owner after a while. */
  pause(key: K): void {
    this.#context.schedule(LISTENER_PAUSE_MS, this.#options.due(key))
  }

  /** A pause is over: a listener that has come back is watched again. */
  resume(key: K): void {
    if (key.phase === 'running') this.#context.watch(key.listener!)
  }
}

/** The report on a key that has no listener to report. */
export function unheard(reason: string): SourceTrust {
  return { trust: 'none', reason, epoch: 0, isSuffix: false }
}

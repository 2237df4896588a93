/**
 * Key listeners: starts a listener for every worker key that publishes events, follows its life, and has
 * the indexer forget the slot afterwards.
 *
 *   idle ──endpoint known──▶ running ──endpoint changed or useless──▶ stopping ──ended──▶ releasing
 *    ▲                          └──────────────failed for good────────────────────────────▲  │
 *    └───────────────────────────────────the indexer answered────────────────────────────────┘
 *
 * Owns   phase, `listener`, `startedFor` and `heard` of every key; the listeners are children of the directory.
 * Order  a listener starts, and the key of a rank that is gone ends, only in `idle`: then no listener of
 *        before writes to the slot, and the indexer holds nothing for it. An indexer that does not
 *        answer, because it restarts or is slow, is asked again until it does.
 * Fails  a listener that fails is restarted; one that fails for good is started anew after LISTENER_PAUSE_MS.
 *        When its event thread dies it comes back under the same ref, but the watch has ended: it is
 *        watched again after LISTENER_PAUSE_MS.
 */

import {
  type ActorContext,
  type ActorRef,
  isThreadLoss,
  type Supervision,
  type Terminated,
} from '@homing/actor'
import type { IndexerMessage, RoutedMessage } from '@homing/indexer'
import { type CheckpointOptions, LISTENER_LIMITS, type ListenerArgs, listener } from '@homing/listener'
import type { KeyTrust } from './key-trust.ts'
import type { DirectoryMessage } from './messages.ts'
import { type Key, unheard, type Worker } from './worker.ts'
import { eventSourceOf } from './worker-facts.ts'
import type { WorkerTable } from './worker-table.ts'

export interface KeyListenersOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly workers: WorkerTable
  readonly trust: KeyTrust
  /** By shard. */
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  /** The thread `<pool>-<shard>` hosts the listeners of a shard. */
  readonly eventPool: string
  /** Silence after which a replay has ended. */
  readonly replayTimeoutMs: number
  /** Undefined: none are kept. */
  readonly checkpoints: CheckpointOptions | undefined
  /** Called for a key that is gone when nothing is left of it: its slot may serve another. */
  readonly ended: (key: Key) => void
  /** The record of the worker may have changed. */
  readonly changed: (worker: Worker) => void
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

export class KeyListeners {
  readonly #options: KeyListenersOptions
  readonly #context: ActorContext<DirectoryMessage>

  constructor(options: KeyListenersOptions) {
    this.#options = options
    this.#context = options.context
  }

  /** Brings listener and trust of a key in line with what is known. */
  reconcile(key: Key): void {
    const wanted = this.#argsOf(key)
    if (key.phase === 'idle') {
      // Predictions need no listener.
      if (key.isGone) this.#release(key)
      else if (wanted !== undefined) this.#start(key, wanted)
    } else if (key.phase === 'running' && (wanted === undefined || sourceText(wanted) !== key.startedFor)) {
      key.phase = 'stopping'
      key.heard = unheard('its listener is replaced')
      // The watch may have ended with its thread, and without one its end would never be known.
      this.#context.watch(key.listener!)
      this.#context.stop(key.listener!)
    }
    this.#options.trust.refresh(key)
  }

  /** What a pause was for. */
  due(key: Key): void {
    if (key.phase === 'releasing') this.#release(key)
    else this.reconcile(key)
    if (key.phase === 'running') this.#context.watch(key.listener!)
    this.#options.changed(key.worker)
  }

  /** The listener of this key has ended, or its thread has. */
  terminated(key: Key, { reason, error }: Terminated): void {
    const why = error?.message ?? reason
    if (key.phase === 'running' && isThreadLoss(reason)) {
      key.heard = unheard(`its event thread has ended (${why})`)
      this.#pause(key)
    } else {
      if (key.phase === 'running') {
        this.#context.log.error({ key: key.name, reason: why }, 'listener has ended; it is started anew')
        key.heard = unheard(`its listener has ended (${why})`)
      }
      key.listener = undefined
      this.#release(key)
    }
    this.#options.trust.refresh(key)
  }

  /** The indexer has forgotten the slot (true), or did not answer (false). */
  released(key: Key, isReleased: boolean): void {
    if (key.phase !== 'releasing') return
    this.#options.changed(key.worker)
    if (isReleased) {
      key.phase = 'idle'
      if (key.isGone) {
        this.#options.ended(key)
        return
      }
    }
    this.#pause(key)
    this.#options.trust.refresh(key)
  }

  #start(key: Key, args: ListenerArgs): void {
    key.phase = 'running'
    key.startedFor = sourceText(args)
    key.heard = unheard(`no connection to ${args.eventsEndpoint} yet`)
    key.listener = this.#context.spawn(listener, {
      name: `listener ${key.name}`,
      args,
      thread: `${this.#options.eventPool}-${key.shard}`,
      supervision: LISTENER_SUPERVISION,
      mailbox: { capacity: LISTENER_MAILBOX },
    })
    this.#context.watch(key.listener)
  }

  #release(key: Key): void {
    key.phase = 'releasing'
    const { name, workerSlot, shard, epoch } = key
    // What is still on its way from the router must not count for the next key of this slot.
    if (key.isGone)
      this.#options.indexers[shard]!.tell({ type: 'forgetRouted', workerSlot, epoch: epoch + 1 })
    this.#context.pipe(
      this.#options.indexers[shard]!.ask({ type: 'release', workerSlot }, { timeout: RELEASE_TIMEOUT_MS }),
      () => ({ type: 'released', key: name, isReleased: true }),
      () => ({ type: 'released', key: name, isReleased: false }),
    )
  }

  #pause(key: Key): void {
    this.#context.schedule(LISTENER_PAUSE_MS, { type: 'listenerDue', key: key.name })
  }

  /** Undefined: this key is to have no listener. */
  #argsOf(key: Key): ListenerArgs | undefined {
    const { worker, workerSlot, dpRank } = key
    const source = eventSourceOf(worker.spec, worker.outcome, dpRank)
    if (key.isGone || source === undefined || this.#options.trust.obstacle(key) !== undefined) {
      return undefined
    }
    return {
      workerSlot,
      key: key.name,
      dpRank,
      eventsEndpoint: source.endpoint,
      replayEndpoint: source.replayEndpoint,
      topic: source.topic,
      blockSizeTokens: this.#options.workers.assumedBlockSizeTokens(worker),
      indexer: this.#options.indexers[key.shard]!,
      directory: this.#context.self,
      checkpoints: this.#options.checkpoints,
      limits: { ...LISTENER_LIMITS, replayTimeoutMs: this.#options.replayTimeoutMs },
    }
  }
}

/** What a listener is started for; when it changes, the listener is replaced. */
function sourceText({ eventsEndpoint, replayEndpoint, topic, dpRank }: ListenerArgs): string {
  return JSON.stringify([eventsEndpoint, replayEndpoint, topic, dpRank])
}

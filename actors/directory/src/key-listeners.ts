/**
 * Key listeners: runs a listener for every worker key that publishes events, and none for the others.
 *
 *   idle ──endpoint known──▶ running ──endpoint changed or useless──▶ stopping …
 *
 * listener-lives.ts of actors/listener has the whole picture.
 *
 * Owns   `startedFor` of every key; the listeners are children of the directory. The key of a rank that is
 *        gone ends only in `idle`.
 * Fails  a listener that fails for good is started again after a pause.
 */

import type { ActorContext, ActorRef, Terminated } from '@homing/actor'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import { type CheckpointOptions, type ListenedSource, ListenerLives } from '@homing/actors/listener'
import type { StreamOptions } from '@homing/transport'
import type { KeyTrust } from './key-trust.ts'
import type { DirectoryMessage } from './messages.ts'
import type { Key, Worker } from './worker.ts'
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
  /** Undefined: events are followed in no stream. */
  readonly stream: StreamOptions | undefined
  /** The directory has snapshots beside it. */
  readonly hasSnapshots: boolean
  /** Called when a gone key has ended completely: its slot is free for another key. */
  readonly ended: (key: Key) => void
  /** The record of the worker may have changed. */
  readonly changed: (worker: Worker) => void
}

export class KeyListeners {
  readonly #options: KeyListenersOptions
  readonly #lives: ListenerLives<Key, DirectoryMessage>

  constructor(options: KeyListenersOptions) {
    const { context, indexers, eventPool, replayTimeoutMs, checkpoints, stream } = options
    this.#options = options
    this.#lives = new ListenerLives({
      context,
      directory: context.self,
      eventPool,
      replayTimeoutMs,
      checkpoints,
      stream,
      snapshots: options.hasSnapshots ? context.self : undefined,
      nameOf: ({ name }) => name,
      releaserOf: ({ shard }) => indexers[shard]!,
      released: ({ name }, isReleased) => ({ type: 'released', key: name, isReleased }),
      due: ({ name }) => ({ type: 'listenerDue', key: name }),
    })
  }

  /** Brings listener and trust of a key in line with what is known. */
  reconcile(key: Key): void {
    const wanted = this.#sourceOf(key)
    if (key.phase === 'idle') {
      // Predictions need no listener.
      if (key.isGone) this.#release(key)
      else if (wanted !== undefined) this.#start(key, wanted)
    } else if (key.phase === 'running' && (wanted === undefined || sourceText(wanted) !== key.startedFor)) {
      this.#lives.stop(key, 'its listener is replaced')
    }
    this.#options.trust.refresh(key)
  }

  /** Its listener is replaced, if it runs. */
  beginAgain(key: Key, why: string): void {
    if (key.phase === 'running') this.#lives.stop(key, why)
    this.#options.trust.refresh(key)
  }

  /** What a pause was for. */
  due(key: Key): void {
    if (key.phase === 'releasing') this.#release(key)
    else this.reconcile(key)
    this.#lives.resume(key)
    this.#options.changed(key.worker)
  }

  /** The listener of this key has ended, or its thread has. */
  terminated(key: Key, terminated: Terminated): void {
    if (this.#lives.terminated(key, terminated)) this.#release(key)
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
    this.#lives.pause(key)
    this.#options.trust.refresh(key)
  }

  #start(key: Key, source: ListenedSource): void {
    key.startedFor = sourceText(source)
    this.#lives.start(key, `listener ${key.name}`, source)
    if (key.audit?.verdict === 'contradicted') key.listener!.tell({ type: 'audited', isContradicted: true })
  }

  #release(key: Key): void {
    const { workerSlot, shard, epoch } = key
    // Messages still on the way from the router must not count for the next key of this slot.
    if (key.isGone) {
      const indexer = this.#options.indexers[shard]!
      indexer.tell({ type: 'forgetRouted', workerSlot, epoch: epoch + 1 })
      indexer.tell({ type: 'forgetSeparated', workerSlot, epoch: epoch + 1 })
    }
    this.#lives.release(key)
  }

  /** Undefined: this key is to have no listener. */
  #sourceOf(key: Key): ListenedSource | undefined {
    const { worker, dpRank } = key
    const source = this.#options.workers.eventSource(worker, dpRank)
    if (key.isGone || source === undefined || this.#options.trust.obstacle(key) !== undefined) {
      return undefined
    }
    return {
      eventsEndpoint: source.endpoint,
      replayEndpoint: source.replayEndpoint,
      topic: source.topic,
      namedRank: source.namedRank,
      blockSizeTokens: this.#options.workers.assumedBlockSizeTokens(worker),
      processStartSeconds: worker.outcome?.processStartSeconds,
      indexer: this.#options.indexers[key.shard]!,
      otherIndexers: this.#options.indexers.filter((_, shard) => shard !== key.shard),
    }
  }
}

/** Identifies a listener's source; when it changes, the listener is replaced. */
function sourceText({ eventsEndpoint, replayEndpoint, topic }: ListenedSource): string {
  return JSON.stringify([eventsEndpoint, replayEndpoint, topic])
}

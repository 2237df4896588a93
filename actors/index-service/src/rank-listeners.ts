/**
 * Rank listeners: runs a listener for every registered rank that has no fault.
 *
 * Owns   `fault` of every rank; the listeners are children of the service (listener-lives.ts of
 *        actors/listener).
 * Fails  a listener that fails for good is started again after a pause.
 */

import type { ActorContext, ActorRef, Terminated } from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import {
  type CheckpointOptions,
  ListenerLives,
  type ReleaseMessage,
  type SourceMessage,
} from '@homing/actors/listener'
import type { RankListenersMessage } from './messages.ts'
import type { Rank } from './rank.ts'

export interface RankListenersOptions {
  readonly context: ActorContext<RankListenersMessage>
  /** Where the events of a rank go: its indexer, or who stands before it. */
  readonly sinkOf: (rank: Rank) => ActorRef<IndexerMessage>
  /** The indexer that must forget the slot of a rank whose listener has ended. */
  readonly releaserOf: (rank: Rank) => ActorRef<ReleaseMessage>
  /** The thread `<pool>-<shard>` hosts the listeners of a shard. */
  readonly eventPool: string
  /** Silence after which a replay has ended. */
  readonly replayTimeoutMs: number
  /** Undefined: none are kept. */
  readonly checkpoints: CheckpointOptions | undefined
  /** A rank may hold blocks without a listener, because prompts were sent there; default false. */
  readonly holdsGuesses?: boolean
  /** Called for a rank that is gone when nothing is left of it: its slot may serve another. */
  readonly ended: (rank: Rank) => void
}

export class RankListeners {
  readonly #options: RankListenersOptions
  readonly #lives: ListenerLives<Rank, RankListenersMessage>

  constructor(options: RankListenersOptions) {
    const { context, releaserOf, eventPool, replayTimeoutMs, checkpoints } = options
    this.#options = options
    this.#lives = new ListenerLives({
      context,
      directory: context.self,
      eventPool,
      replayTimeoutMs,
      checkpoints,
      nameOf,
      releaserOf,
      released: ({ workerSlot }, isReleased) => ({ type: 'released', workerSlot, isReleased }),
      due: ({ workerSlot }) => ({ type: 'listenerDue', workerSlot }),
    })
  }

  /** Brings the listener of a rank in line with what is wanted of it. */
  reconcile(rank: Rank): void {
    const isWanted = !rank.isGone && rank.fault === undefined && rank.endpoint !== undefined
    if (rank.phase === 'idle') {
      if (isWanted) this.#start(rank, rank.endpoint)
      else if (rank.isGone && this.#options.holdsGuesses === true) this.#lives.release(rank)
      else if (rank.isGone) this.#options.ended(rank)
    } else if (rank.phase === 'running' && !isWanted) {
      this.#lives.stop(rank, 'its listener is stopping')
    }
  }

  heard(rank: Rank, { trust, reason, epoch, isSuffix, blockSizeTokens }: SourceMessage): void {
    const { log } = this.#options.context
    if (rank.phase !== 'running') return
    if (trust !== rank.heard.trust) log.info({ rank: nameOf(rank), trust, reason }, 'trust has changed')
    rank.heard = { trust, reason, epoch, isSuffix }
    if (blockSizeTokens === undefined || blockSizeTokens === rank.blockSizeTokens) return
    rank.fault = `its engine stores blocks of ${blockSizeTokens} tokens, not ${rank.blockSizeTokens}: unregister it, and register it with block_size ${blockSizeTokens}`
    log.error({ rank: nameOf(rank), reason: rank.fault }, 'rank cannot be used')
    this.reconcile(rank)
  }

  /** What a pause was for. */
  due(rank: Rank): void {
    if (rank.phase === 'releasing') this.#lives.release(rank)
    else this.reconcile(rank)
    this.#lives.resume(rank)
  }

  /** The listener of this rank has ended, or its thread has. */
  terminated(rank: Rank, terminated: Terminated): void {
    if (this.#lives.terminated(rank, terminated)) this.#lives.release(rank)
  }

  /** The indexer has forgotten the slot (true), or did not answer (false). */
  released(rank: Rank, isReleased: boolean): void {
    if (rank.phase !== 'releasing') return
    if (isReleased) {
      rank.phase = 'idle'
      if (rank.isGone) {
        this.#options.ended(rank)
        return
      }
    }
    if (!isReleased || rank.fault === undefined) this.#lives.pause(rank)
  }

  #start(rank: Rank, eventsEndpoint: string): void {
    const { instanceId, dpRank, replayEndpoint, workerSlot, blockSizeTokens } = rank
    this.#lives.start(rank, `listener ${instanceId}/${dpRank} slot ${workerSlot}`, {
      eventsEndpoint,
      replayEndpoint,
      topic: '',
      blockSizeTokens,
      indexer: this.#options.sinkOf(rank),
    })
  }
}

/** For logs and metrics. */
export function nameOf({ instanceId, dpRank }: Rank): string {
  return `${instanceId}/${dpRank}`
}

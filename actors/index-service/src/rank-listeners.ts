/**
 * Rank listeners: starts a listener for every registered rank, follows its life, and has the indexer forget the slot
 * afterwards. The phases are in rank.ts.
 *
 * Owns   `phase`, `listener`, `heard` and `fault` of every rank; the listeners are children of the service.
 * Order  a listener starts, and a rank that is gone ends, only in `idle`: then no listener of before writes to the
 *        slot, and the indexer holds nothing for it. An indexer that does not answer is asked again until it does.
 * Fails  a listener that fails is restarted; one that fails for good is started anew after LISTENER_PAUSE_MS. When its
 *        event thread dies it comes back under the same ref, but the watch has ended: it is watched again after
 *        LISTENER_PAUSE_MS.
 */

import {
  type ActorContext,
  type ActorRef,
  isThreadLoss,
  type Supervision,
  type Terminated,
} from '@homing/actor'
import type { IndexerMessage } from '@homing/indexer'
import { type CheckpointOptions, LISTENER_LIMITS, listener, type SourceMessage } from '@homing/listener'
import type { IndexServiceMessage } from './messages.ts'
import { type Rank, unheard } from './rank.ts'

type ReleaseMessage = Extract<IndexerMessage, { readonly type: 'release' }>

export interface RankListenersOptions {
  readonly context: ActorContext<IndexServiceMessage>
  /** Where the events of a rank go: its indexer, or who stands before it. */
  readonly sinkOf: (rank: Rank) => ActorRef<IndexerMessage>
  /** Who is to forget the slot of a rank whose listener has ended. */
  readonly releaserOf: (rank: Rank) => ActorRef<ReleaseMessage>
  /** The thread `<pool>-<shard>` hosts the listeners of a shard. */
  readonly eventPool: string
  /** Silence after which a replay has ended. */
  readonly replayTimeoutMs: number
  /** Undefined: none are kept. */
  readonly checkpoints: CheckpointOptions | undefined
  /** Called for a rank that is gone when nothing is left of it: its slot may serve another. */
  readonly ended: (rank: Rank) => void
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

export class RankListeners {
  readonly #options: RankListenersOptions
  readonly #context: ActorContext<IndexServiceMessage>

  constructor(options: RankListenersOptions) {
    this.#options = options
    this.#context = options.context
  }

  /** Brings the listener of a rank in line with what is wanted of it. */
  reconcile(rank: Rank): void {
    const isWanted = !rank.isGone && rank.fault === undefined
    if (rank.phase === 'idle') {
      if (isWanted) this.#start(rank)
      else if (rank.isGone) this.#options.ended(rank)
    } else if (rank.phase === 'running' && !isWanted) {
      rank.phase = 'stopping'
      rank.heard = unheard('its listener is stopping')
      // The watch may have ended with its thread, and without one its end would never be known.
      this.#context.watch(rank.listener!)
      this.#context.stop(rank.listener!)
    }
  }

  heard(rank: Rank, { trust, reason, epoch, isSuffix, blockSizeTokens }: SourceMessage): void {
    if (rank.phase !== 'running') return
    if (trust !== rank.heard.trust) {
      this.#context.log.info({ rank: nameOf(rank), trust, reason }, 'trust has changed')
    }
    rank.heard = { trust, reason, epoch, isSuffix }
    if (blockSizeTokens === undefined || blockSizeTokens === rank.blockSizeTokens) return
    rank.fault = `its engine stores blocks of ${blockSizeTokens} tokens, not ${rank.blockSizeTokens}: unregister it, and register it with block_size ${blockSizeTokens}`
    this.#context.log.error({ rank: nameOf(rank), reason: rank.fault }, 'rank cannot be used')
    this.reconcile(rank)
  }

  /** What a pause was for. */
  due(rank: Rank): void {
    if (rank.phase === 'releasing') this.#release(rank)
    else this.reconcile(rank)
    if (rank.phase === 'running') this.#context.watch(rank.listener!)
  }

  /** The listener of this rank has ended, or its thread has. */
  terminated(rank: Rank, { reason, error }: Terminated): void {
    const why = error?.message ?? reason
    if (rank.phase === 'running' && isThreadLoss(reason)) {
      rank.heard = unheard(`its event thread has ended (${why})`)
      this.#pause(rank)
      return
    }
    if (rank.phase === 'running') {
      this.#context.log.error({ rank: nameOf(rank), reason: why }, 'listener has ended; it is started anew')
      rank.heard = unheard(`its listener has ended (${why})`)
    }
    rank.listener = undefined
    this.#release(rank)
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
    if (!isReleased || rank.fault === undefined) this.#pause(rank)
  }

  #start(rank: Rank): void {
    const { instanceId, dpRank, endpoint, replayEndpoint, workerSlot, shard, blockSizeTokens } = rank
    rank.phase = 'running'
    rank.heard = unheard(`no connection to ${endpoint} yet`)
    rank.listener = this.#context.spawn(listener, {
      name: `listener ${instanceId}/${dpRank} slot ${workerSlot}`,
      args: {
        workerSlot,
        key: nameOf(rank),
        dpRank,
        eventsEndpoint: endpoint,
        replayEndpoint,
        topic: '',
        blockSizeTokens,
        indexer: this.#options.sinkOf(rank),
        directory: this.#context.self,
        checkpoints: this.#options.checkpoints,
        limits: { ...LISTENER_LIMITS, replayTimeoutMs: this.#options.replayTimeoutMs },
      },
      thread: `${this.#options.eventPool}-${shard}`,
      supervision: LISTENER_SUPERVISION,
      mailbox: { capacity: LISTENER_MAILBOX },
    })
    this.#context.watch(rank.listener)
  }

  #release(rank: Rank): void {
    rank.phase = 'releasing'
    const { workerSlot } = rank
    this.#context.pipe(
      this.#options.releaserOf(rank).ask({ type: 'release', workerSlot }, { timeout: RELEASE_TIMEOUT_MS }),
      () => ({ type: 'released', workerSlot, isReleased: true }),
      () => ({ type: 'released', workerSlot, isReleased: false }),
    )
  }

  #pause(rank: Rank): void {
    this.#context.schedule(LISTENER_PAUSE_MS, { type: 'listenerDue', workerSlot: rank.workerSlot })
  }
}

/** For logs and metrics. */
export function nameOf({ instanceId, dpRank }: Rank): string {
  return `${instanceId}/${dpRank}`
}

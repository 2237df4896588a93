/**
 * Shards: the indexers of the service, one per event thread, and the reader of their memory.
 *
 * Owns   the reader, and the known memory and life of each shard. Every LOOK_INTERVAL_MS each indexer is
 *        told both, and answers if something has changed.
 * Fails  an indexer that fails is restarted with an empty shard under the same ref; its sources rebuild. An
 *        indexer whose budget is used up fails the service: an index without one of its shards is worse than
 *        one that is restarted.
 */

import { type ActorContext, type ActorRef, isThreadLoss, type Terminated } from '@homing/actor'
import {
  createGuessCounts,
  type IndexerMessage,
  indexer,
  type RoutedMessage,
  type ShardMemoryMessage,
  type ShardResetMessage,
  type ShardStatus,
} from '@homing/actors/indexer'
import { CHILD_SUPERVISION } from '@homing/http'
import {
  createIndexDoor,
  createIndexMemory,
  createLabelMemory,
  type IndexMemory,
  IndexReader,
  LABEL_BYTES_MIN,
  type LabelShape,
} from '@homing/index'
import { LabelLookup } from '@homing/placement'
import { ServiceActorLostError } from './errors.ts'
import { type InheritorMessage, inheritor } from './inheritor.ts'
import type { InheritedCounts, ShardsMessage } from './messages.ts'

export interface ShardsOptions {
  readonly count: number
  /** All shards together, what is inherited included. */
  readonly indexBytes: number
  readonly labelBytes: number
  readonly labelShape: LabelShape | undefined
  readonly workerSlotsMax: number
  readonly eventPool: string
  /** Blocks of peers' dumps are to be kept beside those of the engines. */
  readonly inherits: boolean
  /** Of blocks that count as held because a prompt was sent there; undefined: none are. */
  readonly guesses?: { readonly blocksMax: number; readonly pruneTargetRatio: number }
}

/** Of the actor that they are children of. */
type ShardsContext = Pick<ActorContext<ShardsMessage>, 'self' | 'spawn' | 'watch' | 'schedule'>

const LOOK_INTERVAL_MS = 1000
const SHARD_WATCH_AGAIN_MS = 1000
const MAILBOX = 16_384
/** The part of a shard's memory for what is inherited, where anything can be. */
const INHERITED_SHARE = 0.25

export class Shards {
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  /** By shard; empty: nothing is inherited. */
  readonly inheritors: readonly ActorRef<InheritorMessage>[]
  /** By shard; others can read through them, too. */
  readonly doors: readonly SharedArrayBuffer[]
  readonly reader: IndexReader
  /** What peers said; undefined: nothing is inherited. */
  readonly inheritedReader: IndexReader | undefined
  /** Reads the labels of all shards, and behind them those of what is inherited. */
  readonly labels: LabelLookup
  readonly #context: ShardsContext
  readonly #incarnations: (number | undefined)[]
  readonly #memoryNumbers: (number | undefined)[]

  constructor(context: ShardsContext, options: ShardsOptions) {
    const { count, indexBytes, labelBytes, labelShape, workerSlotsMax, eventPool, inherits, guesses } =
      options
    this.#context = context
    this.labels = new LabelLookup(count)
    const shardBytes = Math.floor(indexBytes / count)
    const inheritedBytes = inherits ? Math.floor(shardBytes * INHERITED_SHARE) : 0
    const shardLabelBytes = Math.floor(labelBytes / count)
    const inheritedLabelBytes = inherits ? labelBytesInherited(shardLabelBytes) : 0
    const counts = createGuessCounts(count)
    const guessed = guesses && {
      pruneTargetRatio: guesses.pruneTargetRatio,
      guesses: { blocksMax: guesses.blocksMax, counts },
    }
    const doors: SharedArrayBuffer[] = []
    const inheritedMemories: IndexMemory[] = []
    const indexers: ActorRef<IndexerMessage | RoutedMessage>[] = []
    const inheritors: ActorRef<InheritorMessage>[] = []
    for (let shard = 0; shard < count; shard++) {
      const place = {
        thread: `${eventPool}-${shard}`,
        supervision: CHILD_SUPERVISION,
        mailbox: { capacity: MAILBOX },
      }
      // Made here so that it outlives the indexer: by it the reader knows when that has begun anew.
      const memory = createIndexDoor()
      doors.push(memory)
      const capacityBytes = shardBytes - inheritedBytes
      const ref = context.spawn(indexer, {
        ...place,
        name: `indexer-${shard}`,
        args: {
          shard,
          memory,
          capacityBytes,
          workerSlotsMax,
          labelBytes: shardLabelBytes - inheritedLabelBytes,
          labelShape,
          keepsOrphans: count === 1,
          ...guessed,
        },
      })
      context.watch(ref)
      indexers.push(ref)
      if (!inherits) continue
      const inherited = createIndexMemory({ capacityBytes: inheritedBytes, workerSlotsMax })
      inheritedMemories.push(inherited)
      const labelMemory =
        inheritedLabelBytes === 0 ? undefined : createLabelMemory(inheritedLabelBytes, labelShape)
      this.labels.reader.setShard(count + shard, labelMemory)
      const before = context.spawn(inheritor, {
        ...place,
        name: `inheritor-${shard}`,
        args: {
          memory: inherited,
          capacityBytes: inheritedBytes,
          workerSlotsMax,
          labelMemory,
          indexer: ref,
        },
      })
      context.watch(before)
      inheritors.push(before)
    }
    this.indexers = indexers
    this.inheritors = inheritors
    this.doors = doors
    this.reader = new IndexReader(doors)
    this.inheritedReader = inherits ? new IndexReader(inheritedMemories) : undefined
    this.#incarnations = doors.map(() => undefined)
    this.#memoryNumbers = doors.map(() => undefined)
    this.look()
  }

  /** Asks every indexer for what has changed, now and again. */
  look(): void {
    for (const [shard, ref] of this.indexers.entries()) {
      ref.tell({ type: 'observe', incarnation: this.#incarnations[shard], observer: this.#context.self })
      this.#attach(shard)
    }
    this.#context.schedule(LOOK_INTERVAL_MS, { type: 'lookAfterShards' })
  }

  /** A lookup found that a shard has moved: asks for its memory at once. */
  lookAgain(): void {
    for (const shard of this.indexers.keys()) if (this.reader.isStale(shard)) this.#attach(shard)
  }

  moved({ shard, memory, memoryNumber, labels }: ShardMemoryMessage): void {
    this.labels.reader.setShard(shard, labels)
    this.#memoryNumbers[shard] = memoryNumber
    this.reader.replaceShard(shard, memory)
  }

  /** True: the shard has lost what it held. */
  isReset({ shard, incarnation }: ShardResetMessage): boolean {
    const known = this.#incarnations[shard]
    this.#incarnations[shard] = incarnation
    return known !== undefined && known !== incarnation
  }

  /** False: the ref is none of these. Throws when the actor is not coming back. */
  terminated({ ref, reason, error }: Terminated): boolean {
    const actors: readonly ActorRef<never>[] = [...this.indexers, ...this.inheritors]
    const at = actors.findIndex(({ key }) => key === ref.key)
    if (at < 0) return false
    if (!isThreadLoss(reason)) throw new ServiceActorLostError(ref.name, error?.message ?? reason)
    // Its thread is being replaced, and the actor started there again under the same ref.
    this.#context.schedule(SHARD_WATCH_AGAIN_MS, { type: 'watchAgain', shard: at % this.indexers.length })
    return true
  }

  watchAgain(shard: number): void {
    this.#context.watch(this.indexers[shard]!)
    const before = this.inheritors[shard]
    if (before !== undefined) this.#context.watch(before)
  }

  /** By shard; undefined: it did not answer in time. */
  status(timeoutMs: number): Promise<readonly (ShardStatus | undefined)[]> {
    const deadline = { timeout: timeoutMs }
    return Promise.all(this.indexers.map(ref => ref.ask({ type: 'status' }, deadline).catch(() => undefined)))
  }

  /** By shard, the inherited blocks by worker slot; undefined: it did not answer in time. */
  inheritedBlocks(timeoutMs: number): Promise<readonly InheritedCounts[]> {
    return Promise.all(
      this.inheritors.map(ref =>
        ref.ask({ type: 'inheritedBlocks' }, { timeout: timeoutMs }).catch(() => undefined),
      ),
    )
  }

  #attach(shard: number): void {
    this.indexers[shard]!.tell({
      type: 'attach',
      memoryNumber: this.#memoryNumbers[shard],
      reader: this.#context.self,
    })
  }
}

/** The part of a shard's labels for what is inherited; 0: there is too little for both. */
function labelBytesInherited(shardLabelBytes: number): number {
  const bytes = Math.floor(shardLabelBytes * INHERITED_SHARE)
  return bytes >= LABEL_BYTES_MIN ? bytes : 0
}

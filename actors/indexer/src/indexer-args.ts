/** Arguments of an indexer. */

import type { RouterSettings } from '@homing/config'
import type { LabelShape, ShardMemory } from '@homing/index'

export interface IndexerArgs {
  readonly shard: number
  /**
   * Made by `createIndexDoor`: readers hold it, and attach themselves here for the memory. Or by
   * `createIndexMemory` with `layeredOptions(capacityBytes, workerSlotsMax)`: readers hold that, and keep it
   * when this actor restarts.
   */
  readonly memory: ShardMemory
  /**
   * Bytes of the shard, tables private to the writer included. The tables of guesses come on top: 32 to 64
   * bytes for each of `capacityBytes / GUESS_BYTES` blocks at most, so half as much.
   */
  readonly capacityBytes: number
  /** Worker keys; each has a worker slot, and further ones for its other layers. */
  readonly workerSlotsMax: number
  /** Part of the guesses that remains when there are too many, 0 … 1; default 0.8. */
  readonly pruneTargetRatio?: number
  /** Bytes of the labels of its blocks; 0 or absent: none are kept. */
  readonly labelBytes?: number | undefined
  /** Default: LABEL_SHAPE. */
  readonly labelShape?: LabelShape | undefined
  /**
   * What a worker that leaves, or cannot be heard, has in pooled memory stays reachable. Only for a shard
   * that is alone, or to whose indexer listeners of others pass on evictions. Default false.
   */
  readonly keepsOrphans?: boolean | undefined
  /** Bound of the guesses of all shards together; undefined: there is none. */
  readonly guesses?: GuessBound | undefined
}

export interface GuessBound {
  readonly blocksMax: number
  /** Made by `createGuessCounts` for all shards. */
  readonly counts: SharedArrayBuffer
}

export type ShardSettings = Pick<
  RouterSettings,
  | 'indexBytes'
  | 'labelBytes'
  | 'labelRecordsPerBlock'
  | 'labelWorkersShare'
  | 'eventThreads'
  | 'workerSlotsMax'
  | 'pruneTargetRatio'
  | 'guessBlocksMax'
>

/** One word for each shard. */
export function createGuessCounts(shards: number): SharedArrayBuffer {
  return new SharedArrayBuffer(shards * Int32Array.BYTES_PER_ELEMENT)
}

/** How labels are divided, by the settings of whichever command. */
export function labelShapeOf(
  settings: Pick<RouterSettings, 'labelRecordsPerBlock' | 'labelWorkersShare'>,
): LabelShape {
  return { recordsPerBlock: settings.labelRecordsPerBlock, workersShare: settings.labelWorkersShare }
}

/** Of one shard of the router's index: each has an equal part of its bytes. */
export function indexerArgsFromSettings(
  settings: ShardSettings,
  parts: Pick<IndexerArgs, 'shard' | 'memory'> & { readonly guessCounts: SharedArrayBuffer },
): IndexerArgs {
  const {
    indexBytes,
    labelBytes,
    eventThreads,
    workerSlotsMax,
    pruneTargetRatio,
    guessBlocksMax: blocksMax,
  } = settings
  const { guessCounts: counts, ...others } = parts
  const capacityBytes = Math.floor(indexBytes / eventThreads)
  const shardLabels = Math.floor(labelBytes / eventThreads)
  return {
    ...others,
    capacityBytes,
    labelBytes: shardLabels,
    labelShape: labelShapeOf(settings),
    keepsOrphans: true,
    workerSlotsMax,
    pruneTargetRatio,
    guesses: { blocksMax, counts },
  }
}

/** The metrics of a shard, in whichever service it is: name, help and value. */

import { LABEL_COLUMNS, type LabelFigures } from './labels/label-columns.ts'

/** Figures of one shard, as its indexer reports them. */
export interface ShardFigures {
  readonly bytesUsed: number
  readonly bytesLimit: number
  readonly blocksDistinct: number
  readonly orphanBlocks: number
  readonly blocksEvicted: number
  /** Undefined: no labels are kept. */
  readonly labels: LabelFigures | undefined
}

export const SHARD_COLUMNS: readonly (readonly [
  name: string,
  help: string,
  value: (shard: ShardFigures) => number,
])[] = [
  ['homing_index_used_bytes', 'Memory of the prefix index in use.', shard => shard.bytesUsed],
  [
    'homing_index_limit_bytes',
    'Most memory that the prefix index may use (--index-bytes).',
    shard => shard.bytesLimit,
  ],
  [
    'homing_index_distinct_blocks',
    'Blocks that at least one worker key holds.',
    shard => shard.blocksDistinct,
  ],
  ['homing_index_orphan_blocks', 'Parked blocks whose parent is not known yet.', shard => shard.orphanBlocks],
  [
    'homing_index_evicted_blocks_total',
    'Blocks evicted to make room; above 0, the index lists less than the engines hold.',
    shard => shard.blocksEvicted,
  ],
  ...LABEL_COLUMNS.map(
    ([name, help, value]) =>
      [name, help, ({ labels }: ShardFigures) => (labels === undefined ? 0 : value(labels))] as const,
  ),
]

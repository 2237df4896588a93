/** The metrics of the labels of a shard: name, help and value; 0 where none are kept. */

import type { LabelStats } from './label-record.ts'
import { POOL_STATE } from './pool-states.ts'

export interface LabelFigures extends LabelStats {
  readonly unplaced: number
  readonly unsaved: number
  readonly membersLeftOut: number
}

type Column = readonly [name: string, help: string, value: (labels: LabelFigures) => number]

export const LABEL_COLUMNS: readonly Column[] = [
  ['homing_index_label_used_bytes', 'Memory of the labels of blocks in use.', labels => labels.bytesUsed],
  [
    'homing_index_label_limit_bytes',
    'Most memory that labels of blocks may use (--label-bytes).',
    labels => labels.bytesLimit,
  ],
  [
    'homing_index_label_blocks_used_ratio',
    'Part in use of the room for labelled blocks: at 1 further ones are refused (--label-bytes).',
    labels => labels.fullness.blocks,
  ],
  [
    'homing_index_label_records_used_ratio',
    'Part in use of the room for what worker keys say of blocks (--label-records-per-block).',
    labels => labels.fullness.records,
  ],
  [
    'homing_index_label_workers_used_ratio',
    'Part in use of the room for lists of workers that reach pooled blocks (--label-workers-share).',
    labels => labels.fullness.workers,
  ],
  ['homing_index_labelled_blocks', 'Blocks with an expert.', labels => labels.labelledBlocks],
  [
    'homing_index_pooled_blocks',
    'Blocks in pooled memory, counted for each worker key that says so.',
    labels => labels.byState[POOL_STATE.cxlPooled]!,
  ],
  ['homing_index_orphaned_pooled_blocks', 'Those of worker keys that have left.', labels => labels.orphans],
  [
    'homing_index_changed_pool_states_total',
    'Transitions of blocks in pooled memory that were applied.',
    labels => labels.transitions.changed,
  ],
  [
    'homing_index_illegal_pool_states_total',
    'Transitions that were refused: the state may not follow the present one, or no pool was named.',
    labels => labels.transitions.illegal,
  ],
  [
    'homing_index_unknown_pool_states_total',
    'Transitions of blocks that are not known.',
    labels => labels.transitions.unknown,
  ],
  [
    'homing_index_unplaced_labels_total',
    'Blocks whose labels were not taken, because the block above them is not known.',
    labels => labels.unplaced,
  ],
  [
    'homing_index_refused_labels_total',
    'Blocks whose labels, or the workers that reach them, or unknown members, found no room (--label-bytes).',
    labels => labels.refused + labels.transitions.full,
  ],
  [
    'homing_index_dropped_labels_total',
    'Records of evicted blocks, and of worker keys that have left, that made room for others.',
    labels => labels.dropped,
  ],
  [
    'homing_index_unsaved_labels_total',
    'Images of a worker key for checkpoints and heirs that left out its labels, because they were too many.',
    labels => labels.unsaved,
  ],
  [
    'homing_index_refused_label_members_total',
    'Labels of which only the known members are kept: the others are too long, too deep, or no JSON.',
    labels => labels.membersLeftOut,
  ],
]

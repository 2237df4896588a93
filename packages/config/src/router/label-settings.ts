/** Settings of `homing router`: labels of blocks, and what they count for. */

import type { SettingDescriptor } from '../descriptor.ts'
import { shared } from '../shared-settings.ts'

const LABEL_WEIGHT_MAX = 100

export const labelSettings = [
  {
    ...shared.labelBytes,
    group: 'KV events and index',
    help: 'Memory for labels of blocks (experts of MoE models, states in pooled memory), divided evenly among the shards of the index. It is taken from the system as it fills. Labels that find no room are left out and counted. 0 keeps none.',
  },
  {
    ...shared.labelRecordsPerBlock,
    group: 'KV events and index',
    help: 'Worker keys that say something of one labelled block, on the average: --label-bytes is divided by it. More for fleets that share prompts, where homing_index_label_records_used_ratio is near 1 before that of blocks.',
  },
  {
    ...shared.labelWorkersShare,
    group: 'KV events and index',
    help: 'Part of --label-bytes for lists of workers that reach pooled blocks, each different list once (homing_index_label_workers_used_ratio). A pooled block whose list finds no room is reached by its own worker alone. Half of it at most is for members of labels that are not known.',
  },
  {
    key: 'moeHitWeight',
    name: 'router-moe-hit-weight',
    group: 'KV events and index',
    kind: 'number',
    default: 1,
    min: 0,
    max: LABEL_WEIGHT_MAX,
    help: 'For a request with a moe_query: what a held block with a matching expert counts for, beside the block itself.',
  },
  {
    key: 'pooledHitWeight',
    name: 'router-pooled-hit-weight',
    group: 'KV events and index',
    kind: 'number',
    default: 1,
    min: 0,
    max: LABEL_WEIGHT_MAX,
    help: 'Weight of a block in pooled memory that a worker reaches and does not hold, when one on the device counts 1.',
  },
  {
    key: 'pooledMigrationWeight',
    name: 'router-pooled-migration-weight',
    group: 'KV events and index',
    kind: 'number',
    default: 2,
    min: 0,
    max: LABEL_WEIGHT_MAX,
    help: 'The same for a stream that goes on at another worker, because its own has failed. Above 1 it outweighs load.',
  },
] as const satisfies readonly SettingDescriptor[]

export {
  type BlockImage,
  HELD_WORDS,
  IMAGE_BLOCKS_MAX,
  imageOf,
  type LayerSlot,
  ORPHAN_WORDS,
  storeImage,
} from './block-image.ts'
export { BlockIndex } from './block-index.ts'
export { createIndexDoor } from './door.ts'
export { IndexReader } from './index-reader.ts'
export {
  DEVICE_LAYER,
  GUESSED_LAYER,
  KEY_LAYERS,
  type KeyLayer,
  layeredOptions,
  layerSlot,
} from './key-layers.ts'
export { labelImageOf, loadLabels, readLabelImage } from './labels/label-image.ts'
export { BlockLabels, LabelReader } from './labels/label-reader.ts'
export type {
  LabelInput,
  LabelRecord,
  LabelStats,
  LastLabel,
  PoolPlace,
  TransitionOutcome,
} from './labels/label-record.ts'
export {
  type LabelSample,
  type LabelSampleOptions,
  type SampledBlock,
  type SampledPool,
  sampleLabels,
} from './labels/label-sample.ts'
export { LabelTable } from './labels/label-table.ts'
export {
  clearLabelMemory,
  createLabelMemory,
  LABEL_BYTES_MIN,
  LABEL_SHAPE,
  type LabelMemory,
  type LabelShape,
  type MoeLabel,
  ORPHAN_SLOT,
} from './labels/label-words.ts'
export { POOL_STATE, type PoolStateCode, type TransitionRule } from './labels/pool-states.ts'
export { LayerOverlaps, Layers } from './layers.ts'
export { OverlapCounts } from './overlap-counts.ts'
export { SHARD_COLUMNS, type ShardFigures } from './shard-columns.ts'
export { createIndexMemory } from './shard-memory.ts'
export type { TreeSample, TreeSampleOptions, TreeSegment } from './tree-sample.ts'
export { TRUSTS, type Trust } from './trust.ts'
export type {
  BlockHolder,
  BlockPlace,
  Copies,
  DumpEntry,
  HashPair,
  IndexMemory,
  IndexOptions,
  IndexStats,
  OrphanEntry,
  ReaderStats,
  RemoveOutcome,
  ShardMemory,
  StoreOutcome,
  WordAccess,
} from './types.ts'

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
  KEY_LAYERS,
  type KeyLayer,
  layeredOptions,
  layerSlot,
  PREDICTED_LAYER,
} from './key-layers.ts'
export { LayerScores, Layers } from './layers.ts'
export { OverlapScores } from './overlap-scores.ts'
export { createIndexMemory } from './shard-memory.ts'
export type {
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

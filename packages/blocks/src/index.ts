export {
  type BlockHashes,
  type BlockOptions,
  chainSequence,
  fullBlocks,
  hashBlocks,
  hashLocals,
} from './blocks.ts'
export {
  addHashes,
  bigintToHash,
  formatHash,
  formatHashNumber,
  hashToBigInt,
  parseHash,
  sortHashes,
  tryHashNumber,
} from './hash64.ts'
export {
  type MediaObject,
  mediaByBlock,
  mediaHashOf,
  mediaOfBlocks,
  mediaPadToken,
  mergedRanges,
  tryMediaDigest,
} from './media.ts'
export { DEFAULT_SEED, type HashNamespace, NOBODYS_SEED, namespaceSeed, type Seed } from './namespace.ts'
export { type StoredContent, writeStoreLocals } from './store-locals.ts'
export { hashText, textTokens } from './text-blocks.ts'
export { INPUT_SIZE_MAX, xxh3 } from './xxh3.ts'

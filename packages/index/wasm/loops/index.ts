/**
 * The loops of the index that TypeScript may call. AssemblyScript, compiled by test/build-wasm.ts into
 * ../../src/index-wasm.ts.
 */

export { bucketOfHead, childOf, create, joinBuckets, merge, mergeable, moveTop, trim } from './chunks'
export { deleteEntryAt, deleteName, findName, insertName, relocateName, shrinkSegment, touchNames } from './engine-table'
export { attach } from './memory'
export { answersAt, extend, layersAt, overlap, scratchWords, useScratch } from './reader'
export { removeRun, storeRun } from './runs'
export { internScratch, moveBlocks, sizeTables, withHolder, withoutHolder } from './worker-sets'

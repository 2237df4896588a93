/** The loops of the index: what TypeScript may call. Compiled by build.ts into ../src/index-wasm.ts. */

export { bucketOfHead, childOf, create, joinBuckets, merge, mergeable, moveTop, trim } from './chunks.as'
export { deleteEntryAt, deleteName, findName, insertName, relocateName, shrinkSegment, touchNames } from './engine-table.as'
export { attach } from './memory.as'
export { answersAt, extend, layersAt, overlap, scratchWords, useScratch } from './reader.as'
export { removeRun, storeRun } from './runs.as'
export { internScratch, moveBlocks, sizeTables, withHolder, withoutHolder } from './worker-sets.as'

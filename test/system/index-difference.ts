/**
 * Whether an index holds the blocks of an engine's cache: no block more, and no block less except where the
 * events leave that open.
 *
 * An engine with several copies of a block reports the removal of each copy. The index takes the first
 * removal for the last one, until it has learned better (*Copies* in docs/reliability.md): so a block that
 * has lost a copy since its last store may be missing, and so may blocks stored below a missing block. The
 * number of copies depends on which requests meet in the engine, and so on how busy the machine is.
 */

import type { CachedBlock } from '@homing/engine'

/**
 * `indexed`: 'hash<parent', where the parent is 'null' for none, or one that is not held. Undefined: they do
 * not differ.
 */
export function indexDifference(
  indexed: readonly string[],
  cached: readonly Pick<CachedBlock, 'hash' | 'parentHash' | 'hasLostCopy'>[],
): string | undefined {
  const parents = new Map(indexed.map(block => block.split('<') as [hash: string, parent: string]))
  const faults = { missing: 0, misplaced: 0, stale: 0 }
  let open = 0
  const hashes = new Set<string>()
  for (const { hash, parentHash, hasLostCopy } of cached) {
    hashes.add(hash)
    const isParentHeld = parentHash !== null && parents.has(parentHash)
    const parent = parents.get(hash)
    if (parent === undefined) {
      if (hasLostCopy || (parentHash !== null && !isParentHeld)) open++
      else faults.missing++
    } else if (parent !== (isParentHeld ? parentHash : 'null')) faults.misplaced++
  }
  for (const hash of parents.keys()) if (!hashes.has(hash)) faults.stale++
  const { missing, misplaced, stale } = faults
  if (missing + misplaced + stale === 0) return undefined
  return `${parents.size} blocks, cache: ${hashes.size}; missing: ${missing}, and ${open} that may be; under another parent: ${misplaced}; stale: ${stale}`
}

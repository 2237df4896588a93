/** What the cache map says of a prefix, in words. */

import type { MapNode, MapSection } from '../src/sections.ts'
import { count, percent, short } from './format.ts'

/** Names of workers that are written; the others are counted. */
const NAMES_MAX = 4

export function lengthText(blocks: number, { block_size: size }: MapSection): string {
  return size === null ? `${count(blocks)} blocks` : `${count(blocks * size)} tokens`
}

/** Who holds it: "w1, w2 and 22 more". */
export function holdersText({ holders, holders_total: total }: MapNode, { workers }: MapSection): string {
  if (total === 0) return 'nobody any more'
  const names = holders.slice(0, NAMES_MAX).map(at => workers[at] ?? '?')
  if (names.length === 0) return `${count(total)} that are not told apart`
  const more = total - names.length
  return more === 0 ? names.join(', ') : `${names.join(', ')} and ${count(more)} more`
}

export function aboutNode(node: MapNode, map: MapSection): string {
  const place = `${lengthText(node.length, map)} from ${lengthText(node.depth, map)} on`
  return `${node.hash}: ${place}; with all that follows ${short(node.blocks)} copies of blocks; held by ${holdersText(node, map)}`
}

/** Copies beyond the first of what is drawn. */
export function sharingText({ nodes }: MapSection): string {
  // A prefix that has lost its last holder, while others hold blocks below it, has no first copy.
  const held = nodes.filter(({ holders_total: total }) => total > 0)
  const copies = held.reduce((sum, { length, holders_total: total }) => sum + length * total, 0)
  const distinct = held.reduce((sum, { length }) => sum + length, 0)
  const shared = held.filter(({ holders_total: total }) => total > 1).length
  const duplicates = percent(copies === 0 ? 0 : (copies - distinct) / copies)
  return `Of the ${count(nodes.length)} prefixes drawn, ${count(shared)} ${shared === 1 ? 'is' : 'are'} held by more than one worker; ${duplicates} of their blocks are duplicates.`
}

/** Empty if all workers are listed one by one. */
export function apartText({ workers, workers_total: total }: MapSection): string {
  if (total <= workers.length) return ''
  return ` Of ${count(total)} workers, the ${count(workers.length)} with most blocks are told apart; the others are counted.`
}

/** What the cache map says of a prefix, in words. */

import type { MapNode, MapNodePools, MapSection, PoolStates, Reached } from '../src/sections.ts'
import { count, percent, short } from './format.ts'

/** Names of workers that are written; the others are counted. */
const NAMES_MAX = 4

/** States in pooled memory, as people read them. */
export const POOL_WORDS: Readonly<Record<keyof PoolStates, string>> = {
  cxl_pooled: 'pooled',
  in_transit: 'in transit',
  evicted: 'evicted',
  local_gpu: 'local',
}

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
  return `${node.hash}: ${place}; with all that follows ${short(node.blocks)} copies of blocks; held by ${holdersText(node, map)}${node.pools === null ? '' : `; ${poolsText(node.pools)}`}`
}

/** "64 pooled, 3 in transit"; '': none has a state. */
export function statesText(states: PoolStates): string {
  const told = (Object.keys(POOL_WORDS) as (keyof PoolStates)[]).filter(state => states[state] > 0)
  return told.map(state => `${count(states[state])} ${POOL_WORDS[state]}`).join(', ')
}

/** "w1, w2 and 22 more". */
export function reachedText({ reached_by: names, reached_by_total: total }: Reached): string {
  const named = names.slice(0, NAMES_MAX)
  if (named.length === 0) return 'none'
  const more = total - named.length
  return more === 0 ? named.join(', ') : `${named.join(', ')} and ${count(more)} more`
}

/** What labels say of the blocks of a node: "64 pooled in pool 7, reached by w1, w2; 4 blocks of …". */
export function poolsText(node: MapNodePools): string {
  const texts: string[] = []
  const states = statesText(node.states)
  if (states !== '') {
    const ids = node.pools.slice(0, NAMES_MAX)
    const more = node.pools_total - ids.length
    const where =
      ids.length === 0 ? '' : ` in pool ${ids.join(', ')}${more > 0 ? ` and ${count(more)} more` : ''}`
    const reached = node.reached_by_total === 0 ? '' : `, reached by ${reachedText(node)}`
    texts.push(`${states}${where}${reached}`)
  }
  if (node.labelled_blocks > 0) {
    const names = node.experts
      .slice(0, NAMES_MAX)
      .map(({ layer, expert }) => `layer ${layer} expert ${expert}`)
    const more = node.experts_total - names.length
    texts.push(
      `${count(node.labelled_blocks)} blocks of ${names.join(', ')}${more > 0 ? ` and ${count(more)} more` : ''}`,
    )
  }
  return texts.join('; ')
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

/**
 * Pooled memory in the cache map: a strip at the right edge of each box with its blocks by state, the sums
 * over all blocks, and a table of pools. Nothing of it is drawn where no worker says anything of pools.
 */

import type { VNode } from 'preact'
import type { MapNode, MapPools, PoolStates } from '../src/sections.ts'
import { el, table } from './elements.ts'
import { count } from './format.ts'
import { POOL_WORDS, reachedText, statesText } from './map-words.ts'

/** From the top of a strip on. */
const STATES = ['cxl_pooled', 'in_transit', 'evicted', 'local_gpu'] as const
const STRIP_WIDTH = 10
/** Of a narrow box a strip takes this part at most. */
const STRIP_SHARE = 1 / 3

interface Place {
  readonly x: number
  readonly y: number
  readonly width: number
  readonly height: number
}

/** Blocks of which nothing is said leave the rest of the strip empty. */
export function poolStrip({ pools, length }: MapNode, key: string, box: Place): readonly VNode[] {
  if (pools === null) return []
  const width = Math.min(STRIP_WIDTH, box.width * STRIP_SHARE)
  const all = STATES.reduce((sum, state) => sum + pools.states[state], 0)
  let { y } = box
  return STATES.flatMap(state => {
    if (pools.states[state] === 0) return []
    const height = (box.height * pools.states[state]) / Math.max(length, all)
    const part = el('rect.pool-part', {
      key: `${key} ${state}`,
      x: box.x + box.width - width,
      y,
      width,
      height,
      class: `pool-${state}`,
    })
    y += height
    return [part]
  })
}

/** What the colours of the strips are. */
export function poolKeys(): VNode {
  return el(
    'p.small',
    { 'data-field': 'pool-keys' },
    'At the right edge, blocks that their workers say are ',
    ...STATES.map(state =>
      el(
        'span.map-key',
        null,
        el(
          'svg.map-sample',
          { viewBox: '0 0 10 10', 'aria-hidden': 'true' },
          el('rect', { width: 10, height: 10, class: `pool-${state}` }),
        ),
        ` ${POOL_WORDS[state]}`,
      ),
    ),
  )
}

export function poolsPart(pools: MapPools): VNode {
  return el(
    'section',
    { 'aria-labelledby': 'pools-title' },
    el('h2', { id: 'pools-title' }, 'Pooled memory'),
    el(
      'p',
      { 'data-field': 'pool-states' },
      statesText(pools.states) === ''
        ? 'No block has a state in pooled memory.'
        : `Blocks, counted for each worker that says so: ${statesText(pools.states)}.`,
      pools.orphans === 0
        ? ''
        : ` Of the pooled ones, ${count(pools.orphans)} are of workers that have left.`,
      pools.labelled_blocks === 0 ? '' : ` ${count(pools.labelled_blocks)} blocks have an expert.`,
      pools.is_whole
        ? ''
        : ' There are many: a part of them is looked at, and the figures of pools are estimates.',
    ),
    pools.pools.length === 0 ? null : poolTable(pools),
  )
}

function poolTable({ pools, pools_total: total }: MapPools): VNode {
  const left = total - pools.length
  const caption = left > 0 ? `The ${count(pools.length)} largest of ${count(total)} pools` : 'Pools'
  const of = (states: PoolStates, state: keyof PoolStates): string => count(states[state])
  return table(
    caption,
    ['Pool', '#Pooled', '#In transit', '#Evicted', '#Of workers that have left', 'Reached by'],
    pools.map(({ id, states, orphans, ...reached }) => [
      el('span', { 'data-pool': id === null ? '' : String(id) }, id === null ? 'not named' : String(id)),
      of(states, 'cxl_pooled'),
      of(states, 'in_transit'),
      of(states, 'evicted'),
      count(orphans),
      reachedText(reached),
    ]),
  )
}

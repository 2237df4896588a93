/** Cache map: the largest prefixes as an icicle. Depth goes down in tokens, width is the copies of blocks below. */

import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import type { MapNode, MapSection } from '../src/sections.ts'
import type { ViewProps } from './app.ts'
import { el, note, table } from './elements.ts'
import { count, percent, short } from './format.ts'

const WIDTH = 1000
const HEIGHT = 420
/** A box that is narrower or lower is not worth its line. */
const WIDTH_MIN = 1
const TEXT_WIDTH = 46
const TEXT_HEIGHT = 13
const ROWS = 15

interface Box {
  readonly node: MapNode
  readonly at: number
  readonly x: number
  readonly y: number
  readonly width: number
  readonly height: number
}

export function MapView({ state }: ViewProps): VNode {
  const { map } = state.sections
  const [worker, setWorker] = useState('')
  const [pointed, setPointed] = useState<number | undefined>(undefined)
  if (map === undefined || map.nodes.length === 0)
    return note('empty', 'No worker is known to hold any block.')
  const chosen = map.workers.indexOf(worker)
  const boxes = layOut(map, chosen < 0 ? undefined : chosen)
  const shown = pointed === undefined ? undefined : boxes.find(({ at }) => at === pointed)
  return el(
    'div',
    null,
    el(
      'p.summary',
      null,
      el('label', { for: 'map-worker' }, 'Held by '),
      el(
        'select',
        {
          id: 'map-worker',
          value: worker,
          onChange: (event: Event) => setWorker((event.target as HTMLSelectElement).value),
        },
        el('option', { value: '' }, 'all workers'),
        ...map.workers.map(name => el('option', { value: name }, name)),
      ),
      map.is_whole ? '' : ' The index is large: a part of it is looked at, and sizes are estimates.',
    ),
    el(
      'figure.chart',
      null,
      el(
        'figcaption',
        null,
        `Down: depth of the prefix in ${map.block_size === null ? 'blocks' : 'tokens'}. Across: copies of blocks. Held by `,
        ...[1, 2, 3].map(holders =>
          el(
            'span.map-key',
            null,
            el(
              'svg.map-sample',
              { viewBox: '0 0 10 10', 'aria-hidden': 'true' },
              el('rect', { width: 10, height: 10, class: shade(holders) }),
            ),
            holders === 3 ? ' ×3 or more' : ` ×${holders}`,
          ),
        ),
      ),
      icicle(boxes, map, setPointed),
      el(
        'p.small.map-hint',
        { 'aria-live': 'off' },
        shown === undefined ? 'Point at a box, or look at the table below.' : about(shown.node, map),
      ),
    ),
    sharing(map),
    largest(map),
  )
}

/** Children share the width of their parent by their own; what is not drawn leaves room. */
function layOut(map: MapSection, worker: number | undefined): readonly Box[] {
  const weightOf = (node: MapNode): number =>
    worker === undefined ? node.blocks : (node.by_worker[worker] ?? 0)
  const all = map.nodes.reduce((sum, node) => sum + (node.parent < 0 ? weightOf(node) : 0), 0)
  const deepest = Math.max(1, ...map.nodes.map(node => (weightOf(node) > 0 ? node.depth + node.length : 0)))
  const boxes = new Map<number, Box>()
  /** How much of a parent's width its children have taken. */
  const taken = new Map<number, number>()
  const drawn: Box[] = []
  for (const [at, node] of map.nodes.entries()) {
    const weight = weightOf(node)
    const parent = boxes.get(node.parent)
    if (weight <= 0 || all <= 0 || (node.parent >= 0 && parent === undefined)) continue
    const width = (WIDTH * weight) / all
    const x = (parent?.x ?? 0) + (taken.get(node.parent) ?? 0)
    taken.set(node.parent, (taken.get(node.parent) ?? 0) + width)
    const y = (HEIGHT * node.depth) / deepest
    const box = { node, at, x, y, width, height: (HEIGHT * node.length) / deepest }
    boxes.set(at, box)
    if (width >= WIDTH_MIN) drawn.push(box)
  }
  return drawn
}

function shade(holders: number): string {
  return `map-${Math.min(3, Math.max(1, holders))}`
}

function icicle(boxes: readonly Box[], map: MapSection, point: (at: number | undefined) => void): VNode {
  return el(
    'svg.icicle',
    {
      role: 'img',
      'aria-label': `The ${boxes.length} largest prefixes, of ${short(map.blocks)} copies of blocks; the table below has the largest of them`,
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: 'none',
      onPointerLeave: () => point(undefined),
    },
    ...boxes.flatMap(({ node, at, x, y, width, height }) => [
      el('rect', {
        key: `${node.hash}-${at}`,
        x,
        y,
        width: Math.max(0.5, width - 1),
        height: Math.max(0.5, height - 1),
        class: shade(node.holders.length),
        onPointerEnter: () => point(at),
      }),
      width > TEXT_WIDTH && height > TEXT_HEIGHT
        ? el(
            'text',
            { x: x + 4, y: y + 11, 'aria-hidden': 'true' },
            `×${node.holders.length} ${node.hash.slice(0, 4)}`,
          )
        : null,
    ]),
  )
}

function lengthText(blocks: number, { block_size: size }: MapSection): string {
  return size === null ? `${count(blocks)} blocks` : `${count(blocks * size)} tokens`
}

function about(node: MapNode, map: MapSection): string {
  const holders = node.holders.map(at => map.workers[at] ?? '?').join(', ')
  return `${node.hash}: ${lengthText(node.length, map)} from ${lengthText(node.depth, map)} on; with all that follows ${short(node.blocks)} copies of blocks; held by ${holders}`
}

/** Copies beyond the first of what is drawn. */
function sharing(map: MapSection): VNode {
  const own = map.nodes.reduce((sum, { length, holders }) => sum + length * holders.length, 0)
  const distinct = map.nodes.reduce((sum, { length }) => sum + length, 0)
  const shared = map.nodes.filter(({ holders }) => holders.length > 1).length
  return el(
    'p',
    null,
    `Of the ${count(map.nodes.length)} prefixes drawn, ${count(shared)} are held by more than one worker; ${percent(own === 0 ? 0 : (own - distinct) / own)} of their blocks are duplicates.`,
  )
}

function largest(map: MapSection): VNode {
  return table(
    'The prefixes with most copies below them',
    ['Hash of its first block', '#From', '#Length', '#Copies of blocks', '#Workers', 'Held by'],
    map.nodes
      .slice(0, ROWS)
      .map(node => [
        el('span.mono', { 'data-hash': node.hash }, node.hash),
        lengthText(node.depth, map),
        lengthText(node.length, map),
        count(node.blocks),
        node.holders.length,
        node.holders.map(at => map.workers[at] ?? '?').join(', '),
      ]),
  )
}

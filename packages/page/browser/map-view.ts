/**
 * Cache map: the largest prefixes as an icicle. Depth goes down in tokens, width is the copies of blocks
 * below.
 *
 * A pointer or the arrow keys choose a box, whose details are a line below. A box is known by the hashes on
 * its way from the root: its place in the section changes with every update.
 */

import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import type { MapNode, MapSection } from '../src/sections.ts'
import { el, note, table } from './elements.ts'
import { count, short } from './format.ts'
import { poolKeys, poolStrip, poolsPart } from './map-pools.ts'
import { aboutNode, apartText, holdersText, lengthText, poolsText, sharingText } from './map-words.ts'
import type { ViewProps } from './view-props.ts'

const WIDTH = 1000
const HEIGHT = 420
/** A box that is narrower or lower is not worth its line. */
const WIDTH_MIN = 1
/** Below this no label has room, on any screen. */
const LABEL_WIDTH_MIN = 12
const ROWS = 15

interface Box {
  readonly node: MapNode
  /** Hashes from the root. */
  readonly path: string
  readonly parent: string
  readonly x: number
  readonly y: number
  readonly width: number
  readonly height: number
}

export function MapView({ state }: ViewProps): VNode {
  const { map } = state.sections
  const [worker, setWorker] = useState('')
  const [pointed, setPointed] = useState('')
  if (map === undefined || map.nodes.length === 0) {
    const empty = note('empty', 'No worker is known to hold any block.')
    return map === undefined || map.pools === null ? empty : el('div', null, empty, poolsPart(map.pools))
  }
  const chosen = map.workers.indexOf(worker)
  const boxes = layOut(map, chosen < 0 ? undefined : chosen)
  const shown = boxes.find(({ path }) => path === pointed)
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
          value: chosen < 0 ? '' : worker,
          onChange: (event: Event) => setWorker((event.target as HTMLSelectElement).value),
        },
        el('option', { value: '' }, 'all workers'),
        ...map.workers.map(name => el('option', { value: name }, name)),
      ),
      apartText(map),
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
      map.pools === null ? null : poolKeys(),
      icicle(boxes, map, pointed, setPointed),
      el(
        'p.small.map-hint',
        { 'aria-live': 'polite', 'data-field': 'pointed' },
        shown === undefined
          ? 'Point at a box, or go there with the arrow keys; the table below has the largest.'
          : aboutNode(shown.node, map),
      ),
    ),
    el('p', null, sharingText(map)),
    largest(map),
    map.pools === null ? null : poolsPart(map.pools),
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
    const path = `${parent?.path ?? ''}/${node.hash}`
    const box = {
      node,
      path,
      parent: parent?.path ?? '',
      x,
      y,
      width,
      height: (HEIGHT * node.length) / deepest,
    }
    boxes.set(at, box)
    if (width >= WIDTH_MIN) drawn.push(box)
  }
  return drawn
}

function shade(holders: number): string {
  return `map-${Math.min(3, Math.max(1, holders))}`
}

function icicle(
  boxes: readonly Box[],
  map: MapSection,
  pointed: string,
  point: (path: string) => void,
): VNode {
  const onKeyDown = (event: KeyboardEvent): void => {
    const next = event.key === 'Escape' ? '' : neighbour(boxes, pointed, event.key)
    if (next === undefined) return
    event.preventDefault()
    point(next)
  }
  const names = boxes.filter(({ width }) => width >= LABEL_WIDTH_MIN)
  return el(
    'div.icicle',
    {
      role: 'application',
      tabIndex: 0,
      'aria-label': `The ${boxes.length} largest prefixes, of ${short(map.blocks)} copies of blocks. The arrow keys go from one to the next; the table below has the largest of them`,
      onKeyDown,
      onPointerLeave: () => point(''),
    },
    el(
      'svg',
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      ...boxes.map(({ node, path, x, y, width, height }) =>
        el('rect', {
          key: path,
          x,
          y,
          width: Math.max(0.5, width - 1),
          height: Math.max(0.5, height - 1),
          class: `${shade(node.holders_total)}${path === pointed ? ' map-pointed' : ''}`,
          onPointerEnter: () => point(path),
        }),
      ),
      ...boxes.flatMap(({ node, path, ...place }) => poolStrip(node, path, place)),
    ),
    // Beside the drawing: its texts would be stretched with it.
    ...names.map(({ node, path, x, y, width, height }) =>
      el(
        'span.map-label',
        {
          key: path,
          'aria-hidden': 'true',
          style: {
            left: share(x, WIDTH),
            top: share(y, HEIGHT),
            width: share(width, WIDTH),
            height: share(height, HEIGHT),
          },
        },
        el('span', null, `×${count(node.holders_total)}`),
        el('span.map-hash', null, ` ${node.hash.slice(0, 4)}`),
      ),
    ),
  )
}

function share(part: number, all: number): string {
  return `${((100 * part) / all).toFixed(3)}%`
}

/**
 * Where an arrow key leads: down to the widest child, up to the parent, across to the next box as deep.
 * Undefined: nowhere.
 */
function neighbour(boxes: readonly Box[], pointed: string, key: string): string | undefined {
  const at = boxes.find(({ path }) => path === pointed)
  if (!key.startsWith('Arrow') && key !== 'Home') return undefined
  if (at === undefined || key === 'Home') return boxes[0]?.path
  if (key === 'ArrowUp') return at.parent === '' ? undefined : at.parent
  if (key === 'ArrowDown')
    return boxes.filter(({ parent }) => parent === at.path).sort((one, other) => other.width - one.width)[0]
      ?.path
  const beside = boxes
    .filter(({ y, height }) => y <= at.y && at.y < y + height)
    .sort((one, other) => one.x - other.x)
  return beside[beside.indexOf(at) + (key === 'ArrowRight' ? 1 : -1)]?.path
}

function largest(map: MapSection): VNode {
  return table(
    'The prefixes with most copies below them',
    [
      ...['Hash of its first block', '#From', '#Length', '#Copies of blocks', '#Workers', 'Held by'],
      ...(map.pools === null ? [] : ['Pooled memory']),
    ],
    map.nodes
      .slice(0, ROWS)
      .map(node => [
        el('span.mono', { 'data-hash': node.hash }, node.hash),
        lengthText(node.depth, map),
        lengthText(node.length, map),
        count(node.blocks),
        count(node.holders_total),
        holdersText(node, map),
        ...(map.pools === null ? [] : [node.pools === null ? '' : poolsText(node.pools)]),
      ]),
  )
}

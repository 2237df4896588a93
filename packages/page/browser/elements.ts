/** Small parts that several views are made of. Every colour has a sign and a word beside it. */

import { type ComponentChildren, h, type VNode } from 'preact'

type Attributes = Readonly<Record<string, unknown>>

/** `tag` with a class: 'div.card'. */
export function el(tag: string, attributes: Attributes | null, ...children: ComponentChildren[]): VNode {
  const [name, ...classes] = tag.split('.')
  const className = [...classes, attributes?.['class']].filter(Boolean).join(' ')
  return h(name!, { ...attributes, ...(className !== '' && { class: className }) } as never, ...children)
}

/** A component with its properties. */
export function part<P extends object>(
  component: (props: P) => VNode | null,
  props: P & { readonly key?: string },
): VNode {
  return h(component as never, props as never)
}

const TRUST_SIGNS: Readonly<Record<string, string>> = {
  exact: '●',
  partial: '◐',
  approximate: '◌',
  none: '○',
}

export function trustBadge(trust: string): VNode {
  return el(
    'span.badge',
    { class: `trust-${trust}` },
    el('span', { 'aria-hidden': 'true' }, TRUST_SIGNS[trust] ?? '?'),
    ` ${trust}`,
  )
}

/** A figure with its name; `field` names it for tests, as the JSON routes do. */
export function figure(name: string, text: ComponentChildren, field?: string, value?: unknown): VNode {
  const data = field === undefined ? {} : { 'data-field': field, 'data-value': String(value) }
  return el('div.figure', null, el('dt', null, name), el('dd', data, text))
}

/** `share` 0 … 1. */
export function bar(name: string, share: number, text: string): VNode {
  const width = Math.max(0, Math.min(1, share)) * 100
  return el(
    'svg.bar',
    { role: 'img', 'aria-label': `${name}: ${text}`, viewBox: '0 0 100 6', preserveAspectRatio: 'none' },
    el('rect.bar-back', { width: 100, height: 6, rx: 1 }),
    el('rect.bar-fill', { width, height: 6, rx: 1 }),
  )
}

/** A line over time, the oldest first. */
export function sparkline(name: string, values: readonly number[], unit: string): VNode {
  const most = Math.max(1e-9, ...values)
  const step = 100 / Math.max(1, SPARK_POINTS - 1)
  const first = SPARK_POINTS - values.length
  const points = values.map((value, at) => {
    return `${((first + at) * step).toFixed(1)},${(23 - (22 * value) / most).toFixed(1)}`
  })
  const last = values.at(-1) ?? 0
  return el(
    'svg.spark',
    {
      role: 'img',
      'aria-label': `${name} over the last minute: now ${last.toFixed(1)} ${unit}, at most ${Math.max(0, ...values).toFixed(1)}`,
      viewBox: '0 0 100 24',
      preserveAspectRatio: 'none',
    },
    el('line.spark-ground', { x1: 0, x2: 100, y1: 23.5, y2: 23.5 }),
    values.length > 1 ? el('polyline.spark-line', { points: points.join(' ') }) : null,
  )
}

const SPARK_POINTS = 60

export function note(kind: 'empty' | 'warning' | 'fault', ...children: ComponentChildren[]): VNode {
  return el('p.note', { class: `note-${kind}`, role: kind === 'empty' ? undefined : 'status' }, ...children)
}

/**
 * A table that scrolls by itself where it is too wide; `head`: names of its columns, '#' in front of those
 * with figures.
 */
export function table(
  caption: string,
  head: readonly string[],
  rows: readonly (readonly ComponentChildren[])[],
): VNode {
  const isFigure = head.map(name => name.startsWith('#'))
  return el(
    'div.scroll',
    { tabIndex: 0, role: 'region', 'aria-label': caption },
    el(
      'table',
      null,
      el('caption', null, caption),
      el(
        'thead',
        null,
        el(
          'tr',
          null,
          ...head.map((name, at) =>
            el('th', { scope: 'col', class: isFigure[at] ? 'number' : '' }, name.replace('#', '')),
          ),
        ),
      ),
      el(
        'tbody',
        null,
        ...rows.map(row =>
          el('tr', null, ...row.map((cell, at) => el('td', { class: isFigure[at] ? 'number' : '' }, cell))),
        ),
      ),
    ),
  )
}

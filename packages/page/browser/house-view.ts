/** The house: threads, and the actors under their supervisors. */

import type { VNode } from 'preact'
import type { HouseActor, HouseThread } from '../src/sections.ts'
import { bar, el, figure, note, part, table } from './elements.ts'
import { bytes, count, duration, ms } from './format.ts'
import type { ViewProps } from './view-props.ts'

export function HouseView({ state }: ViewProps): VNode {
  const { house } = state.sections
  if (house === undefined) return note('empty', 'Nothing is known of the actors yet.')
  const { loop_delay_ms: delay } = house
  return el(
    'div',
    null,
    el(
      'dl.figures',
      null,
      figure('Memory of the process', bytes(house.rss_bytes)),
      figure('Threads', count(house.threads.length), 'threads', house.threads.length),
      delay === null
        ? null
        : figure(
            'Event-loop delay of main, last seconds',
            `p50 ${ms(delay.p50)}, p99 ${ms(delay.p99)}, longest ${ms(delay.max)}`,
          ),
    ),
    threads(house.threads),
    el('h2', null, 'Actors'),
    el('p.small', null, 'An actor below another one is started, watched and restarted by it.'),
    el(
      'ul.tree',
      { 'aria-label': 'Supervision tree' },
      ...house.actors.map(actor => part(Branch, { key: actor.name, actor })),
    ),
    house.left_out > 0
      ? note('warning', `${count(house.left_out)} more are not drawn: GET /actors?limit= has them.`)
      : null,
  )
}

function threads(rows: readonly HouseThread[]): VNode {
  return table(
    'Threads',
    ['Thread', 'State', '#Life', '#Actors', '#Handled', '#Most waiting', '#Busy', 'Heap'],
    rows.map(row => {
      const heap = `${bytes(row.heap_used_bytes)} of ${bytes(row.heap_limit_bytes)}`
      return [
        el('span.mono', null, row.thread),
        row.answered ? row.state : `${row.state}, silent`,
        count(row.lives),
        count(row.actors),
        count(row.handled),
        count(row.mailbox_high_water),
        duration(row.busy_ms),
        row.heap_limit_bytes === 0
          ? 'not told'
          : el('span.heap', null, heap, bar('Heap', row.heap_used_bytes / row.heap_limit_bytes, heap)),
      ]
    }),
  )
}

function Branch({ actor }: { readonly actor: HouseActor }): VNode {
  const isWell = actor.state === 'running'
  const restarts = actor.restarts === 0 ? '' : ` · ⚠ ${count(actor.restarts)} restarts`
  return el(
    'li',
    null,
    el(
      'span.actor',
      { class: isWell ? '' : 'actor-unwell' },
      el('strong', null, actor.name),
      el(
        'span.small',
        null,
        ` ${actor.thread} · ${actor.state} · ${count(actor.mailbox_depth)} wait (most ${count(actor.mailbox_high_water)})${restarts}`,
      ),
    ),
    actor.children.length === 0
      ? null
      : el('ul', null, ...actor.children.map(child => part(Branch, { key: child.name, actor: child }))),
  )
}

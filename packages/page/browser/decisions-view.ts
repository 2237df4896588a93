/** Decisions: a line for each of the last ones, the latest first; a line opens its receipt. */

import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import type { DecisionRow, DecisionsSection } from '../src/sections.ts'
import { el, note, part } from './elements.ts'
import { cost, count, ms, timeOfDay } from './format.ts'
import { ReceiptDialog } from './receipt-view.ts'
import type { ViewProps } from './view-props.ts'

export function DecisionsView({ state, live }: ViewProps): VNode {
  const [held, setHeld] = useState<DecisionsSection | undefined>(undefined)
  const [open, setOpen] = useState<string | undefined>(undefined)
  const latest = state.sections.decisions
  const section = held ?? latest
  if (section === undefined || section.decisions.length === 0)
    return note('empty', 'No decisions yet. Send a request, and it appears here.')
  return el(
    'div',
    null,
    el(
      'p.summary',
      null,
      el(
        'button',
        {
          type: 'button',
          'aria-pressed': held !== undefined,
          onClick: () => setHeld(held === undefined ? latest : undefined),
        },
        held === undefined ? 'Hold still' : 'Go on',
      ),
      held === undefined
        ? ` The last ${section.decisions.length}, as they come.`
        : ' Held: new decisions are not shown.',
      ' A bar for each candidate: the blocks of the prompt that it holds; ▲ marks the winner.',
    ),
    el(
      'ol.decisions',
      { 'aria-label': 'Decisions' },
      ...section.decisions.map(row => part(Line, { key: row.id, row, open: setOpen })),
    ),
    open === undefined
      ? null
      : part(ReceiptDialog, { key: open, id: open, live, close: () => setOpen(undefined) }),
  )
}

interface LineProps {
  readonly row: DecisionRow
  readonly open: (id: string) => void
}

function Line({ row, open }: LineProps): VNode {
  return el(
    'li',
    null,
    el(
      'button.decision',
      { type: 'button', onClick: () => open(row.id), 'data-decision': row.id },
      el('span.decision-time', null, timeOfDay(row.at)),
      el(
        'span.decision-what',
        null,
        el('span.decision-model', null, row.model),
        el('span.small', null, ` ${count(row.prompt_tokens)} tokens`),
      ),
      bars(row),
      el(
        'span.decision-where',
        null,
        el('span.mono', null, row.worker),
        el('span.small', null, marginText(row)),
      ),
      el('span.decision-times', null, timesText(row)),
      outcome(row),
    ),
  )
}

/** Blocks that each candidate holds, of those of the prompt. */
function bars({ bars, prompt_blocks: blocks, worker, candidates }: DecisionRow): VNode {
  const most = Math.max(1, blocks)
  const text = bars.map(one => `${one.worker} ${one.overlap_blocks}`).join(', ')
  const more = candidates > bars.length ? `, and ${candidates - bars.length} more candidates` : ''
  return el(
    'svg.bars',
    {
      role: 'img',
      'aria-label': `Overlap in blocks, of ${blocks}: ${text}${more}`,
      viewBox: `0 0 ${bars.length * 9} 30`,
      style: { width: `${bars.length * 9}px` },
    },
    ...bars.flatMap((one, at) => {
      const height = (22 * one.overlap_blocks) / most
      const isWinner = one.worker === worker
      return [
        el('rect.bars-back', { x: at * 9 + 1, y: 1, width: 6, height: 22 }),
        el('rect', {
          x: at * 9 + 1,
          y: 23 - height,
          width: 6,
          height,
          class: isWinner ? 'bars-winner' : 'bars-other',
        }),
        isWinner ? el('path.bars-mark', { d: `M${at * 9 + 1} 30l3-5 3 5z` }) : null,
      ]
    }),
  )
}

function marginText({ runner_up: runnerUp, margin, cost_unit: unit, arm }: DecisionRow): string {
  if (arm === 'control') return ' experiment of the guard: least loaded decided'
  if (runnerUp === null || margin === null) return ' the only candidate'
  if (Math.abs(margin) < 1e-9) return ` as good as ${runnerUp}`
  return margin < 0
    ? ` ${cost(-margin, unit)} dearer than ${runnerUp}`
    : ` by ${cost(margin, unit)} before ${runnerUp}`
}

function timesText({ predicted_ms: predicted, first_byte_ms: seen }: DecisionRow): string {
  const said = predicted === null ? '' : `predicted ${ms(predicted)}`
  const had = seen === null ? '' : `seen ${ms(seen)}`
  return [said, had].filter(text => text !== '').join(', ')
}

const OUTCOMES: Readonly<Record<string, readonly [string, string]>> = {
  ok: ['✓', 'ok'],
  open: ['…', 'running'],
  error: ['✕', 'error'],
  aborted: ['–', 'client left'],
}

function outcome({ outcome, cached_tokens: cached, trust }: DecisionRow): VNode {
  const [sign, word] = OUTCOMES[outcome] ?? ['?', outcome]
  const hit = cached === null || cached === 0 ? '' : `, ${count(cached)} cached`
  return el(
    'span.decision-end',
    { class: `outcome-${outcome}`, title: `trust: ${trust}` },
    el('span', { 'aria-hidden': 'true' }, `${sign} `),
    `${word}${hit}`,
  )
}

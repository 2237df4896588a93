/**
 * A receipt: why a request went where it went, in words and figures, and what another rule would have cost.
 */

import type { VNode } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { el, figure, note, part, table, trustBadge } from './elements.ts'
import { cost, count, ms, percent, timeOfDay } from './format.ts'
import type { Live } from './live.ts'

/** The parts of an answer of `GET /decisions/:id` that are drawn. */
interface Receipt {
  readonly id: string
  readonly at: string
  readonly mode: string
  readonly policy: string
  readonly rule: string
  readonly cost_formula: string
  readonly cost_unit: string
  readonly cost_terms: readonly { readonly name: string; readonly unit: string; readonly means: string }[]
  readonly model: string
  readonly prompt_tokens: number
  readonly prompt_blocks: number
  readonly block_size: number
  readonly unknown_prompt: string | null
  readonly text_blocks: string | null
  readonly worker: string
  readonly runner_up: string | null
  readonly trust: string
  readonly overlap_blocks: number
  readonly predicted_cached_tokens: number
  readonly decision_ms: number
  readonly candidates: readonly {
    readonly worker: string
    readonly trust: string
    readonly overlap_blocks: number
    readonly active_requests: number
    readonly terms: Readonly<Record<string, number>>
    readonly cost: number
    readonly probability: number
  }[]
  readonly candidates_left_out: number
  readonly excluded: readonly { readonly worker: string; readonly reason: string }[]
  readonly excluded_left_out: number
  readonly guard: {
    readonly arm: string | null
    readonly phase: string
    readonly predicted_first_token_ms: number
    readonly regret_ms: Readonly<Record<string, number>>
  } | null
  /** Of the worker that computed the prompt of this one. */
  readonly prefill: Receipt | null
  readonly queue: { readonly waited_ms: number; readonly why: string } | null
  readonly delivered: {
    readonly outcome: string
    readonly status: number | null
    readonly prompt_tokens: number | null
    readonly completion_tokens: number | null
    readonly cached_tokens: number | null
    readonly time_to_first_byte_ms: number | null
    readonly duration_ms: number
    readonly error: { readonly code: string; readonly message: string } | null
  } | null
}

/** A fleet may have thousands. */
const CANDIDATES_DRAWN = 24

interface DialogProps {
  readonly id: string
  readonly live: Live
  readonly close: () => void
}

export function ReceiptDialog({ id, live, close }: DialogProps): VNode {
  const [receipt, setReceipt] = useState<Receipt | string | undefined>(undefined)
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => {
    dialog.current?.showModal()
    live
      .get(`decisions/${encodeURIComponent(id)}`)
      .then(answer => setReceipt(answer as Receipt))
      .catch((error: Error) => setReceipt(error.message))
  }, [])
  const body =
    receipt === undefined
      ? note('empty', 'Asking …')
      : typeof receipt === 'string'
        ? note('fault', `No receipt: ${receipt}`)
        : part(ReceiptBody, { receipt })
  return el(
    'dialog',
    { ref: dialog, onClose: close, 'aria-labelledby': 'receipt-title' },
    el(
      'div.dialog-head',
      null,
      el('h2', { id: 'receipt-title' }, 'Receipt ', el('span.mono', null, id)),
      el('button', { type: 'button', onClick: () => dialog.current?.close() }, 'Close'),
    ),
    body,
  )
}

function ReceiptBody({ receipt }: { readonly receipt: Receipt }): VNode {
  const { delivered, guard } = receipt
  return el(
    'div',
    null,
    el('p.lead', null, ...sentences(receipt)),
    counterfactual(receipt),
    el(
      'dl.figures',
      null,
      figure('At', timeOfDay(receipt.at)),
      figure('Model', receipt.model),
      figure(
        'Prompt',
        `${count(receipt.prompt_tokens)} tokens, ${receipt.prompt_blocks} blocks of ${receipt.block_size}`,
      ),
      figure('Trust in the overlap', trustBadge(receipt.trust)),
      figure('Decided in', ms(receipt.decision_ms)),
      guard === null ? null : figure('First token, predicted', ms(guard.predicted_first_token_ms)),
      delivered?.time_to_first_byte_ms == null
        ? null
        : figure('First byte, seen', ms(delivered.time_to_first_byte_ms)),
      figure('Cached, predicted', `${count(receipt.predicted_cached_tokens)} tokens`),
      delivered?.cached_tokens == null
        ? null
        : figure('Cached, delivered', `${count(delivered.cached_tokens)} tokens`),
      receipt.queue === null
        ? null
        : figure('Waited for room', `${ms(receipt.queue.waited_ms)} (${receipt.queue.why})`),
      delivered === null
        ? figure('Outcome', 'running')
        : figure('Outcome', `${delivered.outcome}, ${ms(delivered.duration_ms)}`),
    ),
    delivered?.error == null ? null : note('fault', `${delivered.error.code}: ${delivered.error.message}`),
    candidates(receipt),
    receipt.prefill === null ? null : part(PrefillLeg, { receipt: receipt.prefill }),
    el('h3', null, 'What the terms mean'),
    el('p.small', null, `Cost = ${receipt.cost_formula}, in ${receipt.cost_unit}; the lowest wins.`),
    el(
      'dl.terms',
      null,
      ...receipt.cost_terms.flatMap(({ name, means }) => [el('dt.mono', null, name), el('dd', null, means)]),
    ),
    excluded(receipt),
  )
}

/** The leg that came before: where the prompt was computed, and why there. */
function PrefillLeg({ receipt }: { readonly receipt: Receipt }): VNode {
  const { delivered } = receipt
  return el(
    'div',
    { 'data-leg': 'prefill' },
    el('h3', null, 'The prefill leg'),
    el('p', null, ...sentences(receipt)),
    el(
      'dl.figures',
      null,
      figure('Cached, predicted', `${count(receipt.predicted_cached_tokens)} tokens`),
      delivered?.cached_tokens == null
        ? null
        : figure('Cached, delivered', `${count(delivered.cached_tokens)} tokens`),
      delivered === null
        ? figure('Outcome', 'running')
        : figure('Outcome', `${delivered.outcome}, ${ms(delivered.duration_ms)}`),
    ),
    delivered?.error == null ? null : note('fault', `${delivered.error.code}: ${delivered.error.message}`),
    candidates(receipt),
  )
}

function sentences(receipt: Receipt): string[] {
  const {
    worker,
    overlap_blocks: overlap,
    prompt_blocks: blocks,
    cost_unit: unit,
    candidates,
    guard,
  } = receipt
  const winner = candidates.find(one => one.worker === worker)
  const second = candidates.find(one => one.worker === receipt.runner_up)
  const held =
    receipt.prefill !== null
      ? `${receipt.prefill.worker} computed its prompt and handed it over, so only load counted`
      : receipt.unknown_prompt !== null
        ? `the prompt is not known (${receipt.unknown_prompt}), so only load counted`
        : overlap === 0
          ? 'it holds nothing of this prompt'
          : `it holds ${overlap} of the ${blocks} blocks of this prompt (${count(receipt.predicted_cached_tokens)} tokens need not be computed)`
  const text = [`Sent to ${worker}: ${held}.`]
  if (guard?.arm === 'control')
    text.push(' This was an experiment of the guard: the least loaded worker was taken, to compare.')
  if (winner !== undefined && second !== undefined) {
    const more = second.cost - winner.cost
    const which = `The next best, ${second.worker}, holds ${second.overlap_blocks}`
    if (Math.abs(more) < 1e-9) text.push(` ${which} and costs the same.`)
    else
      text.push(` ${which} and would have cost ${cost(Math.abs(more), unit)} ${more > 0 ? 'more' : 'less'}.`)
  } else if (winner !== undefined) text.push(' There was no other candidate.')
  return text
}

const RULES: Readonly<Record<string, string>> = {
  round_robin: 'Round-robin',
  least_loaded: 'Least-loaded',
  product: 'The product rule',
}

/** What other rules would have chosen, at the same moment. */
function counterfactual({ guard }: Receipt): VNode | null {
  if (guard === null) return null
  return el(
    'ul.counterfactual',
    { 'aria-label': 'What other rules would have cost' },
    ...Object.entries(guard.regret_ms).map(([rule, regret]) => {
      const name = RULES[rule] ?? rule
      if (Math.abs(regret) < 0.0005) return el('li', null, `${name} would have cost the same.`)
      return el(
        'li',
        null,
        `${name} would have cost ${ms(Math.abs(regret))} ${regret < 0 ? 'more' : 'less'}.`,
      )
    }),
  )
}

function candidates(receipt: Receipt): VNode {
  const names = receipt.cost_terms.map(({ name }) => name)
  const sorted = receipt.candidates.toSorted((one, other) => one.cost - other.cost)
  const drawn = sorted.slice(0, CANDIDATES_DRAWN)
  const leftOut = receipt.candidates_left_out + sorted.length - drawn.length
  return el(
    'div',
    null,
    table(
      `Candidates, the cheapest first${leftOut > 0 ? ` (${count(leftOut)} more are not shown)` : ''}`,
      [
        'Worker',
        `#Cost (${receipt.cost_unit})`,
        '#Chance',
        'Trust',
        '#Overlap',
        '#Requests',
        ...names.map(name => `#${name}`),
      ],
      drawn.map(one => [
        one.worker === receipt.worker
          ? el('strong.mono', null, `▲ ${one.worker}`)
          : el('span.mono', null, one.worker),
        one.cost.toFixed(2),
        percent(one.probability, 0),
        trustBadge(one.trust),
        one.overlap_blocks,
        one.active_requests,
        ...names.map(name => (one.terms[name] ?? 0).toFixed(2)),
      ]),
    ),
  )
}

function excluded({ excluded, excluded_left_out: leftOut }: Receipt): VNode | null {
  if (excluded.length === 0) return null
  const drawn = excluded.slice(0, CANDIDATES_DRAWN)
  return el(
    'div',
    null,
    el('h3', null, 'Not candidates'),
    el(
      'ul',
      null,
      ...drawn.map(({ worker, reason }) => el('li', null, el('span.mono', null, worker), `: ${reason}`)),
    ),
    leftOut + excluded.length > drawn.length
      ? el('p.small', null, `${count(leftOut + excluded.length - drawn.length)} more`)
      : null,
  )
}

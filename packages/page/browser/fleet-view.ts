/** Fleet: a card for each worker key: its trust, its blocks, its load. */

import type { ComponentChildren, VNode } from 'preact'
import { useState } from 'preact/hooks'
import type { FleetKey, FleetSection } from '../src/sections.ts'
import { bar, el, figure, note, part, sparkline, trustBadge } from './elements.ts'
import { count, duration, ms, percent, short, since } from './format.ts'
import type { Live, Sample } from './live.ts'
import type { ViewProps } from './view-props.ts'

export function FleetView({ state, live }: ViewProps): VNode {
  const { fleet, beat } = state.sections
  if (fleet === undefined) return note('empty', 'Nothing is known of the fleet yet.')
  if (fleet.keys.length === 0) {
    return el(
      'div',
      null,
      note(
        'empty',
        fleet.workers === 0
          ? 'This router has no workers.'
          : `No worker has answered yet, of ${fleet.workers}.`,
      ),
      el(
        'p',
        null,
        'Add one: ',
        el('code', null, 'curl -s ROUTER/workers -d \'{"url": "http://HOST:PORT"}\''),
      ),
    )
  }
  return el(
    'div',
    null,
    summary(fleet),
    (fleet.trust['approximate'] ?? 0) > 0 && !fleet.trust['exact'] && !fleet.trust['partial']
      ? note(
          'warning',
          'No cache is known by events: what a worker holds is guessed from the requests that were sent to it. “What to do” on its card says how to change that.',
        )
      : null,
    el(
      'div.cards',
      null,
      ...fleet.keys.map(key =>
        part(KeyCard, {
          key: key.worker,
          of: key,
          now: beat?.now,
          history: state.history.get(key.worker) ?? [],
          live,
        }),
      ),
    ),
    fleet.keys_left_out > 0
      ? note(
          'warning',
          `${count(fleet.keys_left_out)} more worker keys are not drawn: those that want attention come first. GET /workers has all ${count(fleet.keys_total)}.`,
        )
      : null,
  )
}

const NO_BREAK_SPACE = '\u00a0'
const ORDER = ['exact', 'partial', 'approximate', 'none']

const APART_WORDS: Readonly<Record<string, string>> = {
  active: 'active',
  pending: 'but workers of one kind are missing',
  unavailable: 'but those of one kind are down',
}

function summary(fleet: FleetSection): VNode {
  const isWell = fleet.workers_up === fleet.workers
  return el(
    'p.summary',
    null,
    el(
      'span',
      { class: isWell ? '' : 'strong' },
      isWell ? '' : el('span', { 'aria-hidden': 'true' }, '⚠ '),
      el('span', { 'data-field': 'workers_up', 'data-value': fleet.workers_up }, count(fleet.workers_up)),
      ` of ${count(fleet.workers)} workers are up`,
    ),
    ' · trust in their caches: ',
    ...ORDER.filter(trust => (fleet.trust[trust] ?? 0) > 0).flatMap(trust => [
      trustBadge(trust),
      ` ${count(fleet.trust[trust] ?? 0)} `,
    ]),
    ...fleet.apart.map(({ model, state }) =>
      el(
        'span',
        { class: state === 'active' ? '' : 'strong', 'data-apart': model, 'data-value': state },
        ` · ${model}: prefill and decode apart, ${APART_WORDS[state] ?? state}`,
      ),
    ),
  )
}

interface CardProps {
  readonly of: FleetKey
  readonly now: string | undefined
  readonly history: readonly Sample[]
  readonly live: Live
}

function KeyCard({ of: key, now, history, live }: CardProps): VNode {
  const isUp = key.state === 'up'
  const wantsHelp = !isUp || key.trust !== 'exact'
  const capacity = key.kv_blocks
  const held = capacity === null ? count(key.blocks_held) : `${count(key.blocks_held)} of ${count(capacity)}`
  return el(
    'section.card',
    { class: isUp ? '' : 'card-down', 'aria-label': `Worker key ${key.worker}`, 'data-worker': key.worker },
    el(
      'div.card-head',
      null,
      el('h2', null, key.worker),
      isUp
        ? el('span', { 'data-field': 'trust', 'data-value': key.trust }, trustBadge(key.trust))
        : el('span.badge.state-down', null, el('span', { 'aria-hidden': 'true' }, '✕'), ` ${key.state}`),
    ),
    el('p.small', null, isUp ? `${key.trust_reason}; for ${since(key.trust_since, now)}` : key.state_reason),
    el(
      'dl.figures',
      null,
      el(
        'div.figure.wide',
        null,
        el('dt', null, 'Blocks held'),
        el(
          'dd',
          { 'data-field': 'blocks_held', 'data-value': key.blocks_held },
          held,
          capacity === null ? null : bar('Blocks held', key.blocks_held / capacity, held),
        ),
      ),
      figure('Requests', count(key.requests), 'requests', key.requests),
      figure('Active blocks', count(key.active_blocks), 'active_blocks', key.active_blocks),
      figure('Tokens to prefill', short(key.prefill_tokens), 'prefill_tokens', key.prefill_tokens),
      figure(
        'Last event',
        key.last_event_age_ms === null ? 'none' : `${duration(key.last_event_age_ms)} ago`,
      ),
      el(
        'div.figure.wide',
        null,
        el('dt', null, 'KV events'),
        el('dd', { 'data-field': 'events', 'data-value': key.events }, eventsLine(key, history)),
      ),
      figure('Audit: predicted, delivered', auditText(key)),
      figure('Learned speed', learnedText(key)),
    ),
    ...key.odd.map(mark =>
      el('p.small.strong', { key: mark.figure, 'data-odd': mark.figure }, oddText(mark, now)),
    ),
    key.role === 'both'
      ? null
      : el(
          'p.small',
          { 'data-field': 'role', 'data-value': key.role },
          key.role === 'prefill'
            ? `Computes prompts only, and hands them over by ${key.handover}`
            : `Goes on with prompts that others compute (${key.handover})`,
        ),
    el('p.small.models', null, [key.engine ?? 'engine not known', ...key.models].join(' · ')),
    wantsHelp ? part(Remedy, { key: key.id, id: key.id, live }) : null,
  )
}

function eventsLine(key: FleetKey, history: readonly Sample[]): VNode | string {
  if (key.events === null) return 'none are sent'
  const rates = history.slice(1).map((sample, at) => Math.max(0, sample.events - history[at]!.events))
  const now = rates.slice(-5)
  const mean = now.length === 0 ? 0 : now.reduce((sum, rate) => sum + rate, 0) / now.length
  return el(
    'span.with-spark',
    null,
    el('span', null, `${mean < 10 ? mean.toFixed(1) : count(mean)} a second`),
    sparkline('KV events a second', rates, 'a second'),
  )
}

function auditText({ audit }: FleetKey): ComponentChildren {
  if (audit.requests === 0) return 'no answers yet'
  const tokens = (field: 'predicted_tokens' | 'delivered_tokens'): VNode =>
    el('span', { 'data-field': field, 'data-value': audit[field] }, short(audit[field]))
  const precision =
    audit.precision === null ? '' : ` (${percent(audit.precision).replace(' ', NO_BREAK_SPACE)})`
  return [tokens('predicted_tokens'), ', ', tokens('delivered_tokens'), precision]
}

function learnedText({ learned }: FleetKey): string {
  if (learned === null) return 'nothing yet'
  return `${ms(learned.ms_per_token)} a token (${learned.prefill_source}), ${ms(learned.ms_per_step)} a step (${learned.decode_source})`
}

const ODD_TEXTS: Readonly<Record<string, string>> = {
  prefill: 'Prefill takes',
  decode: 'A decode step takes',
  output: 'Answers are',
}

/** 'Prefill takes 4.2 times as long as at its twins, for 3 min'. */
function oddText(mark: FleetKey['odd'][number], now: string | undefined): ComponentChildren {
  const what = ODD_TEXTS[mark.figure] ?? mark.figure
  const than = mark.against === 'twins' ? 'at its twins' : 'was assumed before anything was learned'
  return [
    el('span', { 'aria-hidden': 'true' }, '⚠ '),
    `${what} ${Number(mark.times.toPrecision(2))} times as long as ${than}, for ${since(mark.since, now)}`,
  ]
}

interface Diagnosis {
  readonly verdict: string
  readonly findings: readonly {
    readonly level: string
    readonly text: string
    readonly remedy: string | null
  }[]
  readonly engine_flags: string | null
}

/** The diagnosis of the worker, in the words of `homing doctor`; requested only on a click. */
function Remedy({ id, live }: { readonly id: string; readonly live: Live }): VNode {
  const [found, setFound] = useState<Diagnosis | string | undefined>(undefined)
  const ask = (): void => {
    setFound('Looking at the worker …')
    live
      .get(`workers/${encodeURIComponent(id)}/diagnosis`)
      .then(answer => setFound(answer as Diagnosis))
      .catch((error: Error) => setFound(`No diagnosis: ${error.message}`))
  }
  const button = el('button', { type: 'button', onClick: ask }, 'What to do')
  if (found === undefined) return button
  if (typeof found === 'string')
    return el('div.remedy', { role: 'status' }, button, el('p.small', null, found))
  const findings = found.findings.filter(({ level, remedy }) => level !== 'ok' && remedy !== null)
  return el(
    'div.remedy',
    { role: 'status' },
    button,
    el('p.small', null, `homing doctor: ${found.verdict}`),
    el('ul', null, ...findings.map(({ text, remedy }) => el('li', null, `${text}: ${remedy}`))),
    found.engine_flags === null ? null : el('pre', { tabIndex: 0 }, found.engine_flags),
    findings.length === 0 && found.engine_flags === null
      ? el('p.small', null, 'Nothing is to be changed.')
      : null,
  )
}

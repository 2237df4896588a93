/** Does it pay? What the last hour has brought, and what other rules would have cost. */

import type { VNode } from 'preact'
import type { PaysSection } from '../src/sections.ts'
import { el, figure, note, table } from './elements.ts'
import { count, duration, ms, percent, short } from './format.ts'
import type { ViewProps } from './view-props.ts'

export function PaysView({ state }: ViewProps): VNode {
  const { pays } = state.sections
  if (pays === undefined) return note('empty', 'Nothing is known yet.')
  const span =
    pays.span_ms < 3_600_000 ? `the ${duration(pays.span_ms)} since the router began` : 'the last hour'
  if (pays.requests === 0) return note('empty', `No request has ended in ${span}.`)
  return el(
    'div',
    null,
    el('p.lead', null, verdict(pays)),
    el('p.small', null, `Of ${span}; all that is older is forgotten.`),
    headline(pays),
    minutes(pays),
    rules(pays),
    guard(pays),
  )
}

function verdict(pays: PaysSection): string {
  const { prompt_tokens: prompt, cached_tokens: cached, guarded, regret_ms: regret } = pays
  const hit =
    prompt === 0
      ? 'No engine says what it had cached'
      : `${percent(cached / prompt)} of all prompt tokens were not computed again`
  const gain = guarded === 0 ? undefined : -(regret['round_robin'] ?? 0) / guarded
  if (gain === undefined) return `${hit}.`
  return gain >= 0
    ? `${hit}; round-robin would have cost ${ms(gain)} more for each request.`
    : `${hit}, and yet round-robin would have cost ${ms(-gain)} less for each request.`
}

function headline(pays: PaysSection): VNode {
  const { prompt_tokens: prompt, cached_tokens: cached, first_token_ms: first, saved_seconds: saved } = pays
  const error = pays.prediction_error
  return el(
    'dl.figures',
    null,
    figure('Requests', count(pays.requests), 'requests', pays.requests),
    figure(
      'Hit rate',
      prompt === 0 ? 'not known' : percent(cached / prompt),
      'hit_rate',
      prompt === 0 ? '' : cached / prompt,
    ),
    figure('Tokens not computed again', `${short(cached)} of ${short(prompt)}`, 'cached_tokens', cached),
    figure(
      'Engine time saved, estimated',
      saved === null
        ? 'speeds not learned yet'
        : `${saved < 100 ? saved.toFixed(1) : count(saved)} GPU-seconds${error === null ? '' : `, give or take ${percent(error, 0)}`}`,
    ),
    figure(
      'Time to the first token',
      first === null ? 'no streams yet' : `p50 ${ms(first.p50)}, p90 ${ms(first.p90)}, p99 ${ms(first.p99)}`,
    ),
    figure('Predictions are off by', error === null ? 'not known' : `${percent(error, 0)} in the mean`),
  )
}

const WIDTH = 600
const HEIGHT = 120

/** A bar for each minute: tokens that were cached below, computed above. */
function minutes({ minutes }: PaysSection): VNode {
  const most = Math.max(1, ...minutes.map(one => one.prompt_tokens))
  const step = WIDTH / minutes.length
  const last = minutes.at(-1)
  const text = `Prompt tokens a minute over the last hour, at most ${short(most)}; in the current minute ${short(last?.cached_tokens ?? 0)} of ${short(last?.prompt_tokens ?? 0)} cached`
  return el(
    'figure.chart',
    null,
    el(
      'figcaption',
      null,
      'Prompt tokens a minute: ',
      el('span.key-cached', null, el('span', { 'aria-hidden': 'true' }, '■'), ' cached'),
      ', ',
      el('span.key-computed', null, el('span', { 'aria-hidden': 'true' }, '▨'), ' computed'),
      `. The highest bar is ${short(most)}.`,
    ),
    el(
      'svg.minutes',
      { role: 'img', 'aria-label': text, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none' },
      ...minutes.flatMap((one, at) => {
        const cached = (HEIGHT * one.cached_tokens) / most
        const all = (HEIGHT * one.prompt_tokens) / most
        const place = { x: at * step + 1, width: step - 2 }
        return [
          el('rect.minute-computed', { ...place, y: HEIGHT - all, height: all - cached }),
          el('rect.minute-cached', { ...place, y: HEIGHT - cached, height: cached }),
        ]
      }),
      el('line.spark-ground', { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    ),
    el('div.ends.small', null, el('span', null, 'an hour ago'), el('span', null, 'now')),
  )
}

const RULES: Readonly<Record<string, string>> = {
  round_robin: 'Round-robin',
  least_loaded: 'Least-loaded',
  product: 'Product of prefill and requests',
}

function rules({ guarded, regret_ms: regret }: PaysSection): VNode {
  if (guarded === 0)
    return note(
      'empty',
      'Other rules are compared under --router-policy auto only: other policies have no costs in ms.',
    )
  return el(
    'div',
    null,
    el('h2', null, 'Regret'),
    el(
      'p.small',
      null,
      'What the choices cost beyond those of another rule at the same moments, as predicted. Below zero, the rule would have cost more.',
    ),
    table(
      `Against other rules, over ${count(guarded)} decisions`,
      ['Rule', '#For each request', '#In all'],
      Object.entries(regret).map(([rule, sum]) => [RULES[rule] ?? rule, ms(sum / guarded), ms(sum)]),
    ),
  )
}

const relative = (times: number | null): string => (times === null ? '–' : times.toFixed(2))

function guard({ guard }: PaysSection): VNode | null {
  if (guard === null) return null
  const row = (name: string, arm: NonNullable<PaysSection['guard']>['control']) => [
    name,
    count(arm.decisions),
    arm.error_share === null ? '–' : percent(arm.error_share),
    count(arm.outcomes),
    relative(arm.corrected_ttft),
    count(arm.finished),
    relative(arm.corrected_duration),
  ]
  return el(
    'div',
    null,
    el('h2', null, 'The guard'),
    el('p.small', null, guardText(guard)),
    table(
      'Experiments',
      [
        'Arm',
        '#Decisions',
        '#Failed',
        '#First tokens',
        '#First token, relative',
        '#Whole answers',
        '#Whole answer, relative',
      ],
      [row('control: least loaded', guard.control), row('affinity: the policy', guard.affinity)],
    ),
    guard.worse_workers.length === 0
      ? null
      : table(
          'Workers at which requests of the policy end worse',
          ['Worker', 'Than', '#Failed', '#First token, relative', '#Whole answer, relative'],
          guard.worse_workers.map(worker => [
            worker.worker,
            [worker.than_control ? 'control there' : '', worker.than_fleet ? 'the fleet' : '']
              .filter(text => text !== '')
              .join(', '),
            percent(worker.error_share),
            relative(worker.corrected_ttft),
            relative(worker.corrected_duration),
          ]),
        ),
  )
}

function guardText(guard: NonNullable<PaysSection['guard']>): string {
  if (guard.share === 0) return 'It is off (--router-guard-share 0): nothing is tried against the policy.'
  const found =
    guard.worse_by === 0
      ? 'no difference beyond chance'
      : `the policy is ${guard.worse_by > 0 ? 'worse' : 'better'} by ${Math.abs(guard.worse_by).toFixed(2)} mean times`
  const quiet = guard.is_quiet ? ' Nothing was found for an hour, so they have a budget.' : ''
  return `It is ${guard.phase}: ${found}. ${percent(guard.share)} of the decisions are experiments while it is trusting; so far they have cost ${count(guard.extra_tokens)} of ${count(guard.prompt_tokens)} prompt tokens.${quiet} 1.00 is the time of all requests of about the same size.`
}

/**
 * What if? One more worker, one less, twice the cache, another policy: the requests of the last minutes,
 * simulated.
 */

import type { VNode } from 'preact'
import { useState } from 'preact/hooks'
import type { WhatIfAnswerRow, WhatIfFleetRow, WhatIfSection } from '../src/sections.ts'
import { bar, el, figure, note, part, table } from './elements.ts'
import { bytes, count, duration, ms, percent, short, since } from './format.ts'
import type { Live } from './live.ts'
import type { ViewProps } from './view-props.ts'

const PATH = 'what_if'

export function WhatIfView({ state, live }: ViewProps): VNode {
  const { whatIf, beat } = state.sections
  if (whatIf === undefined) return note('empty', 'Nothing is known yet.')
  if (!whatIf.is_on)
    return note(
      'empty',
      'No requests are kept here, so nothing can be asked about them (--what-if-minutes 0).',
    )
  return el(
    'div',
    null,
    el(
      'p.lead',
      null,
      'What would other fleets, caches and policies have done with the requests of the last minutes? A simulation says so, and first how well it says what really happened.',
    ),
    el(
      'dl.figures',
      null,
      figure('Requests kept', count(whatIf.kept.requests), 'requests', whatIf.kept.requests),
      figure(
        'Since',
        whatIf.kept.since === null ? 'none yet' : `${since(whatIf.kept.since, beat?.now)} ago`,
        'since',
        whatIf.kept.since ?? '',
      ),
      figure('Memory', `${bytes(whatIf.kept.bytes)} of ${bytes(whatIf.kept.bytes_max)}`),
      figure(
        'Takes at most',
        `${percent(whatIf.cpu_share, 0)} of one core, ${duration(1000 * whatIf.timeout_s)}`,
      ),
    ),
    whatIf.kept.dropped_requests > 0
      ? note('warning', `${count(whatIf.kept.dropped_requests)} requests found no room, and are missing.`)
      : null,
    whatIf.state === 'running' ? part(Running, { whatIf, live }) : part(Ask, { whatIf, live }),
    ended(whatIf),
    whatIf.answer === null ? null : answer(whatIf.answer),
  )
}

interface PartProps {
  readonly whatIf: WhatIfSection
  readonly live: Live
}

function Ask({ whatIf, live }: PartProps): VNode {
  const [fault, setFault] = useState('')
  /** The run that was known when it was asked; updates come a few times a second at most. */
  const [asked, setAsked] = useState<string>()
  const known = whatIf.run?.id ?? ''
  const most = whatIf.kept.minutes_max
  const ask = (event: SubmitEvent): void => {
    event.preventDefault()
    const form = new FormData(event.target as HTMLFormElement)
    const question = { minutes: Number(form.get('minutes')), anyway: form.get('anyway') !== null }
    setFault('')
    live.send('POST', PATH, question).then(
      () => setAsked(known),
      (error: unknown) => setFault((error as Error).message),
    )
  }
  return el(
    'form.ask',
    { onSubmit: ask },
    el('label', { for: 'minutes' }, 'Of the last minutes'),
    el('input', {
      id: 'minutes',
      name: 'minutes',
      type: 'number',
      min: 1,
      max: most,
      defaultValue: most,
      required: true,
    }),
    el(
      'label',
      null,
      el('input', { name: 'anyway', type: 'checkbox' }),
      ' also if the simulation does not fit',
    ),
    el('button', { type: 'submit', disabled: whatIf.kept.requests === 0 }, 'What if?'),
    whatIf.kept.requests === 0 ? el('p.small', null, 'No request has ended yet.') : null,
    asked === known ? el('p', { role: 'status' }, 'Asked: it begins in a moment.') : null,
    fault === '' ? null : note('fault', fault),
  )
}

function Running({ whatIf, live }: PartProps): VNode {
  const [fault, setFault] = useState('')
  const run = whatIf.run!
  const done = run.steps === 0 ? 0 : Math.max(0, run.step - 1) / run.steps
  const text = run.step === 0 ? 'its thread is being started' : `${run.step} of ${run.steps}: ${run.what}`
  return el(
    'section.ask',
    { 'aria-label': 'Under way' },
    el('p', { role: 'status', 'data-field': 'step', 'data-value': run.step }, `Simulating ${text}.`),
    bar('Done', done, percent(done, 0)),
    el(
      'p.small',
      null,
      `${duration(1000 * run.elapsed_s)} so far; ${run.cpu_s.toFixed(1)} s of processor time, on a thread of its own with the lowest priority.`,
    ),
    el(
      'button',
      {
        type: 'button',
        onClick: () => {
          live.send('DELETE', PATH).catch((error: unknown) => setFault((error as Error).message))
        },
      },
      'Cancel',
    ),
    fault === '' ? null : note('fault', fault),
  )
}

function ended({ state, run, error }: WhatIfSection): VNode | null {
  if (state === 'cancelled') return note('warning', 'The last question was cancelled.')
  if (state === 'failed')
    return note('fault', `The last question has no answer: ${error ?? 'its thread died'}.`)
  if (state === 'done' && run !== null) {
    const took = `${duration(1000 * run.elapsed_s)}, ${run.cpu_s.toFixed(1)} s of processor time`
    return el('p.small', null, `The last answer took ${took}.`)
  }
  return null
}

function answer({ model, requests, span_s, fit, rows, notes }: WhatIfAnswerRow): VNode {
  const about = `${count(requests)} requests of ${model} in ${duration(1000 * span_s)}`
  return el(
    'div',
    null,
    fit.is_good
      ? el('p', null, `The simulation fits: of ${about}, placed as they were, `, fitWords(fit), '.')
      : note(
          'warning',
          `The simulation does not say what really happened, so ${rows.length === 0 ? 'nothing is concluded from it' : 'do not lean on what follows'}: `,
          `${fit.faults.join('; ')}. Of ${about}: `,
          fitWords(fit),
          '.',
        ),
    ...notes.map(text => el('p.small', null, `${text}.`)),
    rows.length === 0 ? null : fleets(rows),
  )
}

function fitWords(fit: WhatIfAnswerRow['fit']): string {
  const ttft = `the mean time to the first token was ${ms(fit.ttft_ms_seen)}, simulated ${ms(fit.ttft_ms_simulated)}`
  const hits = `the hit rate ${percent(fit.hit_rate_seen)}, simulated ${percent(fit.hit_rate_simulated)}`
  return `${ttft}; ${hits}; step times: ${fit.profile}`
}

function fleets(rows: readonly WhatIfFleetRow[]): VNode {
  const most = Math.max(...rows.map(row => row.ttft_ms_mean))
  return table(
    'What would have been',
    [
      '',
      '#Time to first token',
      '#Against now',
      '#p50',
      '#p99',
      '#Hit rate',
      '#Computed',
      '#To the end',
      '#Unserved',
    ],
    rows.map((row, at) => [
      el('strong', { 'data-row': row.name }, row.name),
      el(
        'span',
        { 'data-field': 'ttft_ms_mean', 'data-value': row.ttft_ms_mean },
        ms(row.ttft_ms_mean),
        bar('Time to first token', row.ttft_ms_mean / most, ms(row.ttft_ms_mean)),
      ),
      at === 0 ? '–' : change(row.ttft_ratio),
      ms(row.ttft_ms_p50),
      ms(row.ttft_ms_p99),
      percent(row.hit_rate),
      short(row.computed_tokens),
      ms(row.e2e_ms_mean),
      count(row.unserved_requests),
    ]),
  )
}

function change(ratio: number): string {
  const share = Math.round(100 * (ratio - 1))
  if (share === 0) return 'the same'
  return share < 0 ? `▼ ${-share} % less` : `▲ ${share} % more`
}

/** Waiting: requests without a place, by class and tenant; the shares of tenants; refusals. */

import type { VNode } from 'preact'
import type { PageWaitingRow, WaitingSection } from '../src/sections.ts'
import { bar, el, figure, note, table } from './elements.ts'
import { count, ms, percent } from './format.ts'
import type { ViewProps } from './view-props.ts'

export function WaitingView({ state }: ViewProps): VNode {
  const { waiting } = state.sections
  if (waiting === undefined) return note('empty', 'Nothing is known of the queue yet.')
  if (!waiting.is_on)
    return note('empty', 'No request ever waits here: there is no threshold (--router-queue-threshold).')
  return el(
    'div',
    null,
    el(
      'dl.figures',
      null,
      el(
        'div.figure.wide',
        null,
        el('dt', null, 'Requests that wait'),
        el(
          'dd',
          { 'data-field': 'requests', 'data-value': waiting.requests },
          `${count(waiting.requests)} of ${count(waiting.requests_max)}`,
          bar(
            'Requests that wait',
            waiting.requests / waiting.requests_max,
            `${waiting.requests} of ${waiting.requests_max}`,
          ),
        ),
      ),
      figure(
        'Their prompts',
        `${count(waiting.prompt_tokens)} tokens`,
        'prompt_tokens',
        waiting.prompt_tokens,
      ),
    ),
    waiting.models.length === 0 ? note('empty', 'Nothing has come yet that could wait.') : null,
    ...waiting.models.map(modelPart),
    waiting.models_left_out > 0
      ? note('warning', `${count(waiting.models_left_out)} more models: GET /queue has all.`)
      : null,
  )
}

function modelPart(model: WaitingSection['models'][number]): VNode {
  const wait =
    model.expected_wait_ms === null ? '' : `; a new one is expected to wait ${ms(model.expected_wait_ms)}`
  return el(
    'section.part',
    null,
    el('h2', null, model.model),
    el('p.small', null, `${count(model.requests)} wait for ${count(model.worker_keys)} worker keys${wait}.`),
    rows(`Classes of ${model.model}`, 'Class', model.classes),
    model.tenants.length === 0 ? null : rows(`Tenants of ${model.model}`, 'Tenant', model.tenants),
    model.tenants_left_out > 0 ? el('p.small', null, `${count(model.tenants_left_out)} more tenants`) : null,
  )
}

function rows(caption: string, name: string, list: readonly PageWaitingRow[]): VNode {
  return table(
    caption,
    [name, '#Waiting', '#Uncached tokens', '#Oldest', '#Served', '#Share', 'Refused'],
    list.map(row => [
      row.name === '' ? '(none)' : row.name,
      count(row.requests),
      count(row.uncached_tokens),
      row.oldest_ms === null ? '–' : ms(row.oldest_ms),
      count(row.served),
      row.share === null ? '–' : percent(row.share),
      refusedText(row.refused),
    ]),
  )
}

function refusedText(refused: PageWaitingRow['refused']): string {
  const said = Object.entries(refused).filter(([, times]) => times > 0)
  return said.length === 0 ? 'none' : said.map(([reason, times]) => `${count(times)} ${reason}`).join(', ')
}

/** The section `waiting` of the page, from the answer of `/queue`. */

import type { PageWaitingRow, WaitingSection } from '@homing/page'
import type { QueueView } from '../views/queue-view.ts'

const MODELS_SHOWN = 20
const PAGE_TENANTS_SHOWN = 20

type ModelView = QueueView['models'][number]

export function waitingSection(view: QueueView): WaitingSection {
  return {
    is_on: view.is_on,
    requests: view.requests,
    requests_max: view.requests_max,
    prompt_tokens: view.prompt_tokens,
    prompt_tokens_max: view.prompt_tokens_max,
    models: view.models.slice(0, MODELS_SHOWN).map(model => ({
      model: model.model,
      worker_keys: model.worker_keys,
      requests: model.waiting.requests,
      expected_wait_ms: model.expected_wait_ms,
      classes: model.classes.map(row => rowOf(row.policy_class, row)),
      tenants: model.tenants
        .slice(0, PAGE_TENANTS_SHOWN)
        .map(row => ({ ...rowOf(row.tenant, row), weight: row.weight })),
      tenants_left_out: model.tenants_left_out + Math.max(0, model.tenants.length - PAGE_TENANTS_SHOWN),
    })),
    models_left_out: Math.max(0, view.models.length - MODELS_SHOWN),
  }
}

function rowOf(
  name: string,
  row: ModelView['classes'][number] | ModelView['tenants'][number],
): PageWaitingRow {
  return {
    name,
    requests: row.waiting.requests,
    uncached_tokens: row.waiting.uncached_tokens,
    oldest_ms: row.waiting.oldest_ms === null ? null : Math.round(row.waiting.oldest_ms),
    served: row.served.requests,
    share: row.served.share,
    refused: row.refused,
  }
}

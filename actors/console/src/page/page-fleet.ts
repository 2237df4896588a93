/** The section `fleet` of the page, from the answer of `/workers`. */

import { APART_SHOWN, type FleetKey, type FleetSection, KEYS_SHOWN } from '@homing/page'
import type { WorkersView } from '../views/workers-view.ts'

/**
 * Workers that need attention come first. Within a rank the order of `/workers` stays, so that cards do not
 * jump.
 */
const TRUST_RANK: Readonly<Record<string, number>> = { none: 1, approximate: 2, partial: 3, exact: 4 }

export function fleetSection(view: WorkersView): FleetSection {
  const keys: { readonly rank: number; readonly key: FleetKey }[] = []
  const trust: Record<string, number> = {}
  const apart = new Map<string, string>()
  for (const worker of view.workers) {
    for (const [model, state] of Object.entries(worker.prefill_state)) apart.set(model, state)
    for (const key of worker.worker_keys) {
      trust[key.trust] = (trust[key.trust] ?? 0) + 1
      const rank = worker.state === 'up' ? (TRUST_RANK[key.trust] ?? 0) : 0
      keys.push({ rank, key: keyOf(worker, key) })
    }
  }
  keys.sort((one, other) => one.rank - other.rank)
  return {
    version: view.version,
    workers: view.workers.length,
    workers_up: view.workers.filter(({ state }) => state === 'up').length,
    keys_total: keys.length,
    keys_left_out: Math.max(0, keys.length - KEYS_SHOWN),
    trust,
    apart: [...apart].slice(0, APART_SHOWN).map(([model, state]) => ({ model, state })),
    keys: keys.slice(0, KEYS_SHOWN).map(({ key }) => key),
  }
}

type WorkerView = WorkersView['workers'][number]

function keyOf(worker: WorkerView, key: WorkerView['worker_keys'][number]): FleetKey {
  const { audit, learned } = key
  return {
    worker: key.worker,
    id: worker.id,
    url: worker.url,
    state: worker.state,
    state_reason:
      worker.state === 'up' && worker.health.state !== 'up'
        ? `${worker.health.state}: ${worker.health.reason}`
        : worker.state_reason,
    engine: worker.engine ?? null,
    models: worker.models.map(({ id }) => id),
    role: worker.role?.value ?? 'both',
    handover: worker.handover?.value ?? 'kv_transfer',
    trust: key.trust,
    trust_reason: key.trust_reason,
    trust_since: key.trust_since,
    block_size: worker.block_size?.value ?? null,
    kv_blocks: worker.kv_blocks?.value ?? null,
    blocks_held: key.blocks_held,
    active_blocks: key.load.active_blocks,
    prefill_tokens: key.load.prefill_tokens,
    requests: key.load.requests,
    events: key.events?.events ?? null,
    // Rounded to seconds, so that a growing age alone is rarely a change.
    last_event_age_ms:
      key.last_event_age_ms === null ? null : Math.floor(key.last_event_age_ms / 1000) * 1000,
    audit: {
      state: audit.state,
      requests: audit.requests,
      predicted_tokens: audit.predicted_tokens,
      delivered_tokens: audit.delivered_tokens,
      precision: audit.precision,
    },
    odd: key.odd,
    learned:
      learned === null
        ? null
        : {
            prefill_source: learned.prefill.source,
            ms_per_token: learned.prefill.ms_per_token,
            decode_source: learned.decode.source,
            ms_per_step: learned.decode.ms_per_step,
          },
  }
}

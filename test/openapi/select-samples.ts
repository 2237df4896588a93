/** Answers of a real selection service in many states, by route. */

import { freePortPairs, send, startEngines, startProcess, until } from '../system/fleet.ts'
import type { Collect } from './parts.ts'

const NAME = { model_name: 'tiny', routing_group: 'default' }
const PROMPT = { ...NAME, token_ids: Array.from({ length: 40 }, (_, i) => i + 1) }
const TOKENS = { lora_name: null, cache_salt: null, mm_routing_info: null, is_eagle: false }
const HASHED = { block_hashes: null, sequence_hashes: null, isl_tokens: null }
const QUESTION = {
  ...PROMPT,
  ...TOKENS,
  ...HASHED,
  router_config_override: { router_temperature: 0 },
  expected_output_tokens: 8,
  session_id: 's',
  pinned_worker: 7,
  allowed_worker_ids: ['7'],
  routing_constraints: { preferred_taints: { x: 1 } },
}
const SOURCES = { kv_events_endpoints: null, replay_endpoint: null }
const WORKER = {
  ...NAME,
  ...SOURCES,
  endpoint: 'http://127.0.0.1:1',
  block_size: 16,
  data_parallel_start_rank: 0,
  data_parallel_size: 2,
  max_num_batched_tokens: 8192,
  total_kv_blocks: 1000,
  max_model_len: 4096,
  taints: ['x'],
  lifecycle: 'schedulable',
}
const RESERVATION = {
  ...NAME,
  selection_id: 'b',
  worker_id: '7',
  dp_rank: 1,
  sequence_hashes: [11, '-12'],
  isl_tokens: 40,
  effective_prefill_tokens: 8,
  track_prefill_tokens: true,
}

/** Bodies that are accepted, in this order. */
export const SELECT_BODIES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'POST /workers': { ...WORKER, worker_id: 7 },
  'PATCH /workers/7': WORKER,
  'POST /select': { ...QUESTION, selection_id: 'a', explain: false },
  'POST /select_and_reserve': { ...QUESTION, selection_id: 'a', explain: false },
  'POST /reservations': RESERVATION,
  'POST /reservations/a/prefill_complete': {},
  'POST /reservations/a/output_block': { decay_fraction: 0.5 },
  'POST /potential_loads': QUESTION,
  'POST /overlap_scores': { ...PROMPT, ...TOKENS, ...HASHED },
  'DELETE /reservations/a': {},
  'POST /replica_sync/register_peer': { endpoint: 'tcp://127.0.0.1:1' },
  'POST /replica_sync/deregister_peer': { endpoint: 'tcp://127.0.0.1:1' },
}
const GETS = ['/replica_sync/peers', '/workers', '/loads', '/dump', '/health', '/ready', '/metrics', '/']

/** As the table of routes has it. */
export function tablePath(path: string): string {
  return path.replace(/^(\/workers|\/reservations)\/[^/]+/, '$1/*')
}

export async function collectSelectSamples(collect: Collect): Promise<void> {
  const { engines, stop } = await startEngines([{ blockSizeTokens: 16 }])
  const [port] = await freePortPairs(1)
  const listening = ['--host', '127.0.0.1', '--port', '0', '--router-event-threads', '1']
  const select = await startProcess('select', [
    ...listening,
    ...['--replica-endpoint', `tcp://127.0.0.1:${port}`],
  ])
  const ask = async (route: string, body?: object): Promise<unknown> => {
    const [method, path] = route.split(' ') as [string, string]
    const isEmpty = body === undefined || method === 'DELETE'
    const { status, text, headers } = await send(select.url, path, { method, ...(!isEmpty && { body }) })
    const answer = headers['content-type'] === 'application/json' ? JSON.parse(text) : text
    collect(`${method} ${tablePath(path)}`, status, answer)
    return answer
  }
  const look = async (): Promise<void> => {
    for (const path of GETS) await ask(`GET ${path}`)
  }
  try {
    await look()
    const { url, description } = engines[0]!
    const { events, replay } = description.ranks[0]!
    await ask('POST /workers', {
      ...{ worker_id: 8, model_name: 'tiny', endpoint: url, block_size: 16 },
      ...{ kv_events_endpoints: { 0: events }, replay_endpoint: { 0: replay } },
    })
    const computed = { prompt: PROMPT.token_ids, max_tokens: 1 }
    await send(url, '/v1/completions', { body: computed })
    await until('the events have come', async () => {
      const answer = (await ask('POST /select', PROMPT)) as { overlap?: { gpu: number } }
      return answer.overlap?.gpu === 32 ? true : undefined
    })
    await ask('POST /overlap_scores', PROMPT)
    for (const [route, body] of Object.entries(SELECT_BODIES)) {
      await ask(route, body)
      await ask(route, { token_ids: 1, worker_id: 'x', block_size: 'x', decay_fraction: 'x' })
      await look()
    }
    await ask('POST /select_and_reserve', { ...PROMPT, explain: true })
    await ask('POST /select', { ...PROMPT, explain: true })
    await ask('POST /select', { ...PROMPT, model_name: 'other' })
    await ask('POST /workers', { ...WORKER, worker_id: 9, block_size: 32 })
    await ask('POST /workers', { worker_id: 10 })
    await look()
    await ask('DELETE /workers/7')
    await ask('DELETE /workers/7')
    await ask('POST /reopen_logs')
  } finally {
    select.kill('SIGKILL')
    await stop()
  }
}

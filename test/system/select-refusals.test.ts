/** What `homing select` cannot do: the status and the sentence of each fault. */

import t from 'tap'
import { send } from './fleet.ts'
import { loadsOf, MODEL, NAMES, select, WORKER } from './select-world.ts'

t.test(
  'what cannot be done is one sentence with the status of the reference, and changes nothing',
  async t => {
    const s = await select(t, {
      activeRequestsMax: 2,
      workerSlotsMax: 4,
      bodyBytesMax: 8192,
    })
    await s.post('/workers', WORKER)
    const prompt = { model_name: MODEL, token_ids: [1, 2, 3] }
    const explicit = {
      ...NAMES,
      selection_id: 'z',
      worker_id: 7,
      sequence_hashes: [1],
      isl_tokens: 4,
      effective_prefill_tokens: 4,
    }
    await s.post('/select_and_reserve', { ...prompt, selection_id: 'a' })
    const before = await loadsOf(s)
    const source = { kv_events_endpoints: { 0: 'tcp://a:1' } }
    await s.call('PATCH', '/workers/7', { taints: ['x'] })
    const cases: readonly (readonly [string, unknown, number, RegExp])[] = [
      ['/workers', '{"worker_id": 7', 400, /^cannot add the worker: the body is not JSON: /],
      ['/workers', '[]', 422, /the body is not a JSON object/],
      ['/workers', {}, 422, /worker_id is missing/],
      ['/workers', { ...WORKER, worker_id: 1.5 }, 422, /worker_id must be a whole number from 0 to 184/],
      [
        '/workers',
        { ...WORKER, block_size: 0 },
        400,
        /block_size must be a whole number from 1 to 65536, not 0/,
      ],
      ['/workers', { ...WORKER, block_size: '4' }, 422, /block_size must be .*, not a string/],
      ['/workers', { ...WORKER, data_parallel_size: 1025 }, 400, /from 1 to 1024, not 1025/],
      ['/workers', { ...WORKER, routing_group: 'a:b' }, 400, /routing_group must not contain a colon/],
      ['/workers', { ...WORKER, lifecycle: 'asleep' }, 400, /lifecycle must be one of schedulable, draining/],
      ['/workers', { ...WORKER, taints: 'x' }, 422, /taints must be a list of strings/],
      ['/workers', { ...WORKER, taints: [''] }, 400, /taints must have texts of 1 to 256 characters/],
      ['/workers', { ...WORKER, kv_events_endpoints: { x: 'tcp://a:1' } }, 400, /by its rank, such as "0"/],
      [
        '/workers',
        { ...WORKER, kv_events_endpoints: { 1: 'tcp://a:1' } },
        400,
        /names rank 1, and the worker has 0 to 0/,
      ],
      [
        '/workers',
        { ...WORKER, kv_events_endpoints: { 0: 5 } },
        422,
        /kv_events_endpoints\["0"\] must be a string/,
      ],
      ['/workers', { ...WORKER, kv_events_endpoints: { 0: 'http://a' } }, 400, /must be tcp:\/\/HOST:PORT/],
      [
        '/workers',
        { ...WORKER, replay_endpoint: 'tcp://a:1' },
        400,
        /rank 0, which has no endpoint in kv_events/,
      ],
      ['/workers', { ...WORKER, ...source, replay_endpoint: 'tcp://a:1' }, 400, /is that of events, too/],
      ['/workers', { ...WORKER, worker_id: 8, block_size: 8 }, 409, /has blocks of 4 tokens, not 8/],
      [
        '/workers',
        { ...WORKER, worker_id: 8, data_parallel_size: 4 },
        503,
        /4 ranks, and there is room for 3 of 4/,
      ],
      ['/select', { token_ids: [1] }, 404, /no worker for model "default" in routing group "default"/],
      ['/select', { ...prompt, routing_group: 'g' }, 404, /in routing group "g"/],
      ['/select', { model_name: MODEL }, 422, /token_ids is missing \(or block_hashes/],
      ['/select', { ...prompt, token_ids: [] }, 400, /token_ids must have at least one token/],
      ['/select', { ...prompt, token_ids: [1, -1] }, 422, /token_ids\[1\] must be a whole number/],
      ['/select', { ...prompt, token_ids: 'x' }, 422, /token_ids must be a list/],
      ['/select', { ...prompt, block_hashes: [1] }, 400, /give token_ids or block_hashes, not both/],
      [
        '/select',
        { model_name: MODEL, block_hashes: [1], sequence_hashes: [], isl_tokens: 4 },
        400,
        /one of each/,
      ],
      [
        '/select',
        { model_name: MODEL, block_hashes: [1], sequence_hashes: [1], isl_tokens: 3 },
        400,
        /3 are 0 full blocks/,
      ],
      [
        '/select',
        { model_name: MODEL, block_hashes: [1], sequence_hashes: [1] },
        422,
        /isl_tokens is missing/,
      ],
      [
        '/select',
        { model_name: MODEL, block_hashes: [], sequence_hashes: [], isl_tokens: 1, cache_salt: 'x' },
        400,
        /cache_salt is not accepted/,
      ],
      [
        '/select',
        { ...prompt, router_config_override: { router_temperature: 'hot' } },
        422,
        /router_temperature must be a number/,
      ],
      ['/select', { ...prompt, router_config_override: { router_temperature: -1 } }, 400, /from 0 to/],
      ['/select', { ...prompt, router_config_override: { weight: 1 } }, 400, /has no member weight/],
      [
        '/select',
        { ...prompt, router_config_override: { assume_kv_reuse: 1 } },
        422,
        /assume_kv_reuse must be true or/,
      ],
      ['/select', { ...prompt, pinned_worker: 'x' }, 422, /pinned_worker must be the number of a worker/],
      [
        '/select',
        { ...prompt, pinned_worker: 9 },
        503,
        /pinned_worker names worker 9, which is not of model "m"/,
      ],
      [
        '/select',
        { ...prompt, pinned_worker: { worker_id: 7, dp_rank: 3 } },
        503,
        /rank 3 of worker 7, which has 0 to 0/,
      ],
      [
        '/select',
        { ...prompt, pinned_worker: 7, allowed_worker_ids: [8] },
        400,
        /7 is not in allowed_worker_ids/,
      ],
      ['/select', { ...prompt, allowed_worker_ids: [8] }, 503, /7\/0 \(/],
      [
        '/select',
        { ...prompt, allowed_worker_ids: ['x'] },
        422,
        /allowed_worker_ids\[0\] must be the number/,
      ],
      ['/select', { ...prompt, routing_constraints: [] }, 422, /routing_constraints must be an object/],
      [
        '/select',
        { ...prompt, routing_constraints: { preferred_taints: { x: 'y' } } },
        422,
        /\["x"\] must be a number/,
      ],
      [
        '/select',
        { ...prompt, mm_routing_info: { mm_objects: [{}] } },
        422,
        /mm_objects\[0\].mm_hash must be a 64-bit/,
      ],
      [
        '/select',
        { ...prompt, mm_routing_info: { mm_objects: [{ mm_hash: 1, offsets: [[0, 9]] }] } },
        400,
        /within the 3 tokens/,
      ],
      [
        '/select',
        {
          ...prompt,
          mm_routing_info: {
            mm_objects: Array.from({ length: 17 }, (_, i) => ({ mm_hash: i, offsets: [[0, 3]] })),
          },
        },
        400,
        /cover the prompt more than 16 times/,
      ],
      [
        '/select',
        { ...prompt, selection_id: 'x'.repeat(257) },
        400,
        /selection_id has more than 256 characters/,
      ],
      ['/select', { ...prompt, token_ids: Array(4096).fill(1) }, 413, /body/],
      ['/select_and_reserve', { ...prompt, selection_id: 'a' }, 409, /"a" is reserved already/],
      ['/reservations', {}, 422, /selection_id is missing/],
      ['/reservations', { selection_id: 'q' }, 404, /nothing was selected under this id for model "default"/],
      ['/reservations', { ...explicit, worker_id: 9 }, 404, /there is no worker 9/],
      ['/reservations', { ...explicit, model_name: 'n' }, 404, /worker 7 is not of model "n"/],
      ['/reservations', { ...explicit, dp_rank: 1 }, 404, /worker 7 has no rank 1; it has 0 to 0/],
      ['/reservations', { ...explicit, effective_prefill_tokens: 5 }, 400, /from 0 to 4, not 5/],
      [
        '/reservations',
        { ...explicit, sequence_hashes: [0.5] },
        422,
        /sequence_hashes\[0\] must be a 64-bit/,
      ],
      [
        '/reservations',
        { ...explicit, track_prefill_tokens: 1 },
        422,
        /track_prefill_tokens must be true or false/,
      ],
      ['/reservations', { ...explicit, selection_id: 'a' }, 409, /"a" is reserved already/],
      [
        '/reservations/a/output_block',
        { decay_fraction: 2 },
        400,
        /decay_fraction must be a number from 0 to 1/,
      ],
      ['/reservations/a/output_block', { decay_fraction: 'x' }, 422, /decay_fraction must be a number/],
      ['/reservations/q/prefill_complete', undefined, 404, /"q" is not reserved/],
      ['/potential_loads', { model_name: 'n', token_ids: [1] }, 404, /no worker for model "n"/],
      ['/overlap_scores', { model_name: 'n', token_ids: [1] }, 404, /no worker for model "n"/],
      [
        '/replica_sync/register_peer',
        { endpoint: 'tcp://a:1' },
        409,
        /was started without --replica-endpoint/,
      ],
      ['/nowhere', {}, 404, /GET \/ lists them/],
      ['/loads', {}, 405, /GET/],
    ]
    for (const [path, body, status, message] of cases) {
      const answer = await s.post(path, body)
      const { error } = answer.json as { readonly error: string }
      t.equal(answer.status, status, `${path} ${JSON.stringify(body)?.slice(0, 90)}: ${error}`)
      t.match(error, message)
      t.notMatch(error, /\n/)
    }
    t.match(await s.call('PATCH', '/workers/9', {}), { status: 404, json: { error: /there is no worker 9/ } })
    t.match(await s.call('PATCH', '/workers/x', {}), { status: 404, json: { error: /"x" is no number/ } })
    t.match(await s.call('PATCH', '/workers/7', { block_size: -1 }), { status: 422 })
    t.match(await s.call('DELETE', '/workers/9'), { status: 404 })
    const typed = { body: JSON.stringify(prompt), headers: { 'content-type': 'text/plain' } }
    t.match(await send(s.url, '/select', typed), { status: 415, json: { code: 'HOMING_SERVICE_BODY_TYPE' } })
    t.strictSame(await loadsOf(s), before)
    t.equal((await s.post('/reservations', explicit)).status, 201)
    const full = await s.post('/select_and_reserve', { ...prompt, selection_id: 'c' })
    t.match(full, { status: 503, json: { error: /2 requests are reserved \(--max-active-requests\)/ } })
    t.match(full.headers, { 'retry-after': '1' })
  },
)

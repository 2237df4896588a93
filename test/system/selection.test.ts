/**
 * Selection through the public door: policies, modes, what a request overrides, and which workers it may go
 * to.
 */

import assert from 'node:assert/strict'
import { POLICIES, POLICY_NAMES } from '@homing/selection'
import type { RunningRouter } from 'homing'
import t from 'tap'
import { type Answer, RouterClient, startEngines, startTestRouter } from './fleet.ts'

const BLOCK = 16
/** Ten full blocks and a bit; every id is plain text. */
const PROMPT = Array.from({ length: 10 * BLOCK + 4 }, (_, position) => 40 + ((position * 7) % 50))
/** Another, for requests that may go anywhere: PROMPT stays where it is. */
const ELSEWHERE = PROMPT.map(id => id + 1)
const MODEL = 'homing-sim'

interface CandidateView {
  readonly worker: string
  readonly overlap_blocks: number
  readonly queued_prefill_tokens: number
  readonly prefill_tokens: number
  readonly active_blocks: number
  readonly decode_blocks: number
  readonly active_requests: number
  readonly preference: number
  readonly terms: Readonly<Record<string, number>>
  readonly cost: number
  readonly probability: number
}

interface ReceiptView {
  readonly mode: string
  readonly policy: string
  readonly rule: string
  readonly cost_formula: string
  readonly cost_unit: string
  readonly overlap_score_weight: number
  readonly temperature: number
  readonly worker: string
  readonly candidates: readonly CandidateView[]
  readonly excluded: readonly { readonly worker: string; readonly reason: string }[]
}

let engines: Awaited<ReturnType<typeof startEngines>>
/** By the options that it was started with; each is started when it is first asked for. */
const routers = new Map<string, { readonly running: RunningRouter; readonly client: RouterClient }>()
/** Worker keys: the first has the prompt in its cache, the second has two ranks. */
let [first, second] = ['', '']

/** Two engines: number 3 is near and holds the prompt; number 4 is far, fast, and has two ranks. */
async function routerWith(...options: string[]): Promise<RouterClient> {
  const found = routers.get(options.join(' '))
  if (found !== undefined) return found.client
  const queries = ['?id=3&taints=near', '?id=4&taints=far,fast']
  const urls = engines.engines.map(({ url }, number) => url + queries[number])
  const running = await startTestRouter(urls, options)
  const client = new RouterClient(running.url)
  routers.set(options.join(' '), { running, client })
  await client.trusted()
  await client.caughtUp(engines.engines)
  return client
}

t.before(async () => {
  engines = await startEngines([{}, { ranks: 2 }])
  const router = await routerWith()
  const [one, other] = await Promise.all(engines.engines.map(({ url }) => router.worker(url)))
  first = one!.worker_keys[0]!.worker
  second = other!.worker_keys[0]!.worker.replace(/\/0$/, '')
  const answer = await complete(router, { nvext: { backend_instance_id: 3 } })
  assert.equal(answer.headers['x-homing-worker'], first)
  await router.caughtUp(engines.engines)
  await router.drained()
})
t.teardown(async () => {
  for (const { running } of routers.values()) await running.stop(0)
  await engines.stop()
})

function complete(router: RouterClient, extra: object = {}): Promise<Answer> {
  return router.send('/v1/completions', { body: { model: MODEL, prompt: PROMPT, max_tokens: 1, ...extra } })
}

/** The receipt that the request would get; nothing is sent. */
async function route(router: RouterClient, extra: object = {}): Promise<ReceiptView> {
  const answer = await router.send('/route', { body: { model: MODEL, prompt: PROMPT, ...extra } })
  assert.equal(answer.status, 200, answer.text)
  return answer.json as ReceiptView
}

async function refusal(router: RouterClient, nvext: object): Promise<Answer> {
  return router.send('/route', { body: { model: MODEL, prompt: PROMPT, nvext } })
}

const costs = ({ candidates }: ReceiptView) => candidates.map(({ cost }) => cost)
const workers = ({ candidates }: ReceiptView) => candidates.map(({ worker }) => worker).sort()

for (const policy of POLICY_NAMES) {
  t.test(`--router-policy ${policy} decides by its own costs, and the receipt has every term`, async t => {
    const router = await routerWith('--router-policy', policy)
    const receipt = await route(router)
    const { rules, terms } = POLICIES[policy]
    const rule = rules.find(({ name }) => name === receipt.rule)!
    t.match(receipt, { mode: 'kv', policy, cost_formula: rule.formula, cost_unit: rule.unit, worker: first })
    for (const candidate of receipt.candidates) {
      t.strictSame(
        Object.keys(candidate.terms),
        terms.map(({ name }) => name),
      )
      const { prefill_tokens: prefill, decode_blocks: decode, active_requests: requests } = candidate
      const expected = {
        linear: prefill / BLOCK + decode,
        product: prefill * (requests + 1),
        'est-ttft': 0.023 * prefill + 0.96e-6 * prefill * 0.6 * PROMPT.length,
        threshold: prefill / PROMPT.length,
        auto: Object.values(candidate.terms).reduce((sum, term) => sum + term, 0),
      }[policy]
      t.ok(Math.abs(candidate.cost - expected) < 1e-9, `${candidate.cost} is ${expected}`)
    }
    const chosen = receipt.candidates.find(({ worker }) => worker === receipt.worker)!
    t.equal(chosen.cost, Math.min(...costs(receipt)))
  })
}

t.test('GET /decisions shows the policy and the terms of what was decided', async t => {
  const router = await routerWith('--router-policy', 'product')
  const answer = await complete(router)
  const { json } = await router.send('/decisions?limit=1')
  t.match(json.decisions, [
    {
      id: answer.headers['x-homing-decision'],
      policy: 'product',
      cost_unit: 'token-requests',
      worker: first,
    },
  ])
  t.match(json.decisions[0].candidates[0], {
    terms: { prefill_tokens: Number, requests: Number },
    cost: Number,
  })
  await router.caughtUp(engines.engines)
  await router.drained()
})

for (const mode of ['random', 'round-robin', 'least-loaded', 'power-of-two'] as const) {
  t.test(`--router-mode ${mode} answers, and says so in the receipt`, async t => {
    const router = await routerWith('--router-mode', mode, '--seed', '7')
    const answer = await complete(router, { prompt: ELSEWHERE })
    t.equal(answer.status, 200)
    const { json } = await router.send(`/decisions/${answer.headers['x-homing-decision']}`)
    t.match(json, { mode, policy: 'auto' })
    await router.caughtUp(engines.engines)
    await router.drained()
  })
}

t.test('mode kv means auto, and a request with a weight or a temperature the linear rule', async t => {
  const router = await routerWith()
  t.match(await route(router), { mode: 'kv', policy: 'auto', worker: first })
  for (const hint of [{ overlap_score_weight: 2 }, { router_temperature: 0.5 }])
    t.match(await route(router, { nvext: { router_config_override: hint } }), { policy: 'linear' })
  const credited = await route(router, { nvext: { router_config_override: { overlap_score_credit: 0.5 } } })
  t.match(credited, { policy: 'auto' })
})

t.test('--router-mode direct goes where the request says, and refuses one that says nothing', async t => {
  const router = await routerWith('--router-mode', 'direct')
  t.match(await route(router, { nvext: { backend_instance_id: 4, dp_rank: 1 } }), {
    mode: 'direct',
    worker: `${second}/1`,
  })
  const refused = await complete(router)
  t.equal(refused.status, 400)
  t.match(refused.json.error, { code: 'invalid_value', message: /in mode direct it must name its worker/ })
})

t.test(
  '000-2: weight 0 ignores the cache, a weight counts prefill more, and a temperature draws',
  async t => {
    const router = await routerWith('--kv-overlap-score-weight', '1')
    const plain = await route(router)
    t.match(plain, { policy: 'linear', overlap_score_weight: 1, temperature: 0, worker: first })
    const ignoring = await route(router, { nvext: { router_config_override: { overlap_score_weight: 0 } } })
    t.equal(ignoring.overlap_score_weight, 0)
    t.equal(new Set(costs(ignoring)).size, 1, 'all cost the same without the cache')
    const heavy = await route(router, { router_config_override: { overlap_score_weight: 5 } })
    for (const [i, candidate] of heavy.candidates.entries()) {
      t.equal(candidate.terms['prefill_blocks'], 5 * plain.candidates[i]!.terms['prefill_blocks']!)
    }
    const warm = await route(router, { nvext: { router_config_override: { router_temperature: 0.7 } } })
    t.equal(warm.temperature, 0.7)
    const sum = warm.candidates.reduce((total, { probability }) => total + probability, 0)
    t.ok(Math.abs(sum - 1) < 1e-9)
    for (const { probability } of warm.candidates) t.ok(probability > 0 && probability < 1)
  },
)

t.test('000-2: the settings do the same for all requests', async t => {
  const router = await routerWith('--kv-overlap-score-weight', '5', '--router-temperature', '0.7')
  t.match(await route(router), { overlap_score_weight: 5, temperature: 0.7 })
})

t.test(
  '003-9: agent_hints.kv_overlap_score_weight weighs one request, and router_config_override wins',
  async t => {
    const router = await routerWith()
    const hint = { agent_hints: { kv_overlap_score_weight: 3 } }
    t.equal((await route(router, { nvext: hint })).overlap_score_weight, 3)
    const both = { ...hint, router_config_override: { overlap_score_weight: 2 } }
    t.equal((await route(router, { nvext: both })).overlap_score_weight, 2)
    const scale = { ...hint, router_config_override: { prefill_load_scale: 4 } }
    t.equal((await route(router, { nvext: scale })).overlap_score_weight, 4)
    t.equal((await route(router)).overlap_score_weight, 1, 'the next one has the setting again')
  },
)

t.test('a request can change what its cached blocks count for', async t => {
  const router = await routerWith()
  const half = await route(router, { nvext: { router_config_override: { overlap_score_credit: 0.5 } } })
  const holder = half.candidates.find(({ worker }) => worker === first)!
  t.equal(holder.overlap_blocks, 10)
  t.equal(holder.prefill_tokens, PROMPT.length - 5 * BLOCK)
})

t.test('an override out of range is refused with its path', async t => {
  const router = await routerWith()
  for (const [nvext, param] of [
    [
      { router_config_override: { overlap_score_credit: -1 } },
      'nvext.router_config_override.overlap_score_credit',
    ],
    [
      { router_config_override: { prefill_load_scale: 'x' } },
      'nvext.router_config_override.prefill_load_scale',
    ],
    [{ agent_hints: { kv_overlap_score_weight: -0.1 } }, 'nvext.agent_hints.kv_overlap_score_weight'],
    [{ allowed_worker_ids: [] }, 'nvext.allowed_worker_ids'],
    [{ allowed_worker_ids: [1.5] }, 'nvext.allowed_worker_ids'],
    [{ routing_constraints: { required_taints: [7] } }, 'nvext.routing_constraints.required_taints'],
    [{ routing_constraints: { preferred_taints: ['near'] } }, 'nvext.routing_constraints.preferred_taints'],
    [
      { routing_constraints: { preferred_taints: { near: '1' } } },
      'nvext.routing_constraints.preferred_taints',
    ],
  ] as const) {
    const answer = await refusal(router, nvext)
    t.equal(answer.status, 400, JSON.stringify(nvext))
    t.equal(answer.json.error.param, param)
  }
})

t.test('a pin names a worker, a rank, or both', async t => {
  const router = await routerWith()
  t.strictSame(workers(await route(router, { nvext: { backend_instance_id: 4 } })), [
    `${second}/0`,
    `${second}/1`,
  ])
  t.strictSame(workers(await route(router, { nvext: { backend_instance_id: 4, dp_rank: 1 } })), [
    `${second}/1`,
  ])
  t.strictSame(workers(await route(router, { nvext: { dp_rank: 1 } })), [`${second}/1`])
  const refused = await refusal(router, { backend_instance_id: 3, dp_rank: 1 })
  t.equal(refused.status, 400)
  t.match(refused.json.error.message, /instance 3, dp rank 1: no such worker serves its model/)
})

t.test('an allow-list leaves all other workers out, and a pin must be in it', async t => {
  const router = await routerWith()
  const receipt = await route(router, { nvext: { allowed_worker_ids: [4, 99] } })
  t.strictSame(workers(receipt), [`${second}/0`, `${second}/1`])
  t.strictSame(receipt.excluded, [{ worker: first, reason: 'not in allowed_worker_ids' }])
  const refused = await refusal(router, { allowed_worker_ids: [4], backend_instance_id: 3 })
  t.equal(refused.status, 400)
  t.match(refused.json.error, {
    code: 'pin_not_allowed',
    message: /instance 3: it is not in its allowed_worker_ids \[4\]/,
  })
  const nobody = await refusal(router, { allowed_worker_ids: [99] })
  t.equal(nobody.status, 503)
  t.match(nobody.json.error.message, /not in allowed_worker_ids/)
})

t.test('only workers with all required taints are candidates', async t => {
  const router = await routerWith()
  const required = (...required_taints: string[]) => ({ routing_constraints: { required_taints } })
  t.strictSame(workers(await route(router, { nvext: required('far', 'fast') })), [
    `${second}/0`,
    `${second}/1`,
  ])
  t.strictSame(workers(await route(router, { nvext: required('near') })), [first])
  const nobody = await refusal(router, required('near', 'fast'))
  t.equal(nobody.status, 503)
  t.match(nobody.json.error.message, /does not have the required taint fast/)
  const pinned = await refusal(router, { ...required('near'), backend_instance_id: 4 })
  t.equal(pinned.status, 503, 'a pin does not change what the request requires')
})

t.test('preferred taints scale the costs, and opposite weights cancel out', async t => {
  const router = await routerWith()
  const plain = costs(await route(router))
  const preferring = async (preferred_taints: object) =>
    route(router, { nvext: { routing_constraints: { preferred_taints } } })
  const drawn = await preferring({ near: -1, fast: 0.5 })
  for (const [i, { worker, cost, preference }] of drawn.candidates.entries()) {
    t.equal(preference, Math.exp(-Math.tanh(worker === first ? -1 : 0.5)))
    t.equal(cost, plain[i]! * preference)
  }
  t.strictSame(costs(await preferring({ far: 2, fast: -2 })), plain)
})

/**
 * Receipts of `auto` for requests with any hints: no figure in /decisions is null, which JSON writes for NaN
 * and Infinity.
 */

import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from './simulated-fleet.ts'

const SEEDS = [1, 2, 3]
const REQUESTS = 60
const END_MS = 60_000

/** Members that may be null, without array indexes: the value is unknown, or the event did not happen. */
const MAY_BE_NULL = new Set([
  'unknown_prompt',
  'text_blocks',
  'cache_use',
  'ignored_hints',
  'runner_up',
  'guard',
  'guard.arm',
  'queue',
  'slices',
  'leg',
  'prefill_decision',
  'continues',
  'hedges',
  'delivered.other_leg',
  'delivered.not_continued',
  'leg_costs',
  'prefill',
  'queue.expected_ms',
  'delivered',
  'delivered.status',
  'delivered.prompt_tokens',
  'delivered.completion_tokens',
  'delivered.cached_tokens',
  'delivered.time_to_first_byte_ms',
  'delivered.error',
])

/** JSON texts; most members accept the first. 1e999 is read as Infinity. */
const FIGURES = [
  '0',
  '-0',
  '1',
  '0.5',
  '1e-320',
  '1000',
  '-1',
  '1e999',
  '-1e999',
  'null',
  '"NaN"',
  '1e6',
  '7',
]
const ALLOWED = 3
const HEADERS = [
  'x-dynamo-worker-instance-id',
  'x-dynamo-dp-rank',
  'x-dynamo-request-priority',
  'x-dynamo-request-strict-priority',
]

/** What `nvext` may bring, as the text of its members. */
function hints(random: Random): string {
  const figure = (): string => FIGURES[random.below(random.below(2) === 0 ? ALLOWED : FIGURES.length)]!
  const members = [
    () => `"backend_instance_id":${figure()}`,
    () => `"dp_rank":${figure()}`,
    () => `"allowed_worker_ids":[${figure()},0,1]`,
    () => `"routing_constraints":{"preferred_taints":{"slow":${figure()},"other":${figure()}}}`,
    () => `"router_config_override":{"overlap_score_weight":${figure()}}`,
    () => `"router_config_override":{"overlap_score_credit":${figure()}}`,
    () => `"router_config_override":{"router_temperature":${figure()}}`,
    () => `"agent_hints":{"kv_overlap_score_weight":${figure()},"osl":${figure()}}`,
    () => `"agent_hints":{"priority":${figure()},"latency_sensitivity":${figure()},"osl":${figure()}}`,
    () => `"token_data":[${figure()},5,6]`,
  ]
  return Array.from({ length: random.below(3) }, () => members[random.below(members.length)]!()).join(',')
}

/** Paths where parsed JSON has a null that is not allowed. */
function wrongNulls(value: unknown, path: string): readonly string[] {
  if (value === null) return MAY_BE_NULL.has(path) ? [] : [path]
  if (Array.isArray(value)) return value.flatMap(each => wrongNulls(each, path))
  if (typeof value !== 'object') return []
  return Object.entries(value).flatMap(([name, member]) =>
    wrongNulls(member, path === '' ? name : `${path}.${name}`),
  )
}

for (const seed of SEEDS) {
  t.test(
    `receipts of auto have every figure after ${REQUESTS} requests with random hints (seed ${seed})`,
    async t => {
      const random = seededRandom(seed)
      const fleet = await SimulatedFleet.start({
        seed,
        // The last one answers late, and the first is started again in the middle.
        engines: [{ blocks: 60 }, { speed: 8 }, { speed: 0.2 }],
        workers: urls => urls.map((url, at) => (at === 2 ? `${url}?taints=slow` : url)),
        settings: { routerPolicy: 'auto', guardShare: 0.5, trackOutputBlocks: true },
      })
      const statuses = new Map<number, number>()
      let open = 0
      for (let i = 0; i < REQUESTS; i++) {
        const prompt = Array.from(
          { length: 1 + random.below(8) * BLOCK_SIZE_TOKENS },
          (_, at) => 40 + (at % (2 + random.below(2))),
        )
        const body = JSON.stringify({
          model: MODEL,
          prompt,
          max_tokens: 1 + random.below(8),
          stream: i % 3 > 0,
        })
        const headers: Record<string, string> =
          random.below(4) === 0
            ? { [HEADERS[random.below(HEADERS.length)]!]: FIGURES[random.below(FIGURES.length)]! }
            : {}
        open++
        fleet
          .send(
            { headers, body: Buffer.from(`${body.slice(0, -1)},"nvext":{${hints(random)}}}`) },
            undefined,
            END_MS,
          )
          .then(({ status }) => void statuses.set(status, (statuses.get(status) ?? 0) + 1))
          .finally(() => open--)
        if (i === REQUESTS / 2) fleet.engines[0]!.engine.restart(200)
        await fleet.simulation.run(undefined, { within: random.below(60) })
      }
      t.equal(await fleet.simulation.run(() => open === 0, { within: END_MS }), 'reached')
      const { decisions } = (await fleet.view('/decisions?limit=1000')) as {
        readonly decisions: readonly { readonly policy: string; readonly candidates: readonly unknown[] }[]
      }
      t.comment(`statuses ${[...statuses].join('; ')}, ${decisions.length} receipts`)
      t.ok(
        decisions.filter(({ policy }) => policy === 'auto').length > REQUESTS / 4,
        'many are placed by auto',
      )
      t.strictSame([...new Set(decisions.flatMap(each => wrongNulls(each, '')))], [])
      await fleet.stop()
    },
  )
}

/** Settings of `homing router`: what waits in it, and in which order. */

import type { SettingDescriptor } from '../descriptor.ts'
import { GIB, HOUR_MS, MINUTE_MS, SECOND_MS } from '../units.ts'

/** What tenants that --router-tenant-weight does not name have; also of the simulator. */
export const UNNAMED_TENANTS = ['shared', 'own'] as const

/** Also of the simulator. */
export const QUEUE_THRESHOLD_UNSET = 'auto under policy auto, and where a tenant has a weight; else none'
const UNSET_OF_ROUTER =
  'auto under policy auto, and where a tenant has a weight or --router-queue-policy is given; else none'

export const queueSettings = [
  {
    key: 'queueThreshold',
    name: 'router-queue-threshold',
    group: 'Queue',
    kind: 'text',
    placeholder: 'none|auto|NUMBER',
    default: undefined,
    unsetMeans: UNSET_OF_ROUTER,
    envAliases: [{ name: 'DYN_ROUTER_QUEUE_THRESHOLD' }],
    check: faultOfQueueThreshold,
    read: text => text.toLowerCase(),
    help: 'When requests wait in the router instead of at an engine (docs/queue.md). A number: while every worker that could take them has more prefill tokens under way than this many times its max_num_batched_tokens. auto: under --router-policy auto, while at each of them a step or more of prefill is queued by what it has learned; under every other policy it is 2, but nothing waits there unless this, --router-queue-policy or --router-tenant-weight is given. none: never, apart from policy classes with a threshold of their own.',
  },
  {
    key: 'queueOrder',
    name: 'router-queue-policy',
    group: 'Queue',
    kind: 'choice',
    choices: ['auto', 'fcfs', 'lcfs', 'wspt', 'wspt-total', 'response-ratio'],
    default: 'auto',
    envAliases: [{ name: 'DYN_ROUTER_QUEUE_POLICY' }],
    help: 'Which of the waiting requests of a tenant goes next. fcfs: the oldest. lcfs: the newest. wspt: the one with the fewest uncached tokens; wspt-total: with the fewest tokens. response-ratio: the one that has waited longest for its uncached tokens. auto: response-ratio under --router-policy auto, else fcfs. Head starts and strict priorities of requests come before it, and so does --router-queue-aging, except under lcfs.',
  },
  {
    key: 'policyClassFile',
    name: 'router-policy-config',
    group: 'Queue',
    kind: 'text',
    placeholder: 'FILE',
    default: undefined,
    unsetMeans: 'one class for all requests',
    envAliases: [{ name: 'DYN_ROUTER_POLICY_CONFIG' }],
    help: 'YAML file with policy classes: shares, orders, thresholds and limits for kinds of requests, which clients name with the header x-homing-policy-class or x-dynamo-meta-policy-class.',
  },
  {
    key: 'queueTimeoutMs',
    name: 'router-queue-timeout',
    group: 'Queue',
    kind: 'duration',
    default: 5 * MINUTE_MS,
    min: 1,
    max: 24 * HOUR_MS,
    help: 'Longest wait for room. A request that still waits then is answered with 503, code deadline. A client can ask for less, with the header x-homing-queue-timeout-ms.',
  },
  {
    key: 'queueAgingMs',
    name: 'router-queue-aging',
    group: 'Queue',
    kind: 'duration',
    default: 60 * SECOND_MS,
    min: 1,
    max: 24 * HOUR_MS,
    help: 'Requests that have waited this long go before all others of their tenant and class, whatever the order, except under lcfs.',
  },
  {
    key: 'tenantWeights',
    name: 'router-tenant-weight',
    group: 'Queue',
    kind: 'list',
    placeholder: 'TENANT=WEIGHT',
    separator: 'comma',
    env: 'HOMING_ROUTER_TENANT_WEIGHTS',
    unsetMeans: 'all tenants have the weight 1',
    check: faultOfTenantWeight,
    help: 'Share of a tenant (x-homing-tenant, else x-tenant-id) in what is placed of all that waits, in uncached tokens, compared with the weight 1 of those that are not named (--router-unnamed-tenants). When --max-open-requests, --max-bodies-bytes, the room of the queue or a limit of a policy class is reached, it is shared out likewise. Once for each tenant. Turns the queue on under every policy, unless --router-queue-threshold is none.',
  },
  {
    key: 'unnamedTenants',
    name: 'router-unnamed-tenants',
    group: 'Queue',
    kind: 'choice',
    choices: UNNAMED_TENANTS,
    default: 'shared',
    help: 'What tenants have that --router-tenant-weight does not name, where it names some. shared: one share of the weight 1 for all of them, requests without a tenant included, so that a client that makes up names gets no further share. own: each a share of the weight 1, up to 1,024 at one time.',
  },
  {
    key: 'trustedHints',
    name: 'router-trusted-hints',
    group: 'Queue',
    kind: 'list',
    placeholder: 'all|none|TENANT',
    separator: 'comma',
    unsetMeans: 'all; none where a tenant has a weight, or the router has a key of engines or operators',
    help: 'Whose hints count that put a request before those of others or change what it counts as load: strict priority, priority and latency_sensitivity, osl, assume_kv_reuse and track_prefill_tokens. A tenant: those of its requests (x-homing-tenant, else x-tenant-id). Once for each tenant. What is ignored is in the receipt as ignored_hints. Clients give the name of their tenant themselves: let what is in front of the router set it.',
  },
  {
    key: 'tenantContentionMs',
    name: 'router-tenant-contention',
    group: 'Queue',
    kind: 'duration',
    default: 30 * SECOND_MS,
    min: 1,
    max: 24 * HOUR_MS,
    help: 'While another tenant was served within this time, long prompts of one tenant occupy at most all workers but one. Longer keeps a worker free for tenants that come rarely, at the price of capacity.',
  },
  {
    key: 'prefillSlices',
    name: 'router-prefill-slices',
    group: 'Queue',
    kind: 'choice',
    choices: ['auto', 'off'],
    default: 'auto',
    help: 'Whether long prompts are sent to their engine in slices of one engine step while the rule for long prompts holds, so that requests of other tenants wait for a slice and not for the prompt, and no worker is kept free (docs/queue.md). auto: where the tokens of the prompt are known and all engines of its model publish KV events. off: never; then long prompts of a tenant occupy at most all workers but one.',
  },
  {
    key: 'queueRequestsMax',
    name: 'router-queue-max-requests',
    group: 'Queue',
    kind: 'integer',
    default: 100_000,
    min: 0,
    max: 10_000_000,
    unit: 'requests',
    zeroMeans: 'who would have to wait is refused',
    help: 'Most requests that wait at one time. Tenants share it by weight (docs/queue.md). Further ones are answered with 503, code queue_full, and with Retry-After by how fast the queue drains. --max-open-requests bounds them as well.',
  },
  {
    key: 'queueTokensMax',
    name: 'router-queue-max-tokens',
    group: 'Queue',
    kind: 'integer',
    default: 2 ** 31,
    min: 0,
    max: 2 ** 52,
    unit: 'tokens',
    help: 'Most tokens of the prompts that wait.',
  },
  {
    key: 'queueBytesMax',
    name: 'router-queue-max-bytes',
    group: 'Queue',
    kind: 'size',
    default: GIB,
    min: 0,
    max: 1024 * GIB,
    help: 'Most bytes of the bodies that wait.',
  },
] as const satisfies readonly SettingDescriptor[]

const WEIGHT_MIN = 0.001
const WEIGHT_MAX = 1e6

/** Also of the simulator. */
export function faultOfTenantWeight(text: string): string | undefined {
  const { tenant, weight } = dividedWeight(text)
  if (tenant === '') return "is not in the form TENANT=WEIGHT, as in 'chat=4'"
  return weight >= WEIGHT_MIN && weight <= WEIGHT_MAX
    ? undefined
    : `has a weight that is no number from ${WEIGHT_MIN} to ${WEIGHT_MAX}`
}

/** Names may have an equals sign in them. */
function dividedWeight(text: string): { readonly tenant: string; readonly weight: number } {
  const at = text.lastIndexOf('=')
  const weight = text.slice(at + 1)
  return {
    tenant: text.slice(0, Math.max(0, at)),
    weight: weight.trim() === '' ? Number.NaN : Number(weight),
  }
}

/** By tenant; of two for one tenant the last counts. `given` has been checked. */
export function readTenantWeights(given: readonly string[]): ReadonlyMap<string, number> {
  return new Map(given.map(dividedWeight).map(({ tenant, weight }) => [tenant, weight]))
}

/** Whose hints count: of all, or of the tenants that are named. */
export type TrustedHints = 'all' | readonly string[]

/** `isGuarded`: a tenant has a weight, or there is a key. `given` has been checked. */
export function readTrustedHints(given: readonly string[], isGuarded: boolean): TrustedHints {
  if (given.length === 0) return isGuarded ? [] : 'all'
  if (given.includes('all')) return 'all'
  return given.includes('none') ? [] : given
}

/** Of `all` or `none` beside other names. */
export function faultOfTrustedHints(given: readonly string[]): string | undefined {
  const word = given.find(text => text === 'all' || text === 'none')
  return word !== undefined && given.length > 1
    ? `--router-trusted-hints ${word} leaves nothing to say for further values: give it alone, or name tenants only`
    : undefined
}

/** Also of the simulator. */
export function faultOfQueueThreshold(text: string): string | undefined {
  if (['none', 'auto'].includes(text.toLowerCase())) return undefined
  return /^(\d+(\.\d*)?|\.\d+)$/.test(text) && Number(text) > 0 && Number(text) <= 1e6
    ? undefined
    : 'is not none, auto or a number above 0'
}

/** Of weights that nothing waits for; also of the simulator, which has no policy classes. */
export function faultOfIdleWeights(
  tenantWeights: readonly string[],
  queueThreshold: string | undefined,
  hasClasses: boolean,
): string | undefined {
  return tenantWeights.length > 0 && queueThreshold === 'none' && !hasClasses
    ? '--router-tenant-weight has no effect with --router-queue-threshold none: nothing waits, so leave one of them out'
    : undefined
}

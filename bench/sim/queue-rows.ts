/** The rows of the tables about the queue: which cells each needs, and what it says of them. */

import {
  type CellResult,
  type CellRunner,
  type CellSelection,
  type CellSpec,
  detectBinMs,
  parseColumn,
  type QueueSpec,
  type SeedMean,
  searchCapacity,
  seedMean,
  simulateCell,
  type Workload,
} from '@homing/simulate'
import { generatedRequests, parseGenerator } from '@homing/trace'
import { TRACES, type TraceName, traceWorkload } from './traces-by-name.ts'

export type Collect = (row: string) => void
export type Rows = (
  runner: CellRunner,
  seeds: number,
  collect: Collect,
  policies: readonly string[],
) => Promise<void>

export const QUEUE_HEADS = {
  load: [
    '**`auto` with its queue ÷ without, below capacity** (ratios with 95 % intervals, seeds paired)',
    '',
    '| traffic | load | waited | mean wait, ms | TTFT mean | TTFT p99 | E2E mean |',
    '|---|---:|---:|---:|---|---|---|',
  ],
  overload: [
    '**At 110 %**: requests inside tier standard in % · mean TTFT in s · longest wait in the queue in s',
    '',
    '| traffic | policy | without | queue, its own order | fcfs | lcfs | wspt | wspt-total |',
    '|---|---|---|---|---|---|---|---|',
  ],
  tenants: [
    '**A tenant who chats (8 requests a second) beside one who floods (4 prompts of 60,000 tokens a second)**',
    '',
    '| policy | case | chat, p99 TTFT in ms | ÷ alone | bound | prompt tokens per second, while requests came | ÷ with the reservation alone |',
    '|---|---|---|---|---|---|---|',
  ],
  shares: [
    '**Ten tenants who all have more to ask for than they get, with weights 1 … 10**: served tokens ÷ fair share, over 60 s',
    '',
    '| seed | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | within 5 % |',
    '|---:|---|---|---|---|---|---|---|---|---|---|---|',
  ],
  capacity: [
    '**Capacity with a queue ÷ without**, tier standard',
    '',
    '| traffic | policy | without | ratio | ≥ 0.99 |',
    '|---|---|---|---|---|',
  ],
} as const

const OWN: QueueSpec = { threshold: 'auto' }
const ORDERS = ['fcfs', 'lcfs', 'wspt', 'wspt-total'] as const
/** What the tables compare. */
export const QUEUE_POLICIES = [
  'auto',
  'round-robin',
  'least-loaded',
  'threshold',
  'linear',
  'product',
  'est-ttft',
] as const
const GUESS = 3
const NAMES = Object.keys(TRACES) as TraceName[]
const VIEW = { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 } as const
const F8: Omit<CellSpec, 'seed' | 'speed' | 'selection'> = {
  workers: 8,
  profile: 'h100-8b',
  copies: 1,
  blockTokens: 512,
  routers: 1,
  view: VIEW,
  knowsOutput: false,
  stretch: 1,
  warmupShare: 0.1,
}

interface Traffic {
  readonly name: string
  readonly workload: Workload
  readonly spread: Pick<CellSpec, 'spread'>
}

async function trafficOf(name: TraceName): Promise<Traffic> {
  const workload = await traceWorkload(name)
  const binMs = await detectBinMs(workload)
  return { name, workload, spread: binMs > 0 ? { spread: { binMs, jitterShare: 0.2 } } : {} }
}

function selectionOf(policy: string, queue?: QueueSpec): CellSelection {
  return { ...parseColumn(policy).selection, ...(queue !== undefined && { queue }) }
}

async function resultOf(
  runner: CellRunner,
  { workload, spread }: Traffic,
  selection: CellSelection,
  speed: number,
  seed: number,
): Promise<CellResult> {
  return (await runner.run(workload, { ...F8, ...spread, selection, speed, seed })).result
}

async function capacityOf(
  runner: CellRunner,
  traffic: Traffic,
  selection: CellSelection,
  seed: number,
  guess = GUESS,
): Promise<number> {
  const { speed } = await searchCapacity(guess, async speed => {
    const { goodput } = await resultOf(runner, traffic, selection, speed, seed)
    return goodput.standard
  })
  return speed
}

function seedsOf(count: number): readonly number[] {
  return Array.from({ length: count }, (_, i) => i + 1)
}

/** Differences of one per cent are looked for. */
const LOAD_SEEDS_MIN = 10

export const loadRows: Rows = async (runner, seeds, collect) => {
  for (const name of NAMES) {
    const traffic = await trafficOf(name)
    const capacity = await capacityOf(runner, traffic, selectionOf('auto'), 1)
    for (const load of [0.1, 0.5, 0.85]) {
      const at = (queue?: QueueSpec) =>
        Promise.all(
          seedsOf(Math.max(seeds, LOAD_SEEDS_MIN)).map(seed =>
            resultOf(runner, traffic, selectionOf('auto', queue), load * capacity, seed),
          ),
        )
      const [without, own] = await Promise.all([at(), at(OWN)])
      const ratio = (of: (result: CellResult) => number): string =>
        ratioText(seedMean(own.map((result, i) => of(result) / of(without[i]!))))
      collect(
        rowOf(
          name,
          `${Math.round(100 * load)} %`,
          `${(100 * meanOf(own, ({ queue }) => queue!.waitedShare)).toFixed(2)} %`,
          meanOf(own, ({ queue }) => queue!.waitMs.mean).toFixed(2),
          ratio(({ ttftMs }) => ttftMs.mean),
          ratio(({ ttftMs }) => ttftMs.p99),
          ratio(({ e2eMs }) => e2eMs.mean),
        ),
      )
    }
  }
}

export const overloadRows: Rows = async (runner, seeds, collect, policies) => {
  for (const name of NAMES) {
    const traffic = await trafficOf(name)
    const speed = 1.1 * (await capacityOf(runner, traffic, selectionOf('auto'), 1))
    for (const policy of policies) {
      const cells = await Promise.all(
        [undefined, OWN, ...ORDERS.map((order): QueueSpec => ({ ...OWN, order }))].map(async queue => {
          const isOwnOrder = queue?.order === 'fcfs' && policy !== 'auto'
          if (isOwnOrder) return '='
          const results = await Promise.all(
            seedsOf(seeds).map(seed => resultOf(runner, traffic, selectionOf(policy, queue), speed, seed)),
          )
          const longest =
            queue === undefined ? '' : ` · ${seconds(meanOf(results, r => r.queue!.waitMs.max))}`
          const good = seedMean(results.map(({ goodput }) => 100 * goodput.standard))
          const half = good.halfWidth === undefined ? '' : ` ± ${good.halfWidth.toFixed(1)}`
          return `${good.mean.toFixed(1)}${half} · ${seconds(meanOf(results, r => r.ttftMs.mean))}${longest}`
        }),
      )
      collect(rowOf(name, policy, ...cells))
    }
  }
}

export const capacityRows: Rows = async (runner, seeds, collect, policies) => {
  for (const name of NAMES) {
    const traffic = await trafficOf(name)
    for (const policy of policies) {
      const found = await Promise.all(
        seedsOf(seeds).map(async seed => {
          const without = await capacityOf(runner, traffic, selectionOf(policy), seed)
          // From the same guess, so that both searches try the same speeds.
          return { without, own: await capacityOf(runner, traffic, selectionOf(policy, OWN), seed) }
        }),
      )
      const ratio = seedMean(found.map(({ without, own }) => own / without))
      collect(
        rowOf(
          name,
          policy,
          String(Number(meanOf(found, each => each.without).toPrecision(3))),
          ratioText(ratio, 3),
          keeps(ratio, 0.99),
        ),
      )
    }
  }
}

const CHATS_PER_SECOND = 8
const FLOODS_PER_SECOND = 4
const FLOOD_SECONDS = 240
/** The chat's 99th percentile varies much between seeds under auto: with fewer the interval says nothing. */
const FLOOD_SEEDS_MIN = 20
/** An engine step of prefill of a long prompt at its end, alone: 8,192 tokens behind 56,000. */
const CHUNK_TOKENS = 8192

interface FloodRun {
  readonly chatP99Ms: number
  readonly tokensPerS: number
}

export const tenantRows: Rows = async (_runner, seeds, collect, policies) => {
  const at = async (flood: number, selection: CellSelection): Promise<readonly FloodRun[]> => {
    const runs: FloodRun[] = []
    for (const seed of seedsOf(Math.max(seeds, FLOOD_SEEDS_MIN)))
      runs.push(await floodRun(flood, selection, seed))
    return runs
  }
  for (const policy of policies.filter(each => each === 'auto' || each === 'product')) {
    const own = selectionOf(policy)
    const alone = await at(0, own)
    const reserved = await at(FLOODS_PER_SECOND, { ...own, workersWithoutLongPrompts: 1 })
    const bounds = alone.map(({ chatP99Ms }) => 1.2 * chatP99Ms + CHUNK_MS)
    for (const [label, results] of [
      ['alone', alone],
      ['with the flood, no queue', await at(FLOODS_PER_SECOND, own)],
      ['no queue, a worker reserved', reserved],
      ['with its queue', await at(FLOODS_PER_SECOND, { ...own, queue: OWN })],
    ] as const) {
      const isBound = label === 'with its queue'
      const p99 = seedMean(results.map(({ chatP99Ms }) => chatP99Ms))
      const ratio = seedMean(results.map(({ chatP99Ms }, i) => chatP99Ms / alone[i]!.chatP99Ms))
      const rate = seedMean(results.map(({ tokensPerS }) => tokensPerS))
      const share = seedMean(results.map(({ tokensPerS }, i) => tokensPerS / reserved[i]!.tokensPerS))
      const isKept = p99.mean + (p99.halfWidth ?? 0) <= seedMean(bounds).mean
      collect(
        rowOf(
          policy,
          label,
          `${p99.mean.toFixed(0)}${p99.halfWidth === undefined ? '' : ` ± ${p99.halfWidth.toFixed(0)}`}`,
          ratioText(ratio),
          isBound ? `≤ ${seedMean(bounds).mean.toFixed(0)}: ${yes(isKept)}` : '',
          rate.mean.toFixed(0),
          label === 'alone'
            ? ''
            : `${ratioText(share, 3)}${isBound ? `, ≥ 0.98: ${yes(share.mean >= 0.98)}` : ''}`,
        ),
      )
    }
  }
}

/** What a step with a chunk of a long prompt takes on h100-8b, at the end of the prompt. */
const CHUNK_MS = 1 + 6.5 + 0.023 * CHUNK_TOKENS + 9.6e-7 * CHUNK_TOKENS * (60_000 - CHUNK_TOKENS / 2)

async function floodRun(flood: number, selection: CellSelection, seed: number): Promise<FloodRun> {
  const requests = Math.round((CHATS_PER_SECOND + flood) * FLOOD_SECONDS)
  const generator = parseGenerator(`flood?requests=${requests}&rate=${CHATS_PER_SECOND}&flood=${flood}`)
  let tokens = 0
  const { result } = await simulateCell(
    { ...F8, speed: 1, seed, selection },
    generatedRequests(generator, seed),
    {
      // What is left when no more come takes another while under every policy, with all workers and without
      // chats.
      onServed: ({ trace, firstTokenMs, reusedTokens }) => {
        if (firstTokenMs < 1000 * FLOOD_SECONDS) tokens += trace.inputTokens - reusedTokens
      },
    },
  )
  const { ttftMs } = result.tenants!.find(({ tenant }) => tenant === 'chat')!
  return { chatP99Ms: ttftMs.p99, tokensPerS: tokens / FLOOD_SECONDS }
}

const TENANTS = 10
const TENANTS_PER_SECOND = 400
const SHARES_FROM_MS = 10_000
const SHARES_MS = 60_000
const SHARE_BOUND = 0.05

export const shareRows: Rows = async (_runner, seeds, collect) => {
  const weights = Object.fromEntries(seedsOf(TENANTS).map(i => [`t${i}`, i]))
  for (const seed of seedsOf(seeds)) {
    const shares = await sharesOf(weights, seed)
    const isFair = shares.every(share => Math.abs(share - 1) <= SHARE_BOUND)
    collect(rowOf(String(seed), ...shares.map(share => share.toFixed(3)), yes(isFair)))
  }
}

/**
 * Tokens of each tenant ÷ what its weight says, of the prompts that were sent to a worker within a minute in
 * which all have some waiting.
 */
export async function sharesOf(
  weights: Readonly<Record<string, number>>,
  seed: number,
  { requestsPerSecond = TENANTS_PER_SECOND, workers = F8.workers } = {},
): Promise<number[]> {
  const names = Object.keys(weights)
  const spanS = (SHARES_FROM_MS + SHARES_MS) / 1000
  const generator = parseGenerator(
    `tenants?requests=${Math.round(requestsPerSecond * spanS)}&rate=${requestsPerSecond}&tenants=${names.length}`,
  )
  const spec: CellSpec = {
    ...F8,
    workers,
    warmupShare: 0,
    speed: 1,
    seed,
    selection: selectionOf('auto', { ...OWN, tenantWeights: weights, waitMsMax: 86_400_000 }),
  }
  const served = new Map(names.map(name => [name, 0]))
  await simulateCell(spec, generatedRequests(generator, seed), {
    onServed: ({ trace, placedMs, reusedTokens }) => {
      if (placedMs < SHARES_FROM_MS || placedMs >= SHARES_FROM_MS + SHARES_MS) return
      served.set(trace.tenant!, served.get(trace.tenant!)! + trace.inputTokens - reusedTokens)
    },
  })
  const all = sum([...served.values()])
  const weightsAll = sum(Object.values(weights))
  return names.map(name => (served.get(name)! / all) * (weightsAll / weights[name]!))
}

function rowOf(...cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`
}

function ratioText({ mean, halfWidth }: SeedMean, digits = mean >= 10 ? 1 : 3): string {
  return `${mean.toFixed(digits)}${halfWidth === undefined ? '' : ` ± ${halfWidth.toFixed(digits)}`}`
}

function yes(isSo: boolean): string {
  return isSo ? 'yes' : '**no**'
}

/** 'open': the mean is below the bound, and its interval is not. */
function keeps({ mean, halfWidth = 0 }: SeedMean, bound: number): string {
  return mean < bound && mean + halfWidth >= bound ? 'open' : yes(mean >= bound)
}

function seconds(ms: number): string {
  const value = ms / 1000
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)
}

function meanOf<T>(items: readonly T[], of: (item: T) => number): number {
  return sum(items.map(of)) / items.length
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

/**
 * What exact events are worth, and whether `auto` makes the most of them: knowledge of the caches and
 * policies, on simulated engines and a virtual clock. `pnpm exec node bench/quality/routing-quality.ts
 * --write` writes the table of docs/records/routing-quality.md; `--seeds N`, `--first-seed N`, `--only
 * 'router alone'`, `--column exact --column rival`.
 *
 *   exact             KV events, policy auto, as are the next three
 *   approximate       --no-kv-events: the router guesses caches from the prompts that it sent
 *   text              the same from texts: no engine tokenizes
 *   none              --no-kv-events with room for one block
 *   linear            KV events, the linear rule, with cached blocks counting as much as load; weight 4: four
 *                     times as much
 *   rival             another router: the policy of the best router that uses text alone (TextPolicy)
 *
 * Traffic: conversations of 1 to 6 turns, each turn the text of all before and more; one of eight system
 * prompts at their beginning. Turns begin by a Poisson process that is the same for every cell of a seed.
 *
 * `exact` is compared with the rival over the requests that both answered: an engine that restarts loses some
 * requests, not the same ones for both. `exact` must be ahead in three cases: other clients use the engines
 * too, there are two routers, or caches are very tight.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { type Random, seededRandom } from '@homing/base'
import type { RouterSettings } from '@homing/config'
import { seedMean } from '@homing/simulate'
import type { HttpReply } from '@homing/transport'
import { MODEL, SimulatedFleet } from '../../test/simulation/simulated-fleet.ts'
import { givenCount } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import { TextPolicy } from './text-policy.ts'

const PATH = join(import.meta.dirname, '..', '..', 'docs', 'records', 'routing-quality.md')
const ENGINES = 4
const SEEDS = 10
/** What exact may lose against the rival: points of the hit rate, and of the mean TTFT as a ratio. */
const HIT_POINTS_MAX = 2
const TTFT_RATIO_MAX = 1.1
const CONVERSATIONS = 60
const CONVERSATION_MS = 180
const TURN_MS = 600
export const CACHES = { roomy: 1600, tight: 400, 'very tight': 160 } as const

/** What else goes on. */
interface Trouble {
  /** Share of the requests that another client sends to an engine of its own choice. */
  readonly pastShare: number
  /** One engine after the other is killed and started again so often; 0: never. */
  readonly restartMs: number
  /** 2: each request goes to one of two routers by chance, and neither knows of the other. */
  readonly routers: 1 | 2
}

export const TROUBLES: Readonly<Record<string, Trouble>> = {
  'router alone': { pastShare: 0, restartMs: 0, routers: 1 },
  '30 % past the router': { pastShare: 0.3, restartMs: 0, routers: 1 },
  'two routers': { pastShare: 0, restartMs: 0, routers: 2 },
  'engines restart': { pastShare: 0, restartMs: 3000, routers: 1 },
}

interface Knowledge {
  readonly settings: Partial<RouterSettings>
  readonly tokenizes: boolean
  /** TextPolicy chooses, and not the router. */
  readonly isRival?: true
}

const AUTO = { routerPolicy: 'auto' } as const
const LINEAR = { routerPolicy: 'linear' } as const

export const KNOWLEDGE: Readonly<Record<string, Knowledge>> = {
  exact: { settings: AUTO, tokenizes: true },
  approximate: { settings: { ...AUTO, kvEvents: false }, tokenizes: true },
  text: { settings: { ...AUTO, kvEvents: false }, tokenizes: false },
  none: { settings: { ...AUTO, kvEvents: false, guessBlocksMax: 1 }, tokenizes: true },
  linear: { settings: LINEAR, tokenizes: true },
  'linear, weight 4': { settings: { ...LINEAR, overlapWeight: 4 }, tokenizes: true },
  rival: { settings: {}, tokenizes: true, isRival: true },
}

/** Over the requests that were answered. */
export interface Outcome {
  readonly hitRate: number
  /** To the first byte. */
  readonly meanMs: number
  readonly p99Ms: number
  /** To the last byte, the mean. */
  readonly totalMs: number
}

/** One request that was answered. */
interface Answered {
  readonly firstMs: number
  readonly totalMs: number
  readonly promptTokens: number
  readonly cachedTokens: number
}

/** The answered requests of one run, by their number in the traffic of the seed. */
type Sample = ReadonlyMap<number, Answered>

/** One cell of one seed. */
async function runOnce(
  seed: number,
  blocks: number,
  knowledge: Knowledge,
  trouble: Trouble,
): Promise<Sample> {
  const engines = Array.from({ length: ENGINES }, () => ({ blocks, speed: 1 }))
  const settings = {
    ...knowledge.settings,
    openRequestsMax: 1024,
    requestTimeoutMs: 0,
    silenceTimeoutMs: 600_000,
  }
  const fleet = await SimulatedFleet.start({ seed, engines, settings })
  if (!knowledge.tokenizes)
    fleet.network.faults.http = ({ path }) => (path === '/tokenize' ? 'refuse' : 'deliver')
  const origins = [undefined, ...(trouble.routers === 2 ? [await fleet.startSecondRouter()] : [])]
  const policies = origins.map(() => new TextPolicy(ENGINES))
  const instances = await instanceIds(fleet)
  const { clock } = fleet.simulation
  const random = seededRandom(seed)
  const systems = Array.from({ length: 8 }, () => text(random, 600))
  const numbers = new Map<string, number>()
  let requests = 0
  let open = 0
  let atMs = 0
  for (let conversation = 0; conversation < CONVERSATIONS; conversation++) {
    atMs += -Math.log(1 - random.next()) * CONVERSATION_MS
    const turns = 1 + random.below(6)
    let prompt = systems[random.below(systems.length)]!
    for (let turn = 0; turn < turns; turn++) {
      prompt += text(random, 50 + random.below(150))
      const stream_options = { include_usage: true }
      const request = { model: MODEL, prompt, max_tokens: 8, stream: true, stream_options }
      const isPast = random.next() < trouble.pastShare
      const engine = fleet.engines[random.below(ENGINES)]!.url
      const router = random.below(origins.length)
      const number = requests++
      open++
      clock.after(atMs + turn * TURN_MS * (0.5 + random.next()), () => {
        const isPlaced = knowledge.isRival === true && !isPast
        const worker = isPlaced ? policies[router]!.place(request.prompt) : 0
        // One that an engine loses when it restarts has ended, too.
        const ended = (reply?: HttpReply) => {
          open--
          const decision = reply?.headers['x-homing-decision']
          if (typeof decision === 'string') numbers.set(decision, number)
          if (isPlaced) policies[router]!.ended(worker)
        }
        const origin = isPast ? engine : origins[router]
        const nvext = { backend_instance_id: instances[worker] }
        const body = isPlaced ? { ...request, nvext } : request
        fleet.send(origin === undefined ? {} : { origin }, body, 600_000).then(ended, () => ended())
      })
    }
  }
  for (let kills = 1; trouble.restartMs > 0 && kills * trouble.restartMs < atMs; kills++) {
    clock.after(kills * trouble.restartMs, () => void fleet.engines[kills % ENGINES]!.engine.restart(200))
  }
  const outcome = await fleet.simulation.run(() => open === 0, { within: 600_000 })
  if (outcome !== 'reached') throw new Error(`${open} requests did not end: ${outcome}`)
  const decisions: ReceiptView[] = []
  for (const origin of origins) {
    const view = await fleet.view('/decisions?limit=1000', origin)
    decisions.push(...(view as { decisions: readonly ReceiptView[] }).decisions)
  }
  await fleet.stop()
  const sample = new Map<number, Answered>()
  for (const { id, delivered } of decisions) {
    const number = numbers.get(id)
    if (delivered?.outcome !== 'ok' || number === undefined) continue
    sample.set(number, {
      firstMs: delivered.time_to_first_byte_ms!,
      totalMs: delivered.duration_ms!,
      promptTokens: delivered.prompt_tokens!,
      cachedTokens: delivered.cached_tokens ?? 0,
    })
  }
  return sample
}

/** By engine. */
async function instanceIds(fleet: SimulatedFleet): Promise<readonly number[]> {
  const workers = await fleet.workers()
  return fleet.engines.map(engine => workers.find(({ url }) => url === engine.url)!.instance_id)
}

interface ReceiptView {
  readonly id: string
  readonly delivered: {
    readonly outcome: string
    readonly time_to_first_byte_ms: number | null
    readonly duration_ms: number | null
    readonly prompt_tokens: number | null
    readonly cached_tokens: number | null
  } | null
}

function text(random: Random, length: number): string {
  return String.fromCharCode(...Array.from({ length }, () => 97 + random.below(26)))
}

/** One cell: all answered requests of its seeds. */
export async function runCell(
  blocks: number,
  knowledge: Knowledge,
  trouble: Trouble,
  seeds = 3,
): Promise<Outcome> {
  return outcomeOf(await runSeeds(blocks, knowledge, trouble, 1, seeds))
}

async function runSeeds(
  blocks: number,
  knowledge: Knowledge,
  trouble: Trouble,
  firstSeed: number,
  seeds: number,
): Promise<readonly Sample[]> {
  const samples: Sample[] = []
  for (let seed = firstSeed; seed < firstSeed + seeds; seed++)
    samples.push(await runOnce(seed, blocks, knowledge, trouble))
  return samples
}

function outcomeOf(samples: readonly Sample[]): Outcome {
  const answered = samples.flatMap(sample => [...sample.values()])
  const sum = (of: (each: Answered) => number) => answered.reduce((total, each) => total + of(each), 0)
  const firsts = answered.map(({ firstMs }) => firstMs).sort((a, b) => a - b)
  return {
    hitRate: sum(({ cachedTokens }) => cachedTokens) / sum(({ promptTokens }) => promptTokens),
    meanMs: sum(({ firstMs }) => firstMs) / answered.length,
    p99Ms: firsts[Math.floor(firsts.length * 0.99)]!,
    totalMs: sum(({ totalMs }) => totalMs) / answered.length,
  }
}

/** Seed by seed, over the requests that both answered. */
function against(
  ours: readonly Sample[],
  theirs: readonly Sample[],
): readonly (readonly [Outcome, Outcome])[] {
  return ours.map((sample, i) => {
    const others = theirs[i]!
    const both = (of: Sample): Sample =>
      new Map([...of].filter(([number]) => sample.has(number) && others.has(number)))
    return [outcomeOf([both(sample)]), outcomeOf([both(others)])]
  })
}

/** Where knowing more is to pay. */
export function isAheadWanted({ pastShare, routers }: Trouble, blocks: number): boolean {
  return pastShare > 0 || routers > 1 || blocks === CACHES['very tight']
}

/**
 * Ratios of exact to the rival with their 95 % intervals, and what exact misses. It is behind where its whole
 * interval is beyond the bound, and ahead where its whole interval is below 1: as `wantsAhead` says, it is to
 * be ahead in both ratios.
 */
export function verdictOf(pairs: readonly (readonly [Outcome, Outcome])[], wantsAhead: boolean): string {
  const ratio = (of: (outcome: Outcome) => number) =>
    interval(
      pairs.map(([ours, theirs]) => Math.log(of(ours) / of(theirs))),
      Math.exp,
    )
  const e2e = ratio(({ totalMs }) => totalMs)
  const p99 = ratio(({ p99Ms }) => p99Ms)
  const mean = ratio(({ meanMs }) => meanMs)
  const hits = interval(
    pairs.map(([ours, theirs]) => 100 * (theirs.hitRate - ours.hitRate)),
    value => value,
  )
  const missed = [
    ...missedOf('E2E', e2e, wantsAhead),
    ...missedOf('p99', p99, wantsAhead),
    ...(hits.low > HIT_POINTS_MAX ? ['hits'] : []),
    ...(mean.low > TTFT_RATIO_MAX ? ['mean'] : []),
  ]
  const text = ({ value, low, high }: Interval) =>
    `${value.toFixed(3)} [${low.toFixed(3)}, ${high.toFixed(3)}]`
  return `${text(e2e)} · ${text(p99)} | ${missed.length === 0 ? `passes${wantsAhead ? ': ahead' : ''}` : `**fails**: ${missed.join(', ')}`}`
}

function missedOf(name: string, { low, high }: Interval, wantsAhead: boolean): readonly string[] {
  if (low > 1) return [name]
  return wantsAhead && !(high < 1) ? [`${name} only level`] : []
}

interface Interval {
  readonly value: number
  readonly low: number
  readonly high: number
}

function interval(values: readonly number[], back: (value: number) => number): Interval {
  const { mean, halfWidth = 0 } = seedMean(values)
  return { value: back(mean), low: back(mean - halfWidth), high: back(mean + halfWidth) }
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      seeds: { type: 'string', default: `${SEEDS}` },
      'first-seed': { type: 'string', default: '1' },
      only: { type: 'string' },
      column: { type: 'string', multiple: true, default: Object.keys(KNOWLEDGE) },
    },
  })
  const seeds = givenCount('seeds', values.seeds)
  const firstSeed = givenCount('first-seed', values['first-seed'])
  const names = values.column
  for (const needed of ['exact', 'rival'])
    if (!names.includes(needed))
      throw new Error(`cannot judge without the column ${needed}: add --column ${needed}`)
  const unknown = names.find(name => KNOWLEDGE[name] === undefined)
  if (unknown !== undefined)
    throw new Error(`there is no column ${unknown}: there are ${Object.keys(KNOWLEDGE).join(', ')}`)
  const rows = [
    `| | cache | ${names.join(' | ')} | exact ÷ rival: E2E · p99 | verdict |`,
    `|---|---|${'---|'.repeat(names.length)}---|---|`,
  ]
  for (const [name, trouble] of Object.entries(TROUBLES)) {
    if (values.only !== undefined && values.only !== name) continue
    for (const [cache, blocks] of Object.entries(CACHES)) {
      const samples = new Map<string, readonly Sample[]>()
      for (const name of names)
        samples.set(name, await runSeeds(blocks, KNOWLEDGE[name]!, trouble, firstSeed, seeds))
      const cells = [...samples.values()].map(each => {
        const { hitRate, meanMs, p99Ms, totalMs } = outcomeOf(each)
        return `${(hitRate * 100).toFixed(1)} % · ${meanMs.toFixed(1)} · ${p99Ms.toFixed(0)} · ${totalMs.toFixed(1)}`
      })
      const verdict = verdictOf(
        against(samples.get('exact')!, samples.get('rival')!),
        isAheadWanted(trouble, blocks),
      )
      rows.push(`| ${name} | ${cache} (${blocks} blocks) | ${cells.join(' | ')} | ${verdict} |`)
      process.stderr.write(`${rows.at(-1)}\n`)
    }
  }
  if (values.write && values.only === undefined && names.length === Object.keys(KNOWLEDGE).length) {
    const page = readFileSync(PATH, 'utf8')
    writeFileSync(PATH, withTable(page, rows.join('\n'), marksOf('routing quality')))
  }
}

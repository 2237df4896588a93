/**
 * The runs of the judgement of auto: places (a fleet under a traffic at a load) and the columns compared
 * there.
 *
 *   capacity   the highest speed inside a tier: auto, and the best fixed rule
 *   loads      auto and the fixed rules at shares of that capacity; F8, variants of it, F64, several routers
 *   safety     auto, round-robin and least-loaded, under, near and over capacity, without, with little and
 *              with much sharing
 *   terms      auto without each of its terms
 *   knowledge  auto with less and less knowledge of the caches
 *
 * Seeds differ in traffic: generators draw it; requests of traces move by up to a fifth of the time to the
 * next one, or of their place in a bin. Otherwise all seeds of a deterministic policy would be the same run.
 */

import { POLICIES } from '@homing/selection'
import {
  type CellSpec,
  detectBinMs,
  FLEETS,
  parseColumn,
  parseWorkload,
  type TierName,
  type Workload,
} from '@homing/simulate'
import { TRACES, type TraceName, traceWorkload } from './traces-by-name.ts'

export const RIVALS = ['round-robin', 'least-loaded', 'threshold', 'linear', 'product', 'est-ttft'] as const
/** The rule of other routers: capacity of auto is to be 10 % above it where prefixes are long. */
export const LINEAR = 'linear'
const GENERATORS = {
  sessions: 'generator:sessions?requests=1500',
  groups: 'generator:groups',
  unique: 'generator:unique?requests=5000',
  hot: 'generator:hot?requests=8000',
} as const
/** For the safety cells: no, low and high sharing. */
const SHARING = ['unique', 'rag', 'sessions'] as const
const SMOKE = { tiny: 'generator:unique?requests=60' } as const

export type Spec = Omit<CellSpec, 'speed' | 'seed' | 'selection'>

/** Where columns are compared. */
export interface Place {
  readonly traffic: string
  readonly workload: Workload
  readonly spec: Spec
  /** Where a search for the capacity begins. */
  readonly speedGuess: number
}

/** One that is searched for capacities. */
export interface CapacityPlace extends Place {
  readonly kind: 'capacity'
  /** As it stands in the table: 'F8', 'F8, 2 routers'. */
  readonly fleet: string
  readonly tier: TierName
  /** What auto may be behind, as a share. */
  readonly slackShare: number
}

/** One that is run at shares of its capacity, or of that of `capacityOf`. */
export interface LoadPlace extends Place {
  readonly kind: 'loads' | 'safety' | 'terms' | 'knowledge'
  readonly fleet: string
  readonly columns: readonly string[]
  readonly loadShares: readonly number[]
  /** The place whose capacity is meant, and how many times it. */
  readonly capacityOf: Place
  readonly capacityTimes: number
  /** The column that stands for all: 'late' at 2 s is a change of the spec, under the column auto. */
  readonly label?: string
}

export type JudgedPlace = CapacityPlace | LoadPlace

const SPEED_GUESS: Readonly<Record<string, number>> = {
  conversation: 3.4,
  synthetic: 2.6,
  toolagent_like: 3.35,
  sessions: 4.5,
  groups: 3.8,
  unique: 3.8,
  hot: 3.1,
  rag: 4.1,
  tiny: 3.8,
}
const SPREAD_MS = 1000
const JITTER_SHARE = 0.2
const LATE = { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 } as const
const ALL = ['auto', ...RIVALS]
/** What is known of the caches, best first. */
const KNOWLEDGE: Readonly<Record<string, Spec['view']>> = {
  exact: { kind: 'exact', eventDelayMs: 0, signalDelayMs: 2 },
  'late 20 ms': LATE,
  'late 2 s': { ...LATE, eventDelayMs: 2000 },
  guessed: { kind: 'guessed', eventDelayMs: 0, signalDelayMs: 2 },
  text: { kind: 'text', eventDelayMs: 0, signalDelayMs: 2 },
  none: { kind: 'none', eventDelayMs: 0, signalDelayMs: 2 },
}

/** The whole judgement, the most telling first; `isSmoke`: one small place of each kind, without files. */
export async function judgedPlaces(isSmoke: boolean): Promise<readonly JudgedPlace[]> {
  const f8 = new Map<string, Place>()
  const names = isSmoke ? { ...SMOKE } : { ...TRACES, ...GENERATORS, rag: 'generator:rag?requests=5000' }
  for (const [name, source] of Object.entries(names)) {
    const workload = name in TRACES ? await traceWorkload(name as TraceName) : await parseWorkload(source)
    const { workers, profile, copies } = FLEETS.F8
    const binMs = await detectBinMs(workload)
    const spec: Spec = {
      workers,
      profile,
      copies,
      blockTokens: 512,
      routers: 1,
      view: LATE,
      knowsOutput: false,
      stretch: 1,
      warmupShare: 0.1,
      spread: { binMs: binMs > 0 ? binMs : SPREAD_MS, jitterShare: JITTER_SHARE },
    }
    f8.set(name, { traffic: name, workload, spec, speedGuess: SPEED_GUESS[name]! })
  }
  const all = [...f8.values()]
  const judged = all.filter(({ traffic }) => traffic !== 'rag')
  const traces = isSmoke ? all : all.filter(({ traffic }) => traffic in TRACES)
  const terms = parseColumnsOfTerms()
  const atLoads = (
    place: Place,
    fleet: string,
    loadShares: readonly number[],
    more: Partial<LoadPlace> = {},
  ): LoadPlace => ({
    ...place,
    kind: 'loads',
    fleet,
    columns: ALL,
    loadShares,
    capacityOf: place,
    capacityTimes: 1,
    ...more,
  })
  const capacity = (place: Place, fleet: string, tier: TierName, slackShare: number): CapacityPlace => ({
    ...place,
    kind: 'capacity',
    fleet,
    tier,
    slackShare,
  })
  const changed = (place: Place, change: Partial<Spec>, speedTimes = 1): Place => ({
    ...place,
    spec: { ...place.spec, ...change },
    speedGuess: place.speedGuess * speedTimes,
  })
  const large = traces.map(place =>
    changed(place, { workers: isSmoke ? 16 : FLEETS.F64.workers }, isSmoke ? 2 : 10),
  )
  const routers = [2, 4].flatMap(count =>
    traces.map(place => ({ count, place: changed(place, { routers: count }) })),
  )
  return [
    ...judged.map(place => atLoads(place, 'F8', [0.1, 0.5, 0.85])),
    ...judged.map(place => capacity(place, 'F8', 'standard', 0.01)),
    ...judged.map(place => atLoads(place, 'F8', [0.5, 0.85], { kind: 'terms', columns: ['auto', ...terms] })),
    ...Object.entries(KNOWLEDGE).flatMap(([label, view]) =>
      traces.map(place =>
        atLoads(changed(place, { view }), 'F8', [0.5, 0.85], {
          kind: 'knowledge',
          label,
          columns: ['auto'],
          capacityOf: place,
        }),
      ),
    ),
    ...safetyPlaces(isSmoke ? Object.keys(SMOKE) : SHARING, f8),
    ...traces.flatMap(place => [
      ...[
        { name: 'h100-70b-tp4', of: changed(place, { profile: 'h100-70b-tp4' }, 0.37) },
        { name: 'mock-poly', of: changed(place, { profile: 'mock-poly' }) },
        { name: 'a quarter at half speed', of: changed(place, { slow: { share: 0.25, factor: 2 } }, 0.85) },
      ].map(({ name, of }) => atLoads(of, name, [0.5, 0.85])),
      ...(['late 2 s', 'guessed'] as const).map(name =>
        atLoads(changed(place, { view: KNOWLEDGE[name]! }), name, [0.5, 0.85], { capacityOf: place }),
      ),
    ]),
    ...judged.map(place => capacity(changed(place, {}, 0.7), 'F8', 'interactive', 0.01)),
    ...large.map(place => atLoads(place, 'F64', [0.1, 0.5, 0.85])),
    ...routers.map(({ count, place }) => capacity(place, `F8, ${count} routers`, 'standard', 0.03)),
    ...large.map(place => capacity(place, 'F64', 'standard', 0.03)),
  ]
}

function safetyPlaces(sharing: readonly string[], f8: ReadonlyMap<string, Place>): LoadPlace[] {
  return sharing.flatMap(name =>
    [8, 64].map((workers): LoadPlace => {
      const small = f8.get(name)!
      const times = workers / small.spec.workers
      const workload = timesLonger(small.workload, times)
      return {
        ...small,
        kind: 'safety',
        workload,
        spec: { ...small.spec, workers },
        fleet: `${workers}`,
        columns: ['auto', 'round-robin', 'least-loaded'],
        loadShares: [0.5, 0.95, 1.2],
        capacityOf: small,
        capacityTimes: times,
      }
    }),
  )
}

/**
 * As many times the requests, for a fleet that is as many times as large and as fast. In a closed loop the
 * speed does that.
 */
function timesLonger(workload: Workload, times: number): Workload {
  if (workload.kind !== 'generator') return workload
  const { generator } = workload
  if (generator.loop === 'closed') return workload
  return { ...workload, generator: { ...generator, requests: generator.requests * times } }
}

function parseColumnsOfTerms(): string[] {
  const { terms } = POLICIES.auto
  return terms.map(({ name }) => parseColumn(`auto:without-${name}`).name)
}

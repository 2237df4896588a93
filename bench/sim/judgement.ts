/**
 * The judgement of auto: is it best or close to it everywhere, safe, and is each of its terms worth having?
 * Tables for docs/records/routing-quality.md. `pnpm exec node bench/sim/judgement.ts --write --minutes 60`
 * writes them; without --write they are printed. `--seeds N` at most, from `--first-seed N` on.
 *
 * All places are run with the first seed, then with the next and so on, until the time is up: the tables say
 * how many seeds a row has, and leave out rows without any. Cells are kept in .cache/bench-sim, so the next
 * run goes on from there, as long as the code is the same.
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type Clock, systemClock } from '@homing/base'
import {
  CAPACITY_SHARE,
  type CellResult,
  type CellRun,
  CellRunner,
  parseColumn,
  ResultStore,
  RunnerStopped,
  searchCapacity,
  type TierName,
} from '@homing/simulate'
import { givenCount, givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'
import {
  type CapacityPlace,
  type JudgedPlace,
  judgedPlaces,
  LINEAR,
  type LoadPlace,
  type Place,
  RIVALS,
} from './judgement-cells.ts'
import { type FoundCapacity, type Judged, renderJudgement } from './judgement-table.ts'

const PAGE = fileURLToPath(new URL('../../docs/records/routing-quality.md', import.meta.url))
const CACHE = fileURLToPath(new URL('../../.cache/bench-sim', import.meta.url))
export const JUDGEMENT_MARKS = marksOf('judgement')
/**
 * How much higher than the best capacity another rule must be good to be searched: as fine as a search is.
 */
const CHALLENGE = 129 / 128
/**
 * Speeds beyond so many times the guess are taken for too high: some fleets serve a short trace at any speed.
 */
const SPEED_TIMES_MAX = 8

export interface JudgementOptions {
  readonly places: readonly JudgedPlace[]
  /** Loads are shares of what is found with it. */
  readonly firstSeed: number
  readonly seedsMax: number
  /** Cells that have not ended by then are given up. */
  readonly minutesMax: number
  readonly store: ResultStore<CellRun> | undefined
  readonly clock: Clock
  readonly onProgress?: (sentence: string) => void
}

/** Runs what the time allows, seed by seed. */
export async function judge(options: JudgementOptions): Promise<Judged> {
  const { places, firstSeed, seedsMax, minutesMax, store, clock, onProgress } = options
  const runner = new CellRunner({ threads: Math.min(2, availableParallelism()), clock, store })
  const capacities = new Map<CapacityPlace, Map<number, FoundCapacity>>()
  const cells = new Map<LoadPlace, Map<number, Map<string, Map<number, CellResult>>>>()
  const judgement = new Judgement(runner, firstSeed)
  const timer = clock.after(minutesMax * 60_000, () => void runner.stop())
  try {
    for (let seed = firstSeed; seed < firstSeed + seedsMax; seed++) {
      for (const group of groupsOf(places)) {
        await allOf(
          group.map(async place => {
            if (place.kind === 'capacity') {
              const found = await judgement.capacities(place, seed)
              getOr(capacities, place, () => new Map()).set(seed, found)
              return
            }
            const best = await judgement.bestSpeed(place.capacityOf)
            await allOf(
              place.loadShares.flatMap(share =>
                place.columns.map(async column => {
                  const speed = best * place.capacityTimes * share
                  const result = await judgement.run(place, column, speed, seed)
                  const ofPlace = getOr(cells, place, () => new Map())
                  const ofShare = getOr(ofPlace, share, () => new Map<string, Map<number, CellResult>>())
                  getOr(ofShare, column, () => new Map<number, CellResult>()).set(seed, result)
                }),
              ),
            )
          }),
        )
        const { kind, traffic } = group.at(-1)!
        onProgress?.(`seed ${seed}: ${kind} up to ${traffic} done`)
      }
    }
  } catch (thrown) {
    if (!(thrown instanceof RunnerStopped)) throw thrown
  } finally {
    timer.cancel()
    await runner.stop()
  }
  return { capacities, cells }
}

class Judgement {
  readonly #runner: CellRunner
  readonly #firstSeed: number
  readonly #bestSpeeds = new Map<Place, Promise<number>>()

  constructor(runner: CellRunner, firstSeed: number) {
    this.#runner = runner
    this.#firstSeed = firstSeed
  }

  async run({ workload, spec }: Place, column: string, speed: number, seed: number): Promise<CellResult> {
    const { selection } = parseColumn(column)
    const { result } = await this.#runner.run(workload, { ...spec, selection, speed, seed })
    return result
  }

  /**
   * The highest capacity of any column at tier standard, with the first seed: loads are the same however many
   * seeds there are.
   */
  bestSpeed(place: Place): Promise<number> {
    let speed = this.#bestSpeeds.get(place)
    if (speed === undefined) {
      speed = this.#capacitiesOf(place, 'standard', this.#firstSeed).then(({ ours, best }) =>
        Math.max(ours, best),
      )
      this.#bestSpeeds.set(place, speed)
    }
    return speed
  }

  async capacities(place: CapacityPlace, seed: number): Promise<FoundCapacity> {
    const found = await this.#capacitiesOf(place, place.tier, seed)
    const linear =
      found.column === LINEAR ? found.best : await this.#search(place, LINEAR, place.tier, seed, found.ours)
    return { ...found, linear }
  }

  /**
   * Capacity of auto and of the best fixed rule. The rule that serves best at the capacity of auto is
   * searched; the others only if they are good enough at a higher speed.
   */
  async #capacitiesOf(place: Place, tier: TierName, seed: number): Promise<Omit<FoundCapacity, 'linear'>> {
    const ours = await this.#search(place, 'auto', tier, seed, place.speedGuess)
    const at = ours > 0 ? ours : place.speedGuess
    const shares = await allOf(
      RIVALS.map(async column => (await this.run(place, column, at, seed)).goodput[tier]),
    )
    let column: string = RIVALS[shares.indexOf(Math.max(...shares))]!
    let best = await this.#search(place, column, tier, seed, at)
    for (const rival of RIVALS) {
      if (rival === column) continue
      if ((await this.#shareAt(place, rival, tier, seed, best * CHALLENGE)) < CAPACITY_SHARE) continue
      const speed = await this.#search(place, rival, tier, seed, best)
      if (speed <= best) continue
      best = speed
      column = rival
    }
    return { ours, best, column }
  }

  async #shareAt(place: Place, column: string, tier: TierName, seed: number, speed: number): Promise<number> {
    if (speed > SPEED_TIMES_MAX * place.speedGuess) return 0
    return (await this.run(place, column, speed, seed)).goodput[tier]
  }

  async #search(place: Place, column: string, tier: TierName, seed: number, guess: number): Promise<number> {
    const { speed } = await searchCapacity(guess, speed => this.#shareAt(place, column, tier, seed, speed))
    return speed
  }
}

/** Runs of places of one kind and fleet: a table grows by whole groups. */
function groupsOf(places: readonly JudgedPlace[]): JudgedPlace[][] {
  const groups = new Map<string, JudgedPlace[]>()
  for (const place of places) {
    const name = `${place.kind} ${place.kind === 'capacity' ? `${place.fleet} ${place.tier}` : place.kind === 'loads' ? place.fleet : ''}`
    getOr(groups, name, () => []).push(place)
  }
  return [...groups.values()]
}

/** Waits for all, also if one fails; an error of a cell goes before the end of the runner. */
async function allOf<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  const settled = await Promise.allSettled(promises)
  const failures = settled.flatMap(each => (each.status === 'rejected' ? [each.reason as unknown] : []))
  if (failures.length > 0) throw failures.find(failure => !(failure instanceof RunnerStopped)) ?? failures[0]
  return settled.map(each => (each as PromiseFulfilledResult<T>).value)
}

function getOr<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  let value = map.get(key)
  if (value === undefined) {
    value = make()
    map.set(key, value)
  }
  return value
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      write: { type: 'boolean', default: false },
      minutes: { type: 'string', default: '30' },
      seeds: { type: 'string', default: '5' },
      'first-seed': { type: 'string', default: '1' },
      smoke: { type: 'boolean', default: false },
    },
  })
  const places = await judgedPlaces(values.smoke)
  const judged = await judge({
    places,
    firstSeed: givenCount('first-seed', values['first-seed']),
    seedsMax: givenCount('seeds', values.seeds),
    minutesMax: givenFigure('minutes', values.minutes),
    store: new ResultStore<CellRun>({
      folder: CACHE,
      bytesMax: 2 ** 28,
      clock: systemClock,
      onTrouble: sentence => console.error(sentence),
    }),
    clock: systemClock,
    onProgress: sentence => console.error(sentence),
  })
  const tables = renderJudgement(places, judged)
  if (values.write) writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8'), tables, JUDGEMENT_MARKS))
  else console.log(tables)
}

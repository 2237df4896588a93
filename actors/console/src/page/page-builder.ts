/**
 * Page builder: makes the sections of the page, for all tabs together.
 *
 * Decisions are looked at with every update, the rest less often. After an update the builder asks for a
 * pause of COST_SHARE times what the update took, and of UPDATE_MS at least: a large fleet is drawn more
 * seldom, and costs no larger part of this thread. The pause is PAGE_PAUSE_MS_MAX at most, so an update above
 * 0.2 s, as of 10,000 workers, may take a larger part.
 *
 * An owner that does not answer in time leaves its section as it was, and is named in the beat.
 */

import type { SystemView } from '@homing/actor'
import type { Clock } from '@homing/base'
import type { Pulled, StreamEvent } from '@homing/http'
import { type BeatSection, DECISIONS_SHOWN, type PageSections } from '@homing/page'
import type { ConsoleArgs } from '../console-args.ts'
import { actorsView } from '../views/actors-view.ts'
import { queueView } from '../views/queue-view.ts'
import { whatIfView } from '../views/what-if.ts'
import type { WorkersView } from '../views/workers-view.ts'
import { DecisionLines } from './page-decisions.ts'
import { fleetSection } from './page-fleet.ts'
import { HOUSE_ROWS, houseSection, LoopDelay } from './page-house.ts'
import { drawMap, MAP_SAMPLE } from './page-map.ts'
import { paysSection } from './page-pays.ts'
import { LABEL_SAMPLE, withPools } from './page-pools.ts'
import { waitingSection } from './page-waiting.ts'

/** Four updates a second at most. */
const UPDATE_MS = 250
/** An update may take one part in so many of the time. */
const COST_SHARE = 50
/** After 15 s without data, a tab treats its stream as lost (SILENCE_MS of the page's live.ts). */
const PAGE_PAUSE_MS_MAX = 10_000

type SectionName = Exclude<keyof PageSections, 'beat'>

export interface PageBuilderParts {
  readonly args: ConsoleArgs
  readonly clock: Clock
  readonly system: SystemView
  /** Id of this life of the console. */
  readonly life: string
  readonly workers: () => Promise<WorkersView>
}

export class PageBuilder {
  readonly #parts: PageBuilderParts
  readonly #lines = new DecisionLines()
  readonly #loopDelay = new LoopDelay()
  readonly #dueMs = new Map<SectionName, number>()
  #tabs = 0
  #buildMs = 0
  #pauseMs = UPDATE_MS
  #updates = 0

  constructor(parts: PageBuilderParts) {
    this.#parts = parts
  }

  /** Updates since the start, and what the last one took. */
  get cost(): { readonly updates: number; readonly buildMs: number } {
    return { updates: this.#updates, buildMs: this.#buildMs }
  }

  /** Number of open tabs; without any, the builder measures nothing. */
  set tabs(count: number) {
    if (count > 0 && this.#tabs === 0) this.#loopDelay.start()
    if (count === 0 && this.#tabs > 0) this.#loopDelay.stop()
    this.#tabs = count
  }

  /** `isFirst`: for a new tab, which needs the whole page. Never rejects. */
  async update(isFirst: boolean): Promise<Pulled> {
    const { clock, args, life } = this.#parts
    const startMs = clock.nowMs()
    if (isFirst) this.#dueMs.clear()
    const silent: string[] = []
    const made = await Promise.all(
      SECTIONS.map(async ({ name, everyMs }): Promise<StreamEvent | undefined> => {
        if (startMs < (this.#dueMs.get(name) ?? 0)) return undefined
        this.#dueMs.set(name, startMs + everyMs - UPDATE_MS / 2)
        try {
          return { event: name, data: await this.#make[name]() }
        } catch {
          silent.push(name)
          return undefined
        }
      }),
    )
    this.#updates++
    this.#buildMs = clock.nowMs() - startMs
    this.#pauseMs = Math.min(PAGE_PAUSE_MS_MAX, Math.max(UPDATE_MS, this.#buildMs * COST_SHARE))
    const beat: BeatSection = {
      // To the second: a beat alone goes out once a second.
      now: new Date(Math.floor(clock.wallMs() / 1000) * 1000).toISOString(),
      life,
      tabs: this.#tabs,
      tabs_max: args.pageTabsMax,
      build_ms: Math.ceil(this.#buildMs),
      interval_ms: Math.ceil(this.#pauseMs / UPDATE_MS) * UPDATE_MS,
      silent,
    }
    const events = made.filter(event => event !== undefined)
    return { events: [...events, { event: 'beat', data: JSON.stringify(beat) }], pauseMs: this.#pauseMs }
  }

  readonly #make: Readonly<Record<SectionName, () => Promise<string>>> = {
    decisions: async () => {
      const { router, askMsMax } = this.#parts.args
      const receipts = await router.ask({ type: 'receipts', limit: DECISIONS_SHOWN }, { timeout: askMsMax })
      return this.#lines.section(receipts)
    },
    fleet: async () => JSON.stringify(fleetSection(await this.#parts.workers())),
    map: async () => {
      const { directory, indexers, askMsMax } = this.#parts.args
      const deadline = { timeout: askMsMax }
      const options = { ...MAP_SAMPLE, turn: this.#updates }
      const [{ fleet }, ...samples] = await Promise.all([
        directory.ask({ type: 'describe' }, deadline),
        ...indexers.map(indexer => indexer.ask({ type: 'sampleTree', options }, deadline)),
      ])
      const drawn = drawMap(fleet.workers, samples)
      const labels = { ...LABEL_SAMPLE, turn: this.#updates, hashes: joined(drawn.sequenceHashes) }
      const pools = await Promise.all(
        indexers.map(async (indexer, shard) =>
          samples[shard]!.hasLabels
            ? indexer.ask({ type: 'sampleLabels', options: labels }, deadline)
            : undefined,
        ),
      )
      return JSON.stringify(withPools(drawn, fleet.workers, pools))
    },
    pays: async () => {
      const { router, tracker, askMsMax } = this.#parts.args
      const deadline = { timeout: askMsMax }
      const [hour, guard, loads] = await Promise.all([
        router.ask({ type: 'lastHour' }, deadline),
        router.ask({ type: 'guard' }, deadline),
        tracker.ask({ type: 'loads' }, deadline),
      ])
      return JSON.stringify(paysSection(hour, guard, loads.rows))
    },
    whatIf: async () => JSON.stringify(await whatIfView(this.#parts.args)),
    waiting: async () => {
      const { queue, askMsMax } = this.#parts.args
      const status = await queue.ask({ type: 'queueStatus' }, { timeout: askMsMax })
      return JSON.stringify(waitingSection(queueView(status)))
    },
    house: async () => {
      const { system } = this.#parts
      const view = actorsView(await system.census(), system, HOUSE_ROWS)
      return JSON.stringify(houseSection(view, this.#loopDelay.take()))
    },
  }
}

function joined(parts: readonly Int32Array[]): Int32Array {
  const whole = new Int32Array(parts.reduce((length, part) => length + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

const SECTIONS: readonly { readonly name: SectionName; readonly everyMs: number }[] = [
  { name: 'decisions', everyMs: UPDATE_MS },
  { name: 'fleet', everyMs: 1000 },
  { name: 'map', everyMs: 3000 },
  { name: 'pays', everyMs: 1000 },
  { name: 'waiting', everyMs: 1000 },
  { name: 'whatIf', everyMs: 500 },
  { name: 'house', everyMs: 2000 },
]

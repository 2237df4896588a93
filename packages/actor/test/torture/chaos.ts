/**
 * Chaos: kills threads in every way, one death or more a cycle, and brings about faults that end no thread.
 *
 * Owns   how many deaths and faults there were, and the watches that its short-lived actors have.
 */

import type { ActorRef, ActorSystem, ThreadPlacement } from '@homing/actor'
import type { Random } from '@homing/base'
import { type NodeMessage, type NurseryMessage, sendNumbered, type WatcherMessage } from './actors.ts'
import { type Board, DRIVER, WATCHES_MAX } from './board.ts'
import type { CheckedFaults } from './checked-faults.ts'
import type { Losses } from './losses.ts'
import { ALIVE_MS_MAX, ANSWER_MS_MAX, pause, QUIET_MS_MAX } from './waits.ts'

export interface ChaosParts {
  readonly board: Board
  readonly system: ActorSystem
  readonly random: Random
  /** Threads beside main. */
  readonly threads: number
  readonly faultsPerCycle: number
  readonly nodes: readonly ActorRef<NodeMessage>[]
  readonly watchers: readonly ActorRef<WatcherMessage>[]
  readonly nurseries: readonly ActorRef<NurseryMessage>[]
  readonly losses: Losses
  readonly checked: CheckedFaults
  /** Has a node send numbered messages to another. */
  readonly order: (from: number, target: number, count: number, isDying: boolean) => void
  /** False, and a violation: `condition` did not come true in time. */
  readonly until: (condition: () => boolean, limitMs: number, what: () => string) => Promise<boolean>
  readonly violate: (what: string) => void
}

export class Chaos {
  /** Deaths so far. */
  cycles = 0
  readonly faults: Record<string, number> = {}
  readonly #parts: ChaosParts
  #watchCount = 1

  constructor(parts: ChaosParts) {
    this.#parts = parts
  }

  /** Some faults that end no thread, then a death; the next life handles messages when it is over. */
  async cycle(): Promise<void> {
    const random = this.#parts.random
    while (random.next() < this.#parts.faultsPerCycle / (this.#parts.faultsPerCycle + 1)) this.#fault()
    await pause(random.below(12))
    const thread = 1 + random.below(this.#parts.threads)
    await this.#death(thread, random.below(11))
  }

  /** Ends all actors that were spawned here, and awaits that every watch of them has fired. */
  async clearNurseries(): Promise<void> {
    for (const ref of this.#parts.nurseries) ref.tell({ type: 'clear' })
    // Spawns and stops may still be on their way; an actor abandons what does not stop in 5 s.
    await this.#parts.until(
      () => this.#parts.board.openWatches(this.#watchCount).length === 0,
      QUIET_MS_MAX,
      () =>
        `watches fire; these do not: ${this.#parts.board.openWatches(this.#watchCount).slice(0, 10).join()}`,
    )
  }

  /** Brings a thread to its end, and awaits that its next life handles messages. */
  async #death(thread: number, way: number): Promise<void> {
    const board = this.#parts.board
    const name = `p-${thread - 1}`
    const lives = board.lives(thread)
    const on = this.#nodesOn(thread)
    const index = on[this.#parts.random.below(on.length)]!
    const ref = this.#parts.nodes[index]!
    const other = 1 + ((thread + this.#parts.random.below(this.#parts.threads - 1)) % this.#parts.threads)
    const awaited: [number, number][] = [[thread, lives]]
    this.cycles++
    this.#parts.losses.note(`${name} life ${lives} way ${way}`)
    switch (way) {
      case 0:
      case 1:
        count(this.faults, 'killThread')
        this.#kill(thread)
        break
      case 2:
        count(this.faults, 'exit')
        await this.#tellDeath(thread, () => ref.tell({ type: 'exit' }))
        break
      case 3:
        count(this.faults, 'exit after a burst')
        await this.#tellDeath(thread, () =>
          this.#parts.order(index, this.#parts.random.below(this.#parts.nodes.length), 30, true),
        )
        break
      case 4:
        count(this.faults, 'throw outside')
        await this.#tellDeath(thread, () => ref.tell({ type: 'throwOutside' }))
        break
      case 5:
        count(this.faults, 'reject outside')
        await this.#tellDeath(thread, () => ref.tell({ type: 'rejectOutside' }))
        break
      case 6: {
        count(this.faults, 'kill while it starts')
        this.#parts.losses.killedStart(thread, lives + 1)
        this.#kill(thread)
        const waitMs = this.#parts.random.below(60)
        await pause(waitMs)
        this.#kill(thread)
        break
      }
      case 7:
        count(this.faults, 'two at once')
        if (other !== thread) awaited.push([other, board.lives(other)])
        this.#kill(thread)
        if (other !== thread) {
          if (this.#parts.random.below(2) === 0) await pause(this.#parts.random.below(4))
          this.#kill(other)
          this.cycles++
        }
        break
      case 8:
        count(this.faults, 'kill while it spins')
        ref.tell({ type: 'spin', ms: 5000, life: lives })
        await pause(5 + this.#parts.random.below(10))
        this.#kill(thread)
        break
      case 9:
        count(this.faults, 'kill while it waits natively')
        ref.tell({ type: 'wait', ms: 5000, life: lives })
        await pause(5 + this.#parts.random.below(10))
        this.#kill(thread)
        break
      default: {
        count(this.faults, 'kill while its links are full')
        ref.tell({ type: 'wait', ms: 5000, life: lives })
        await pause(5)
        for (const from of this.#parts.nodes.keys()) {
          if (this.#parts.board.threadOf(from) === thread) continue
          this.#parts.nodes[from]!.tell({
            type: 'flood',
            to: ref,
            target: index,
            count: 3000,
            isDying: false,
          })
        }
        sendNumbered(board, DRIVER, 0, ref, index, this.#parts.random.below(4) === 0 ? 25_000 : 3000)
        await pause(10)
        this.#kill(thread)
        if (other !== thread && this.#parts.random.below(3) === 0) {
          awaited.push([other, board.lives(other)])
          this.#kill(other)
          this.cycles++
        }
      }
    }
    for (const [each, before] of awaited) {
      await this.#parts.until(
        () => board.handledInLife(each) > before,
        ALIVE_MS_MAX,
        () =>
          `thread p-${each - 1} handles messages again after ${Object.keys(this.faults).at(-1)} of ${name}, life ${board.lives(each)}, last that handled ${board.handledInLife(each)}, before ${before}`,
      )
    }
  }

  #kill(thread: number): void {
    this.#parts.board.dies(thread)
    void this.#parts.system
      .killThread(`p-${thread - 1}`)
      .catch((error: unknown) => this.#parts.violate(String(error)))
  }

  /** Tells an actor to end its thread; again, when the order was lost with another death. */
  async #tellDeath(thread: number, tell: () => void): Promise<void> {
    const before = this.#parts.board.deaths(thread)
    for (let attempt = 0; attempt < 3; attempt++) {
      tell()
      const limitMs = performance.now() + ANSWER_MS_MAX
      while (performance.now() < limitMs) {
        if (this.#parts.board.deaths(thread) > before) return
        await pause(1)
      }
    }
    this.#parts.violate(`thread p-${thread - 1} was told to end and did not`)
  }

  /** A fault that ends no thread. */
  #fault(): void {
    const random = this.#parts.random
    const index = random.below(this.#parts.nodes.length)
    const ref = this.#parts.nodes[index]!
    const isMain = index === 0
    switch (random.below(isMain ? 6 : 10)) {
      case 0:
        count(this.faults, 'throw in an arm')
        ref.tell({ type: 'throw' })
        break
      case 1:
        count(this.faults, 'timer storm')
        this.#parts.checked.storm(index)
        break
      case 2:
        count(this.faults, 'poison')
        this.#parts.checked.poison()
        break
      case 3:
        count(this.faults, 'overflow')
        this.#parts.checked.overflow()
        break
      case 4:
      case 5:
        this.#spawnMayfly()
        break
      case 6:
        count(this.faults, 'spin')
        ref.tell({ type: 'spin', ms: 5 + random.below(60) })
        break
      case 7:
        count(this.faults, 'wait natively')
        ref.tell({ type: 'wait', ms: 5 + random.below(60) })
        break
      case 8:
        if (random.below(4) > 0) break
        count(this.faults, 'system call')
        ref.tell({ type: 'exec', ms: 5 + random.below(60) })
        break
      default:
        count(this.faults, 'flood')
        this.#parts.nodes[random.below(this.#parts.nodes.length)]!.tell({
          type: 'flood',
          to: ref,
          target: index,
          count: 2000,
          isDying: false,
        })
    }
  }

  #spawnMayfly(): void {
    const random = this.#parts.random
    const watchers = this.#parts.watchers.filter(() => random.below(2) === 0)
    if (this.#watchCount + watchers.length >= WATCHES_MAX) return
    count(this.faults, 'mayfly')
    const id = this.#watchCount
    this.#watchCount += watchers.length
    const threads = this.#parts.threads
    const where = random.below(60)
    const thread: ThreadPlacement =
      where === 0
        ? 'dedicated'
        : where < 15
          ? { pool: 'p', key: id }
          : where < 25
            ? 'here'
            : where < 30
              ? 'main'
              : `p-${where % threads}`
    this.#parts.nurseries[random.below(this.#parts.nurseries.length)]!.tell({
      type: 'spawn',
      id,
      thread,
      isRestarted: random.below(3) === 0,
      watchers,
      end: (['stop', 'fail', 'stay'] as const)[random.below(3)]!,
    })
  }

  #nodesOn(thread: number): number[] {
    return [...this.#parts.nodes.keys()].filter(index => this.#parts.board.threadOf(index) === thread)
  }
}

/** Counts one more of this name. */
export function count(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1
}

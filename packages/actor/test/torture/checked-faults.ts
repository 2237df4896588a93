/**
 * Faults of a torture run with a known outcome: timers that fire once each, a budget that ends an actor, a
 * mailbox that overflows. Each is checked while the run goes on.
 */

import type { ActorRef, ActorSystem } from '@homing/actor'
import type { Random } from '@homing/base'
import { type NodeMessage, poisoned, sink } from './actors.ts'
import type { Asks } from './asks.ts'
import { type Board, COUNT, MAIN_INDEX, SUBJECTS_MAX } from './board.ts'
import { ALIVE_MS_MAX, ANSWER_MS_MAX, bounded, PUMP_MS, pause, QUIET_MS_MAX } from './waits.ts'

export interface Scene {
  readonly board: Board
  readonly system: ActorSystem
  readonly random: Random
  /** Beside main. */
  readonly threads: number
  readonly nodes: readonly ActorRef<NodeMessage>[]
  readonly asks: Asks
  readonly violate: (what: string) => void
}

export class CheckedFaults {
  readonly #scene: Scene
  readonly #open = new Set<Promise<void>>()
  #subjectCount = 0

  constructor(scene: Scene) {
    this.#scene = scene
  }

  storm(index: number): void {
    this.#check('timer storm', this.#storm(index))
  }

  poison(): void {
    this.#check('poison', this.#poison())
  }

  overflow(): void {
    this.#check('overflow', this.#overflow())
  }

  /** Resolves when all have been looked at. */
  async settled(): Promise<void> {
    await Promise.all(this.#open)
  }

  #check(name: string, check: Promise<void>): void {
    const noted = check
      .catch((error: unknown) =>
        this.#scene.violate(`${name}: ${error instanceof Error ? error.stack : String(error)}`),
      )
      .finally(() => void this.#open.delete(noted))
    this.#open.add(noted)
  }

  #nextSubject(): number {
    this.#subjectCount = (this.#subjectCount + 1) % SUBJECTS_MAX
    const id = this.#subjectCount
    this.#scene.board.addSubject(id, -this.#scene.board.subject(id))
    return id
  }

  /** Timers of one node: each fires once. */
  async #storm(index: number): Promise<void> {
    const { board, random, nodes, violate } = this.#scene
    const timers = 200 + random.below(2000)
    const id = this.#nextSubject()
    const thread = board.threadOf(index)
    if (thread < 0) return
    const before = `${board.lives(thread)} ${board.deaths(thread)} ${board.count(COUNT.throws)}`
    if (nodes[index]!.tell({ type: 'storm', id, timers }) !== 'ok') return
    const isUntouched = (): boolean =>
      `${board.lives(thread)} ${board.deaths(thread)} ${board.count(COUNT.throws)}` === before
    const limitMs = performance.now() + QUIET_MS_MAX
    while (board.subject(id) < timers && isUntouched() && performance.now() < limitMs) await pause(5)
    await pause(50)
    const fired = board.subject(id)
    if (fired > timers) violate(`${fired} of ${timers} timers fired`)
    if (fired < timers && isUntouched()) violate(`only ${fired} of ${timers} timers fired`)
  }

  /** Fails at every restart, up to its budget. */
  async #poison(): Promise<void> {
    const { board, random, system, violate } = this.#scene
    const id = this.#nextSubject()
    const thread = random.below(this.#scene.threads + 1)
    const max = 1 + random.below(5)
    const deaths = board.deaths(thread)
    const lives = board.lives(thread)
    const ref = system.spawn(poisoned, {
      name: `poisoned-${id}`,
      args: { memory: board.memory, id, where: random.below(2) === 0 ? 'setup' : 'arm' },
      thread: thread === MAIN_INDEX ? 'main' : `p-${thread - 1}`,
      supervision: { directive: 'restart', max, within: '10m', backoff: { min: 0, max: 2 } },
    })
    const { reason, error } = await bounded(system.whenTerminated(ref), 60_000, `the end of poisoned-${id}`)
    const setups = board.subject(id)
    // A new thread knows of the restarts that deaths of threads cost, not of the others.
    const setupsMax = (max + 1) * (1 + board.deaths(thread) - deaths)
    if (setups > setupsMax) violate(`an actor with ${max} restarts was set up ${setups} times`)
    // The thread may have died before the spawn, without notice yet: that costs a restart.
    const isSameLife = board.deaths(thread) === deaths && board.lives(thread) === lives
    if (isSameLife && (setups !== max + 1 || error?.code !== 'HOMING_ACTOR_RESTART_BUDGET')) {
      violate(
        `an actor with ${max} restarts was set up ${setups} times and ended as ${reason}, ${error?.code}`,
      )
    }
  }

  /** More messages than a mailbox holds, while its actor is held by a promise. */
  async #overflow(): Promise<void> {
    const { board, random, nodes, system, asks, violate } = this.#scene
    const id = this.#nextSubject()
    const thread = random.below(this.#scene.threads + 1)
    const overflow = (['reject', 'dropOldest', 'dropNewest', 'coalesce'] as const)[random.below(4)]!
    const capacity = 32
    const told = 100
    const deaths = board.deaths(thread)
    const ref = system.spawn(sink, {
      name: `sink-${id}`,
      args: { memory: board.memory, id },
      thread: thread === MAIN_INDEX ? 'main' : `p-${thread - 1}`,
      mailbox: { capacity, overflow },
    })
    const ended = system.whenTerminated(ref)
    let isEnded = false
    void ended.then(() => {
      isEnded = true
    })
    const until = async (subject: number): Promise<boolean> => {
      const limitMs = performance.now() + ALIVE_MS_MAX
      while (board.subject(id) < subject && !isEnded) {
        if (performance.now() > limitMs)
          throw new Error(`sink-${id} (${overflow}) did not reach ${subject}, but ${board.subject(id)}`)
        await pause(2)
      }
      return !isEnded
    }
    // The links of its thread may be full just now.
    while (ref.tell({ type: 'hold' }) === 'full') await pause(PUMP_MS)
    if (!(await until(1))) return
    let taken = 0
    for (let n = 0; n < told; n++) if (ref.tell({ type: 'put', n }) === 'ok') taken++
    const near = nodes.findIndex((_, index) => board.threadOf(index) === thread)
    // On main it is the mailbox that says so, elsewhere the link: then the mailbox may never be full.
    const isLinkFull = thread !== MAIN_INDEX && taken < told
    if (isLinkFull || near < 0) {
      board.addSubject(id)
      await this.#stopSink(ref, ended)
      return
    }
    // Its answer comes over the link behind them: they are in the mailbox, or were dropped.
    await nodes[near]!.ask({ type: 'add', a: 1 }, { timeout: ANSWER_MS_MAX }).catch(() => undefined)
    // An ask that finds the mailbox full is refused; dropOldest makes room for it, coalesce has some.
    if (overflow === 'reject' || overflow === 'dropNewest') {
      await asks.ask(
        'refused',
        ANSWER_MS_MAX,
        ms => ref.ask({ type: 'seen' }, { timeout: ms }).then(() => -1),
        -2,
      )
    }
    if (overflow === 'coalesce') {
      board.addSubject(id)
      await this.#stopSink(ref, ended)
      return
    }
    board.addSubject(id)
    if (await until(2 + capacity)) {
      const seen = await ref.ask({ type: 'seen' }, { timeout: ANSWER_MS_MAX }).catch(() => undefined)
      if (seen !== undefined && board.deaths(thread) === deaths) {
        const from = overflow === 'dropOldest' ? told - capacity : 0
        const expected = Array.from({ length: capacity }, (_, i) => from + i)
        if (seen.join() !== expected.join())
          violate(`a mailbox with ${overflow} (thread ${thread}) kept ${seen.join()}`)
      }
    }
    await this.#stopSink(ref, ended)
  }

  async #stopSink(ref: ActorRef<never>, ended: Promise<unknown>): Promise<void> {
    // It may have ended already, and its thread be away.
    this.#scene.system.stop(ref).catch(() => {})
    await bounded(ended, 60_000, `the end of ${ref.name}`)
  }
}

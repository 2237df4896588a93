/** A thread that is ended again and again under load, and what was seen of each of its deaths. */

import process from 'node:process'
import { type ActorRef, type ActorSystem, AskRefusedError, ThreadDownError } from '@homing/actor'
import { HANDLED, LAST_N, VICTIM_WORDS, VIOLATIONS, type VictimMessage, victim } from './actors.ts'
import { nextTurn, pause, requireEqual } from './loads.ts'
import { type End, msBetween } from './raw-lives.ts'
import { placed, THREAD } from './row.ts'
import { failoverLoadPerS } from './sizes.ts'
import { expectNextSpare, spareReady } from './spare.ts'
import { EXIT_AT, HANDLED_AT, newTimes } from './times.ts'

/** Between two deaths, so that each falls into steady work. */
const SETTLE_MS = 20
/** For what must happen within this, or the bench fails. */
const OUTAGE_MS_MAX = 60_000

export class Victim {
  readonly timesNs = newTimes()
  readonly #system: ActorSystem
  readonly #hasSpare: boolean
  readonly #words = new Int32Array(new SharedArrayBuffer(VICTIM_WORDS * Int32Array.BYTES_PER_ELEMENT))
  readonly ref: ActorRef<VictimMessage>
  #told = 0
  #hangs = 0

  constructor(system: ActorSystem, hasSpare = true) {
    this.#system = system
    this.#hasSpare = hasSpare
    const args = {
      timesNs: this.timesNs.buffer as SharedArrayBuffer,
      words: this.#words.buffer as SharedArrayBuffer,
    }
    this.ref = system.spawn(victim, { ...placed('victim'), args })
  }

  /** Resolves when the actor answers. */
  async serves(): Promise<void> {
    const untilMs = performance.now() + OUTAGE_MS_MAX
    for (;;) {
      try {
        await this.ref.ask({ type: 'ping' }, { timeout: '10s' })
        return
      } catch (error) {
        // Refused: the link is still full of the load.
        const isPassing = error instanceof ThreadDownError || error instanceof AskRefusedError
        if (!isPassing || performance.now() > untilMs) throw error
        await nextTurn()
      }
    }
  }

  /**
   * Ends the thread `count` times in the ways of `ends`, in turn, at failoverLoadPerS messages a second.
   * Milliseconds from each end, or the begin of a hang, to the first message that the next life handled.
   */
  async outagesMs(count: number, ends: readonly End[]): Promise<Float64Array> {
    await this.serves()
    let isOver = false
    const load = this.#load(() => isOver)
    const outagesMs = new Float64Array(count)
    for (let i = 0; i < count; i++) {
      await spareReady()
      await pause(SETTLE_MS)
      outagesMs[i] = await this.#outageMs(ends[i % ends.length]!)
    }
    isOver = true
    await load
    await this.serves()
    return outagesMs
  }

  /** Nothing came twice or out of order, and the last one came. Messages that were lost so far. */
  async lost(): Promise<number> {
    requireEqual('messages out of order or twice', Atomics.load(this.#words, VIOLATIONS), 0)
    requireEqual('last message', Atomics.load(this.#words, LAST_N), this.#told)
    const { asksPending } = await this.#system.stats()
    requireEqual('asks left', asksPending, 0)
    return this.#told - Atomics.load(this.#words, HANDLED)
  }

  async #outageMs(end: End): Promise<number> {
    const { timesNs } = this
    Atomics.store(timesNs, HANDLED_AT, 0n)
    Atomics.store(timesNs, EXIT_AT, 0n)
    if (this.#hasSpare) expectNextSpare()
    if (end === 'exit') this.ref.tell({ type: 'exit' })
    else if (end === 'hang') this.ref.tell({ type: 'hang', isBusy: this.#hangs++ % 2 === 0 })
    else {
      Atomics.store(timesNs, EXIT_AT, process.hrtime.bigint())
      await this.#system.killThread(THREAD)
    }
    const untilMs = performance.now() + OUTAGE_MS_MAX
    while (Atomics.load(timesNs, HANDLED_AT) <= Atomics.load(timesNs, EXIT_AT) || timesNs[EXIT_AT] === 0n) {
      if (performance.now() > untilMs) throw new Error(`no message was handled after the end by ${end}`)
      await pause(1)
    }
    return msBetween(timesNs[EXIT_AT]!, timesNs[HANDLED_AT]!)
  }

  /** Tells at a fixed rate, in bursts of a millisecond; what finds the link full is told later. */
  async #load(isOver: () => boolean): Promise<void> {
    const fromMs = performance.now()
    for (let told = 0; !isOver(); ) {
      const due = Math.floor(((performance.now() - fromMs) * failoverLoadPerS) / 1000)
      for (; told < due && this.ref.tell({ type: 'work', n: this.#told + 1 }) === 'ok'; told++) this.#told++
      await pause(1)
    }
  }
}

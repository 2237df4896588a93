/**
 * Load plan: which blocks of requests go to which side, in which order.
 *
 * One side is one block. Two sides get blocks in turns, AB BA AB …, so that a change in time (a neighbour, a
 * warm-up of the machine) falls on both alike, and the same requests in each pair of blocks: what is compared
 * is the difference in a pair. A block is over when its last answer is there, so sides never disturb each
 * other.
 */

import { type Clock, type Random, seededRandom } from '@homing/base'
import type { RequestSource } from './load-request.ts'
import { LoadRun, type Pace } from './load-run.ts'
import type { Send } from './sender.ts'
import { type LoadFigures, Tally, toldOfCached } from './tally.ts'
import { wordsText } from './words.ts'

export type SaltKind = 'block' | 'side' | 'none'

export interface LoadSide {
  readonly name: string
  readonly url: string
  /** Of the blocks in the headers of a router; undefined: not known. */
  readonly blockTokens: number | undefined
  sendWith(salt: string): Send
}

export interface LoadPlan {
  readonly clock: Clock
  /** Of salts: two runs share none. */
  readonly chance: Random
  readonly seed: number
  readonly source: RequestSource
  /** One or two. */
  readonly sides: readonly LoadSide[]
  readonly blocks: number
  readonly salt: SaltKind
  readonly pace: Pace
  readonly waitingMax: number
  /** Of a block, warm-up included. */
  readonly requestsMax: number
  /** Of a block. */
  readonly durationMs: number
  readonly warmup: number
  readonly timeoutMs: number
}

export interface SideResult {
  readonly name: string
  readonly url: string
  readonly total: LoadFigures
  /** Of each whole block, in order. */
  readonly blocks: readonly LoadFigures[]
}

export interface LoadResult {
  readonly sides: readonly SideResult[]
  /** False: it was stopped. */
  readonly isComplete: boolean
}

const SALT_WORDS = 6

/** Runs a plan. One at a time. */
export class Load {
  readonly #plan: LoadPlan
  #current: LoadRun | undefined
  #issued = 0
  #runsDone = 0
  #isStopped = false

  constructor(plan: LoadPlan) {
    this.#plan = plan
  }

  /** Requests sent, of all sides and blocks; and blocks that are over. */
  get progress(): { readonly issued: number; readonly blocksDone: number } {
    return { issued: this.#issued + (this.#current?.issued ?? 0), blocksDone: this.#runsDone }
  }

  /** Ends early; what was measured is in the result. Idempotent. */
  stop(): void {
    this.#isStopped = true
    this.#current?.stop()
  }

  async run(): Promise<LoadResult> {
    const { sides, blocks } = this.#plan
    const totals = sides.map(() => new Tally())
    const figures: LoadFigures[][] = sides.map(() => [])
    const salts = sides.map(() => this.#newSalt())
    for (let block = 0; block < blocks && !this.#isStopped; block++) {
      const order = sides.map((_, i) => i)
      if (block % 2 === 1) order.reverse()
      for (const i of order) {
        if (this.#isStopped) break
        const tally = new Tally()
        const salt = this.#plan.salt === 'block' ? this.#newSalt() : salts[i]!
        await this.#runBlock(block, sides[i]!.sendWith(salt), [tally, totals[i]!])
        if (!this.#isStopped) figures[i]!.push(tally.figures(sides[i]!.blockTokens))
      }
    }
    return {
      sides: sides.map(({ name, url, blockTokens }, i) => {
        const total = totals[i]!.figures(blockTokens)
        const ofBlocks = total.cachedTokens === undefined ? figures[i]! : figures[i]!.map(toldOfCached)
        return { name, url, total, blocks: ofBlocks }
      }),
      isComplete: !this.#isStopped,
    }
  }

  async #runBlock(block: number, send: Send, tallies: readonly Tally[]): Promise<void> {
    const { clock, seed, source, pace, waitingMax, requestsMax, durationMs, warmup, timeoutMs } = this.#plan
    this.#current = new LoadRun({
      clock,
      // The same instants for both sides of a pair.
      random: seededRandom(seed + 1 + Math.imul(block, 0x85ebca6b)),
      send,
      requests: source.block(block, this.#plan.blocks),
      pace,
      waitingMax,
      requestsMax,
      durationMs,
      warmup,
      timeoutMs,
      tallies,
    })
    await this.#current.run()
    this.#issued += this.#current.issued
    this.#current = undefined
    this.#runsDone++
  }

  #newSalt(): string {
    return this.#plan.salt === 'none' ? '' : wordsText(this.#plan.chance, SALT_WORDS)
  }
}

/** What a result must keep to be worth something. */
export interface ValidityLimits {
  readonly errorShareMax: number
  readonly issueLagMsMax: number
}

/** Why a result is invalid, a sentence each without its full stop; none: it is valid. */
export function faultsOfResult({ sides }: LoadResult, limits: ValidityLimits): readonly string[] {
  return sides.flatMap(({ name, total }) => {
    const side = sides.length === 1 ? '' : `${name}: `
    const { requests, answered, errorRate, issueLagMs, readLagMs } = total
    if (requests === 0) return [`${side}no request was counted`]
    if (answered === 0) return [`${side}none of ${requests} requests was answered`]
    const faults: string[] = []
    if (errorRate > limits.errorShareMax)
      faults.push(
        `${side}${percent(errorRate)} of the requests failed, and --max-error-rate is ${percent(limits.errorShareMax)}: the latencies are of the others only`,
      )
    const lagMs = Math.max(issueLagMs.p99, readLagMs.p99)
    if (lagMs > limits.issueLagMsMax)
      faults.push(
        `${side}homing load itself was ${Math.round(lagMs)} ms late at p99, and --max-issue-lag is ${limits.issueLagMsMax} ms: this machine was the limit, so use another one or send less`,
      )
    return faults
  })
}

function percent(share: number): string {
  return `${Number((100 * share).toPrecision(3))} %`
}

/** Traffic before a guard, in worlds whose truth is known: what affinity and control really take. */

import { type Random, seededRandom } from '@homing/base'
import { Guard } from '../src/index.ts'

export interface World {
  /** Milliseconds to the first token of 1024 tokens; Infinity: it never comes. */
  readonly affinityMs: number
  readonly controlMs: number
  /** As the model says; default: what affinity takes. */
  readonly predictedMs?: number
  /** Milliseconds from the first token to the end; default 0. */
  readonly affinityRestMs?: number
  readonly controlRestMs?: number
  /** Share of the requests that fail after 1 ms; default 0. */
  readonly affinityErrors?: number
  readonly controlErrors?: number
  /** Share of the prompt that control computes beyond what affinity would; default 0. */
  readonly extraShare?: number
  /** Chance that the two arms differ; default 1. */
  readonly differs?: number
}

type Step = (nowMs: number) => void

/** An arrival every `gapMs`; times vary by the factor 2 either way, and grow with the prompt. */
export class Traffic {
  guard: Guard
  readonly #random: Random
  #arrivals = 0
  /** Those whose steps come before the arrival of this number, and behind the one before it. */
  readonly #due = new Map<number, Step[]>()
  sumMs = 0
  promptTokens = 0
  extraTokens = 0
  /** Of those, while the guard was quiet when it decided. */
  readonly quiet = { promptTokens: 0, extraTokens: 0, controls: 0 }
  /** Experiments in which control decided, over all runs. */
  controls = 0

  readonly #gapMs: number

  constructor(share: number, seed: number, gapMs = 10) {
    this.#gapMs = gapMs
    this.guard = new Guard({ share })
    this.#random = seededRandom(seed)
  }

  /** Decisions that went by control. */
  run(decisions: number, world: World): number {
    const { affinityMs, controlMs, predictedMs = affinityMs } = world
    const { affinityRestMs = 0, controlRestMs = 0, affinityErrors = 0, controlErrors = 0 } = world
    const { extraShare = 0, differs = 1 } = world
    const controlsBefore = this.controls
    const random = this.#random
    for (let i = 0; i < decisions; i++) {
      const nowMs = ++this.#arrivals * this.#gapMs
      for (const step of this.#due.get(this.#arrivals) ?? []) step(nowMs)
      this.#due.delete(this.#arrivals)
      const { guard } = this
      const promptTokens = 2 ** (6 + random.below(8))
      const scale = (promptTokens / 1024) * 2 ** (2 * random.next() - 1)
      const extraTokens = extraShare * promptTokens
      const isSplit = differs === 1 || random.next() < differs
      const arm = isSplit ? guard.draw(random, guard.experimentChance(0)) : undefined
      const isControl = arm === 'control'
      this.promptTokens += promptTokens
      if (isControl) this.controls++
      if (isControl) this.extraTokens += extraTokens
      if (guard.isQuiet) {
        this.quiet.promptTokens += promptTokens
        if (isControl) this.quiet.extraTokens += extraTokens
        if (isControl) this.quiet.controls++
      }
      const ms = (isControl ? controlMs : affinityMs) * scale
      const outputTokens = 2 ** (4 + random.below(4))
      const restMs = ((isControl ? controlRestMs : affinityRestMs) * outputTokens) / 64
      const errors = isControl ? controlErrors : affinityErrors
      const predicted = (predictedMs * promptTokens) / 1024
      const decision = guard.decided({ arm, promptTokens, predictedMs: predicted, extraTokens }, nowMs)
      this.sumMs += ms
      if (errors > 0 && random.next() < errors) {
        this.#at(nowMs + 1, toldMs => guard.failed(decision, toldMs))
        continue
      }
      if (ms === Number.POSITIVE_INFINITY) continue
      this.#at(nowMs + ms, toldMs => guard.firstToken(decision, ms, toldMs))
      const answer = { durationMs: ms + restMs, outputTokens, isStream: true }
      this.#at(nowMs + ms + restMs, toldMs => guard.finished(decision, answer, toldMs))
    }
    return this.controls - controlsBefore
  }

  /** Every request ends. */
  end(): void {
    for (const arrival of [...this.#due.keys()].sort((one, other) => one - other))
      for (const step of this.#due.get(arrival)!) step(arrival * this.#gapMs)
    this.#due.clear()
  }

  #at(ms: number, step: Step): void {
    const arrival = Math.ceil(ms / this.#gapMs)
    const due = this.#due.get(arrival)
    if (due === undefined) this.#due.set(arrival, [step])
    else due.push(step)
  }
}

/**
 * Exchange slices: what one exchange has to do with the slices of its prompt, from whether it may have any to
 * whether its worker made use of them. Which step comes when is the exchange's; how a slice is sent is
 * sliced-prefill.ts.
 */

import type { Decision, PromptSlice } from '@homing/placement'
import {
  SlicedPrefill,
  type SlicedPrefillParts,
  type SlicedRequest,
  type SlicesEnd,
  type SlicesStart,
} from './sliced-prefill.ts'
import type { SlicedPrompt } from './sliced-prompt.ts'

/** Of what slices computed, as the request itself finds it cached; with less they were in vain. */
const USED_SHARE_MIN = 0.5

export class ExchangeSlices {
  readonly #parts: SlicedPrefillParts
  #running: SlicedPrefill | undefined
  #computed: PromptSlice | undefined
  /** Its prompt counts as long until this is called; undefined: it was never sliced. */
  #longEnded: (() => void) | undefined
  #computingMs = 0
  /** The worker that computed slices, and tokens that it had to compute for them. */
  #own: { readonly workerId: string; readonly newTokens: number } | undefined

  constructor(parts: SlicedPrefillParts) {
    this.#parts = parts
  }

  /** What slices have computed of the prompt. */
  get computed(): PromptSlice | undefined {
    return this.#computed
  }

  /** Milliseconds in which slices were computed, and nothing waited. */
  get computingMs(): number {
    return this.#computingMs
  }

  /** The prompt has been sliced once: it is not sliced again. */
  get wereTried(): boolean {
    return this.#longEnded !== undefined
  }

  /** Whether the prompt may be sliced, if the queue wants that. */
  mayBegin({ prompt, routing, waiting }: SlicedRequest & { readonly prompt?: SlicedPrompt | undefined }) {
    if (this.wereTried || prompt === undefined || waiting === undefined || waiting.doNotQueue) return false
    return this.#parts.slices.mayUse(routing.model, this.#parts.context.clock.nowMs())
  }

  /**
   * Has the worker compute the prompt in slices. They own the placement from now on. Does not end after
   * `abort`.
   */
  async run(start: SlicesStart): Promise<SlicesEnd> {
    this.#longEnded = start.placement.keepLong()
    const running = new SlicedPrefill(this.#parts, start)
    this.#running = running
    const beganMs = this.#parts.context.clock.nowMs() - start.waitedMs
    const end = await running.run()
    this.#running = undefined
    this.#own = { workerId: start.decision.workerId, newTokens: running.newTokens }
    this.#computingMs = this.#parts.context.clock.nowMs() - beganMs - running.waitedMs
    if (end.kind === 'computed') this.#computed = end.slice
    else if (end.kind === 'givenUp') this.forget()
    return end
  }

  look(nowMs: number): void {
    this.#running?.look(nowMs)
  }

  abort(): void {
    const running = this.#running
    this.#running = undefined
    running?.abort()
  }

  /** From now on it is a request like any other. */
  forget(): void {
    this.#computed = undefined
    this.prefilled()
  }

  /** The prompt is computed, or its client does not wait for it any more. */
  prefilled(): void {
    this.#longEnded?.()
  }

  /** Tokens that this worker had to compute for slices of the request. */
  tokensAt(workerId: string | undefined): number {
    return this.#own?.workerId === workerId ? (this.#own?.newTokens ?? 0) : 0
  }

  /**
   * An engine that did not use what slices had computed computed it twice. If it does not say what it used,
   * its events say what was there when the rest was placed; those of the last slice may have come later.
   */
  answered(cachedTokens: number | undefined, { workerId, trust, predictedTokens }: Decision): void {
    const computedTokens = this.#computed?.computedTokens ?? 0
    const usedTokens = cachedTokens ?? (trust === 'exact' ? predictedTokens : computedTokens)
    if (usedTokens < USED_SHARE_MIN * computedTokens)
      this.#parts.slices.distrust(workerId, this.#parts.context.clock.nowMs())
  }
}

/**
 * Handovers: the way of requests from a prefill worker to a decode worker, in order of time, where a cell has
 * both (`PoolsSpec`).
 *
 *   computed ──signal──▶ its decode leg is decided ──transfer──▶ its engine gets it
 *
 * The last step is also that of requests that read pooled blocks first (recovery.ts).
 */

import { newSimRequest, type SimRequest } from './sim-request.ts'

/** `decide`: a computed prompt, for which a decode worker is sought. `arrive`: its blocks are there. */
export interface Handover {
  readonly atMs: number
  /** When its engine had computed the prompt; of what happened until then the router has heard. */
  readonly computedMs: number
  readonly step: 'decide' | 'arrive'
  readonly request: SimRequest
}

export class Handovers {
  #open: Handover[] = []
  #taken = 0

  /** Infinite: none is under way. */
  get nextMs(): number {
    return this.#open[this.#taken]?.atMs ?? Number.POSITIVE_INFINITY
  }

  /** Equal times keep their order. */
  add(handover: Handover): void {
    const open = this.#open
    let at = open.length
    while (at > this.#taken && open[at - 1]!.atMs > handover.atMs) at--
    open.splice(at, 0, handover)
  }

  /** Takes out what is under way to a worker that died. */
  dropOf(worker: number): readonly SimRequest[] {
    const open = this.#open.slice(this.#taken)
    this.#open = open.filter(({ request }) => request.worker !== worker)
    this.#taken = 0
    return open.filter(({ request }) => request.worker === worker).map(({ request }) => request)
  }

  /** There must be one. */
  take(): Handover {
    const handover = this.#open[this.#taken++]!
    if (this.#taken > 1024 && this.#taken * 2 > this.#open.length) {
      this.#open = this.#open.slice(this.#taken)
      this.#taken = 0
    }
    return handover
  }
}

/** The leg that computes the prompt of `request`: one token, which no client sees. */
export function prefillLegOf(request: SimRequest): SimRequest {
  return { ...request, leg: 'prefill', outputTokens: 1, answerIds: [] }
}

/** The leg that goes on where `computed`, a prefill leg, has ended. */
export function decodeLegOf(computed: SimRequest, answerIds?: ArrayLike<number>): SimRequest {
  const { trace, index, blockIds, blocks, router, reusedTokens } = computed
  return {
    ...newSimRequest(trace, index, blockIds, blocks, router, answerIds),
    leg: 'decode',
    reusedBefore: reusedTokens,
  }
}

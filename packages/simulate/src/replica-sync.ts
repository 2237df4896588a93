/**
 * Replica sync: the messages between the routers of a cell, on their way.
 *
 *   tell(from, atMs) ──▶ gathered ──▶ on its way for delayMs ──▶ deliver(untilMs) ──▶ all other routers,
 *                                                                                 in order of time
 *
 * The operations are those of the product (packages/replication): a booking with what its sender then has
 * active on that worker as a number of blocks, a first token, an end with its usage. Nothing is lost here.
 *
 * Bounds   the messages of one delay.
 */

/** One thing that a router did with a request that it has at a worker. */
export type ReplicaOperation = {
  /** As it is booked; unique in the cell while it is. */
  readonly id: string
  readonly worker: number
} & (
  | {
      readonly kind: 'booked'
      /** Worker that its engine book has it at. */
      readonly learnedAt: number
      /** Blocks that the sender has active on the worker, this request included. */
      readonly activeBlocks: number
      readonly promptTokens: number
      readonly newTokens: number
      readonly waitedMs: number
      /** Prompt and output, as the sender counts them. */
      readonly outstandingTokens: number
    }
  | { readonly kind: 'firstToken' }
  | {
      readonly kind: 'freed'
      /** Blocks that the sender still has active on the worker. */
      readonly activeBlocks: number
      /** Undefined: there is no answer, or what was said of it cannot be true. */
      readonly outputTokens: number | undefined
      /** Share of the prompt that was cached, 0 … 1; undefined likewise. */
      readonly cachedShare: number | undefined
      readonly outstandingTokens: number
    }
)

/** A router, as another one sees it. */
export interface Replica {
  /** True: load fell somewhere. */
  heard(from: number, operation: ReplicaOperation, nowMs: number): boolean
}

/** How a router batches its messages. */
export interface ReplicaGather {
  /** Between two batches of a router at least. */
  readonly ms: number
  /**
   * `always`: what comes first waits so long for more. `behind-first`, as the product: it goes at once, and
   * only what follows waits.
   */
  readonly waits: 'always' | 'behind-first'
}

interface OnItsWay {
  readonly from: number
  readonly arrivesMs: number
  readonly operation: ReplicaOperation
}

export class ReplicaSync {
  readonly #delayMs: number
  readonly #replicas: readonly Replica[]
  readonly #gather: ReplicaGather | undefined
  /** By router: when its last batch goes out. */
  readonly #goesMs: Float64Array
  /** In order of arrival; those before #taken have arrived. */
  #onTheirWay: OnItsWay[] = []
  #taken = 0

  /** `gather`: default: everything is on its way at once. */
  constructor(delayMs: number, replicas: readonly Replica[], gather?: ReplicaGather) {
    this.#delayMs = delayMs
    this.#replicas = replicas
    this.#gather = gather
    this.#goesMs = new Float64Array(replicas.length).fill(Number.NEGATIVE_INFINITY)
  }

  /** When the next operation arrives; infinite if none is on its way. */
  get nextMs(): number {
    return this.#onTheirWay[this.#taken]?.arrivesMs ?? Number.POSITIVE_INFINITY
  }

  /** A router sends an operation to all others. Operations of one time arrive in the order sent. */
  tell(from: number, operation: ReplicaOperation, atMs: number): void {
    const all = this.#onTheirWay
    const arrivesMs = this.#goesAtMs(from, atMs) + this.#delayMs
    let at = all.length
    while (at > this.#taken && all[at - 1]!.arrivesMs > arrivesMs) at--
    const one = { from, arrivesMs, operation }
    if (at === all.length) all.push(one)
    else all.splice(at, 0, one)
  }

  /** Delivers everything that has arrived by `untilMs`. True: some load fell. */
  deliver(untilMs: number): boolean {
    const all = this.#onTheirWay
    let isLess = false
    for (; this.#taken < all.length && all[this.#taken]!.arrivesMs <= untilMs; this.#taken++) {
      const { from, arrivesMs, operation } = all[this.#taken]!
      for (let to = 0; to < this.#replicas.length; to++) {
        if (to !== from) isLess = this.#replicas[to]!.heard(from, operation, arrivesMs) || isLess
      }
    }
    if (this.#taken > 1024 && this.#taken * 2 > all.length) {
      this.#onTheirWay = all.slice(this.#taken)
      this.#taken = 0
    }
    return isLess
  }

  #goesAtMs(from: number, atMs: number): number {
    const gather = this.#gather
    if (gather === undefined) return atMs
    const lastMs = this.#goesMs[from]!
    // Behind what waits already.
    if (atMs <= lastMs) return lastMs
    const goesMs = gather.waits === 'always' ? atMs + gather.ms : Math.max(atMs, lastMs + gather.ms)
    this.#goesMs[from] = goesMs
    return goesMs
  }

  /** The worker died: pending messages about it are void. */
  forget(worker: number): void {
    this.#onTheirWay = this.#onTheirWay
      .slice(this.#taken)
      .filter(({ operation }) => operation.worker !== worker)
    this.#taken = 0
  }
}

/**
 * Worker filter: which workers may take a request, and how much it prefers each.
 *
 *   may take it   in the allow-list, if there is one; has every required taint
 *   preference    exp(−tanh(Σ weights of the preferred taints that it has)): between 1/e and e, 1 without
 *                 any. The cost is multiplied by it, so opposite weights cancel out, and no preference
 *                 outweighs a cost that is three times as high.
 *
 * Source   filters and preferred taints of NVIDIA Dynamo's key-value router.
 */

export interface WorkerConstraints {
  /** Undefined: all. */
  readonly allowedInstanceIds: readonly number[] | undefined
  /** Taints that a worker must have. */
  readonly requiredTaints: readonly string[]
  /** Weight by taint: above 0 draws the request to workers that have it, below 0 away from them. */
  readonly preferredTaints: Readonly<Record<string, number>>
}

/** The properties of a worker that a filter uses. */
export interface FilteredWorker {
  readonly instanceId: number
  readonly taints: readonly string[]
}

export class WorkerFilter {
  readonly #allowed: ReadonlySet<number> | undefined
  readonly #required: readonly string[]
  readonly #preferred: readonly (readonly [taint: string, weight: number])[]

  /** Undefined: every worker may take it, and none is preferred. */
  constructor(constraints: WorkerConstraints | undefined) {
    const ids = constraints?.allowedInstanceIds
    this.#allowed = ids === undefined ? undefined : new Set(ids)
    this.#required = constraints?.requiredTaints ?? []
    this.#preferred = Object.entries(constraints?.preferredTaints ?? {})
  }

  get prefers(): boolean {
    return this.#preferred.length > 0
  }

  allows(instanceId: number): boolean {
    return this.#allowed?.has(instanceId) ?? true
  }

  /** Why the worker may not take the request; undefined: it may. */
  reasonAgainst({ instanceId, taints }: FilteredWorker): string | undefined {
    if (!this.allows(instanceId)) return 'not in allowed_worker_ids'
    const missing = this.#required.find(taint => !taints.includes(taint))
    return missing === undefined ? undefined : `does not have the required taint ${missing}`
  }

  /** Factor of the worker's cost. */
  preference({ taints }: FilteredWorker): number {
    let weight = 0
    for (const [taint, weightOfTaint] of this.#preferred) if (taints.includes(taint)) weight += weightOfTaint
    return weight === 0 ? 1 : Math.exp(-Math.tanh(weight))
  }
}

/**
 * One strict priority: shares its requests between policy classes, by deficit round robin over uncached
 * tokens.
 *
 * The deficit of a class is its unspent credit, in tokens. The classes are visited in a ring:
 *
 *   nothing waits             the deficit is forgotten
 *   no request can go         the deficit stays, and nothing is added
 *   deficit ≥ cost            the request goes
 *   otherwise                 the quantum is added, once per visit; the request goes if that is enough
 *
 * The cost of a request that goes is subtracted. A class may send again while its credit lasts; then the next
 * class is visited. Rounds in which no class can send are added up at once, so the time does not depend on
 * the size of requests.
 *
 * Invariants
 *   I1  Deficit of a class < its largest request + its quantum.
 *   I2  Between two classes that always have a request that can go, the tokens sent ÷ quantum differ by at
 *       most one round and one request of each.
 *   I3  A request that is put back before another was taken leaves everything as it was before it was taken.
 *
 * Source: Shreedhar, Varghese: Efficient fair queuing using deficit round robin (1995); adding up rounds at
 * once is from Dynamo's queue. There, every class is paid for the last of these rounds at once, and again
 * when it is visited next: with requests of three quanta a class gets up to 4/3 of its share. Here a class is
 * paid only when it is visited.
 */

import type { ClassAccount, Entry, LevelOfEntry } from './entry.ts'
import { FairFlows, type FairUndo } from './fair-flows.ts'
import type { Tenant } from './tenant.ts'
import type { TenantTable } from './tenants.ts'

const NONE = -1

export class StrictPriorityLevel implements LevelOfEntry {
  readonly strictPriority: number
  readonly #classes: readonly ClassAccount[]
  readonly #tenants: TenantTable
  /** By class; undefined where nothing waits or is asked about. */
  readonly #fair: (FairFlows | undefined)[]
  readonly #deficits: Float64Array
  /** The class to be visited next. */
  #cursor = 0
  /** The class that went last and has credit left. */
  #carry = NONE
  #requests = 0
  /** Requests of higher strict priority that were placed since one of this was. */
  passedOver = 0
  agedRequests = 0

  /** Scratch of `#next`: the requests that could go, from the cursor on. */
  readonly #heads: (Entry | undefined)[]
  /** How things were before the last one was taken. */
  readonly #deficitsBefore: Float64Array
  #cursorBefore = 0
  #carryBefore = NONE
  #lastTaken: Entry | undefined
  #fairBefore: FairUndo | undefined

  constructor(strictPriority: number, classes: readonly ClassAccount[], tenants: TenantTable) {
    this.strictPriority = strictPriority
    this.#classes = classes
    this.#tenants = tenants
    this.#fair = classes.map(() => undefined)
    this.#heads = classes.map(() => undefined)
    this.#deficits = new Float64Array(classes.length)
    this.#deficitsBefore = new Float64Array(classes.length)
  }

  /** Nothing waits or is asked about. */
  get isEmpty(): boolean {
    return this.#requests === 0
  }

  add(entry: Entry): void {
    const { index } = entry.policyClass
    let fair = this.#fair[index]
    if (fair === undefined) {
      fair = new FairFlows(entry.policyClass, this.#tenants)
      this.#fair[index] = fair
    }
    this.#requests++
    fair.add(entry)
  }

  /** Whether any request can go. */
  canSend(nowMs: number): boolean {
    return this.#fair.some(fair => fair?.head(nowMs) !== undefined)
  }

  /** Takes the next request that can go. */
  take(nowMs: number): Entry | undefined {
    this.#deficitsBefore.set(this.#deficits)
    this.#cursorBefore = this.#cursor
    this.#carryBefore = this.#carry
    this.#lastTaken = undefined
    const entry = this.#next(nowMs)
    if (entry === undefined) return undefined
    const { index } = entry.policyClass
    this.#cursor = (index + 1) % this.#classes.length
    this.#deficits[index]! -= entry.costTokens
    this.#carry = this.#deficits[index]! > 0 ? index : NONE
    this.#fairBefore = this.#fair[index]!.take(entry)
    this.#lastTaken = entry
    return entry
  }

  /** The router had no room for a request that was taken. */
  putBack(entry: Entry): void {
    this.#fair[entry.policyClass.index]!.putBack(entry, this.#undo(entry))
  }

  /** A request that was taken is gone. */
  settle(entry: Entry, isServed: boolean): void {
    const fair = this.#fair[entry.policyClass.index]!
    fair.settle(entry, isServed, isServed ? undefined : this.#undo(entry))
    this.#left(entry.policyClass.index, fair)
  }

  /** A waiting request is gone. */
  remove(entry: Entry): void {
    const fair = this.#fair[entry.policyClass.index]!
    fair.remove(entry)
    this.#left(entry.policyClass.index, fair)
  }

  update(entry: Entry): void {
    this.#fair[entry.policyClass.index]!.update(entry)
  }

  flowsOf({ index }: ClassAccount): FairFlows | undefined {
    return this.#fair[index]
  }

  correct({ index, policy }: ClassAccount, flows: object, tenant: Tenant, tokens: number): void {
    const fair = this.#fair[index]
    if (fair === undefined || fair !== flows) return
    const { quantum } = policy
    for (const deficits of [this.#deficits, this.#deficitsBefore])
      deficits[index] = Math.min(deficits[index]! - tokens, Math.max(deficits[index]!, quantum))
    const change = fair.correct(tenant, tokens)
    const last = this.#lastTaken
    // It may still be put back, and then its tenant has not been charged for it.
    if (last?.isAsked && last.tenant === tenant && last.policyClass.index === index && this.#fairBefore) {
      const { startTag, virtualTime } = this.#fairBefore
      const corrected = Math.max(startTag + change, Math.min(startTag, virtualTime))
      this.#fairBefore = { startTag: corrected, virtualTime }
    }
  }

  #next(nowMs: number): Entry | undefined {
    const heads = this.#heads
    const deficits = this.#deficits
    const count = this.#classes.length
    if (this.#carry !== NONE) {
      const head = this.#fair[this.#carry]?.head(nowMs)
      if (head !== undefined && head.costTokens <= deficits[this.#carry]!) return head
    }
    // Who goes at which visit, if each adds a quantum: the earliest, and of those the first in the ring.
    let winner = NONE
    let visits = Number.POSITIVE_INFINITY
    for (let i = 0; i < count && visits > 1; i++) {
      const index = (this.#cursor + i) % count
      const head = this.#fair[index]?.head(nowMs)
      heads[i] = head
      if (head === undefined) continue
      const needed = Math.ceil((head.costTokens - deficits[index]!) / this.#classes[index]!.policy.quantum)
      if (Math.max(1, needed) >= visits) continue
      winner = i
      visits = Math.max(1, needed)
    }
    if (winner === NONE) return undefined
    for (let i = 0; i < count; i++) {
      const index = (this.#cursor + i) % count
      // Those after the winner have not come to their last visit. There was one visit only if not all heads
      // were looked at.
      const paid = i <= winner ? visits : visits - 1
      if (paid === 0) break
      const head = heads[i]
      if (head === undefined || (i === winner && head.costTokens <= deficits[index]!)) continue
      deficits[index]! += paid * this.#classes[index]!.policy.quantum
    }
    return heads[winner]
  }

  /** Gives back what a request was charged. */
  #undo(entry: Entry): FairUndo | undefined {
    if (entry !== this.#lastTaken) {
      this.#deficits[entry.policyClass.index]! += entry.costTokens
      return undefined
    }
    for (const [index, fair] of this.#fair.entries()) {
      this.#deficits[index] = fair === undefined ? 0 : this.#deficitsBefore[index]!
    }
    this.#cursor = this.#cursorBefore
    this.#carry = this.#carryBefore
    this.#lastTaken = undefined
    return this.#fairBefore
  }

  #left(index: number, fair: FairFlows): void {
    this.#requests--
    if (!fair.isEmpty) return
    this.#fair[index] = undefined
    this.#deficits[index] = 0
    if (this.#carry === index) this.#carry = NONE
  }
}

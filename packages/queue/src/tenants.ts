/**
 * Tenants: an account for every tenant that has a request here or had one lately, and the rule for long
 * prompts.
 *
 * The rule. A long prompt has more uncached tokens than an engine computes in one step, so a request behind
 * it on a worker waits for all of it. While another tenant was served within `contentionMs`, the long prompts
 * of one tenant occupy at most all workers but one (at least one worker). Its further long prompts are held,
 * even while a worker is idle: this is the only exception to work conservation. Prompts that can be sent in
 * slices of a step (docs/queue.md) may occupy all workers: a request behind one waits for one slice of it.
 *
 * Bounds. At most `tenantsMax` accounts, beside tenants with a weight of their own. With more names at one
 * time, the rest share the account OTHER_TENANTS, as do those that tenant-names.ts says. An account is
 * forgotten `contentionMs` after its last request, or earlier when a new account needs its place.
 */

import type { FlowSide } from './entry.ts'
import { Tenant } from './tenant.ts'
import { OTHER_TENANTS, type TenantNames } from './tenant-names.ts'

interface TenantTableOptions {
  readonly tenantsMax: number
  readonly names: TenantNames
  readonly contentionMs: number
}

/** Who was served, and when. */
interface Service {
  readonly tenant: string
  readonly atMs: number
}

export class TenantTable {
  readonly #options: TenantTableOptions
  readonly #byName = new Map<string, Tenant>()
  /** Idle tenants without a weight of their own, the longest idle first. */
  readonly #idle = new Set<Tenant>()
  /** Number of the accounts that `tenantsMax` bounds. */
  #counted = 0
  #workers = 0
  #waitingWeight = 0
  /** The last two different tenants that were served: at least one of them is not the tenant in question. */
  #last: Service | undefined
  #lastOther: Service | undefined
  /** By tenant and worker: how many long prompts the worker computes. */
  readonly #longPrompts = new Map<Tenant, Map<string, number>>()
  /** By tenant: the sides with only long prompts, which the rule holds. */
  readonly #holding = new Map<Tenant, Set<FlowSide>>()
  /**
   * The earliest time at which `contentionMs` ends for a tenant in `#holding`, unless another tenant is
   * served before.
   */
  #lapseMs = Number.POSITIVE_INFINITY
  /** Workers or long prompts have changed since the last `wake`, so the rule may have ended for a tenant. */
  #isChanged = false

  constructor(options: TenantTableOptions) {
    this.#options = options
  }

  /** Weights of all tenants with a request that waits. */
  get waitingWeight(): number {
    return this.#waitingWeight
  }

  /**
   * The account of a name. A name without one gets a new account, or shares OTHER_TENANTS if there is no
   * place.
   */
  of(given: string, nowMs: number): Tenant {
    const { names } = this.#options
    const name = names.accountOf(given)
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    this.#forget(nowMs)
    if (name === OTHER_TENANTS) return this.#others()
    const weight = names.weightOf(name)
    if (weight !== undefined) return this.#open(name, weight)
    if (this.#counted >= this.#options.tenantsMax) {
      const [longest] = this.#idle
      if (longest === undefined) return this.#others()
      this.#close(longest)
    }
    this.#counted++
    return this.#open(name, 1)
  }

  /** A request of the tenant came or went. */
  changed(tenant: Tenant, nowMs: number): void {
    if (this.#isUncounted(tenant)) return
    if (!tenant.isIdle) {
      this.#idle.delete(tenant)
    } else if (!this.#idle.has(tenant)) {
      tenant.idleSinceMs = nowMs
      this.#idle.add(tenant)
    }
  }

  /** 1: the first request of the tenant waits; −1: none waits any more. */
  waits(tenant: Tenant, change: 1 | -1): void {
    this.#waitingWeight += change * tenant.weight
  }

  served(tenant: Tenant, nowMs: number): void {
    tenant.servedRequests++
    if (this.#last !== undefined && this.#last.tenant !== tenant.name) this.#lastOther = this.#last
    this.#last = { tenant: tenant.name, atMs: nowMs }
  }

  longPromptPlaced(tenant: Tenant, worker: string): void {
    let prompts = this.#longPrompts.get(tenant)
    if (prompts === undefined) {
      prompts = new Map()
      this.#longPrompts.set(tenant, prompts)
    }
    prompts.set(worker, (prompts.get(worker) ?? 0) + 1)
    tenant.longPrompts++
    tenant.longPromptWorkers = prompts.size
  }

  longPromptEnded(tenant: Tenant, worker: string, nowMs: number): void {
    const prompts = this.#longPrompts.get(tenant)!
    const count = prompts.get(worker)! - 1
    if (count > 0) prompts.set(worker, count)
    else prompts.delete(worker)
    if (prompts.size === 0) this.#longPrompts.delete(tenant)
    tenant.longPrompts--
    tenant.longPromptWorkers = prompts.size
    this.#isChanged = true
    this.changed(tenant, nowMs)
  }

  /** Worker keys that compute a long prompt of the tenant. */
  longPromptWorkers(tenant: Tenant): readonly string[] {
    return [...(this.#longPrompts.get(tenant)?.keys() ?? [])]
  }

  /** 1: the router is asked about a long prompt of the tenant; −1: it is not any more. */
  longPromptAsked(tenant: Tenant, change: 1 | -1): void {
    tenant.askedLong += change
    if (change < 0) this.#isChanged = true
  }

  setWorkers(workers: number): void {
    this.#workers = workers
    this.#isChanged = true
  }

  /**
   * Whether the rule holds further long prompts of the tenant. `maySlice`: those that can be sent in slices.
   */
  isHeld(tenant: Tenant, nowMs: number, maySlice = false): boolean {
    const { longPrompts, longPromptWorkers, askedLong } = tenant
    // More at a time would not be computed earlier, but hold more cache until they are.
    const occupied = askedLong + (maySlice ? longPrompts : longPromptWorkers)
    const workersMax = Math.max(1, maySlice ? this.#workers : this.#workers - 1)
    return occupied >= workersMax && nowMs < this.#contendedUntilMs(tenant.name)
  }

  /** Whether a tenant of another name was served lately, so that the rule may hold this one. */
  isContended(name: string, nowMs: number): boolean {
    return nowMs < this.#contendedUntilMs(this.#options.names.accountOf(name))
  }

  /** Keeps a side with only long prompts, whose tenant the rule holds, until `wake` or `release`. */
  hold(side: FlowSide): void {
    const { tenant } = side.flow
    if (this.#holding.size === 0) {
      this.#isChanged = false
      this.#lapseMs = Number.POSITIVE_INFINITY
    }
    const sides = this.#holding.get(tenant)
    if (sides === undefined) this.#holding.set(tenant, new Set([side]))
    else sides.add(side)
    this.#lapseMs = Math.min(this.#lapseMs, this.#contendedUntilMs(tenant.name))
  }

  /** Forgets a side that is empty now. */
  release(side: FlowSide): void {
    const { tenant } = side.flow
    const sides = this.#holding.get(tenant)
    if (sides?.delete(side) && sides.size === 0) this.#holding.delete(tenant)
  }

  /** The earliest time at which the rule ends for a tenant by time alone; infinite when it holds nobody. */
  get lapseMs(): number {
    return this.#holding.size === 0 ? Number.POSITIVE_INFINITY : this.#lapseMs
  }

  /** Returns the sides that the rule held and holds no more. */
  wake(nowMs: number): FlowSide[] {
    if (this.#holding.size === 0 || (!this.#isChanged && nowMs < this.#lapseMs)) return []
    this.#isChanged = false
    this.#lapseMs = Number.POSITIVE_INFINITY
    const woken: FlowSide[] = []
    for (const [tenant, sides] of this.#holding) {
      for (const side of sides) {
        if (side.bands.every(({ maySlice }) => this.isHeld(tenant, nowMs, maySlice))) continue
        woken.push(side)
        sides.delete(side)
      }
      if (sides.size === 0) this.#holding.delete(tenant)
      else this.#lapseMs = Math.min(this.#lapseMs, this.#contendedUntilMs(tenant.name))
    }
    return woken
  }

  *[Symbol.iterator](): IterableIterator<Tenant> {
    yield* this.#byName.values()
  }

  #contendedUntilMs(name: string): number {
    const other = this.#last?.tenant === name ? this.#lastOther : this.#last
    return other === undefined ? Number.NEGATIVE_INFINITY : other.atMs + this.#options.contentionMs
  }

  #isUncounted(tenant: Tenant): boolean {
    return tenant.name === OTHER_TENANTS || this.#options.names.weightOf(tenant.name) !== undefined
  }

  #others(): Tenant {
    return this.#byName.get(OTHER_TENANTS) ?? this.#open(OTHER_TENANTS, 1)
  }

  #open(name: string, weight: number): Tenant {
    const tenant = new Tenant(name, weight)
    this.#byName.set(name, tenant)
    return tenant
  }

  #forget(nowMs: number): void {
    for (const tenant of this.#idle) {
      if (nowMs - tenant.idleSinceMs < this.#options.contentionMs) break
      this.#close(tenant)
    }
  }

  #close(tenant: Tenant): void {
    this.#idle.delete(tenant)
    this.#byName.delete(tenant.name)
    this.#counted--
  }
}

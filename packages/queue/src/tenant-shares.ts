/**
 * Tenant shares: who makes room when something bounded that all tenants hold together is taken, such as
 * places of open requests or bytes of bodies.
 *
 *   claim      what one request holds; it is movable while the request may still be refused to make room
 *   account    the claims of one tenant
 *
 * Who makes room: of the accounts with a movable claim, the one that holds most for its weight, if that is
 * more than its share, and more than the account in need holds for its own weight; of its movable claims the
 * newest. The share of an account is its weight, of the weights of all accounts with a claim.
 *
 * Invariants
 *   I1  An account that holds less than its share gets room while another one has a movable claim and holds
 *       more than its share, in more than one claim.
 *   I2  The only claim of an account never makes room: with more tenants than places, those that came first
 *       keep theirs, instead of each displacing the one before it.
 *
 * Cost   O(log accounts) for each call, of at most as many accounts as there are claims.
 */

import { type HeapItem, IndexedHeap } from './indexed-heap.ts'
import { OTHER_TENANTS, TENANTS_MAX_DEFAULT, type TenantNames } from './tenant-names.ts'

/** What one request holds. Only `TenantShares` changes it. */
export interface Claim<T> {
  readonly owner: T
  /** Account of its tenant. */
  readonly account: string
  readonly amount: number
}

class Account<T> implements HeapItem {
  readonly heapPlaces = [-1]
  readonly name: string
  readonly weight: number
  /** Decides between accounts that hold the same. */
  readonly sequence: number
  amount = 0
  claims = 0
  newest: ClaimRecord<T> | undefined

  constructor(name: string, weight: number, sequence: number) {
    this.name = name
    this.weight = weight
    this.sequence = sequence
  }
}

class ClaimRecord<T> implements Claim<T> {
  readonly owner: T
  readonly of: Account<T>
  amount = 0
  isOpen = true
  isMovable = false
  /** Neighbours of the movable claims of its account. */
  newer: ClaimRecord<T> | undefined
  older: ClaimRecord<T> | undefined

  constructor(owner: T, of: Account<T>) {
    this.owner = owner
    this.of = of
  }

  get account(): string {
    return this.of.name
  }
}

export class TenantShares<T> {
  readonly #names: TenantNames
  readonly #tenantsMax: number
  readonly #accounts = new Map<string, Account<T>>()
  /** Those with a movable claim beside another claim; who holds most for its weight first. */
  readonly #movable = new IndexedHeap<Account<T>>(0, holdsMore)
  #sequence = 0
  /** Of all accounts. */
  #weight = 0
  #amount = 0

  /** `tenantsMax`: accounts at one time; of more, the rest share OTHER_TENANTS. */
  constructor(names: TenantNames, tenantsMax = TENANTS_MAX_DEFAULT) {
    this.#names = names
    this.#tenantsMax = tenantsMax
  }

  /** A claim of nothing yet, which is not movable. `tenant`: the client's name for it. */
  open(tenant: string, owner: T): Claim<T> {
    const account = this.#accountOf(tenant)
    account.claims++
    this.#changed(account)
    return new ClaimRecord(owner, account)
  }

  /** Adds to what the claim holds; a negative amount gives back. */
  add(claim: Claim<T>, amount: number): void {
    const record = claim as ClaimRecord<T>
    if (!record.isOpen) return
    record.amount += amount
    record.of.amount += amount
    this.#amount += amount
    this.#movable.update(record.of)
  }

  /** Whether the claim may make room for others. One that becomes movable counts as the newest. */
  setMovable(claim: Claim<T>, isMovable: boolean): void {
    const record = claim as ClaimRecord<T>
    if (record.isMovable === isMovable || !record.isOpen) return
    record.isMovable = isMovable
    if (isMovable) link(record)
    else unlink(record)
    this.#changed(record.of)
  }

  /** The claim holds nothing any more. Idempotent. */
  close(claim: Claim<T>): void {
    const record = claim as ClaimRecord<T>
    if (!record.isOpen) return
    this.setMovable(record, false)
    record.isOpen = false
    const account = record.of
    account.amount -= record.amount
    this.#amount -= record.amount
    account.claims--
    record.amount = 0
    this.#changed(account)
    if (account.claims > 0) return
    this.#accounts.delete(account.name)
    this.#weight = this.#accounts.size === 0 ? 0 : this.#weight - account.weight
  }

  /** Whether other accounts have to give up `missing` for this one. */
  canMakeRoom(claim: Claim<T>, missing: number): boolean {
    const leaving = this.#chosen(claim, missing)
    if (leaving === undefined) return false
    for (const record of leaving) this.setMovable(record, true)
    return true
  }

  /**
   * Makes room of `missing` for the account of `claim`. False: the others do not have to give up so much, and
   * nothing is displaced. `displace` ends a request, whose claim is not movable any more.
   */
  makeRoom(claim: Claim<T>, missing: number, displace: (displaced: Claim<T>) => void): boolean {
    const leaving = this.#chosen(claim, missing)
    if (leaving === undefined) return false
    for (const record of leaving.reverse()) displace(record)
    return true
  }

  /**
   * The claims that make room of `missing`, the one that would go first last; they are not movable any more.
   * Undefined: there are not enough of them, and all is as before.
   */
  #chosen(claim: Claim<T>, missing: number): ClaimRecord<T>[] | undefined {
    const chosen: ClaimRecord<T>[] = []
    let freed = 0
    while (freed < missing) {
      const next = this.#next(claim)
      if (next === undefined) break
      chosen.push(next)
      freed += next.amount
      this.#counts(next, -1)
      this.setMovable(next, false)
    }
    // The newest of an account was taken first, so it comes back last.
    chosen.reverse()
    for (const record of chosen) {
      this.#counts(record, 1)
      if (freed < missing) this.setMovable(record, true)
    }
    return freed < missing ? undefined : chosen
  }

  /** Counts a claim in its account (1), or leaves it out for now (−1). */
  #counts({ of: account, amount }: ClaimRecord<T>, sign: 1 | -1): void {
    account.claims += sign
    account.amount += sign * amount
    this.#amount += sign * amount
    this.#changed(account)
  }

  #next(claim: Claim<T>): ClaimRecord<T> | undefined {
    const most = this.#movable.first
    if (most === undefined || !isMore(most, (claim as ClaimRecord<T>).of)) return undefined
    const isOverShare = most.amount * this.#weight > this.#amount * most.weight
    return isOverShare ? most.newest : undefined
  }

  #accountOf(tenant: string): Account<T> {
    let name = this.#names.accountOf(tenant)
    const known = this.#accounts.get(name)
    if (known !== undefined) return known
    const weight = this.#names.weightOf(name)
    if (weight === undefined && this.#accounts.size >= this.#tenantsMax) name = OTHER_TENANTS
    let account = this.#accounts.get(name)
    if (account === undefined) {
      account = new Account(name, weight ?? 1, this.#sequence++)
      this.#accounts.set(name, account)
      this.#weight += account.weight
    }
    return account
  }

  /** Its claims have changed. */
  #changed(account: Account<T>): void {
    const isIn = this.#movable.has(account)
    if (account.newest !== undefined && account.claims > 1) {
      if (isIn) this.#movable.update(account)
      else this.#movable.push(account)
    } else if (isIn) this.#movable.remove(account)
  }
}

function link<T>(record: ClaimRecord<T>): void {
  const account = record.of
  record.older = account.newest
  if (record.older !== undefined) record.older.newer = record
  account.newest = record
}

function unlink<T>(record: ClaimRecord<T>): void {
  const { newer, older, of: account } = record
  if (newer === undefined) account.newest = older
  else newer.older = older
  if (older !== undefined) older.newer = newer
  record.newer = undefined
  record.older = undefined
}

function isMore<T>(a: Account<T>, b: Account<T>): boolean {
  return a.amount * b.weight > b.amount * a.weight
}

function holdsMore<T>(a: Account<T>, b: Account<T>): boolean {
  return isMore(a, b) || (!isMore(b, a) && a.sequence < b.sequence)
}

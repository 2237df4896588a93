/**
 * Tenant names: the account that a client's name for itself counts against, and its weight.
 *
 * Clients make up names. Where tenants have weights, names without one share the account OTHER_TENANTS, with
 * the weight 1 ('shared'), so that further names bring no further share; unless each is to have its own
 * ('own'). Where no tenant has a weight, each name has its own. Names that are too long always share.
 */

export const OTHER_TENANTS = '(others)'
/** What tenants without a weight of their own have, where others have one. */
export type UnnamedTenants = 'shared' | 'own'

/** Accounts of names that have no weight, at one time; of more, the rest share one. */
export const TENANTS_MAX_DEFAULT = 1024
/** Characters. */
const NAME_LENGTH_MAX = 256

export class TenantNames {
  readonly #weights: ReadonlyMap<string, number>
  readonly #areShared: boolean

  constructor(weights: ReadonlyMap<string, number>, unnamed: UnnamedTenants) {
    this.#weights = weights
    this.#areShared = unnamed === 'shared' && weights.size > 0
  }

  /** The account of a name, which may be '' for none. */
  accountOf(name: string): string {
    if (this.#weights.has(name)) return name
    return this.#areShared || name.length > NAME_LENGTH_MAX ? OTHER_TENANTS : name
  }

  /** Undefined: the account has no weight of its own, and counts with 1. */
  weightOf(account: string): number | undefined {
    return this.#weights.get(account)
  }
}

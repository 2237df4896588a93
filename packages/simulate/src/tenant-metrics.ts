/**
 * Tenant metrics: figures over the requests of each tenant, in bounded memory: about 2 MiB for each of at
 * most TENANTS_MAX and the rest.
 */

import { LatencyHistogram, RequestMetrics } from './cell-metrics.ts'
import type { TenantFigures } from './cell-types.ts'
import type { SimRequest } from './sim-request.ts'

const TENANTS_MAX = 32
const OTHERS = '(others)'

interface TenantAccount {
  readonly requests: RequestMetrics
  readonly waits: LatencyHistogram
  waitMsMax: number
  prefillTokens: number
}

export class TenantMetrics {
  readonly #byName = new Map<string, TenantAccount>()

  get size(): number {
    return this.#byName.size
  }

  completed(request: SimRequest, ttftMs: number, e2eMs: number): void {
    const { arrivalMs, placedMs, inputTokens, outputTokens, reusedTokens } = request
    const account = this.#of(request.trace.tenant!)
    account.requests.completed(ttftMs, e2eMs, outputTokens, inputTokens, reusedTokens)
    account.waits.add(placedMs - arrivalMs)
    account.waitMsMax = Math.max(account.waitMsMax, placedMs - arrivalMs)
    account.prefillTokens += inputTokens - reusedTokens
  }

  failed(tenant: string): void {
    this.#of(tenant).requests.failed()
  }

  /** By name. */
  figures(): readonly TenantFigures[] {
    let prefillTokens = 0
    for (const account of this.#byName.values()) prefillTokens += account.prefillTokens
    return [...this.#byName]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([tenant, account]) => ({
        tenant,
        ...account.requests.figures(),
        prefillShare: prefillTokens === 0 ? 0 : account.prefillTokens / prefillTokens,
        waitMs: { ...account.waits.figures(), max: account.waitMsMax },
      }))
  }

  #of(name: string): TenantAccount {
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    if (this.#byName.size > TENANTS_MAX) return this.#of(OTHERS)
    const account = {
      requests: new RequestMetrics(),
      waits: new LatencyHistogram(),
      waitMsMax: 0,
      prefillTokens: 0,
    }
    this.#byName.set(this.#byName.size === TENANTS_MAX ? OTHERS : name, account)
    return account
  }
}

/** Long prompts that workers compute now, by request: what the rule for long prompts counts (tenants.ts). */

import type { Tenant } from './tenant.ts'
import type { TenantTable } from './tenants.ts'

/** A prompt that nobody ended by then counts no more: no prefill takes so long. */
const COUNTED_MS_MAX = 15 * 60_000

/** Who placed it: see QueueRequest. */
interface Owner {
  readonly owner: string
  readonly ownerLife: string
}

interface LongPrompt extends Owner {
  readonly tenant: Tenant
  readonly worker: string
  readonly placedMs: number
}

export class LongPrompts {
  readonly #tenants: TenantTable
  /** In order of placement. */
  readonly #byId = new Map<string, LongPrompt>()

  constructor(tenants: TenantTable) {
    this.#tenants = tenants
  }

  placed(id: string, { owner, ownerLife }: Owner, tenant: Tenant, worker: string, nowMs: number): void {
    for (const [old, { placedMs }] of this.#byId) {
      if (nowMs - placedMs < COUNTED_MS_MAX) break
      this.ended(old, nowMs)
    }
    this.#byId.set(id, { tenant, worker, placedMs: nowMs, owner, ownerLife })
    this.#tenants.longPromptPlaced(tenant, worker)
  }

  /** What the owner placed in another life has nobody who would end it. */
  ownerStarted(owner: string, life: string, nowMs: number): void {
    for (const [id, prompt] of this.#byId)
      if (prompt.owner === owner && prompt.ownerLife !== life) this.ended(id, nowMs)
  }

  ended(id: string, nowMs: number): void {
    const prompt = this.#byId.get(id)
    if (prompt === undefined) return
    this.#byId.delete(id)
    this.#tenants.longPromptEnded(prompt.tenant, prompt.worker, nowMs)
  }
}

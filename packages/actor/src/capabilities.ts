/** Capabilities: the shared facilities of one thread, each made when first used. */

import type { Capability, Provided, ThreadFacilities } from './types.ts'

export class Capabilities {
  readonly #facilities: ThreadFacilities
  readonly #provided: Map<string, unknown>
  readonly #made = new Map<string, { value: unknown; capability: Capability<unknown> }>()

  constructor(facilities: ThreadFacilities, provide: readonly Provided[]) {
    const { clock, random, log } = facilities
    this.#facilities = { clock, random, log }
    this.#provided = new Map(provide.map(([capability, value]) => [capability.name, value]))
  }

  /** The value provided for a capability, or else made here, once. Throws what `create` throws. */
  use<T>(capability: Capability<T>): T {
    const { name } = capability
    if (this.#provided.has(name)) return this.#provided.get(name) as T
    const made = this.#made.get(name)
    if (made !== undefined) return made.value as T
    const value = capability.create(this.#facilities)
    this.#made.set(name, { value, capability: capability as Capability<unknown> })
    return value
  }

  /** Releases what was made here, the last first. What was provided belongs to its provider. */
  async dispose(): Promise<void> {
    const made = [...this.#made.values()].reverse()
    this.#made.clear()
    for (const { capability, value } of made) {
      try {
        await capability.dispose?.(value)
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error)
        this.#facilities.log.warn({ capability: capability.name, reason }, 'capability cannot be disposed')
      }
    }
  }
}

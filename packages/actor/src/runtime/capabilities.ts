/** Capabilities: the shared facilities of one thread, each made when first used. */

import type { Capability, Provided, ThreadFacilities } from '../contract/types.ts'
import { SystemStoppedError } from '../values/errors.ts'
import { describe } from '../values/thrown.ts'

export class Capabilities {
  readonly #facilities: ThreadFacilities
  readonly #provided: Map<string, unknown>
  readonly #made = new Map<string, { value: unknown; capability: Capability<unknown> }>()
  #isDisposed = false

  constructor(facilities: ThreadFacilities, provide: readonly Provided[]) {
    const { clock, random, log } = facilities
    this.#facilities = { clock, random, log }
    this.#provided = new Map(provide.map(([capability, value]) => [capability.name, value]))
  }

  /** Provides a value, unless one was provided before. */
  provide(name: string, value: unknown): void {
    if (!this.#provided.has(name)) this.#provided.set(name, value)
  }

  /**
   * The value provided for a capability, or else made here, once. Throws what `create` throws, and
   * SystemStoppedError once disposed: a capability made then would never be released.
   */
  use<T>(capability: Capability<T>): T {
    const { name } = capability
    if (this.#provided.has(name)) return this.#provided.get(name) as T
    const made = this.#made.get(name)
    if (made !== undefined) return made.value as T
    if (this.#isDisposed) throw new SystemStoppedError(`make the capability ${name}`)
    const value = capability.create(this.#facilities)
    this.#made.set(name, { value, capability: capability as Capability<unknown> })
    return value
  }

  /**
   * Releases what was made here, the last first. What was provided belongs to its provider. Returns the
   * names of those that took longer than `limitMs` in all; they are left behind.
   */
  async dispose(limitMs: number): Promise<readonly string[]> {
    this.#isDisposed = true
    const made = [...this.#made.values()].reverse()
    this.#made.clear()
    const limit = Promise.withResolvers<void>()
    let isLate = false
    const timer = this.#facilities.clock.after(limitMs, () => {
      isLate = true
      limit.resolve()
    })
    const stuck: string[] = []
    for (const { capability, value } of made) {
      let isDone = false
      const released = this.#release(capability, value).then(() => {
        isDone = true
      })
      await (isLate ? null : Promise.race([released, limit.promise]))
      if (!isDone) stuck.push(`capability ${capability.name}`)
    }
    timer.cancel()
    if (stuck.length > 0)
      this.#facilities.log.warn({ stuck, limitMs }, 'capabilities were not released in time')
    return stuck
  }

  async #release(capability: Capability<unknown>, value: unknown): Promise<void> {
    try {
      await capability.dispose?.(value)
    } catch (error) {
      const fields = { capability: capability.name, error: describe(error) }
      this.#facilities.log.warn(fields, 'capability cannot be disposed')
    }
  }
}

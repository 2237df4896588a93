/**
 * Engine fault switch: the faults of requests that are on, counted down, and the requests that hang.
 *
 * Owns   the current `EngineFaults` (those of events belong to the publishers) and the requests that wait for
 *        a hang to end.
 * Bounds HUNG_MAX requests hang at most; further ones are cut.
 */

import type { HttpExchange } from '@homing/transport'
import { type EngineFaults, NO_ENGINE_FAULTS } from './engine-faults.ts'

const HUNG_MAX = 10_000

export class EngineFaultSwitch {
  #faults: EngineFaults = NO_ENGINE_FAULTS
  readonly #hung = new Set<(goesOn: boolean) => void>()

  get current(): EngineFaults {
    return this.#faults
  }

  set(faults: EngineFaults): void {
    this.#faults = faults
    if (faults.hang === 'off') this.endHang(true)
  }

  /** Waits while requests of this kind hang. False: the request is cut, or its client has left. */
  async passHang(exchange: HttpExchange, isGeneration: boolean): Promise<boolean> {
    const { hang } = this.#faults
    if (hang === 'off' || (hang === 'generation' && !isGeneration)) return true
    if (this.#hung.size === HUNG_MAX) {
      exchange.destroy()
      return false
    }
    return new Promise<boolean>(resolve => {
      this.#hung.add(resolve)
      exchange.onClientGone(() => {
        this.#hung.delete(resolve)
        resolve(false)
      })
    })
  }

  /** Ends all hangs. `goesOn`: whether the requests continue. */
  endHang(goesOn: boolean): void {
    const hung = [...this.#hung]
    this.#hung.clear()
    for (const resolve of hung) resolve(goesOn)
  }

  /** Whether a request for this path is to be refused; counts down. */
  takeRefusal(path: string): boolean {
    const { refuse } = this.#faults
    const isTold = path.startsWith('/v1/') ? refuse !== 0 : refuse < 0
    if (isTold && refuse > 0) this.#faults = { ...this.#faults, refuse: refuse - 1 }
    return isTold
  }

  /** Tokens after which the next fault of this kind strikes this request; undefined when there is none. */
  takeRequestFault(name: 'die' | 'error'): number | undefined {
    const fault = this.#faults[name]
    if (fault.requests === 0) return undefined
    this.#faults = { ...this.#faults, [name]: { ...fault, requests: fault.requests - 1 } }
    return fault.tokens
  }
}

/**
 * Endpoints: 'ip:port' of workers, which is how Envoy is told of them. Names are looked up, and kept for
 * FRESH_MS; after that the old address is used while it is looked up anew, so only the first request to a
 * worker waits.
 *
 * Bounds   ADDRESSES_MAX names, of which the oldest is forgotten; LOOKUP_MS_MAX for a lookup.
 */

import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import type { Clock } from '@homing/base'

const FRESH_MS = 5000
const LOOKUP_MS_MAX = 2000
const ADDRESSES_MAX = 4096

interface Known {
  address: string
  atMs: number
  isAsked: boolean
}

export type LookUp = (name: string) => Promise<string>

export class Endpoints {
  readonly #clock: Clock
  readonly #lookUp: LookUp
  readonly #known = new Map<string, Known>()

  constructor(clock: Clock, lookUp: LookUp = async name => (await lookup(name)).address) {
    this.#clock = clock
    this.#lookUp = lookUp
  }

  /** A promise only where a name is new. Throws, or rejects with, an Error that says why there is none. */
  of(origin: string): string | Promise<string> {
    const { hostname, port, protocol } = new URL(origin)
    const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname
    const portText = port === '' ? (protocol === 'https:' ? '443' : '80') : port
    if (isIP(host) !== 0) return endpoint(host, portText)
    const known = this.#known.get(host)
    if (known === undefined) return this.#ask(host).then(address => endpoint(address, portText))
    if (this.#clock.nowMs() - known.atMs >= FRESH_MS && !known.isAsked) {
      known.isAsked = true
      this.#ask(host).catch(() => {
        // The address stays in use; it is asked for again with the next request.
        known.isAsked = false
      })
    }
    return endpoint(known.address, portText)
  }

  async #ask(host: string): Promise<string> {
    const { promise: late, reject } = Promise.withResolvers<never>()
    const timer = this.#clock.after(LOOKUP_MS_MAX, () =>
      reject(new Error(`no address of ${host} within ${LOOKUP_MS_MAX} ms`)),
    )
    try {
      const address = await Promise.race([this.#lookUp(host), late])
      this.#known.delete(host)
      this.#known.set(host, { address, atMs: this.#clock.nowMs(), isAsked: false })
      if (this.#known.size > ADDRESSES_MAX) this.#known.delete(this.#known.keys().next().value!)
      return address
    } finally {
      timer.cancel()
    }
  }
}

function endpoint(address: string, port: string): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`
}

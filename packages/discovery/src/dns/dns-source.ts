/**
 * DNS source: the workers behind names, which are asked again and again.
 *
 *   an address came            ready
 *   an address went            gone, after ABSENT_LOOKS answers in a row that lack it: they may rotate
 *   the name is not there      as an answer without addresses
 *   no server answers          the last answer stays; after `staleMsMax` its workers are doubtful, and each
 *                              leaves when it does not answer its probes
 *
 * A name is asked again when the time of its answer is over, after `refreshMs` at most and LOOK_MS_MIN at
 * least. One look at all names at a time; a target's addresses are asked in the same look.
 * Bounds   ADDRESSES_MAX workers of one name; the rest is left out, which is a fault.
 */

import type { Clock, Timer } from '@homing/base'
import { type NameAddress, NameError, type NameResolver } from '@homing/transport'
import type { FoundFault, FoundList, FoundWorker, SourceHandler, WorkerSource } from '../found-worker.ts'
import type { DnsName } from './dns-name.ts'

const LOOK_MS_MIN = 1000
const ABSENT_LOOKS = 2
const ADDRESSES_MAX = 4096
/** Questions under way for the targets of one service. */
const QUESTIONS_AT_ONCE = 16

export interface DnsSourceOptions {
  readonly resolver: NameResolver
  readonly names: readonly DnsName[]
  readonly refreshMs: number
  readonly staleMsMax: number
  readonly clock: Clock
  readonly handler: SourceHandler
}

/** What is known of one name. */
interface Known {
  readonly name: DnsName
  /** By 'host:port': how many answers in a row lacked it. */
  readonly lacked: Map<string, number>
  answeredMs: number
  isAnswered: boolean
  fault: string | undefined
  /** Addresses of the last answer beyond the bound. */
  leftOut: number
}

/** One answer: 'host:port' each, and how long it may be kept. */
interface Answer {
  readonly places: ReadonlySet<string>
  /** Beyond the bound. */
  readonly leftOut: number
  readonly ttlMs: number
}

export class DnsSource implements WorkerSource {
  readonly absence = 'drains'
  readonly #options: DnsSourceOptions
  readonly #known: readonly Known[]
  #timer: Timer | undefined
  #isClosed = false
  #told: string | undefined

  constructor(options: DnsSourceOptions) {
    this.#options = options
    const nowMs = options.clock.nowMs()
    this.#known = options.names.map(name => ({
      name,
      lacked: new Map(),
      answeredMs: nowMs,
      isAnswered: false,
      fault: undefined,
      leftOut: 0,
    }))
    void this.#look()
  }

  finding(): FoundList | undefined {
    if (!this.#known.some(({ isAnswered }) => isAnswered)) return undefined
    const workers = new Map<string, FoundWorker>()
    const faults: FoundFault[] = []
    for (const known of this.#known) {
      const { name, lacked, leftOut } = known
      const isStale = this.#isStale(known)
      for (const place of lacked.keys()) {
        if (workers.has(place)) continue
        workers.set(place, {
          url: `http://${place}${name.rest}`,
          state: isStale ? 'doubtful' : 'ready',
          life: '',
          reason: isStale
            ? `no DNS server has answered for ${name.name} for too long`
            : `${name.name} has it`,
        })
      }
      if (leftOut > 0)
        faults.push({ what: name.name, reason: `it has ${leftOut} addresses more than ${ADDRESSES_MAX}` })
    }
    const isWhole = this.#known.every(({ isAnswered }) => isAnswered)
    return { workers: [...workers.values()], isWhole, faults }
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.cancel()
    this.#options.resolver.close()
  }

  #isStale({ fault, answeredMs }: Known): boolean {
    return fault !== undefined && this.#options.clock.nowMs() - answeredMs > this.#options.staleMsMax
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    const { refreshMs, clock, handler } = this.#options
    const ttls = await Promise.all(this.#known.map(known => this.#lookAt(known)))
    if (this.#isClosed) return
    this.#tell()
    handler.changed()
    const ttlMs = Math.max(LOOK_MS_MIN, Math.min(refreshMs, ...ttls))
    this.#timer = clock.after(ttlMs, () => void this.#look())
  }

  /** How long its answer may be kept. */
  async #lookAt(known: Known): Promise<number> {
    const { clock } = this.#options
    try {
      const { places, leftOut, ttlMs } = await this.#ask(known.name)
      known.answeredMs = clock.nowMs()
      known.isAnswered = true
      known.fault = undefined
      known.leftOut = leftOut
      this.#apply(known, places)
      return ttlMs
    } catch (error) {
      if (!(error instanceof NameError)) throw error
      known.fault = error.message
      return LOOK_MS_MIN
    }
  }

  #apply({ lacked }: Known, places: ReadonlySet<string>): void {
    for (const [place, looks] of [...lacked]) {
      if (places.has(place)) continue
      if (looks + 1 >= ABSENT_LOOKS) lacked.delete(place)
      else lacked.set(place, looks + 1)
    }
    for (const place of places) lacked.set(place, 0)
  }

  async #ask({ kind, name, port }: DnsName): Promise<Answer> {
    const { resolver } = this.#options
    const places = new Set<string>()
    let ttlMs = Number.POSITIVE_INFINITY
    let leftOut = 0
    const add = (addresses: readonly NameAddress[], at: number): void => {
      for (const { address, ttlSeconds } of addresses) {
        ttlMs = Math.min(ttlMs, ttlSeconds * 1000)
        const place = `${address.includes(':') ? `[${address}]` : address}:${at}`
        if (places.size < ADDRESSES_MAX || places.has(place)) places.add(place)
        else leftOut++
      }
    }
    if (kind === 'addresses') {
      add(await orNone(resolver.addresses(name)), port)
      return { places, leftOut, ttlMs }
    }
    const targets = await orNone(resolver.targets(name))
    for (let at = 0; at < targets.length; at += QUESTIONS_AT_ONCE) {
      const some = targets.slice(at, at + QUESTIONS_AT_ONCE)
      const found = await Promise.all(some.map(target => orNone(resolver.addresses(target.name))))
      for (const [index, addresses] of found.entries()) add(addresses, some[index]!.port)
    }
    return { places, leftOut, ttlMs }
  }

  #tell(): void {
    const { handler } = this.#options
    const fault = this.#known.find(known => known.fault !== undefined)?.fault
    if (fault === this.#told) return
    this.#told = fault
    if (fault === undefined) handler.recovered()
    else handler.failed(fault)
  }
}

/** A name that is not there has none. */
async function orNone<T>(asked: Promise<readonly T[]>): Promise<readonly T[]> {
  try {
    return await asked
  } catch (error) {
    if (error instanceof NameError && error.isAbsent) return []
    throw error
  }
}

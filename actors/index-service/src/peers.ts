/**
 * Peers: other services with the same workers. At the start they are asked once for their dumps; the first
 * answer is used.
 */

import { type Clock, type Log, toErrorRecord } from '@homing/base'
import type { HttpTransport } from '@homing/transport'
import type { LeftOut } from './dump-labels.ts'
import { BadDumpError, NotRegisteredError, RegistrationsFullError } from './errors.ts'
import { type RankDump, readDump } from './peer-dump.ts'

export interface PeersOptions {
  readonly peersMax: number
  /** Between the start of the listeners and the first question. */
  readonly waitMs: number
  /** How long a peer has for its dump. */
  readonly timeoutMs: number
  readonly dumpBytesMax: number
}

export interface PeerDump {
  readonly url: string
  readonly dumps: readonly RankDump[]
}

export class Peers {
  readonly #options: PeersOptions
  readonly #urls = new Set<string>()
  /** Dumps asked for, by outcome. */
  readonly dumps = { used: 0, failed: 0 }

  constructor(options: PeersOptions) {
    this.#options = options
  }

  get urls(): readonly string[] {
    return [...this.#urls]
  }

  /** Throws RegistrationsFullError. A peer that is known stays one. */
  add(url: string): void {
    const { peersMax } = this.#options
    if (!this.#urls.has(url) && this.#urls.size >= peersMax) {
      throw new RegistrationsFullError('peer', peersMax, '--peers-max')
    }
    this.#urls.add(url)
  }

  /** Throws NotRegisteredError. */
  remove(url: string): void {
    if (this.#urls.delete(url)) return
    throw new NotRegisteredError('deregister', `peer ${url}`, 'GET /peers lists those that are')
  }

  /** The dump of the first peer, in their order, that gives one; undefined: none does. Never rejects. */
  async firstDump(http: HttpTransport, clock: Clock, log: Log): Promise<PeerDump | undefined> {
    await new Promise<void>(resolve => clock.after(this.#options.waitMs, resolve))
    for (const url of this.#urls) {
      try {
        const leftOut = { labels: 0, members: 0, transitions: 0 }
        const dumps = await this.#dumpOf(http, url, leftOut)
        this.dumps.used++
        if (leftOut.labels + leftOut.members + leftOut.transitions > 0)
          log.warn(
            { peer: url, ...leftOut },
            'labels of the dump, or members of them, cannot be used: its blocks count without them',
          )
        return { url, dumps }
      } catch (thrown) {
        this.dumps.failed++
        log.warn({ peer: url, error: toErrorRecord(thrown) }, 'peer cannot help; the next one is asked')
      }
    }
    return undefined
  }

  async #dumpOf(http: HttpTransport, url: string, leftOut: LeftOut): Promise<readonly RankDump[]> {
    const { timeoutMs, dumpBytesMax } = this.#options
    const { origin, pathname } = new URL(url)
    const path = `${pathname.replace(/\/$/, '')}/dump`
    const limits = { timeoutMs, maxBytes: dumpBytesMax }
    const { status, body } = await http.fetch({ origin, method: 'GET', path }, limits)
    if (status !== 200) throw new BadDumpError(url, `it answers ${status}`)
    return readDump(url, body, leftOut)
  }
}

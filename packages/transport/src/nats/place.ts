/** Where a role behind a broker is: its subject, and its part in the connection. */

import type { Clock } from '@homing/base'
import type { Closable } from '../closable.ts'
import { formatEndpoint, parseBrokerEndpoint } from '../endpoint.ts'
import type { Broker, BrokerLink, OpenBroker } from './broker.ts'
import type { OwnLives } from './own-lives.ts'

export interface BrokerEnvironment {
  readonly clock: Clock
  readonly log: { warn(fields: Readonly<Record<string, unknown>>, text: string): void }
  readonly openBroker: OpenBroker
  /**
   * What was received waits for what this answers; it is dropped meanwhile, which the subscriber is told.
   * Undefined: go on.
   */
  readonly gate?: () => Promise<void> | undefined
  /** Of the process; default: one of its own. */
  readonly own?: OwnLives
}

/** The same, with the lives of the process. */
export type Environment = BrokerEnvironment & { readonly own: OwnLives }
export type Released = (role: Closable) => void

/** Where a role is, and its connection. */
export class Place {
  readonly endpoint: string
  readonly subject: string
  readonly broker: Broker
  readonly #servers: readonly string[]
  readonly #log: BrokerEnvironment['log']

  constructor(text: string, { openBroker, log }: BrokerEnvironment) {
    const parsed = parseBrokerEndpoint(text)
    this.endpoint = formatEndpoint(parsed)
    this.subject = parsed.subject
    this.broker = openBroker(parsed.servers)
    this.#servers = parsed.servers
    this.#log = log
  }

  /** Takes part in the connection; answers how to leave. */
  join(up: (session: BrokerLink) => void, down: () => void): () => void {
    const failed = (reason: string): void =>
      this.#log.warn({ servers: this.#servers, reason }, 'NATS connection failed')
    return this.broker.join({ up, down, failed })
  }
}

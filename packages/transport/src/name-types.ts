/** Name types: questions to DNS servers. */

import type { Closable } from './closable.ts'

/** An address of a name. */
export interface NameAddress {
  /** IPv4, or IPv6 without brackets. */
  readonly address: string
  /** How long the answer may be kept, in seconds. */
  readonly ttlSeconds: number
}

/** A target of a service (SRV). */
export interface NameTarget {
  readonly name: string
  readonly port: number
}

/** Asks DNS servers. Both reject with NameError. */
export interface NameResolver extends Closable {
  /** The IPv4 addresses of a name; if it has none, its IPv6 addresses. */
  addresses(name: string): Promise<readonly NameAddress[]>
  /** The targets of SRV records, those of the lowest priority number alone. */
  targets(name: string): Promise<readonly NameTarget[]>
}

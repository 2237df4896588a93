/** Presence types: peers that announce themselves at a broker, and what is heard of others. */

import type { Closable } from './closable.ts'

export interface PresenceOptions {
  /** 'nats://host:port/subject' or 'etcd://host:port/subject'; see presenceEndpoint. */
  readonly endpoint: string
  /** Sent to other peers with each beat, so it should be short; undefined: this peer only listens. */
  readonly card: Uint8Array | undefined
}

/** The announced presence of this peer. Closing it says good-bye to others. */
export interface OwnPresence extends Closable {
  /** Ends without good-bye, for a peer that is back at once: others notice only its silence. Idempotent. */
  leave(): void
  /** Resolves when the good-bye has been said, or cannot be; undefined: it is said at once. */
  readonly closed?: Promise<void> | undefined
}

/** A peer that is there. */
export interface PresentOne {
  /** 16 hexadecimal digits, others in each life. */
  readonly life: string
  readonly card: Uint8Array
}

/** Why a peer is gone: it said good-bye, it was silent too long, or the broker cannot be reached. */
export type AbsenceReason = 'bye' | 'silence' | 'no broker'

export interface PresenceHandler {
  /** A peer came, or changed its card. */
  present(one: PresentOne): void
  gone(life: string, reason: AbsenceReason): void
  /** A connection to the broker was made, the first or a new one: all peers will be reported. */
  connected?(): void
}

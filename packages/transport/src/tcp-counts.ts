/** Counts of the TCP request plane of one thread, for metrics. */

import type { CallCounts } from './call-counts.ts'

/** Why a connection ended. `fault`: the other side sent what cannot be read; `full`: it does not read. */
export const TCP_ENDS = ['idle', 'closed', 'reset', 'silence', 'fault', 'version', 'full', 'connect'] as const
export type TcpEnd = (typeof TCP_ENDS)[number]

export class TcpCounts implements CallCounts {
  /** Connections that are open. */
  connections = 0
  /** Connections that were made. */
  connected = 0
  /** …that were not taken, because `connectionsMax` were there. */
  refusedConnections = 0
  /**
   * Calls, or exchanges of a server, that were not taken: as many as may be were open on their connection.
   */
  refusedStreams = 0
  openCalls = 0
  heldBytes = 0
  readonly endedCalls = { answered: 0, failed: 0, aborted: 0 }
  /** Exchanges of servers that are open. */
  openExchanges = 0
  /** Bytes that wait in this process for the network. */
  bufferedBytes = 0
  /** Bytes of frames that have not come whole. */
  partialBytes = 0
  /** Connections that ended, or were not made, by why. */
  readonly ends: Record<TcpEnd, number> = {
    idle: 0,
    closed: 0,
    reset: 0,
    silence: 0,
    fault: 0,
    version: 0,
    full: 0,
    connect: 0,
  }
}

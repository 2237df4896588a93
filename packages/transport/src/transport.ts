/**
 * Transport: the only door to sockets. HTTP both ways, and the four ZeroMQ roles that KV events need.
 *
 * Real sockets are behind `systemTransport`; `MemoryNetwork` implements the same interface without
 * any. An actor gets its thread's instance with `context.use(transportCapability)`.
 *
 * A callback that throws is a bug of its owner: the error is thrown again from a microtask, where it
 * stops the thread like any other; the transport goes on.
 */

import type { BrokerCounts } from './broker-counts.ts'
import type { ExtProcListener, ExtProcOptions, PickedExchange } from './ext-proc-types.ts'
import type { HttpTransport } from './http-types.ts'
import type { MessageTransport, StreamOptions } from './message-types.ts'
import type { NameResolver } from './name-types.ts'
import type { StreamStore } from './stream-store.ts'
import type { TcpCounts } from './tcp-counts.ts'

export interface Transport {
  readonly http: HttpTransport
  /**
   * Takes the requests about which an Envoy asks (ext_proc over gRPC). Rejects with ListenError, and with
   * NotInstalledError. Undefined: this transport takes none.
   */
  extProc?(options: ExtProcOptions, onExchange: (exchange: PickedExchange) => void): Promise<ExtProcListener>
  readonly messages: MessageTransport
  /**
   * Of these DNS servers, 'address' or 'address:port' each; none: those of the system. Undefined: this
   * transport knows no names.
   */
  nameResolver?(servers: readonly string[]): NameResolver
  /**
   * What is kept beside the stream of a namespace at a broker, 'host:port' each. On the main thread only; not
   * closed with the transport. `etcdServers`: the lock is there, 'http://host:port' each; default: at the
   * broker. Undefined: brokers of this transport keep nothing.
   */
  streamStore?(
    servers: readonly string[],
    stream: StreamOptions,
    etcdServers?: readonly string[],
  ): StreamStore
  /**
   * Resolves when the good-byes of closed presences are said, or a second is over: `close` cuts them off.
   * Undefined: all are said at once.
   */
  goodByesSaid?(): Promise<void>
  /** Counts of each broker for this thread, by its addresses ('host:port,…'). */
  brokers(): readonly (readonly [string, Readonly<BrokerCounts>])[]
  /** Counts of the TCP request plane for this instance. */
  readonly tcp: Readonly<TcpCounts>
  /** Closes all that was opened through this instance, at once; idempotent. */
  close(): void
}

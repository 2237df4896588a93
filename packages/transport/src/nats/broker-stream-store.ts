/** The store beside a stream, over whichever connection to the broker there is. For the main thread. */

import type { Clock } from '@homing/base'
import { StreamError } from '../errors.ts'
import type { StreamOptions } from '../message-types.ts'
import type {
  BrokerSnapshots,
  NamedSnapshot,
  Replaced,
  SnapshotLock,
  StoredSnapshot,
  StreamFill,
  StreamStore,
} from '../stream-store.ts'
import type { BrokerLink, OpenBroker } from './broker.ts'
import { streamName } from './streams.ts'

/** How long a caller waits for a connection. */
const STORE_CONNECT_MS_MAX = 3000

/** `servers`: 'host:port' each. `locks`: where the lock is; default: at the broker. */
export function brokerStreamStore(
  servers: readonly string[],
  stream: StreamOptions,
  clock: Clock,
  openBroker: OpenBroker,
  locks?: Locks,
): StreamStore {
  return new BrokerStreamStore(servers, stream, clock, openBroker, locks)
}

/** Where the lock is, if not at the broker. */
export type Locks = Pick<StreamStore, 'lock'>

class BrokerStreamStore implements StreamStore {
  readonly #stream: StreamOptions
  readonly #clock: Clock
  readonly #locks: Locks | undefined
  readonly #leave: () => void
  #link: BrokerLink | undefined
  #snapshots: BrokerSnapshots | undefined
  #up = Promise.withResolvers<void>()

  constructor(
    servers: readonly string[],
    stream: StreamOptions,
    clock: Clock,
    openBroker: OpenBroker,
    locks: Locks | undefined,
  ) {
    this.#locks = locks
    this.#stream = stream
    this.#clock = clock
    this.#leave = openBroker(servers).join({
      up: link => {
        this.#link = link
        this.#snapshots = link.streams?.snapshots?.(stream.namespace)
        this.#up.resolve()
      },
      down: () => {
        this.#up = Promise.withResolvers()
        this.#link = undefined
        this.#snapshots = undefined
      },
      // Those who follow events there say so.
      failed: () => {},
    })
  }

  close(): void {
    this.#leave()
  }

  async fill(): Promise<StreamFill> {
    return await (await this.#at()).fill()
  }

  async lock(): Promise<SnapshotLock | undefined> {
    return await (this.#locks ?? (await this.#at())).lock()
  }

  async named(subject: string): Promise<NamedSnapshot> {
    return await (await this.#at()).named(subject)
  }

  async read(subject: string): Promise<Uint8Array | undefined> {
    return await (await this.#at()).read(subject)
  }

  async replace(subject: string, snapshot: StoredSnapshot, revision: number): Promise<Replaced> {
    return await (await this.#at()).replace(subject, snapshot, revision)
  }

  async purge(subject: string, snapshot?: Omit<StoredSnapshot, 'bytes'>): Promise<number> {
    return await (await this.#at()).purge(subject, snapshot)
  }

  async tidy(known: ReadonlySet<string> | undefined): Promise<void> {
    await (await this.#at()).tidy(known)
  }

  /** Resolves when there is a connection, or after STORE_CONNECT_MS_MAX. */
  async #connected(): Promise<void> {
    const { promise: late, resolve } = Promise.withResolvers<void>()
    const timer = this.#clock.after(STORE_CONNECT_MS_MAX, resolve)
    await Promise.race([this.#up.promise, late])
    timer.cancel()
  }

  async #at(): Promise<BrokerSnapshots> {
    if (this.#link === undefined) await this.#connected()
    if (this.#snapshots !== undefined) return this.#snapshots
    const what = `cannot use what is beside stream ${streamName(this.#stream.namespace)}`
    throw new StreamError(what, this.#link === undefined ? 'no connection' : 'the broker keeps no streams')
  }
}

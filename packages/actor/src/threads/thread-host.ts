/**
 * ThreadHost: makes the lives of threads, and the links between them. Behind it are workers (worker-host.ts)
 * or, in a simulation, runtimes on one thread. Threads (threads.ts) decides which live; it knows no worker.
 */

import type { PeerAddress } from '../links/frames.ts'
import type { Life } from '../links/life.ts'
import type { Runtime } from '../runtime/runtime.ts'
import type { ThreadInit } from './thread.ts'

/** What the host tells about a life that it started; after `exited` nothing more. */
export interface LifeEvents {
  /** It failed outside of any actor; its end follows. */
  failed(error: unknown): void
  exited(why: string): void
}

export interface HostedThread {
  /** Ends it at once. Settles when it has ended, which for a thread stuck in native code may be never. */
  terminate(): Promise<unknown>
  /** It does not end: the process is not to wait for it. */
  abandon(): void
}

export interface ThreadHost {
  /** Starts a life. Throws when it cannot be made. */
  start(init: ThreadInit, events: LifeEvents): HostedThread
  /**
   * How a life that runs and one that starts reach each other: the address of the first, for the second, and
   * the other way round. What the first had sent to an earlier life of the second's thread is inherited.
   */
  link(running: Life, starting: Life): readonly [ofRunning: PeerAddress, ofStarting: PeerAddress]
  /**
   * The address of a thread that is between two lives, with the life AWAY, for one that starts: what that
   * tells it is inherited by the next.
   */
  linkAway(name: string, starting: Life): PeerAddress
  /** Links the runtime of main. */
  open(runtime: Runtime, address: PeerAddress): void
  /** `reader` has linked `writer`, and has no link to earlier lives of that thread any more. */
  linked(reader: Life, writer: Life): void
  /**
   * The life is over: no other life inherits what dead lives sent to it, nor what it sent. `hasEnded`: it
   * runs no more, for certain.
   */
  forgetLife(life: Life, hasEnded: boolean): void
  /** The thread is not coming back. */
  forgetThread(name: string): void
  /** The life has heard that the thread is not coming back, and has no link to it any more. */
  forgot(life: Life, thread: string): void
  /** A module that actors were spawned from: a thread that takes over had better have it loaded. */
  noteModule(moduleUrl: string): void
  /** All threads of the system are up: the host may prepare for their deaths. */
  started(): void
  /** Releases what the host prepared. */
  dispose(): Promise<void>
}

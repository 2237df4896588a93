/**
 * Frames: the messages between the runtimes of two threads over a ThreadLink.
 *
 *   op          target    corr   body
 *   TELL        actor     –      message
 *   ASK         actor     ask    message without its reply; target 0 asks the runtime itself
 *   REPLY       –         ask    the answer
 *   ASK_FAILED  –         ask    AskFailure
 *   CANCEL      –         ask    – (the asker no longer waits)
 *   WATCH       actor     –      –
 *   UNWATCH     actor     –      –
 *   TERMINATED  actor     –      Ending (of the watched actor)
 *   SPAWN       actor     –      SpawnSpec
 *   STOP        actor     –      true: stop at once; false: after the message in hand; or DrainRequest
 *   CHILD_ENDED parent    child  Ending
 *   HELLO       last id   life   – (first on every link: the receiver's life; spawns over it have higher ids)
 *   DRAINS      parent child  milliseconds: the child drains, not by its parent's order; its next life
 *                             continues the drain
 * and between a thread and main, which keeps the list of threads:
 *   CONNECT     –         –      PeerAddress, with its port
 *   LINKED      –         life   name: linked with this life of that thread; what earlier lives were to
 *                             register is registered
 *   SPAWNED     –         life   name: the registered actors that this life wants there are on their way
 *   LOST        –         –      PeerLoss: the thread is gone, its link may not have noticed
 *   ENDING      –         –      PeerLoss: the thread is about to end (the thread itself tells all others)
 *   GONE        –         1      name: the thread does not come back (answered by the same frame)
 *   GONE        –         –      name: there is no such thread
 *   REGISTER    actor     –      Registration
 *   UNREGISTER  actor     –      – (it is brought back no more, and stopped where it may still run)
 *   RESTARTED   actor     –      – (after a failure: its next life has so much less of its budget)
 *   RESOLVE     –         –      name: who is this?
 *   READY       –         –      –
 *   RECYCLE     –         life   true: nothing waits for its actors any more (its heap is full: replace it)
 * and from a thread whose heap fills to all others:
 *   SHED        –         –      true: it refuses messages; false: no more
 */

import type { MessagePort } from 'node:worker_threads'
import type { ParentAddress } from '../cell/kin.ts'
import type { Settings, ThreadBounds } from '../contract/settings.ts'
import type { Patch } from '../packing/pack.ts'
import type { ThreadEnd } from '../values/thread-end.ts'

export const OP = {
  TELL: 1,
  ASK: 2,
  REPLY: 3,
  ASK_FAILED: 4,
  CANCEL: 5,
  WATCH: 6,
  UNWATCH: 7,
  TERMINATED: 8,
  SPAWN: 9,
  STOP: 10,
  CHILD_ENDED: 11,
  CONNECT: 12,
  LOST: 13,
  GONE: 14,
  REGISTER: 15,
  UNREGISTER: 16,
  RESOLVE: 17,
  READY: 18,
  HELLO: 19,
  DRAINS: 20,
  RECYCLE: 21,
  LINKED: 22,
  SPAWNED: 23,
  RESTARTED: 24,
  SHED: 25,
  ENDING: 26,
} as const

/** The actor is to stop after what waits for it. */
export interface DrainRequest {
  /** Default: its shutdown time. */
  readonly withinMs?: number
}

/** Everything another thread needs to make an actor. */
export interface SpawnSpec {
  readonly id: number
  readonly name: string
  readonly moduleUrl: string
  readonly exportName: string
  readonly args: unknown
  readonly argsPatches: readonly Patch[] | 0
  readonly settings: Settings
  readonly parent: ParentAddress
  /** How long ago it was restarted before this life, oldest first: after failures, and with its thread. */
  readonly restartAgesMs: readonly number[]
}

/** What main keeps of an actor that runs on another thread than its parent. */
export interface Registration {
  readonly spec: SpawnSpec
  readonly thread: string
  /** The life of the thread that was sent the spec; 0 when none was. */
  readonly sentToUid: number
  /** Of the thread that is its own; undefined: it has none. */
  readonly bounds: ThreadBounds | undefined
}

export interface PeerAddress {
  readonly name: string
  /** The life of the thread; unique in the system. */
  readonly uid: number
  readonly port: MessagePort
  /** The ring to it. */
  readonly out: SharedArrayBuffer
  /** The ring from it. */
  readonly in: SharedArrayBuffer
  /** The ring from it was sent to an earlier life of this thread. */
  readonly isHeir: boolean
}

export interface PeerLoss {
  readonly name: string
  readonly uid: number
  readonly end: ThreadEnd
}

/** What a runtime answers about itself (ASK with target 0). */
export type RuntimeQuery =
  | { readonly type: 'stats' }
  | { readonly type: 'describe' }
  /** Answers nothing: what the thread had sent before comes before that. */
  | { readonly type: 'fence' }
  /** Ends what is left; capabilities may take `limitMs` to be released. Reports on the last `reportedMs`. */
  | { readonly type: 'dispose'; readonly limitMs: number; readonly reportedMs: number }

/**
 * The runtime of a thread beside main: linked to every other thread, and to main as the keeper of threads.
 */

import type { LogFormat, LogLevel } from '@homing/base'
import type { Provided, ThreadFacilities } from '../contract/types.ts'
import { OP, type PeerAddress, type PeerLoss, type Registration, type SpawnSpec } from '../links/frames.ts'
import { AWAY, MAIN } from '../links/life.ts'
import type { HeapFigures } from '../observe/counts.ts'
import { ThreadMemory } from '../observe/thread-memory.ts'
import type { DefinitionSource } from '../runtime/definitions.ts'
import type { PoolMap } from '../runtime/placement.ts'
import { Runtime } from '../runtime/runtime.ts'
import type { PastLife, ThreadEnd } from '../values/thread-end.ts'
import { HeapGuard, type HeapPressure } from './heap-guard.ts'

/** What main hands to a new life of a thread. */
export interface ThreadInit {
  readonly thread: string
  readonly uid: number
  readonly pools: PoolMap
  /** Threads of the pools that are not coming back. */
  readonly gone: readonly string[]
  readonly logLevel: LogLevel
  readonly logFormat: LogFormat
  readonly peers: readonly PeerAddress[]
  /** Actors to make before the first frame is read. */
  readonly spawns: readonly SpawnSpec[]
  /** Where the thread writes about itself: see observe/thread-memory.ts. */
  readonly memory: SharedArrayBuffer
  /** How the lives before this one ended, oldest first: the latest of them. */
  readonly pastLives: readonly PastLife[]
  /** It gives a sign of life this often; 0: never. */
  readonly beatMs: number
  /** What it does when its heap fills; undefined: nothing. */
  readonly heapPressure?: HeapPressure | undefined
  /** Its heap limit in MB; undefined: that of all threads. */
  readonly heapMb?: number | undefined
}

/** What a life gets from its host. */
export interface ThreadSurroundings extends ThreadFacilities {
  readonly provide: readonly Provided[]
  /** See RuntimeOptions. */
  readonly planTurn?: (runtime: Runtime) => void
  readonly definitions?: DefinitionSource
  readonly heap?: () => HeapFigures
  /** Links the runtime with another thread. */
  readonly open: (runtime: Runtime, address: PeerAddress) => void
}

/** Set on threads of a system, so that no second system is created there. */
export const threadName: unique symbol = Symbol.for('homing.thread') as never

/** Makes the runtime of a life, with its actors and links. */
export function startThread(init: ThreadInit, surroundings: ThreadSurroundings): Runtime {
  const { open, ...facilities } = surroundings
  const { thread, uid, pools, pastLives } = init
  const memory = new ThreadMemory(init.memory)
  const runtime = new Runtime({ ...facilities, thread, uid, pools, memory, pastLives, isAlone: false })
  const toMain = (op: number, target: number, body: unknown, corr = 0): void =>
    runtime.peers.to(MAIN).send({ op, target, corr, body, patches: 0 })
  runtime.registrar = {
    register: (registration: Registration) => toMain(OP.REGISTER, registration.spec.id, registration),
    unregister: id => toMain(OP.UNREGISTER, id, 0),
    resolve: name => {
      if (name !== MAIN) toMain(OP.RESOLVE, 0, name)
    },
  }
  runtime.onControl = (_peer, frame) => {
    if (frame.op === OP.CONNECT) {
      const address = frame.body as PeerAddress
      open(runtime, address)
      toMain(OP.LINKED, 0, address.name, address.uid)
    } else if (frame.op === OP.SPAWNED) runtime.peers.allSpawned(frame.body as string, frame.corr)
    else if (frame.op === OP.LOST) {
      const { name, uid, end } = frame.body as PeerLoss
      runtime.lives.lost(name, uid, end)
    } else if (frame.op === OP.GONE) {
      runtime.lives.gone(frame.body as string)
      if (frame.corr !== 0) toMain(OP.GONE, 0, frame.body)
    }
  }
  if (init.beatMs > 0) beat(runtime, init.beatMs)
  if (init.heapPressure !== undefined) new HeapGuard(runtime, init.heapPressure)
  for (const name of init.gone) runtime.lives.gone(name)
  for (const spec of init.spawns) runtime.acceptSpawn(spec)
  for (const address of init.peers) {
    open(runtime, address)
    // As if it had seen the end of the life before: tells wait in the link, asks are rejected.
    if (address.uid === AWAY) runtime.lives.lost(address.name, AWAY)
    else if (address.name !== MAIN) runtime.peers.awaitSpawns(address.name)
  }
  toMain(OP.READY, 0, 0)
  return runtime
}

/** Tells every other thread how this one is about to end. */
export function tellEnd(runtime: Runtime, end: ThreadEnd): void {
  const { thread: name, uid, peers } = runtime
  const body: PeerLoss = { name, uid, end }
  for (const peer of peers.values()) {
    if (peer.state === 'up') peer.link!.sendLast?.({ op: OP.ENDING, target: 0, corr: 0, body, patches: 0 })
  }
}

/** A timer fires only when the event loop goes round: a thread that hangs gives no sign of life. */
function beat(runtime: Runtime, intervalMs: number): void {
  runtime.memory.beat()
  runtime.heap.note()
  runtime.clock.after(intervalMs, () => beat(runtime, intervalMs), { unref: true })
}

/** The runtime of a worker: linked to every other thread, and to main as the keeper of threads. */

import { systemClock, systemRandom } from '@homing/clock'
import { createLog, type LogLevel } from '@homing/log'
import { OP, type PeerAddress, type PeerLoss, type Registration, type SpawnSpec } from './frames.ts'
import type { PoolMap } from './placement.ts'
import { openRing } from './ring/ring-link.ts'
import { MAIN, Runtime } from './runtime.ts'

/** What main hands to a new worker. */
export interface ThreadInit {
  readonly thread: string
  readonly uid: number
  readonly pools: PoolMap
  /** Threads of the pools that are not coming back. */
  readonly gone: readonly string[]
  readonly logLevel: LogLevel
  readonly peers: readonly PeerAddress[]
  /** Actors to make before the first frame is read. */
  readonly spawns: readonly SpawnSpec[]
}

/** Set on threads of a system, so that nobody creates another system there. */
export const threadName: unique symbol = Symbol.for('homing.thread') as never

export function startThread(init: ThreadInit): void {
  ;(globalThis as { [threadName]?: string })[threadName] = init.thread
  const runtime = new Runtime({
    thread: init.thread,
    uid: init.uid,
    pools: init.pools,
    clock: systemClock,
    random: systemRandom,
    log: createLog(init.logLevel, { thread: init.thread }),
    provide: [],
    isAlone: false,
  })
  const toMain = (op: number, target: number, body: unknown): void =>
    runtime.peer(MAIN).send({ op, target, corr: 0, body, patches: 0 })
  runtime.registrar = {
    register: (registration: Registration) => toMain(OP.REGISTER, registration.spec.id, registration),
    unregister: id => toMain(OP.UNREGISTER, id, 0),
    resolve: thread => {
      if (thread !== MAIN) toMain(OP.RESOLVE, 0, thread)
    },
  }
  const connect = (address: PeerAddress): void => openRing(runtime, address)
  runtime.onControl = (_peer, frame) => {
    if (frame.op === OP.CONNECT) connect(frame.body as PeerAddress)
    else if (frame.op === OP.LOST) {
      const { name, uid } = frame.body as PeerLoss
      runtime.peerLost(name, uid)
    } else if (frame.op === OP.GONE) runtime.peerGone(frame.body as string)
  }
  for (const name of init.gone) runtime.peerGone(name)
  for (const spec of init.spawns) runtime.acceptSpawn(spec)
  for (const address of init.peers) connect(address)
  toMain(OP.READY, 0, 0)
}

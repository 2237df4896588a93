/**
 * Door holders: gateways on threads of their own, whose HTTP clients do not know what this thread's does.
 *
 *   probe ─▶ key is read here ─▶ it changed: every holder is told where it stands ─▶ each reads it for itself
 *
 * No key is in a message, only its place; here a digest of each is kept, to see that it has changed. A holder
 * is told of a door before anyone is told that the worker is up, on the same way, so it never calls a worker
 * whose key it has not.
 *
 * The way of a worker that takes requests over TCP is told with it.
 *
 * Bounds   one entry for each worker that has a key or such a way; DOOR_HOLDERS_MAX holders.
 */

import { createHash } from 'node:crypto'
import type { ActorRef } from '@homing/actor'
import type { Log } from '@homing/base'
import type { KeySource } from '@homing/fleet'
import type { HttpAccess, HttpRoute } from '@homing/transport'
import type { DoorsMessage, WorkerDoor } from './messages.ts'

/** More than there are gateways. */
const DOOR_HOLDERS_MAX = 16

interface Opened extends WorkerDoor {
  readonly digest: string
}

export class DoorHolders {
  readonly #log: Pick<Log, 'error'>
  readonly #holders = new Map<string, ActorRef<DoorsMessage>>()
  /** By origin. */
  readonly #opened = new Map<string, Opened>()

  constructor(log: Pick<Log, 'error'>) {
    this.#log = log
  }

  get all(): readonly WorkerDoor[] {
    return [...this.#opened.values()].map(({ digest: _, ...door }) => door)
  }

  /** From now on this one is told. False: it was already. */
  add(holder: ActorRef<DoorsMessage>): boolean {
    if (this.#holders.has(holder.key)) return false
    if (this.#holders.size >= DOOR_HOLDERS_MAX) {
      this.#log.error({ holder: holder.name, DOOR_HOLDERS_MAX }, 'too many holders of doors')
      return false
    }
    this.#holders.set(holder.key, holder)
    return true
  }

  remove(key: string): void {
    this.#holders.delete(key)
  }

  /**
   * Requests to `origin` carry the key of `source` from now on, and go this way; undefined: they have none,
   * and go over sockets of their own.
   */
  opened(
    origin: string,
    source: KeySource | undefined,
    access: HttpAccess | undefined,
    route?: HttpRoute | undefined,
  ): void {
    if (source === undefined && route === undefined) {
      this.closed(origin)
      return
    }
    const digest = createHash('sha256')
      .update(JSON.stringify([source, access?.key ?? null, route]))
      .digest('base64')
    if (this.#opened.get(origin)?.digest === digest) return
    const door = { origin, key: source, ...(route === undefined ? {} : { route }) }
    this.#opened.set(origin, { ...door, digest })
    this.#tell(door)
  }

  /** The worker has left, or has neither key nor way any more. */
  closed(origin: string): void {
    if (this.#opened.delete(origin)) this.#tell({ origin, key: undefined })
  }

  #tell(door: WorkerDoor): void {
    for (const holder of this.#holders.values()) {
      // One that missed a door asks for all of them when it is told again that it holds them.
      if (holder.tell({ type: 'doors', doors: [door], isAll: false }) !== 'ok')
        this.#holders.delete(holder.key)
    }
  }
}

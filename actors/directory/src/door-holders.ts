/**
 * Door holders: gateways on threads of their own, whose HTTP clients do not know what this thread's does.
 *
 *   probe ─▶ key is read here ─▶ it changed: every holder is told where it stands ─▶ each reads it for itself
 *
 * No key is in a message, only its place; here a digest of each is kept, to see that it has changed. A holder
 * is told of a door before anyone is told that the worker is up, on the same way, so it never calls a worker
 * whose key it has not.
 *
 * Bounds   one entry for each worker that has a key; DOOR_HOLDERS_MAX holders.
 */

import { createHash } from 'node:crypto'
import type { ActorRef } from '@homing/actor'
import type { Log } from '@homing/base'
import type { KeySource } from '@homing/fleet'
import type { HttpAccess } from '@homing/transport'
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
    return [...this.#opened.values()].map(({ origin, key }) => ({ origin, key }))
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

  /** Requests to `origin` carry the key of `source` from now on; undefined: none. */
  opened(origin: string, source: KeySource | undefined, access: HttpAccess | undefined): void {
    if (source === undefined) {
      this.closed(origin)
      return
    }
    const digest = createHash('sha256')
      .update(JSON.stringify([source, access?.key ?? null]))
      .digest('base64')
    if (this.#opened.get(origin)?.digest === digest) return
    this.#opened.set(origin, { origin, key: source, digest })
    this.#tell({ origin, key: source })
  }

  /** The worker has left, or has no key any more. */
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

/**
 * Watches: who is told when an actor ends, on this thread and between two. A watch of an actor elsewhere is one frame
 * to its thread, however many watchers it has here; while that thread is being replaced it waits for the next life.
 * How the latest actors ended is kept for those who watch too late.
 */

import { fromErrorRecord, type RouterError } from '@homing/errors'
import type { Cell } from './cell.ts'
import { ThreadDownError } from './errors.ts'
import { type Ending, OP } from './frames.ts'
import type { Held } from './limbo.ts'
import type { Peer, Watcher } from './peer.ts'
import { type AnyRef, keyOf, LocalRef } from './refs.ts'
import type { Runtime } from './runtime.ts'
import { recordOf } from './thrown.ts'
import type { TerminationReason } from './types.ts'

/** Endings kept before those that are older than the same number again are forgotten. */
const ENDINGS_MAX = 2048

interface PastEnding {
  readonly reason: TerminationReason
  readonly error: RouterError | undefined
}

export class Watches {
  readonly #runtime: Runtime
  /** How actors ended that are no longer here: the latest, and as many before. */
  #endings = new Map<number, PastEnding>()
  #olderEndings = new Map<number, PastEnding>()

  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  add(watcher: Watcher, ref: AnyRef): void {
    if (ref instanceof LocalRef) {
      this.#addHere(watcher, ref)
      return
    }
    const { peer } = ref
    if (peer.state === 'gone') {
      const error = new ThreadDownError(peer.name, 'it is not coming back')
      watcher.onTerminated(ref.key, ref.name, 'unreachable', error)
      return
    }
    const watch = peer.watches.get(ref.id)
    if (watch !== undefined) {
      watch.watchers.add(watcher)
      return
    }
    peer.watches.set(ref.id, { name: ref.name, watchers: new Set([watcher]) })
    // While the thread is being replaced the watch waits for its next life: `connect` sends it.
    peer.send({ op: OP.WATCH, target: ref.id, corr: 0, body: 0, patches: 0 })
  }

  #addHere(watcher: Watcher, ref: LocalRef): void {
    const { cell } = ref
    if (cell !== undefined && !cell.isEnded) {
      cell.watchers.add(watcher)
      return
    }
    if (cell === undefined && this.#runtime.peers.isAwaited(ref.id)) {
      const held: Held = {
        deliver: arrived => void arrived.watchers.add(watcher),
        giveUp: () => watcher.onTerminated(ref.key, ref.name, 'stopped', undefined),
      }
      if (this.#runtime.limbo.hold(ref.id, held)) return
    }
    const ending: PastEnding | undefined =
      cell === undefined
        ? (this.#endings.get(ref.id) ?? this.#olderEndings.get(ref.id))
        : { reason: cell.endReason, error: cell.endError }
    watcher.onTerminated(ref.key, ref.name, ending?.reason ?? 'stopped', ending?.error)
  }

  remove(watcher: Watcher, ref: AnyRef): void {
    if (ref instanceof LocalRef) {
      ref.cell?.watchers.delete(watcher)
      return
    }
    const watch = ref.peer.watches.get(ref.id)
    if (watch === undefined || !watch.watchers.delete(watcher) || watch.watchers.size > 0) return
    ref.peer.watches.delete(ref.id)
    ref.peer.send({ op: OP.UNWATCH, target: ref.id, corr: 0, body: 0, patches: 0 })
  }

  /** Keeps how an actor ended that is about to be forgotten. */
  noteEnding({ id, endReason, endError }: Cell): void {
    this.#endings.set(id, { reason: endReason, error: endError })
    if (this.#endings.size < ENDINGS_MAX) return
    this.#olderEndings = this.#endings
    this.#endings = new Map()
  }

  // ── Frames ───────────────────────────────────────────────────────────────────────────────────

  /** The peer watches an actor of this thread. */
  takeWatch(peer: Peer, id: number): void {
    const runtime = this.#runtime
    const watcher: Watcher = {
      onTerminated: (_key, _name, reason, error) => {
        // Not when it was taken back while the actor was awaited.
        if (peer.watchers.get(id) !== watcher) return
        peer.watchers.delete(id)
        const body: Ending = { reason, ...(error === undefined ? {} : { error: recordOf(error) }) }
        peer.send({ op: OP.TERMINATED, target: id, corr: 0, body, patches: 0 })
      },
    }
    const cell = runtime.cells.get(id)
    const before = peer.watchers.get(id)
    if (before !== undefined) cell?.watchers.delete(before)
    peer.watchers.set(id, watcher)
    this.add(watcher, cell?.ref ?? new LocalRef(runtime, id, '', undefined))
  }

  takeUnwatch(peer: Peer, id: number): void {
    const watcher = peer.watchers.get(id)
    if (watcher !== undefined) this.#runtime.cells.get(id)?.watchers.delete(watcher)
    peer.watchers.delete(id)
  }

  /** An actor on the peer has ended that is watched here. */
  takeTerminated(peer: Peer, id: number, { reason, error }: Ending): void {
    const watch = peer.watches.get(id)
    if (watch === undefined) return
    peer.watches.delete(id)
    const known = error === undefined ? undefined : fromErrorRecord(error)
    const key = keyOf(peer.name, id)
    for (const watcher of watch.watchers) watcher.onTerminated(key, watch.name, reason, known)
  }

  /** The thread of the peer has ended, and all its actors with it: nobody watches from there, nobody is left to watch. */
  threadLost(peer: Peer, reason: TerminationReason, error: ThreadDownError): void {
    for (const [id, watcher] of peer.watchers) this.#runtime.cells.get(id)?.watchers.delete(watcher)
    peer.watchers.clear()
    const watches = [...peer.watches]
    peer.watches.clear()
    for (const [id, { name, watchers }] of watches) {
      for (const watcher of watchers) watcher.onTerminated(keyOf(peer.name, id), name, reason, error)
    }
  }
}

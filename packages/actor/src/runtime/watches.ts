/**
 * Watches: the watchers of actors, on this thread and between two. All watchers here of an actor elsewhere
 * share one frame to its thread; while that thread is being replaced, the watch waits for the next life. The
 * endings of the latest actors are kept for watchers that come late; without their errors also for the next
 * lives of the thread (observe/thread-memory.ts). An actor that this life never had, and whose ending was not
 * kept, was lost with an earlier life.
 */

import type { CodedError } from '@homing/base'
import type { CellTable } from '../cell/cell-table.ts'
import type { EndedCell } from '../cell/host.ts'
import type { Ending } from '../cell/kin.ts'
import { LocalRef } from '../cell/local-ref.ts'
import { keyOf, type Ref } from '../cell/ref.ts'
import type { Watcher, WatchList } from '../cell/watcher.ts'
import type { TerminationReason } from '../contract/types.ts'
import { OP } from '../links/frames.ts'
import type { Peer } from '../links/peer.ts'
import type { ThreadMemory } from '../observe/thread-memory.ts'
import { ThreadDownError } from '../values/errors.ts'
import { uidOf } from '../values/ids.ts'
import { type PastLife, type ThreadEnd, UNEXPLAINED } from '../values/thread-end.ts'
import { errorOf, recordOf } from '../values/thrown.ts'
import type { Held, Limbo } from './limbo.ts'
import type { Peers } from './peers.ts'
import type { RemoteRef } from './remote-ref.ts'

/** Endings kept before those that are older than the same number again are forgotten. */
const ENDINGS_MAX = 2048

interface PastEnding {
  readonly reason: TerminationReason
  readonly error: CodedError | undefined
}

/** The thread of the watchers, or of who is watched. */
export interface WatchingThread {
  readonly thread: string
  readonly uid: number
  readonly memory: ThreadMemory
  /** How the lives before this one ended, oldest first: the latest of them. */
  readonly pastLives: readonly PastLife[]
  readonly cells: CellTable
  readonly peers: Peers
  readonly limbo: Limbo
  /** A ref to an actor of this thread. */
  localRef(id: number, name: string): LocalRef
}

export class Watches implements WatchList {
  readonly #thread: WatchingThread
  /** How actors ended that are no longer here: the latest, and as many before. */
  #endings = new Map<number, PastEnding>()
  #olderEndings = new Map<number, PastEnding>()

  constructor(thread: WatchingThread) {
    this.#thread = thread
  }

  add(watcher: Watcher, ref: Ref): void {
    if (ref instanceof LocalRef) {
      this.#addHere(watcher, ref)
      return
    }
    const { peer } = ref as RemoteRef
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
      cell.addWatcher(watcher)
      return
    }
    if (cell === undefined && this.#thread.peers.isAwaited(ref.id)) {
      const held: Held = {
        deliver: arrived => arrived.addWatcher(watcher),
        giveUp: () => watcher.onTerminated(ref.key, ref.name, 'stopped', undefined),
      }
      if (this.#thread.limbo.hold(ref.id, held)) return
    }
    const { reason, error } =
      cell === undefined ? this.#pastEnding(ref.id) : { reason: cell.endReason, error: cell.endError }
    watcher.onTerminated(ref.key, ref.name, reason, error)
  }

  #pastEnding(id: number): PastEnding {
    const known = this.#endings.get(id) ?? this.#olderEndings.get(id)
    if (known !== undefined) return known
    const { thread, memory } = this.#thread
    const reason = memory.endingOf(id)
    if (reason !== undefined) return { reason, error: undefined }
    const end = this.#endOfLifeOf(id)
    return end === undefined
      ? { reason: 'stopped', error: undefined }
      : { reason: end.reason, error: ThreadDownError.ended(thread, end) }
  }

  /** How the life ended that the actor was lost with; undefined: it was not. */
  #endOfLifeOf(id: number): ThreadEnd | undefined {
    const { uid, memory, pastLives } = this.#thread
    const life = memory.lifeOf(id)
    // Too many actors have been here since to know its life: the last one that it can have had.
    if (life === undefined) return uidOf(id) < uid ? pastLives.at(-1)?.end : undefined
    return life === uid ? undefined : (pastLives.find(past => past.uid === life)?.end ?? UNEXPLAINED)
  }

  remove(watcher: Watcher, ref: Ref): void {
    if (ref instanceof LocalRef) {
      ref.cell?.removeWatcher(watcher)
      return
    }
    const { peer } = ref as RemoteRef
    const watch = peer.watches.get(ref.id)
    if (watch === undefined || !watch.watchers.delete(watcher) || watch.watchers.size > 0) return
    peer.watches.delete(ref.id)
    peer.send({ op: OP.UNWATCH, target: ref.id, corr: 0, body: 0, patches: 0 })
  }

  /** Keeps how an actor ended that is about to be forgotten. */
  noteEnding({ id, endReason, endError }: EndedCell): void {
    this.#thread.memory.noteEnding(id, endReason === 'failed')
    this.#endings.set(id, { reason: endReason, error: endError })
    if (this.#endings.size < ENDINGS_MAX) return
    this.#olderEndings = this.#endings
    this.#endings = new Map()
  }

  // ── Frames ───────────────────────────────────────────────────────────────────────────────────

  /** The peer watches an actor of this thread. */
  takeWatch(peer: Peer, id: number): void {
    const watcher: Watcher = {
      onTerminated: (_key, _name, reason, error) => {
        // Not when it was taken back while the actor was awaited.
        if (peer.watchers.get(id) !== watcher) return
        peer.watchers.delete(id)
        const body: Ending = { reason, ...(error === undefined ? {} : { error: recordOf(error) }) }
        peer.send({ op: OP.TERMINATED, target: id, corr: 0, body, patches: 0 })
      },
    }
    const cell = this.#thread.cells.get(id)
    const before = peer.watchers.get(id)
    if (before !== undefined) cell?.removeWatcher(before)
    peer.watchers.set(id, watcher)
    this.add(watcher, this.#thread.localRef(id, ''))
  }

  takeUnwatch(peer: Peer, id: number): void {
    const watcher = peer.watchers.get(id)
    if (watcher !== undefined) this.#thread.cells.get(id)?.removeWatcher(watcher)
    peer.watchers.delete(id)
  }

  /** An actor on the peer has ended that is watched here. */
  takeTerminated(peer: Peer, id: number, { reason, error }: Ending): void {
    const watch = peer.watches.get(id)
    if (watch === undefined) return
    peer.watches.delete(id)
    const known = error === undefined ? undefined : errorOf(error)
    const key = keyOf(peer.name, id)
    for (const watcher of watch.watchers) watcher.onTerminated(key, watch.name, reason, known)
  }

  /**
   * The thread of the peer has ended, and all its actors with it: nobody watches from there, nobody is left
   * to watch.
   */
  threadLost(peer: Peer, reason: TerminationReason, error: ThreadDownError): void {
    for (const [id, watcher] of peer.watchers) this.#thread.cells.get(id)?.removeWatcher(watcher)
    peer.watchers.clear()
    const watches = [...peer.watches]
    peer.watches.clear()
    for (const [id, { name, watchers }] of watches) {
      for (const watcher of watchers) watcher.onTerminated(keyOf(peer.name, id), name, reason, error)
    }
  }
}

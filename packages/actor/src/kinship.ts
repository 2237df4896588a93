/**
 * Kinship: what parents and children tell each other, on one thread and between two: to stop, to halt and be released
 * when siblings restart together, and how it ended. And what becomes of both when the thread of one is lost.
 */

import { fromErrorRecord, type RouterError } from '@homing/errors'
import { Cell } from './cell.ts'
import type { Child } from './children.ts'
import { ThreadDownError } from './errors.ts'
import { type Ending, type Halt, type HaltRequest, OP, type SpawnSpec } from './frames.ts'
import type { Peer } from './peer.ts'
import { type AnyRef, LocalRef } from './refs.ts'
import { MAIN, type Runtime } from './runtime.ts'
import { recordOf } from './thrown.ts'
import type { TerminationReason } from './types.ts'

/** How long a parent waits for a child on another thread beyond the child's own time. */
const REMOTE_STOP_MARGIN_MS = 1000

export class Kinship {
  readonly #runtime: Runtime

  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  // ── From a parent to its child ───────────────────────────────────────────────────────────────

  /** Tells a child to stop; its parent hears from it through `childEnded`. */
  stop(parent: Cell, child: Child): void {
    if (child.thread === undefined) {
      ;(child.ref as LocalRef).cell?.requestStop()
      return
    }
    const peer = this.#runtime.peers.to(child.thread)
    if (!peer.isReachable) {
      this.#giveUp(parent, child, 'stopped', undefined)
      return
    }
    peer.send({ op: OP.STOP, target: child.id, corr: 0, body: false, patches: 0 })
    child.guard = {
      dueMs: 0,
      position: -1,
      expire: () => {
        this.abandon(child)
        this.#giveUp(parent, child, 'stopped', undefined)
      },
    }
    this.#runtime.deadlines.add(child.guard, child.settings.shutdownMs + REMOTE_STOP_MARGIN_MS)
  }

  /**
   * Tells an actor to stop whose parent is somebody else, and hears of it as if it stopped itself. Throws
   * ThreadDownError while its thread is being replaced.
   */
  stopDistant(ref: AnyRef): void {
    if (ref instanceof LocalRef) {
      ref.cell?.requestStop()
      return
    }
    const { peer, id } = ref
    if (peer.state === 'down') throw new ThreadDownError(peer.name, 'it is being replaced', false)
    peer.send({ op: OP.STOP, target: id, corr: 0, body: false, patches: 0 })
  }

  /** Ends a child at once and reports it as slow. */
  abandon(child: Child): void {
    if (child.thread === undefined) {
      ;(child.ref as LocalRef).cell?.abandon()
      return
    }
    const runtime = this.#runtime
    runtime.noteSlow(child.ref.name)
    runtime.peers.to(child.thread).send({ op: OP.STOP, target: child.id, corr: 0, body: true, patches: 0 })
    if (child.isRegistered) runtime.registrar!.unregister(child.id)
  }

  /** Ends the present instance of a child, which then reports through `childHalted` and waits for `release`. */
  halt(child: Child, error: unknown): void {
    if (child.thread === undefined) (child.ref as LocalRef).cell?.halt(error)
    else {
      const body: HaltRequest = error === undefined ? {} : { error: recordOf(error) }
      this.#runtime.peers.to(child.thread).send({ op: OP.HALT, target: child.id, corr: 0, body, patches: 0 })
    }
  }

  release(child: Child): void {
    if (child.thread === undefined) (child.ref as LocalRef).cell?.release()
    else {
      this.#runtime.peers
        .to(child.thread)
        .send({ op: OP.RELEASE, target: child.id, corr: 0, body: 0, patches: 0 })
    }
  }

  takeStop(id: number, isAtOnce: boolean): void {
    const cell = this.#runtime.cells.get(id)
    if (isAtOnce) cell?.abandon()
    else cell?.requestStop()
  }

  takeHalt(id: number, { error }: HaltRequest): void {
    this.#runtime.cells.get(id)?.halt(error === undefined ? undefined : fromErrorRecord(error))
  }

  takeRelease(id: number): void {
    this.#runtime.cells.get(id)?.release()
  }

  // ── From a child to its parent ───────────────────────────────────────────────────────────────

  /** Tells the parent of a cell how it ended. */
  ended(cell: Cell, ending: Ending): void {
    const { parent } = cell
    if (parent === undefined) return
    if (parent instanceof Cell) parent.childEnded(cell.id, ending, cell.endError)
    else {
      const peer = this.#runtime.peers.to(parent.thread)
      if (peer.uid !== parent.uid) return
      peer.send({ op: OP.CHILD_ENDED, target: parent.id, corr: cell.id, body: ending, patches: 0 })
    }
  }

  /** Main counts the restarts of an actor that it would bring back: its next life is to know of them. */
  restarted({ id, parent }: Cell): void {
    if (parent === undefined || parent instanceof Cell) return
    const { peers } = this.#runtime
    peers.get(MAIN)?.send({ op: OP.RESTARTED, target: id, corr: 0, body: 0, patches: 0 })
  }

  /** A cell whose parent restarts children together has no instance and waits. */
  halted(cell: Cell, halt: Halt): void {
    const { parent } = cell
    if (parent instanceof Cell) {
      if (!parent.childHalted(cell.id, halt)) cell.release()
    } else if (parent !== undefined) {
      const peer = this.#runtime.peers.to(parent.thread)
      if (peer.uid !== parent.uid) return
      peer.send({ op: OP.HALTED, target: parent.id, corr: cell.id, body: halt, patches: 0 })
    }
  }

  takeEnded(parentId: number, childId: number, ending: Ending): void {
    const parent = this.#parent(parentId)
    const child = parent?.children?.get(childId)
    if (child?.isRegistered === true) this.#runtime.registrar!.unregister(childId)
    parent?.childEnded(childId, ending, undefined)
  }

  takeHalted(peer: Peer, parentId: number, childId: number, halt: Halt): void {
    const isReleased = this.#parent(parentId)?.childHalted(childId, halt) === false
    // It waits for a word that nobody else would say.
    if (isReleased) peer.send({ op: OP.RELEASE, target: childId, corr: 0, body: 0, patches: 0 })
  }

  /** Main's word that a child of ours ended with its thread. */
  childLost(parentId: number, childId: number, ending: Ending): void {
    this.#parent(parentId)?.childEnded(childId, ending, undefined)
  }

  /** A child was not spawned: what it is made with cannot travel. */
  unspawned(childId: number, { parent }: SpawnSpec, error: RouterError): void {
    const cell = this.#parent(parent.id)
    const child = cell?.children?.get(childId)
    if (cell !== undefined && child !== undefined) this.#giveUp(cell, child, 'failed', error)
  }

  #parent(id: number): Cell | undefined {
    return id === 0 ? this.#runtime.guardian : this.#runtime.cells.get(id)
  }

  // ── Lost threads ─────────────────────────────────────────────────────────────────────────────

  /** The present life of a thread has ended, and the children there with it. */
  endChildrenOn(peer: Peer, error: ThreadDownError): void {
    for (const [parent, child] of this.#childrenOn(peer.name)) {
      // One that restarts is spawned again by main, which says so when it is not.
      if (child.settings.directive === 'restart' && !child.isStopping) {
        parent.childDisplaced(child)
        continue
      }
      this.#giveUp(parent, child, peer.endReason, error)
    }
  }

  /** The thread is not coming back, nor are the children there. */
  giveUpChildrenOn(thread: string, error: ThreadDownError): void {
    for (const [parent, child] of this.#childrenOn(thread)) this.#giveUp(parent, child, 'unreachable', error)
  }

  /** Stops those whose parent ended with a life of its thread. */
  stopChildrenOf(thread: string, uid: number): void {
    for (const cell of [...this.#runtime.cells.values()]) {
      const { parent } = cell
      if (parent === undefined || parent instanceof Cell) continue
      if (parent.thread === thread && parent.uid === uid) cell.requestStop()
    }
  }

  #childrenOn(thread: string): [Cell, Child][] {
    const { guardian, cells } = this.#runtime
    const found: [Cell, Child][] = []
    const parents = guardian === undefined ? [...cells.values()] : [guardian, ...cells.values()]
    for (const parent of parents) {
      for (const child of parent.children?.values() ?? [])
        if (child.thread === thread) found.push([parent, child])
    }
    return found
  }

  /** The child's end cannot come from its own thread. */
  #giveUp(parent: Cell, child: Child, reason: TerminationReason, error: RouterError | undefined): void {
    parent.childEnded(
      child.id,
      { reason, isEscalated: child.settings.directive === 'escalate' && !child.isStopping },
      error,
    )
    // After that: forgetting a dedicated thread reports its end once more.
    if (child.isRegistered) this.#runtime.registrar!.unregister(child.id)
  }
}

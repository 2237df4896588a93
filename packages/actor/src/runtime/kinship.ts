/**
 * ThreadKinship: messages between parents and children, on one thread and between two: stop, drain, and how
 * an actor ended. Also handles both when the thread of one is lost.
 */

import type { Clock, CodedError } from '@homing/base'
import type { Cell } from '../cell/cell.ts'
import type { CellTable } from '../cell/cell-table.ts'
import type { EndedCell } from '../cell/host.ts'
import type { Child, ChildCell, Ending, Kinship, LocalParent, ParentAddress } from '../cell/kin.ts'
import { LocalRef } from '../cell/local-ref.ts'
import type { Ref } from '../cell/ref.ts'
import type { TerminationReason } from '../contract/types.ts'
import { type DrainRequest, OP, type SpawnSpec } from '../links/frames.ts'
import { MAIN } from '../links/life.ts'
import type { Peer } from '../links/peer.ts'
import type { SlowActors } from '../observe/slow-actors.ts'
import type { Deadlines } from '../values/deadlines.ts'
import { ThreadDownError } from '../values/errors.ts'
import type { Limbo } from './limbo.ts'
import type { Peers } from './peers.ts'
import type { Registrar } from './registrar.ts'
import type { RemoteRef } from './remote-ref.ts'

/** How long a parent waits for a child on another thread beyond the child's own time. */
const REMOTE_STOP_MARGIN_MS = 1000

/** The thread of the parents, or of the children. */
export interface KinThread {
  readonly cells: CellTable
  readonly peers: Peers
  readonly deadlines: Deadlines
  readonly clock: Clock
  readonly slowActors: SlowActors
  readonly limbo: Limbo
  /** Main's list of the actors that follow their threads; set before the first spawn. */
  readonly registrar: Registrar | undefined
}

export class ThreadKinship implements Kinship {
  readonly #thread: KinThread

  constructor(thread: KinThread) {
    this.#thread = thread
  }

  // ── From a parent to its child ───────────────────────────────────────────────────────────────

  /**
   * Tells a child to stop, or to drain if it has a time for that; its parent hears from it through
   * `childEnded`.
   */
  stop(parent: LocalParent, child: Child): void {
    const drainMs = this.#drainMs(child)
    if (child.settings.isKilled && child.isDedicated && drainMs === undefined) {
      // Its thread may be busy, and is ended by main.
      this.#giveUp(parent, child, 'stopped', undefined)
      return
    }
    if (child.thread === undefined) {
      const { cell } = child.ref as LocalRef
      if (drainMs === undefined) cell?.requestStop()
      else cell?.requestDrain(drainMs)
      return
    }
    const peer = this.#thread.peers.to(child.thread)
    if (!peer.isReachable && !(peer.state === 'down' && this.#drainsInNextLife(child))) {
      this.#giveUp(parent, child, 'stopped', undefined)
      return
    }
    this.#sendStop(peer, child.id, drainMs)
    child.guard = {
      dueMs: 0,
      position: -1,
      expire: () => {
        this.abandon(child)
        this.#giveUp(parent, child, 'stopped', undefined)
      },
    }
    const limitMs = (drainMs ?? 0) + child.settings.shutdownMs + REMOTE_STOP_MARGIN_MS
    this.#thread.deadlines.add(child.guard, limitMs)
  }

  #sendStop(peer: Peer, id: number, drainMs: number | undefined): void {
    const body: false | DrainRequest = drainMs === undefined ? false : { withinMs: drainMs }
    peer.send({ op: OP.STOP, target: id, corr: 0, body, patches: 0 })
  }

  #drainMs({ drainDueMs }: Child): number | undefined {
    return drainDueMs === undefined ? undefined : Math.max(0, drainDueMs - this.#thread.clock.nowMs())
  }

  /** It comes back with its thread, and what was told meanwhile waits for it there. */
  #drainsInNextLife({ drainDueMs, settings }: Child): boolean {
    return drainDueMs !== undefined && settings.directive === 'restart'
  }

  /** The next life of a thread is linked: children that drained there go on with it. */
  drainAgainOn(peer: Peer): void {
    for (const [, child] of this.#childrenOn(peer.name)) {
      if (this.#drainsInNextLife(child)) this.#sendStop(peer, child.id, this.#drainMs(child))
    }
  }

  /**
   * Stops an actor that has another parent; that parent is told as if the actor had stopped itself. Throws
   * ThreadDownError while its thread is being replaced.
   */
  stopDistant(ref: Ref, drainMs: number | 'shutdown' | undefined): void {
    const request: DrainRequest | undefined =
      drainMs === undefined ? undefined : drainMs === 'shutdown' ? {} : { withinMs: drainMs }
    if (ref instanceof LocalRef) {
      if (request === undefined) ref.cell?.requestStop()
      else ref.cell?.requestDrain(request.withinMs)
      return
    }
    const { peer, id } = ref as RemoteRef
    if (peer.state === 'down') throw new ThreadDownError(peer.name, 'it is being replaced', false, peer.end)
    peer.send({ op: OP.STOP, target: id, corr: 0, body: request ?? false, patches: 0 })
  }

  /** Ends a child at once and reports it as slow. */
  abandon(child: Child): void {
    if (child.thread === undefined) {
      ;(child.ref as LocalRef).cell?.abandon()
      return
    }
    const { slowActors, peers, registrar } = this.#thread
    slowActors.add(child.ref.name)
    peers.to(child.thread).send({ op: OP.STOP, target: child.id, corr: 0, body: true, patches: 0 })
    if (child.isRegistered) registrar!.unregister(child.id)
  }

  takeStop(id: number, how: boolean | DrainRequest): void {
    const { cells, peers, limbo } = this.#thread
    const deliver = (cell: Cell): void => {
      if (how === true) cell.abandon()
      else if (how === false) cell.requestStop()
      else cell.requestDrain(how.withinMs)
    }
    const cell = cells.get(id)
    if (cell !== undefined) deliver(cell)
    // Somebody other than its parent was faster than the spawn.
    else if (peers.isAwaited(id)) limbo.hold(id, { deliver, giveUp() {} })
  }

  // ── From a child to its parent ───────────────────────────────────────────────────────────────

  /** Tells the parent of a cell how it ended. */
  ended(cell: EndedCell, ending: Ending): void {
    const { parent } = cell
    if (parent === undefined) return
    if (isLocal(parent)) parent.childEnded(cell.id, ending, cell.endError)
    else {
      const peer = this.#thread.peers.to(parent.thread)
      if (peer.uid !== parent.uid) return
      peer.send({ op: OP.CHILD_ENDED, target: parent.id, corr: cell.id, body: ending, patches: 0 })
    }
  }

  /** Main counts the restarts of an actor that it would bring back: its next life is to know of them. */
  restarted({ id, parent }: ChildCell): void {
    if (parent === undefined || isLocal(parent)) return
    this.#thread.peers.get(MAIN)?.send({ op: OP.RESTARTED, target: id, corr: 0, body: 0, patches: 0 })
  }

  /** A cell drains: its parent tells its next life to go on. */
  drains({ id, parent }: ChildCell, withinMs: number): void {
    if (parent === undefined) return
    if (isLocal(parent)) parent.childDrains(id, withinMs)
    else {
      const peer = this.#thread.peers.to(parent.thread)
      if (peer.uid !== parent.uid) return
      peer.send({ op: OP.DRAINS, target: parent.id, corr: id, body: withinMs, patches: 0 })
    }
  }

  takeEnded(parentId: number, childId: number, ending: Ending): void {
    const parent = this.#parent(parentId)
    const child = parent?.children?.get(childId)
    if (child?.isRegistered === true) this.#thread.registrar!.unregister(childId)
    parent?.childEnded(childId, ending, undefined)
  }

  takeDrains(parentId: number, childId: number, withinMs: number): void {
    this.#parent(parentId)?.childDrains(childId, withinMs)
  }

  /** Main's word that a child of ours ended with its thread. */
  childLost(parentId: number, childId: number, ending: Ending): void {
    this.#parent(parentId)?.childEnded(childId, ending, undefined)
  }

  /** A child was not spawned: what it is made with cannot travel. */
  unspawned(childId: number, { parent }: SpawnSpec, error: CodedError): void {
    const cell = this.#parent(parent.id)
    const child = cell?.children?.get(childId)
    if (cell !== undefined && child !== undefined) this.#giveUp(cell, child, 'failed', error)
  }

  #parent(id: number): Cell | undefined {
    return id === 0 ? this.#thread.cells.root : this.#thread.cells.get(id)
  }

  // ── Lost threads ─────────────────────────────────────────────────────────────────────────────

  /** The present life of a thread has ended, and the children there with it. */
  endChildrenOn(peer: Peer, error: ThreadDownError): void {
    for (const [parent, child] of this.#childrenOn(peer.name)) {
      // One that restarts is spawned again by main, which says so when it is not.
      if (child.settings.directive === 'restart' && (!child.isStopping || child.drainDueMs !== undefined)) {
        continue
      }
      this.#giveUp(parent, child, peer.lastEnd.reason, error)
    }
  }

  /** The thread is not coming back, nor are the children there. */
  giveUpChildrenOn(thread: string, error: ThreadDownError): void {
    for (const [parent, child] of this.#childrenOn(thread)) this.#giveUp(parent, child, 'unreachable', error)
  }

  /** Stops those whose parent ended with a life of its thread. */
  stopChildrenOf(thread: string, uid: number): void {
    for (const cell of [...this.#thread.cells.values()]) {
      const { parent } = cell
      if (parent === undefined || isLocal(parent)) continue
      if (parent.thread === thread && parent.uid === uid) cell.requestStop()
    }
  }

  #childrenOn(thread: string): [Cell, Child][] {
    const { cells } = this.#thread
    const { root } = cells
    const found: [Cell, Child][] = []
    const parents = root === undefined ? [...cells.values()] : [root, ...cells.values()]
    for (const parent of parents) {
      for (const child of parent.children?.values() ?? [])
        if (child.thread === thread) found.push([parent, child])
    }
    return found
  }

  /** The child's end cannot come from its own thread. */
  #giveUp(parent: LocalParent, child: Child, reason: TerminationReason, error: CodedError | undefined): void {
    parent.childEnded(
      child.id,
      { reason, isEscalated: child.settings.directive === 'escalate' && !child.isStopping, isLost: true },
      error,
    )
    // After that: forgetting a dedicated thread reports its end once more.
    if (child.isRegistered) this.#thread.registrar!.unregister(child.id)
  }
}

function isLocal(parent: LocalParent | ParentAddress): parent is LocalParent {
  return !('thread' in parent)
}

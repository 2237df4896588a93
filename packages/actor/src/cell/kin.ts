/**
 * Kin: messages between parents and children. On one thread they call each other; between two threads, the
 * runtimes of both carry the messages.
 */

import type { CodedError, ErrorRecord } from '@homing/base'
import type { Settings } from '../contract/settings.ts'
import type { Terminated, TerminationReason } from '../contract/types.ts'
import type { Deadline } from '../values/deadlines.ts'
import type { Ref } from './ref.ts'

/** How an actor ended. */
export interface Ending {
  readonly reason: TerminationReason
  readonly error?: ErrorRecord
  /** The failure is to fail the parent as well. */
  readonly isEscalated?: boolean
  /** It could not say so itself: its thread is gone, or does not answer. What it had left is not known. */
  readonly isLost?: boolean
}

/** An actor on another thread, in one life of that. */
export interface ParentAddress {
  readonly thread: string
  readonly uid: number
  readonly id: number
}

/** A parent on the thread of its child. */
export interface LocalParent {
  readonly id: number
  addChild(child: Child): void
  /** `error`: the failure itself, where the child was on this thread. */
  childEnded(id: number, ending: Ending, error: CodedError | undefined): void
  /** A child drains, for so long, that the parent may not have told to. */
  childDrains(id: number, withinMs: number): void
}

/** The parent: told when an actor ends, and failed when it escalates; undefined: the root has none. */
export type Parent = LocalParent | ParentAddress | undefined

/** A child as its parent sees it. */
export interface Child {
  readonly id: number
  readonly ref: Ref
  readonly settings: Settings
  /** The thread it was placed on, when that is another one. */
  readonly thread: string | undefined
  /** Main knows it too, because its thread can be replaced or is its own. */
  readonly isRegistered: boolean
  /** Its thread ends with it. */
  readonly isDedicated: boolean
  /** The actor to tell, if one asked. */
  onEnded: ((terminated: Terminated) => void)[] | undefined
  isStopping: boolean
  /** Until when it may handle what waits, before it stops; undefined: it does not. */
  drainDueMs: number | undefined
  /** It was to drain, and maybe still does. */
  hasToDrain: boolean
  /** Bounds the wait for a child on another thread. */
  guard: Deadline | undefined
}

/** A child that was just spawned. */
export function newChild(
  ref: Ref,
  settings: Settings,
  thread: string | undefined,
  isRegistered: boolean,
  isDedicated: boolean,
): Child {
  return {
    id: ref.id,
    ref,
    settings,
    thread,
    isRegistered,
    isDedicated,
    onEnded: undefined,
    isStopping: false,
    drainDueMs: undefined,
    hasToDrain: false,
    guard: undefined,
  }
}

/** A child as far as its parent is to hear of it. */
export interface ChildCell {
  readonly id: number
  readonly parent: Parent
}

/** Carries what parents and children tell each other. */
export interface Kinship {
  /**
   * Tells a child to stop, or to drain if it has a time for that; its parent hears from it through
   * `childEnded`.
   */
  stop(parent: LocalParent, child: Child): void
  /** Ends a child at once and reports it as slow. */
  abandon(child: Child): void
  /** A child was restarted after a failure. */
  restarted(cell: ChildCell): void
  /** A child drains; the parent hears of it here unless it said so itself. */
  drains(cell: ChildCell, withinMs: number): void
}

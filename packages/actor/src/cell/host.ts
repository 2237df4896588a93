/**
 * CellHost: the interface of a cell to its thread: turns, deadlines, counts, watches, kin, dead letters, and
 * the facilities of its context. A runtime implements it; cells know neither the runtime nor other threads.
 */

import type { CodedError, Log, Random } from '@homing/base'
import type {
  ActorDefinition,
  ActorRef,
  Capability,
  SpawnOptions,
  TerminationReason,
} from '../contract/types.ts'
import type { FlightRecorder } from '../observe/flight.ts'
import type { SlowActors } from '../observe/slow-actors.ts'
import type { Deadlines } from '../values/deadlines.ts'
import type { Message } from '../values/message.ts'
import type { ChildCell, Ending, Kinship, LocalParent } from './kin.ts'
import type { LocalRefHost } from './local-ref.ts'
import type { TurnFacilities, Turns } from './turns.ts'
import type { WatchList } from './watcher.ts'

/** A cell that has ended. */
export interface EndedCell extends ChildCell {
  readonly endReason: TerminationReason
  readonly endError: CodedError | undefined
}

export interface CellHost extends LocalRefHost, TurnFacilities {
  readonly random: Random
  readonly log: Log
  /** False once the system shuts down: nothing is spawned any more. */
  readonly isOpen: boolean
  readonly turns: Turns
  readonly deadlines: Deadlines
  readonly flight: FlightRecorder
  readonly watches: WatchList
  readonly kinship: Kinship
  readonly slowActors: SlowActors
  /** Actors that were stopped before they had drained. */
  readonly undrained: SlowActors
  /**
   * Calls `done` once all has come that other threads had sent here; waits for none of them longer than
   * `limitMs`.
   */
  whenCaughtUp(limitMs: number, done: () => void): void
  /** The cell is over: forgets it, and tells its parent. */
  ended(cell: EndedCell, ending: Ending): void
  /** Makes a child of `parent`, here or on another thread. */
  spawn<M extends Message, A>(
    parent: LocalParent,
    definition: ActorDefinition<M, A>,
    options: SpawnOptions<A>,
  ): ActorRef<M>
  /** The thread's instance of a capability. */
  use<T>(capability: Capability<T>): T
}

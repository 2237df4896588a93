/** Watchers: the actors that are told when an actor ends. */

import type { CodedError } from '@homing/base'
import type { TerminationReason } from '../contract/types.ts'
import type { Ref } from './ref.ts'

/** Is told when a watched actor ends. */
export interface Watcher {
  /** Called once per watch. `key` is that of the watched actor. */
  onTerminated(key: string, name: string, reason: TerminationReason, error: CodedError | undefined): void
}

/** Keeps the watchers of each actor. */
export interface WatchList {
  add(watcher: Watcher, ref: Ref): void
  remove(watcher: Watcher, ref: Ref): void
}

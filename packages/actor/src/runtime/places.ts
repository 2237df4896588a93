/** Places: where actors would live that are all on one thread, in a test. */

import type { LocalRef } from '../cell/local-ref.ts'
import type { SpawnOptions } from '../contract/types.ts'

export interface Places {
  /** An actor is spawned. Returns its args as it is given them. */
  enter(id: number, parentId: number, placement: SpawnOptions<unknown>['thread'], args: unknown): unknown
  /** The ref to it that its parent is given. */
  refFor(ref: LocalRef, parentId: number): LocalRef
  /** It has ended. */
  leave(id: number): void
  /** Nobody waits for the answer to this ask any more. */
  cancelAsk(corr: number): void
}

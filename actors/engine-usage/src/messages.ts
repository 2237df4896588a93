import type { FleetMessage } from '@homing/fleet'

/** What one question told. `isLasting`: asking again soon would not help. */
export type UsageOutcome = {
  /** Start of its process in Unix seconds; undefined: it does not say. */
  readonly startSeconds?: number | undefined
} & (
  | { readonly kind: 'reported'; readonly shares: ReadonlyMap<number, number> }
  | { readonly kind: 'unknown'; readonly reason: string; readonly isLasting: boolean }
)

export type EngineUsageMessage =
  | FleetMessage
  // From itself.
  | { readonly type: 'due'; readonly workerId: string; readonly turn: number }
  | {
      readonly type: 'answered'
      readonly workerId: string
      readonly turn: number
      readonly outcome: UsageOutcome
    }

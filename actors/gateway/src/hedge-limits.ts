/** Hedge limits: when a second worker is asked for a first token, and what may become of that (hedge.ts). */

export interface HedgeLimits {
  /** Least time before a second worker is asked, in milliseconds; 0 or undefined: none is. */
  readonly hedgeMsMin?: number
  /** auto (default): also not before streams like it usually have begun. */
  readonly hedgeRule?: 'auto' | 'fixed'
}

/** What became of a stream whose first token was late. */
export type HedgeOutcome = 'won' | 'lost' | 'failed' | 'not_placed' | 'budget'

import type { Reply } from '@homing/actor'
import type { SettledMessage } from '@homing/actors/decision-log'
import type { ErrorRecord } from '@homing/base'
import type { FleetMessage } from '@homing/fleet'
import type { WhatIfAnswer, WhatIfProgress } from '@homing/simulate/what-if'
import type { QuestionSaid } from './question.ts'

/** A question of an operator. */
export interface WhatIfQuestion {
  /** Requests that arrived earlier are left out. */
  readonly minutes: number
  /** As in WhatIfTask. */
  readonly profile: string | undefined
  readonly anyway: boolean
}

/** One question, from its start. */
export interface WhatIfRun {
  readonly id: string
  readonly question: WhatIfQuestion
  /** Unix milliseconds. */
  readonly startedAtMs: number
  readonly state: 'running' | 'done' | 'cancelled' | 'failed'
  /** Since its start, or what it took. */
  readonly elapsedMs: number
  /** Undefined: its thread has not reported yet. */
  readonly progress: WhatIfProgress | undefined
  readonly answer: WhatIfAnswer | undefined
  readonly error: ErrorRecord | undefined
}

export interface WhatIfReport {
  readonly kept: {
    readonly requests: number
    readonly bytes: number
    readonly bytesMax: number
    readonly minutesMax: number
    /** That found no room, here or on the way. */
    readonly dropped: number
    /** Unix milliseconds; undefined: no request is kept. */
    readonly oldestMs: number | undefined
  }
  readonly cpuShare: number
  readonly timeMsMax: number
  /** The current run, or the last one; undefined: there was none. */
  readonly run: WhatIfRun | undefined
  /** Runs that have ended, by how. */
  readonly ended: Readonly<Record<'done' | 'cancelled' | 'failed', number>>
  /** Processor time of all runs. */
  readonly cpuMs: number
}

export type WhatIfMessage =
  | FleetMessage
  | SettledMessage
  /** Begins a run. An error: one runs already. */
  | {
      readonly type: 'askWhatIf'
      readonly question: WhatIfQuestion
      readonly reply: Reply<WhatIfReport | ErrorRecord>
    }
  /** Ends the run, if one is under way. */
  | { readonly type: 'cancelWhatIf'; readonly reply: Reply<WhatIfReport> }
  | { readonly type: 'whatIfReport'; readonly reply: Reply<WhatIfReport> }
  | QuestionSaid
  // From itself.
  | { readonly type: 'timeIsUp'; readonly run: string }
  | { readonly type: 'look' }

/** Probe outcome: what one look at a worker has found. */

import type { EngineSleep } from './engine-sleep.ts'
import type { EngineFamily, WorkerModel } from './fleet.ts'
import type { ProbedLegs } from './leg-names.ts'

/** Result of one probe of a worker's base URL; `reached` false carries the reason. */
export type ProbeOutcome =
  /**
   * `isLocal`: it was not asked, because this machine lacked a resource. `isSlow`: it did not answer in time.
   */
  | {
      readonly reached: false
      readonly reason: string
      readonly isLocal?: boolean
      readonly isSlow?: boolean
      /** It answers, though not as one that takes requests. */
      readonly isAnswered?: boolean
    }
  | {
      readonly reached: true
      readonly engine: EngineFamily
      readonly engineVersion: string
      readonly models: readonly WorkerModel[]
      readonly blockSizeTokens: number | undefined
      readonly maxBatchedTokens: number | undefined
      readonly kvBlocks: number | undefined
      readonly ranks: number | undefined
      readonly canTokenize: boolean
      /** Which part of a request it takes; undefined: it does not say. */
      readonly legs?: ProbedLegs | undefined
      /** Whether its engine sleeps; undefined: it does not say. */
      readonly sleep?: EngineSleep | undefined
      /** By rank; endpoints with a host that can be dialled. */
      readonly eventSources: readonly EventSource[]
      /** Start time of the engine process in Unix seconds, if it reports it. */
      readonly processStartSeconds: number | undefined
      /** Facts that a question would have told which got no answer: empty here means not known, not none. */
      readonly unanswered: readonly ProbedFact[]
    }

/** A probe that reached its worker. */
export type ReachedOutcome = Extract<ProbeOutcome, { readonly reached: true }>

export type ProbedFact =
  | 'engine'
  | 'engineVersion'
  | 'blockSizeTokens'
  | 'maxBatchedTokens'
  | 'kvBlocks'
  | 'ranks'
  | 'canTokenize'
  | 'legs'
  | 'sleep'
  | 'eventSources'
  | 'processStartSeconds'

export interface EventSource {
  readonly dpRank: number
  /** The number that the engine gives to the rank, in its batches too; undefined: `dpRank`. */
  readonly namedRank?: number | undefined
  readonly endpoint: string
  readonly replayEndpoint: string | undefined
  readonly topic: string
  /** Why nothing can connect to `endpoint`; undefined: it can be tried. */
  readonly fault?: string | undefined
}

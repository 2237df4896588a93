/**
 * Types of the questions, of the facts that they need, and of the answers. All are plain data, except memory
 * that threads share.
 */

import type { LearnedSpeed } from '@homing/load'
import type { LoggedRequest, LoggedSelection, LoggedWorker } from '@homing/trace'

/**
 * Step times that a question may name: those that the router has learned of its workers, and the profiles of
 * the simulator.
 */
export const WHAT_IF_PROFILES = ['learned', 'h100-8b', 'h100-70b-tp4', 'mock-poly', 'mock-simple'] as const

/** A request that is over, and that a worker took. */
export interface KeptRequest
  extends Omit<LoggedRequest, 'timestampMs' | 'hashIds' | 'sessionId' | 'error' | 'policy' | 'wasTaken'> {
  /** Unix milliseconds. */
  readonly arrivedAtMs: number
  /** The one that took it. */
  readonly worker: string
  /** Pairs [lo, hi] of the full blocks of the prompt. */
  readonly sequenceHashes: Int32Array
}

/** A part of the memory; the words before `words` never change. */
export interface KeptChunk {
  readonly buffer: SharedArrayBuffer
  /** 8 bytes each. */
  readonly words: number
  /** Names of models and workers, by their number in this chunk. */
  readonly texts: readonly string[]
}

/** The requests kept until one moment. */
export interface KeptRequests {
  readonly chunks: readonly KeptChunk[]
}

/** A question, with everything that its answer needs. */
export interface WhatIfTask {
  readonly kept: KeptRequests
  /** Requests that arrived before are left out; Unix milliseconds. */
  readonly sinceMs: number
  /** As the fleet is now. */
  readonly workers: readonly LoggedWorker[]
  /** As the router places now. */
  readonly selection: LoggedSelection
  /**
   * Step times of the engines: one of PROFILE_NAMES; undefined: the one of those and `learned` that best
   * reproduces the observed times.
   */
  readonly profile: string | undefined
  /** What the router has learned of its workers, by worker key. */
  readonly learned: Readonly<Record<string, LearnedSpeed>>
  /** Answers even if the simulation does not reproduce the observed times. */
  readonly anyway: boolean
  /** Of one core, 0 … 1. */
  readonly cpuShare: number
}

/** How far it is. */
export interface WhatIfProgress {
  /** 1 … steps. */
  readonly step: number
  readonly steps: number
  /** What this step simulates. */
  readonly what: string
  /** Simulated in this step. */
  readonly requests: number
  readonly cpuMs: number
}

/** The simulation of what really happened, compared with the observed times. */
export interface WhatIfFit {
  readonly isGood: boolean
  /** For people. */
  readonly text: string
  readonly faults: readonly string[]
  readonly profile: string
  readonly comparedRequests: number
  readonly ttftMs: { readonly seen: number; readonly simulated: number }
  readonly hitRate: { readonly seen: number; readonly simulated: number }
}

/** One simulated fleet. */
export interface WhatIfRow {
  /** 'as it is' is the first. */
  readonly name: string
  readonly workers: number
  readonly policy: string
  /** Of each worker. */
  readonly kvTokens: number
  readonly ttftMs: { readonly mean: number; readonly p50: number; readonly p90: number; readonly p99: number }
  readonly e2eMsMean: number
  readonly hitRate: number
  /** Prompt tokens computed, of all requests. */
  readonly computedTokens: number
  readonly unservedRequests: number
}

export interface WhatIfAnswer {
  readonly model: string
  /** Of it, those that were simulated; the first ones fill the caches and do not count. */
  readonly requests: number
  /** From the first arrival to the last. */
  readonly spanMs: number
  readonly fit: WhatIfFit
  /** Empty: the fit is poor, and `anyway` was not set. */
  readonly rows: readonly WhatIfRow[]
  /** Differences between the simulation and what really happened. */
  readonly notes: readonly string[]
  readonly cpuMs: number
}

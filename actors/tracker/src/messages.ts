import type { Reply } from '@homing/actor'
import type { FleetMessage } from '@homing/directory'
import type { LoadStats } from '@homing/load'

/** Load of the candidates, as typed arrays beside each other: index i belongs to `workerSlots[i]`. */
export interface LoadProjection {
  readonly activeBlocks: Int32Array
  /** Prompt blocks of the request that would become active there. */
  readonly newBlocks: Int32Array
  readonly activePrefillTokens: Float64Array
  readonly activeRequests: Int32Array
}

export interface Booking {
  /** The decision's id: every attempt of a request has its own. */
  readonly requestId: string
  readonly workerSlot: number
  /** Sequence hashes [lo, hi] of the full prompt blocks; empty where the prompt is not known. */
  readonly sequenceHashes: Int32Array
  readonly promptTokens: number
  /** Tokens that the worker must compute, as predicted; 0 … promptTokens. */
  readonly prefillTokens: number
}

export interface WorkerLoad {
  /** Worker key. */
  readonly worker: string
  readonly workerSlot: number
  readonly activeBlocks: number
  readonly activePrefillTokens: number
  readonly activeRequests: number
}

export interface LoadReport {
  readonly rows: readonly WorkerLoad[]
  readonly stats: LoadStats
}

export type TrackerMessage =
  /** Worker keys that are gone are freed. */
  | FleetMessage
  /** What each candidate would carry with this request; changes nothing. */
  | {
      readonly type: 'project'
      readonly workerSlots: Int32Array
      readonly sequenceHashes: Int32Array
      readonly reply: Reply<LoadProjection>
    }
  | {
      readonly type: 'book'
      readonly booking: Booking
      readonly reply: Reply<'booked' | 'duplicate' | 'full'>
    }
  /** First token seen: its prefill is done. Idempotent. */
  | { readonly type: 'prefillComplete'; readonly requestId: string }
  /** It still runs. */
  | { readonly type: 'touch'; readonly requestId: string }
  /** The request ended, however. Idempotent. */
  | { readonly type: 'free'; readonly requestId: string }
  | { readonly type: 'loads'; readonly reply: Reply<LoadReport> }
  /** Frees bookings that nobody has touched for the inactivity limit. */
  | { readonly type: 'sweep' }

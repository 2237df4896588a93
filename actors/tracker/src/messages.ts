import type { Reply } from '@homing/actor'

/** Load of the candidates, as typed arrays beside each other: index i belongs to `workerSlots[i]`. */
export interface LoadProjection {
  readonly activeBlocks: Int32Array
  /** Prompt blocks of the request that would become active there. */
  readonly newBlocks: Int32Array
  readonly activePrefillTokens: Int32Array
  readonly activeRequests: Int32Array
}

export interface Booking {
  readonly requestId: string
  readonly workerSlot: number
  /** Sequence hashes [lo, hi] of the full prompt blocks; empty where the prompt is not known. */
  readonly sequenceHashes: Int32Array
  readonly promptTokens: number
  /** Tokens that the worker must compute, as predicted; 0 … promptTokens. */
  readonly prefillTokens: number
}

export interface WorkerLoad {
  readonly workerSlot: number
  readonly activeBlocks: number
  readonly activePrefillTokens: number
  readonly activeRequests: number
}

export type TrackerMessage =
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
  /** The request ended, however. Idempotent. */
  | { readonly type: 'free'; readonly requestId: string }
  /** The worker key is gone: everything booked on it is freed. */
  | { readonly type: 'freeWorker'; readonly workerSlot: number }
  | { readonly type: 'loads'; readonly reply: Reply<readonly WorkerLoad[]> }
  /** Frees bookings that nobody has touched for the inactivity limit. */
  | { readonly type: 'sweep' }

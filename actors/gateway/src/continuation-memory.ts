/** What all streams of a gateway keep to be continued, and how that ends. */

import type { UnfitRequest, UnfitStream } from '@homing/openai'

/** Why a stream is not continued. */
export type UnfitReason =
  | UnfitRequest
  | UnfitStream
  | 'pinned'
  | 'prompt'
  | 'limit'
  | 'too_long'
  | 'route'
  | 'unread'
  | 'not_placed'

/** How `next` ended, or why there is no next. */
export type ContinuationOutcome = 'place' | 'end' | UnfitReason

/** The text that all open streams keep, in bytes. */
export class ContinuationMemory {
  readonly bytesMax: number
  bytes = 0

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  readonly take = (bytes: number): boolean => {
    if (this.bytes + bytes > this.bytesMax) return false
    this.bytes += bytes
    return true
  }
}

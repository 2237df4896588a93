/**
 * Seen events: facts about a publisher, collected from the batches of its socket.
 *
 * Bounds: the first DECODED_MAX batches are decoded, the rest only counted; STORED_MAX stores are kept.
 */

import { decodeKvBatch, type KvStored, MalformedKvBatchError } from '@homing/protocol'

const DECODED_MAX = 256
const STORED_MAX = 256

export class SeenEvents {
  batches = 0
  /** Frames that are no published message, and batches that cannot be decoded. */
  unreadable = 0
  /** Sequence of the first and of the last batch; undefined: there was none. */
  firstSequence: number | undefined
  lastSequence: number | undefined
  /** Batches that are left out between them. */
  missing = 0
  /** Topics of the frames that have one; '' counts as a topic. */
  readonly topics = new Set<string>()
  readonly blockSizesTokens = new Set<number>()
  /** Ranks named in batches. */
  readonly dpRanks = new Set<number>()
  readonly stored: KvStored[] = []
  /** Timestamp of the last decoded batch, in Unix seconds. */
  lastTimestampSeconds: number | undefined

  /** `topic`: undefined where the framing has none. */
  batch(sequence: number, payload: Uint8Array, topic: string | undefined): void {
    this.batches++
    this.firstSequence ??= sequence
    this.missing += Math.max(0, sequence - (this.lastSequence ?? sequence) - 1)
    this.lastSequence = sequence
    if (topic !== undefined) this.topics.add(topic)
    if (this.batches > DECODED_MAX) return
    try {
      const batch = decodeKvBatch(payload)
      this.lastTimestampSeconds = batch.timestampSeconds
      if (batch.rank !== undefined) this.dpRanks.add(batch.rank)
      for (const event of batch.events) {
        if (event.kind !== 'stored') continue
        if (event.blockSizeTokens > 0) this.blockSizesTokens.add(event.blockSizeTokens)
        if (this.stored.length < STORED_MAX) this.stored.push(event)
      }
    } catch (thrown) {
      if (!(thrown instanceof MalformedKvBatchError)) throw thrown
      this.unreadable++
    }
  }
}

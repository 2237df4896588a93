/**
 * Untaken shares: how many messages each consumer of one connection may have that are not taken, so that
 * all together have UNTAKEN_ALL_MAX: that is what a process holds at most, times PACK_BYTES_MAX, while its
 * event threads are full or replay.
 *
 *   share   UNTAKEN_ALL_MAX / consumers, as a power of 2: from UNTAKEN_MIN to UNTAKEN_MAX. So it changes when
 *           the number of consumers doubles, or halves
 *
 * The broker keeps to it (`max_ack_pending`). A consumer that could not be told has its share of before until
 * the next change.
 */

import { UNTAKEN_ALL_MAX, UNTAKEN_MAX, UNTAKEN_MIN } from './streams.ts'

export interface SharingConsumer {
  /** As the broker knows it, or will when the consumer is made. */
  share: number
  /** The broker knows the consumer, and can be told of another share. */
  isMade: boolean
  /** Tells the broker of another one; rejects if it could not. */
  update(share: number): Promise<void>
}

export class UntakenShares {
  readonly #consumers = new Set<SharingConsumer>()
  #isTelling = false

  /** Answers the share that the new one is to be made with; `made` follows, or `leave`. */
  join(update: (share: number) => Promise<void>): SharingConsumer {
    const consumer = { share: 0, isMade: false, update }
    this.#consumers.add(consumer)
    consumer.share = this.#share
    this.#changed()
    return consumer
  }

  /** Tells it at once if shares have changed since it joined. */
  made(consumer: SharingConsumer): void {
    consumer.isMade = true
    this.#changed()
  }

  leave(consumer: SharingConsumer): void {
    if (this.#consumers.delete(consumer)) this.#changed()
  }

  get #share(): number {
    const share = 2 ** Math.floor(Math.log2(UNTAKEN_ALL_MAX / Math.max(1, this.#consumers.size)))
    return Math.max(UNTAKEN_MIN, Math.min(UNTAKEN_MAX, share))
  }

  /** Tells one after the other; what changes meanwhile is told, too. */
  #changed(): void {
    if (this.#isTelling) return
    this.#isTelling = true
    const tell = async (): Promise<void> => {
      const told = new Set<SharingConsumer>()
      for (;;) {
        const next = [...this.#consumers].find(
          one => one.isMade && one.share !== this.#share && !told.has(one),
        )
        if (next === undefined) break
        told.add(next)
        const share = this.#share
        await next.update(share).then(
          () => {
            next.share = share
            told.delete(next)
          },
          () => {},
        )
      }
      this.#isTelling = false
    }
    void tell()
  }
}

/**
 * Kept lock: a lock that is renewed every LOCK_RENEW_MS while something under it takes long. The lock ends by
 * itself after 30 s, and a dump or an upload may take longer.
 *
 * Invariant  one renewal at a time: each says which one was before it.
 */

import type { Clock, Timer } from '@homing/base'
import type { SnapshotLock } from '@homing/transport'

const LOCK_RENEW_MS = 10_000

export class KeptLock {
  readonly #lock: SnapshotLock
  readonly #clock: Clock
  #renewal: Promise<boolean> | undefined

  constructor(lock: SnapshotLock, clock: Clock) {
    this.#lock = lock
    this.#clock = clock
  }

  /** False: it is lost. */
  async renew(): Promise<boolean> {
    // What a timer has asked is of an earlier time, and may have failed.
    await this.#renewal?.catch(() => {})
    return await this.#lock.renew()
  }

  /** Renews meanwhile. That it was lost shows at the next `renew`. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    let timer: Timer | undefined
    const renewLater = (): void => {
      timer = this.#clock.after(LOCK_RENEW_MS, () => {
        this.#renewal = this.#lock.renew()
        const next = (isMine: boolean): void => {
          this.#renewal = undefined
          if (isMine && timer !== undefined) renewLater()
        }
        // No answer is no loss: the next one may be answered.
        this.#renewal.then(next, () => next(true))
      })
    }
    renewLater()
    try {
      return await work()
    } finally {
      timer?.cancel()
      timer = undefined
    }
  }

  async release(): Promise<void> {
    await this.#renewal?.catch(() => {})
    await this.#lock.release()
  }
}

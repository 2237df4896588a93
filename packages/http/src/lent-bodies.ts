/**
 * Lent bodies: bodies of requests that have ended while the connection to their engine still has bytes of
 * them. An engine may answer before it has read the whole body. Lent bodies count as held until the
 * connection has let go. No event reports that, so it is checked whenever the count matters.
 */

import type { HttpCall } from '@homing/transport'

export class LentBodies {
  readonly #lent = new Map<() => void, Pick<HttpCall, 'usesBody'>>()

  /** Bodies that connections still have. */
  get size(): number {
    return this.#lent.size
  }

  /** The call has ended; `release` is called at once, or by a later `look`. */
  settle(call: Pick<HttpCall, 'usesBody'>, release: () => void): void {
    if (call.usesBody) this.#lent.set(release, call)
    else release()
  }

  /** Releases what no connection has any more. */
  look(): void {
    for (const [release, call] of this.#lent) {
      if (call.usesBody) continue
      this.#lent.delete(release)
      release()
    }
  }
}

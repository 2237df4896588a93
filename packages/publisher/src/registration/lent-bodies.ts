/**
 * Lent bodies: bodies of requests that have ended while the connection to their engine still has bytes of
 * them. An engine may answer before it has read the whole body. Lent bodies count as held until the
 * connection has let go. No event reports that, so it is checked whenever the count matters.
 */

import type { BodyHold } from '@homing/http'
import type { HttpCall } from '@homing/transport'

export class LentBodies {
  readonly #lent = new Map<BodyHold, HttpCall>()

  /** The call has ended; its body is released at once, or by a later `look`. */
  settle(hold: BodyHold, call: HttpCall): void {
    if (call.usesBody) this.#lent.set(hold, call)
    else hold.release()
  }

  /** Releases what no connection has any more. */
  look(): void {
    for (const [hold, call] of this.#lent) {
      if (call.usesBody) continue
      this.#lent.delete(hold)
      hold.release()
    }
  }
}

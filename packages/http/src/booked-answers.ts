/**
 * Booked answers: what was booked for a request is undone where its client does not get the answer, for it
 * does not know then where its request is to go, and ends nothing.
 */

import type { HttpExchange } from '@homing/transport'

/**
 * Sends an answer, and returns what `send` returns. `undo` is called once if the client has left before all
 * of the answer was handed to the system, or if it cannot be sent; undefined: nothing is to be undone.
 */
export async function sendBooked<T>(
  exchange: Pick<HttpExchange, 'onClientGone'>,
  undo: (() => void) | undefined,
  send: () => Promise<T> | T,
): Promise<T> {
  if (undo === undefined) return send()
  let isUndone = false
  const undoOnce = (): void => {
    if (isUndone) return
    isUndone = true
    undo()
  }
  exchange.onClientGone(undoOnce)
  try {
    return await send()
  } catch (thrown) {
    undoOnce()
    throw thrown
  }
}

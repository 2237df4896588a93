/** Answers in pieces: the next piece is made when the client has taken those before. */

import type { HttpExchange } from '@homing/transport'
import { sendAnswer } from './answers.ts'

/** An answer that is no longer than this is sent whole, with its length. */
const FIRST_PIECES_BYTES_MAX = 64 * 1024

/** A piece as another actor hands it over. */
export interface Piece {
  /** Empty in the last one. */
  readonly bytes: Uint8Array
  readonly isLast: boolean
}

type Headers = Readonly<Record<string, string>>

/**
 * Returns the status, 200. Rejects if no first piece can be made; later, the connection is cut: a short
 * answer would look whole to a client that does not check. Ends `pieces` when the client has gone.
 */
export async function sendPieces(
  exchange: HttpExchange,
  headers: Headers,
  pieces: AsyncIterator<Uint8Array, void, undefined>,
): Promise<number> {
  const gone = new Promise<void>(resolve => {
    exchange.onOver(resolve)
  })
  const begun: Uint8Array[] = []
  let begunBytes = 0
  let hasHead = false
  try {
    let next = await pieces.next()
    while (next.done !== true && begunBytes + next.value.length <= FIRST_PIECES_BYTES_MAX) {
      begun.push(next.value)
      begunBytes += next.value.length
      next = await pieces.next()
    }
    if (next.done === true) return sendAnswer(exchange, { status: 200, headers, body: Buffer.concat(begun) })
    hasHead = true
    exchange.writeHead(200, headers)
    if (exchange.method === 'HEAD') {
      exchange.end()
      return 200
    }
    if (begunBytes > 0) exchange.write(Buffer.concat(begun.splice(0)))
    while (next.done !== true && !exchange.isClosed) {
      if (!exchange.write(next.value)) {
        await Promise.race([gone, new Promise<void>(resolve => exchange.onDrain(resolve))])
      }
      if (exchange.isClosed) break
      next = await pieces.next()
    }
    exchange.end()
    return 200
  } catch (thrown) {
    if (!hasHead) throw thrown
    exchange.destroy()
    return 200
  } finally {
    await pieces.return?.()
  }
}

/** The pieces of an answer that another actor makes; `end`: no more are wanted, or there are none. */
export async function* fetchPieces(
  next: () => Promise<Piece>,
  end: () => void,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    for (;;) {
      const { bytes, isLast } = await next()
      if (isLast) return
      yield bytes
    }
  } finally {
    end()
  }
}

/**
 * One buffer for what the sockets of a thread read: Node otherwise takes 64 KiB for each read, and gives them
 * back when it knows how much came. For a stream of small chunks that is most of the memory it asks for.
 *
 * Safe    a socket reads and calls `callback` in one go, and `callback` copies: no reader keeps a view.
 */

import type { OnReadOpts, Socket } from 'node:net'

/** What Node asks of the system at a time, too. */
const READ_BYTES_MAX = 64 * 1024

let buffer: Buffer | undefined

/** For `net.connect`. The socket remains a readable stream as any other. */
export function sharedReadBuffer(): OnReadOpts {
  buffer ??= Buffer.allocUnsafeSlow(READ_BYTES_MAX)
  return { buffer, callback: pushCopy }
}

/** `this` is the socket. Answers whether it is to read on. */
function pushCopy(this: Socket, byteCount: number, read: Uint8Array): boolean {
  const copy = Buffer.allocUnsafe(byteCount)
  copy.set(read.byteLength === byteCount ? read : read.subarray(0, byteCount))
  return this.push(copy)
}

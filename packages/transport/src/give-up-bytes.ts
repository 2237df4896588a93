/** Memory of long byte arrays is given back at once, by its owner, instead of at the next collection. */

/** Shorter arrays are what young collections are for. */
const BYTES_MIN = 16 * 1024

/**
 * Frees the memory of `bytes`, whose length is 0 afterwards. The caller owns them: nobody reads them any
 * more, on any thread. Nothing happens to short arrays, and to those that are part of a larger one or in
 * shared memory.
 *
 * A collector counts memory outside of its heap and, at 64 MB of it, marks the whole heap: with bodies of 500
 * kB that was every 50 requests, and more than half of all CPU time that they took.
 */
export function giveUpBytes(bytes: Uint8Array): void {
  const { buffer } = bytes
  if (bytes.length < BYTES_MIN || !(buffer instanceof ArrayBuffer)) return
  if (buffer.byteLength === bytes.length) buffer.transfer(0)
}

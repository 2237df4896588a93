/**
 * Chunks of an answer (RFC 9112 §7.1), each in one piece: Node sends size, bytes and line ends of a chunk as
 * four pieces, which is a fifth of what it takes to write a short event of a stream.
 */

/** Longer ones are not copied. */
const COPIED_BYTES_MAX = 16_384
const LINE_END = Buffer.from('\r\n')
export const LAST_CHUNK = Buffer.from('0\r\n\r\n')

/** What is to be written for a chunk of these bytes, of which there is at least one. */
export function chunkOf(bytes: Uint8Array): readonly Uint8Array[] {
  const { length } = bytes
  const size = length.toString(16)
  if (length > COPIED_BYTES_MAX) return [Buffer.from(`${size}\r\n`, 'latin1'), bytes, LINE_END]
  const chunk = Buffer.allocUnsafe(size.length + length + 4)
  let at = 0
  for (; at < size.length; at++) chunk[at] = size.charCodeAt(at)
  chunk[at++] = 13
  chunk[at++] = 10
  chunk.set(bytes, at)
  at += length
  chunk[at++] = 13
  chunk[at] = 10
  return [chunk]
}

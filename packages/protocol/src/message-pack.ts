/**
 * The one door for MessagePack of others that is to become plain values: messages of replicas, sealed bodies.
 * (KV events go through MessagePackReader alone, into typed arrays.)
 *
 * The bytes are walked over first, without making anything: a header may claim four billion elements, and the
 * library makes room for what a header claims. It gets only what is whole and within the bounds, so memory is
 * bounded by the bytes, `valuesMax` and `depthMax`.
 */

import { decode } from '@msgpack/msgpack'
import { BrokenMessageError, MessagePackReader } from './message-pack-reader.ts'

export interface MessagePackBounds {
  readonly bytesMax: number
  /** Arrays, maps, their keys and all else that has a head of its own. */
  readonly valuesMax: number
  /** Of arrays and maps within each other. */
  readonly depthMax: number
}

/** Throws BrokenMessageError: it is cut, beyond the bounds, or has an extension, which none of ours has. */
export function decodeMessagePack(bytes: Uint8Array, bounds: MessagePackBounds): unknown {
  if (bytes.length > bounds.bytesMax)
    throw new BrokenMessageError(`it has ${bytes.length} bytes, more than ${bounds.bytesMax}`)
  checkBounds(bytes, bounds)
  try {
    return decode(bytes)
  } catch (error) {
    // A key that is no text, and one that would change the prototype.
    throw new BrokenMessageError(error instanceof Error ? error.message : String(error))
  }
}

function checkBounds(bytes: Uint8Array, { valuesMax, depthMax }: MessagePackBounds): void {
  const reader = new MessagePackReader(bytes)
  let room = valuesMax
  // What is still to come, by depth.
  const pending = [1]
  const open = (count: number): void => {
    if (count > room) throw new BrokenMessageError(`it has more than ${valuesMax} values`)
    if (pending.length > depthMax) throw new BrokenMessageError(`it is deeper than ${depthMax}`)
    pending.push(count)
  }
  while (pending.length > 0) {
    const depth = pending.length - 1
    if (pending[depth] === 0) {
      pending.pop()
      continue
    }
    pending[depth]!--
    if (room-- === 0) throw new BrokenMessageError(`it has more than ${valuesMax} values`)
    const type = reader.peek()
    if (type === 'array') open(reader.arrayCount())
    else if (type === 'map') open(2 * reader.mapCount())
    else if (type === 'extension') throw new BrokenMessageError('it has an extension')
    else reader.skip()
  }
  if (!reader.isAtEnd) throw new BrokenMessageError('something follows its end')
}

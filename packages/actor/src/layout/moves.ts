/**
 * Moves: the buffers that a message takes along to another thread instead of a copy.
 *
 * The link posts a message some time after it was told. So that its sender cannot change it meanwhile, the contents of a buffer
 * move to a new one as soon as the link has taken the message: the sender's is detached when `tell` returns `ok`, and
 * untouched when it does not. A message whose buffers have been posted exists once: a thread that dies before it takes the
 * message takes it with it.
 */

import { isMarkedAsUntransferable } from 'node:worker_threads'
import { UnserializableMessageError } from '../values/errors.ts'
import { DEPTH_MAX, type DescribeReply, type Path, refusalOf, tooDeep } from './pack.ts'

/** A buffer, or a view of one, in a message. */
interface Slot {
  readonly path: Path
  readonly value: ArrayBuffer | ArrayBufferView<ArrayBuffer>
}

export class Moves {
  /** What the post transfers. */
  readonly buffers: ArrayBuffer[]
  readonly #slots: Slot[] = []

  /** Throws UnserializableMessageError when one of `transfer` cannot be moved. */
  constructor(transfer: readonly ArrayBuffer[]) {
    for (const buffer of transfer) {
      // The memory behind small Buffers is shared by many of them, and marked.
      if (!(buffer instanceof ArrayBuffer) || buffer.detached || isMarkedAsUntransferable(buffer)) {
        throw new UnserializableMessageError(
          'a value of its transfer list',
          'only buffers that are not detached move',
        )
      }
    }
    this.buffers = [...new Set(transfer)]
  }

  /**
   * A copy of the value, as far as needed, without the buffers that move. Throws UnserializableMessageError, as `pack`
   * does, for a value that is nested too deep or cannot be read.
   */
  lift(value: unknown, describeReply: DescribeReply): unknown {
    try {
      return this.#lift(value, [])
    } catch (error) {
      throw refusalOf(value, describeReply, error)
    }
  }

  #lift(value: unknown, path: (string | number)[]): unknown {
    if (typeof value !== 'object' || value === null) return value
    // A cycle has no end, and with two ways through it 2 to the power of DEPTH_MAX paths.
    if (path.length > DEPTH_MAX) throw tooDeep()
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) {
      const buffer = value instanceof ArrayBuffer ? value : value.buffer
      if (!this.buffers.includes(buffer as ArrayBuffer)) return value
      this.#slots.push({ path: [...path], value: value as Slot['value'] })
      return null
    }
    if (Array.isArray(value)) return value.map((item, index) => this.#liftAt(item, index, path))
    const prototype = Object.getPrototypeOf(value) as unknown
    if (prototype !== Object.prototype && prototype !== null) return value
    const copy: Record<string, unknown> = {}
    for (const key of Object.keys(value)) {
      copy[key] = this.#liftAt((value as Record<string, unknown>)[key], key, path)
    }
    return copy
  }

  #liftAt(value: unknown, key: string | number, path: (string | number)[]): unknown {
    path.push(key)
    const lifted = this.#lift(value, path)
    path.pop()
    return lifted
  }

  /** Puts back into `body` what was lifted out of it; returns what is `body` then. */
  putBack(body: unknown): unknown {
    let root = body
    for (const { path, value } of this.#slots) root = putAt(root, path, value)
    return root
  }

  /** The link takes `body`: detaches the sender's buffers, unless the post has done so. Returns what is `body` then. */
  commit(body: unknown): unknown {
    let root = body
    for (const [index, buffer] of this.buffers.entries()) {
      const slots = this.#slots.filter(({ value }) => bufferOf(value) === buffer)
      if (buffer.detached || slots.length === 0) continue
      // First, while the lengths of the views can be read.
      const remake = slots.map(({ value }) => remakerOf(value))
      const moved = buffer.transfer()
      this.buffers[index] = moved
      for (const [at, { path }] of slots.entries()) root = putAt(root, path, remake[at]!(moved))
    }
    return root
  }
}

function bufferOf(value: Slot['value']): ArrayBuffer {
  return value instanceof ArrayBuffer ? value : value.buffer
}

/** Makes the same view of another buffer. */
function remakerOf(value: Slot['value']): (buffer: ArrayBuffer) => unknown {
  if (value instanceof ArrayBuffer) return buffer => buffer
  const { byteOffset, byteLength } = value
  if (value instanceof DataView) return buffer => new DataView(buffer, byteOffset, byteLength)
  const { length } = value as Uint8Array
  // A Buffer arrives as the plain array of bytes that it is.
  const View = value instanceof Uint8Array ? Uint8Array : (value.constructor as Uint8ArrayConstructor)
  return buffer => new View(buffer, byteOffset, length)
}

function putAt(root: unknown, path: Path, value: unknown): unknown {
  if (path.length === 0) return value
  let holder = root as Record<string | number, unknown>
  for (let i = 0; i < path.length - 1; i++) holder = holder[path[i]!] as Record<string | number, unknown>
  holder[path[path.length - 1]!] = value
  return root
}

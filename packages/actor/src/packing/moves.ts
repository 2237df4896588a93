/**
 * Moves: the buffers that a message takes along to another thread instead of a copy.
 *
 * The link posts a message some time after it was told. So that its sender cannot change it meanwhile, the
 * contents of a buffer move to a new one as soon as the link has taken the message: the sender's is detached
 * when `tell` returns `ok`, and untouched when it does not. A message whose buffers have been posted exists
 * once: a thread that dies before it takes the message takes it with it.
 */

// As a whole: an older Node lacks isMarkedAsUntransferable, and would fail to link it before the check of its
// version runs.
import workerThreads from 'node:worker_threads'
import { UnserializableMessageError } from '../values/errors.ts'
import { type DescribeReply, PACKED_DEPTH_MAX, type Path, putAt, refusalOf, tooDeep } from './pack.ts'

/** Makes the same value again, over the buffers that replace those that moved. */
type Remake = (moved: ReadonlyMap<ArrayBufferLike, ArrayBuffer>) => unknown

/**
 * A part of a message that has something to move: a buffer, a view of one, or a Map or Set with such in it.
 */
interface Slot {
  readonly path: Path
  readonly value: object
  readonly remake: Remake
}

export class Moves {
  /** What the post transfers. */
  readonly buffers: ArrayBuffer[]
  readonly #slots: Slot[] = []
  /** The copies of the objects and arrays that were lifted whole: what occurs again is the same there. */
  readonly #lifted = new Map<object, object>()
  /** Of what is in Maps and Sets, and of views. */
  readonly #remakes = new Map<object, Remake | undefined>()

  /** Throws UnserializableMessageError when one of `transfer` cannot be moved. */
  constructor(transfer: readonly ArrayBuffer[]) {
    for (const buffer of transfer) {
      // The memory behind small Buffers is shared by many of them, and marked.
      if (
        !(buffer instanceof ArrayBuffer) ||
        buffer.detached ||
        // Node 20 does not tell.
        workerThreads.isMarkedAsUntransferable?.(buffer)
      ) {
        throw new UnserializableMessageError(
          'a value of its transfer list',
          'only buffers that are not detached move',
        )
      }
    }
    this.buffers = [...new Set(transfer)]
  }

  /**
   * A copy of the value, as far as needed, without the buffers that move. Throws UnserializableMessageError,
   * as `pack` does, for a value that is nested too deep or cannot be read.
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
    // A cycle has no end.
    if (path.length > PACKED_DEPTH_MAX) throw tooDeep()
    const lifted = this.#lifted.get(value)
    if (lifted !== undefined) return lifted
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) {
      const remake = this.#remakeIn(value, path.length)
      if (remake === undefined) return value
      this.#slots.push({ path: [...path], value, remake })
      return null
    }
    if (value instanceof Map || value instanceof Set) {
      // It stays where it is, so that what may not travel is found in it.
      const remake = this.#remakeIn(value, path.length)
      if (remake !== undefined) this.#slots.push({ path: [...path], value, remake })
      return value
    }
    if (Array.isArray(value)) {
      const copy = value.map((item, index) => this.#liftAt(item, index, path))
      this.#lifted.set(value, copy)
      return copy
    }
    const prototype = Object.getPrototypeOf(value) as unknown
    if (prototype !== Object.prototype && prototype !== null) return value
    const copy: Record<string, unknown> = {}
    for (const key of Object.keys(value)) {
      copy[key] = this.#liftAt((value as Record<string, unknown>)[key], key, path)
    }
    this.#lifted.set(value, copy)
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

  /**
   * The link takes `body`: detaches the sender's buffers, unless the post has done so. Returns what is `body`
   * then.
   */
  commit(body: unknown): unknown {
    const moved = new Map<ArrayBufferLike, ArrayBuffer>()
    for (const [index, buffer] of this.buffers.entries()) {
      if (buffer.detached) continue
      const heir = buffer.transfer()
      this.buffers[index] = heir
      moved.set(buffer, heir)
    }
    let root = body
    if (moved.size > 0) for (const { path, remake } of this.#slots) root = putAt(root, path, remake(moved))
    return root
  }

  /**
   * For a buffer that moves, or a view of one; undefined for others. What a view says of itself is read now:
   * later it is detached.
   */
  #remakeOf(value: ArrayBuffer | ArrayBufferView): Remake | undefined {
    const buffer = value instanceof ArrayBuffer ? value : value.buffer
    if (!this.buffers.includes(buffer as ArrayBuffer)) return undefined
    const over = viewMakerOf(value)
    return moved => {
      const heir = moved.get(buffer)
      return heir === undefined ? value : over(heir)
    }
  }

  /**
   * For a view, a buffer, and anything inside a Map or Set; undefined when nothing in it moves. It is made
   * once.
   */
  #remakeIn(value: unknown, depth: number): Remake | undefined {
    if (typeof value !== 'object' || value === null) return undefined
    if (depth > PACKED_DEPTH_MAX) throw tooDeep()
    if (this.#remakes.has(value)) return this.#remakes.get(value)
    const remake = once(this.#remakeInside(value, depth))
    this.#remakes.set(value, remake)
    return remake
  }

  #remakeInside(value: object, depth: number): Remake | undefined {
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return this.#remakeOf(value)
    const isCollection = value instanceof Map || value instanceof Set
    if (isCollection || Array.isArray(value)) {
      const items: unknown[] = [...value]
      const remake = this.#remakeAll(items, depth)
      if (remake === undefined || !isCollection) return remake
      return value instanceof Map
        ? moved => new Map(remake(moved) as [unknown, unknown][])
        : moved => new Set(remake(moved))
    }
    const prototype = Object.getPrototypeOf(value) as unknown
    if (prototype !== Object.prototype && prototype !== null) return undefined
    const keys = Object.keys(value)
    const remake = this.#remakeAll(Object.values(value), depth)
    if (remake === undefined) return undefined
    return moved => Object.fromEntries(remake(moved).map((item, index) => [keys[index]!, item]))
  }

  #remakeAll(
    items: readonly unknown[],
    depth: number,
  ): ((moved: Parameters<Remake>[0]) => unknown[]) | undefined {
    const remakes = items.map(item => this.#remakeIn(item, depth + 1))
    if (remakes.every(remake => remake === undefined)) return undefined
    return moved => items.map((item, index) => remakes[index]?.(moved) ?? item)
  }
}

/** What moves does so once. */
function once(remake: Remake | undefined): Remake | undefined {
  if (remake === undefined) return undefined
  let made: unknown
  return moved => {
    made ??= remake(moved)
    return made
  }
}

/** Makes the same view of another buffer. */
function viewMakerOf(value: ArrayBuffer | ArrayBufferView): (buffer: ArrayBuffer) => unknown {
  if (value instanceof ArrayBuffer) return buffer => buffer
  const { byteOffset, byteLength } = value
  if (value instanceof DataView) return buffer => new DataView(buffer, byteOffset, byteLength)
  const { length } = value as Uint8Array
  // A Buffer arrives as the plain array of bytes that it is.
  const View = value instanceof Uint8Array ? Uint8Array : (value.constructor as Uint8ArrayConstructor)
  return buffer => new View(buffer, byteOffset, length)
}

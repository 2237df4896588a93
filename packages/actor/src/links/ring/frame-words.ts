/**
 * FrameWords: how a frame lies in a ring.
 *
 *   word 0     its size
 *        1     op (6 bits), encoding (4)
 *        2, 3  target, low word first
 *        4, 5  corr
 *        6 …   the body
 *
 * The encoding says what the body is: a *token*, whose body comes over the port under the number in it, or a
 * primitive.
 *
 * Code that writes or reads every frame copies these constants and spells the header out: V8 folds no
 * imported constant, and calls for the header cost 5 % of a frame, although they are inlined.
 */

export const FRAME = {
  HEADER_WORDS: 6,
  /** The most that a token or a primitive takes. */
  INLINE_WORDS: 2,
  OP_MASK: 0x3f,
  ENCODING_SHIFT: 6,
  ENCODING_MASK: 0xf,
  /** Weight of the high words of target and corr. */
  HIGH: 2 ** 32,
} as const

export const ENCODING = {
  TOKEN: 0,
  UNDEFINED: 1,
  NULL: 2,
  FALSE: 3,
  TRUE: 4,
  INTEGER: 5,
  DOUBLE: 6,
} as const

/** What the encodings stand for that have no words. */
export const PRIMITIVES: readonly unknown[] = [undefined, undefined, null, false, true]

/** In place of patches: the body could not be cloned. */
export const LOST = -1

/** The encoding of a body without patches. */
export function encodingFor(body: unknown): number {
  switch (typeof body) {
    case 'number':
      return (body | 0) === body && !Object.is(body, -0) ? ENCODING.INTEGER : ENCODING.DOUBLE
    case 'undefined':
      return ENCODING.UNDEFINED
    case 'boolean':
      return body ? ENCODING.TRUE : ENCODING.FALSE
    default:
      return body === null ? ENCODING.NULL : ENCODING.TOKEN
  }
}

export function opAt(words: Int32Array, index: number): number {
  return words[index + 1]! & FRAME.OP_MASK
}

export function corrAt(words: Int32Array, index: number): number {
  return words[index + 5]! * FRAME.HIGH + (words[index + 4]! >>> 0)
}

const doubleView = new Float64Array(1)
const doubleWords = new Int32Array(doubleView.buffer)

export function writeDouble(words: Int32Array, at: number, value: number): void {
  doubleView[0] = value
  words[at] = doubleWords[0]!
  words[at + 1] = doubleWords[1]!
}

export function readDouble(words: Int32Array, at: number): number {
  doubleWords[0] = words[at]!
  doubleWords[1] = words[at + 1]!
  return doubleView[0]!
}

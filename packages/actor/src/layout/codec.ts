/** The interface of codecs, whether made by generate.ts or closures.ts: both write the same words. */

/** Two views of the same memory, both from its first byte. */
export interface RingViews {
  readonly words: Int32Array
  readonly bytes: Uint8Array
}

/** Writes one kind of value as words and reads it back. Values are plain data: no getter answers differently twice. */
export interface BodyCodec {
  /**
   * Words at most for `value`; −1 when it does not fit exactly: out of range, another type, a field more or
   * less, an instance of a class, shared or detached memory, over BODY_WORDS_MAX. Then it travels as an object.
   */
  sizeOf(value: unknown): number
  /** Writes a value that fits from word `at` on; returns the number of words used, at most `sizeOf(value)`. */
  write(value: unknown, views: RingViews, at: number): number
  /**
   * Reads what `write` wrote: a new value of its own memory, fields always in the order of the layout
   * (`type` first).
   */
  read(views: RingViews, at: number): unknown
}

/** A larger body is not copied through a ring: 64 MiB. */
export const BODY_WORDS_MAX = 2 ** 24

/** Codings: how the body of a frame is written field by field, where the definition of its actor declared a layout. */

/** The same memory as words and as bytes. */
export interface RingViews {
  readonly words: Int32Array
  readonly bytes: Uint8Array
}

export interface BodyCodec {
  /** Words at most for `value`; −1 when it does not fit the layout exactly. */
  sizeOf(value: unknown): number
  /** Writes at word `at`; returns the number of words used. */
  write(value: unknown, views: RingViews, at: number): number
  read(views: RingViews, at: number): unknown
}

export interface VariantCodec {
  readonly type: string
  /** Its place in the layout. */
  readonly number: number
  readonly body: BodyCodec
  readonly reply: BodyCodec | undefined
}

export interface CompiledLayout {
  readonly id: string
  /** Plain data: the layout can be compiled again from it on another thread. */
  readonly description: unknown
  readonly variants: readonly VariantCodec[]
  variantOf(type: string): VariantCodec | undefined
}

/** A variant of a layout, or the answer to it. */
export interface Coding {
  readonly layout: CompiledLayout
  readonly variant: VariantCodec
  readonly isReply: boolean
}

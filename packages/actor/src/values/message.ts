/** Messages between actors. An object is a message if its `type` is a string. */

/**
 * Every message is plain readonly data with a `type`; a protocol is a union of such types. It belongs to the
 * receiver once it is sent: on one thread it is the same object, between threads a copy.
 */
export interface Message {
  readonly type: string
}

/** What a message or an answer takes along. */
export interface TransferOptions {
  /**
   * Buffers in the message, in plain objects and arrays, that move to the thread of the receiver instead of
   * being copied: they are detached when `tell` returns `ok`. Between actors of one thread nothing moves, and
   * the receiver gets the same object; its sender does not touch it any more, as with any message.
   */
  readonly transfer?: readonly ArrayBuffer[]
}

/**
 * Answers an ask, once; a second call, or one after the deadline, is discarded. May be called later, and may
 * be passed on in a message to an actor on any thread. Never throws.
 */
export type Reply<T> = ((value: T, options?: TransferOptions) => void) & ReplyMark

/**
 * Tells a reply from any other function, for the compiler only: no reply has it, and any function may stand
 * for one.
 */
export interface ReplyMark {
  readonly [replyMark]?: never
}
export declare const replyMark: unique symbol

/** The key of a message: it replaces a waiting message with an equal key. Undefined: it replaces none. */
export type MessageKey = string | number | undefined

/** The type of a message; undefined when `value` is none. Never throws. */
export function typeOf(value: unknown): string | undefined {
  try {
    const type = (value as { readonly type?: unknown } | null | undefined)?.type
    return typeof type === 'string' ? type : undefined
  } catch {
    // What cannot be read, such as a revoked proxy, has no type.
    return undefined
  }
}

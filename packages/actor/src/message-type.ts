/** What makes a value a message: it is an object, and its `type` is a string. */

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

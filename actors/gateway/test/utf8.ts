/** Text as the bytes that travel, and back. */

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)
export const textOf = (bytes: Uint8Array | undefined): string => new TextDecoder().decode(bytes)

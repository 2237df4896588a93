/**
 * Finds the end of a JSON text in quotes, 16 bytes at a time. AssemblyScript: compiled by build-wasm.ts into
 * ../src/string-end-wasm.ts, never loaded by Node as it stands.
 *
 * The caller writes a part of the text to `room()`, calls, and goes on with the next part.
 */

const QUOTE: u8 = 0x22
const BACKSLASH: u8 = 0x5c

/** What stopped the search, in the lowest two bits of the answer. */
const AT_QUOTE: u32 = 0
/** The text goes on behind the part, from the given position on. */
const AT_END: u32 = 1
/** A control character, or an escape that is none. */
const AT_FAULT: u32 = 2

const ROOM: usize = memory.data(65536 + 16, 16)

export function room(): usize {
  return ROOM
}

/** Looks from byte `from` of the part, which has `size` bytes; the position is in the upper bits. */
export function find(from: u32, size: u32): u32 {
  let at = runEnd(from, size)
  while (at < size) {
    const byte = load<u8>(ROOM + at)
    if (byte === QUOTE) return (at << 2) | AT_QUOTE
    if (byte !== BACKSLASH) return (at << 2) | AT_FAULT
    if (at + 1 >= size) return (at << 2) | AT_END
    const escaped = load<u8>(ROOM + at + 1)
    if (escaped === 0x75) {
      if (at + 6 > size) return (at << 2) | AT_END
      for (let i: u32 = 2; i < 6; i++) if (!isHexDigit(load<u8>(ROOM + at + i))) return (at << 2) | AT_FAULT
      at = runEnd(at + 6, size)
    } else {
      if (!isEscaped(escaped)) return (at << 2) | AT_FAULT
      at = runEnd(at + 2, size)
    }
  }
  return (size << 2) | AT_END
}

/** The next quote, backslash or control character; at or behind `size`: there is none. */
function runEnd(from: u32, size: u32): u32 {
  let at = from
  while (at < size) {
    const bytes = v128.load(ROOM + at)
    const ends = v128.or(
      v128.or(i8x16.eq(bytes, i8x16.splat(QUOTE)), i8x16.eq(bytes, i8x16.splat(BACKSLASH))),
      i8x16.lt_u(bytes, i8x16.splat(0x20)),
    )
    const mask = i8x16.bitmask(ends)
    if (mask !== 0) return at + ctz(mask)
    at += 16
  }
  return at
}

function isHexDigit(byte: u8): bool {
  const letter = byte | 0x20
  return (byte >= 0x30 && byte <= 0x39) || (letter >= 0x61 && letter <= 0x66)
}

/** One of the bytes that may follow a backslash, but for `u`. */
function isEscaped(byte: u8): bool {
  return (
    byte === QUOTE ||
    byte === BACKSLASH ||
    byte === 0x2f || // /
    byte === 0x62 || // b
    byte === 0x66 || // f
    byte === 0x6e || // n
    byte === 0x72 || // r
    byte === 0x74 // t
  )
}

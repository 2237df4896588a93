/** The classes of characters that the encoder knows, as this Node's own Unicode has them. */

/** In the order of the encoder's bits. */
const PATTERNS = [
  /\p{Lu}|\p{Lt}/u,
  /\p{Ll}/u,
  /\p{Lm}|\p{Lo}/u,
  /\p{M}/u,
  /\p{N}/u,
  /\p{P}/u,
  /\p{S}/u,
  /\p{White_Space}/u,
]

/** The flags of a character; 0 for one of no class. */
export function nodeFlagsOf(character: string): number {
  const bit = PATTERNS.findIndex(pattern => pattern.test(character))
  return bit < 0 ? 0 : 1 << bit
}

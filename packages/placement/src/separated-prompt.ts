/**
 * The beginning of a prompt with a cache salt, an adapter or an extra key, in the events of engines that do
 * not name them all.
 */

import { type HashNamespace, hashLocals, namespaceSeed } from '@homing/blocks'
import { ADAPTER, SALT, type SeparatedPrompt } from '@homing/protocol'

/** A prompt with unknown tokens; undefined: it has no separators. */
export function unknownPromptWith(separators: number): SeparatedPrompt | undefined {
  if (separators === 0) return undefined
  return { firstTokens: 0, hashes: new Int32Array(0), unnamed: [separators] }
}

/**
 * `separators`: all that the prompt has. Those in `namespace` may be named by events, together or not; of the
 * others nothing is known that could be.
 */
export function separatedPrompt(
  ids: Int32Array,
  blockSizeTokens: number,
  { loraName, cacheSalt }: HashNamespace,
  separators: number,
): SeparatedPrompt | undefined {
  if (separators === 0 || ids.length === 0) return unknownPromptWith(separators)
  const first = ids.subarray(0, blockSizeTokens)
  const nameable = (loraName ? ADAPTER : 0) | (cacheSalt ? SALT : 0)
  const unnamed: number[] = []
  const hashes: number[] = []
  const hash = new Int32Array(2)
  for (let named = 0; named <= (SALT | ADAPTER); named++) {
    if ((named & ~nameable) !== 0 || named === separators) continue
    const seed = namespaceSeed({
      loraName: (named & ADAPTER) === 0 ? undefined : loraName,
      cacheSalt: (named & SALT) === 0 ? undefined : cacheSalt,
    })
    hashLocals(first, first.length, seed, hash)
    unnamed.push(separators & ~named)
    hashes.push(...hash)
  }
  return { firstTokens: first.length, hashes: Int32Array.from(hashes), unnamed }
}

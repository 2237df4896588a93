/**
 * Text blocks: if the tokens of a prompt are not known, its text in pieces of a fixed size stands in for
 * them.
 *
 *   text (UTF-8)  | TEXT_BYTES_PER_TOKEN · blockSizeTokens bytes | the same | rest, ignored
 *   local         XXH3(bytes of the piece, seed of the namespace for text)
 *   sequence      as of blocks of tokens
 *
 * A token of English is about four bytes, so a piece is about a block of tokens, and is counted as one. Only
 * one thing is certain: equal prefixes of texts have equal pieces. The seed differs from that of tokens in
 * any namespace: no piece of text ever equals a block that an engine names.
 */

import { type BlockHashes, hashBlocks } from './blocks.ts'
import { addHashes } from './hash64.ts'
import { type HashNamespace, namespaceSeed, type Seed } from './namespace.ts'
import { xxh3 } from './xxh3.ts'

export const TEXT_BYTES_PER_TOKEN = 4

/** Namespaces hash adapters with 0 and salts with 1. */
const CONTENT_SEED: Seed = { lo: 2, hi: 0 }
const TEXT_SEED: Seed = xxh3(new TextEncoder().encode('text'), CONTENT_SEED)

/** About how many tokens a text of so many bytes has. */
export function textTokens(bytes: number): number {
  return Math.ceil(bytes / TEXT_BYTES_PER_TOKEN)
}

/** Hashes the full pieces of a text. */
export function hashText(text: Uint8Array, blockSizeTokens: number, namespace: HashNamespace): BlockHashes {
  // Four bytes are a word, so a piece is hashed as a block of as many words.
  const words = new Int32Array(Math.floor(text.length / TEXT_BYTES_PER_TOKEN))
  new Uint8Array(words.buffer).set(text.subarray(0, words.length * TEXT_BYTES_PER_TOKEN))
  return hashBlocks(words, blockSizeTokens, addHashes(namespaceSeed(namespace), TEXT_SEED))
}

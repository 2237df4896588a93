/** The tokenizer of an engine: of a directory, or the built-in one. */

import { byteTokenizer, type EngineTokenizer } from './engine-tokenizer.ts'

/** Loads the tokenizer of a directory; without one, the tokenizer of bytes and short words. */
export async function loadEngineTokenizer(directory: string | undefined): Promise<EngineTokenizer> {
  if (directory === undefined) return byteTokenizer()
  throw new Error(`not yet: ${directory}`)
}

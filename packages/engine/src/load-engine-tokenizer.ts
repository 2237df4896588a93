/** The tokenizer of an engine: from a Hugging Face directory, or the built-in one. */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PromptTokenizer } from '@homing/tokenization'
import { byteTokenizer, type EngineTokenizer } from './engine-tokenizer.ts'

/**
 * Loads the tokenizer of a directory; without one, the tokenizer of bytes and short words. A chat that the
 * tokenizer cannot render exactly (media, an odd template) is encoded as the text of its JSON: it is served
 * with ids that no router can predict, as a real engine would. Throws TokenizerLoadError.
 */
export async function loadEngineTokenizer(directory: string | undefined): Promise<EngineTokenizer> {
  if (directory === undefined) return byteTokenizer()
  const prompts = await PromptTokenizer.load(directory)
  const { size, specials } = await readVocabulary(directory)
  return {
    vocabularySize: size,
    encodeText: (text, addSpecialTokens) => prompts.encodeText(text, { addSpecialTokens }),
    encodeChat(body, bytes) {
      const answer = prompts.encodeChat(bytes)
      if (answer.kind === 'tokens') return answer.tokens
      return prompts.encodeText(JSON.stringify(body['messages']), { addSpecialTokens: true })
    },
    decode: tokenIds => prompts.decode(tokenIds.filter(id => id < size && !specials.has(id))),
  }
}

interface Vocabulary {
  /** Highest id + 1. */
  readonly size: number
  readonly specials: ReadonlySet<number>
}

async function readVocabulary(directory: string): Promise<Vocabulary> {
  const file = JSON.parse(await readFile(join(directory, 'tokenizer.json'), 'utf8')) as {
    readonly model?: { readonly vocab?: Readonly<Record<string, number>> | readonly unknown[] }
    readonly added_tokens?: readonly { readonly id: number; readonly special?: boolean }[]
  }
  const vocab = file.model?.vocab ?? {}
  let size = 0
  if (Array.isArray(vocab)) size = vocab.length
  else
    for (const id of Object.values(vocab as Readonly<Record<string, number>>)) size = Math.max(size, id + 1)
  const specials = new Set<number>()
  for (const { id, special } of file.added_tokens ?? []) {
    size = Math.max(size, id + 1)
    if (special === true) specials.add(id)
  }
  return { size, specials }
}

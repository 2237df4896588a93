/**
 * The native binding of Hugging Face's Rust `tokenizers` (npm @anush008/tokenizers 0.6.0, which holds
 * 0.22.2), as a reference that needs no Python. It is there where its registry has a binary for the platform.
 */

import type { Tokenizer } from '@anush008/tokenizers'

type Binding = typeof import('@anush008/tokenizers')

/** Token ids of a text; special tokens in it are found, none are added. */
export type Encode = (text: string) => Promise<readonly number[]>

/** The binding's encoder for a tokenizer.json; undefined when there is no binary for this platform. */
export function nativeEncoder(tokenizerPath: string): Promise<Encode | undefined> {
  return encoderOf(({ Tokenizer }) => Tokenizer.fromFile(tokenizerPath))
}

/** The same for a tokenizer.json as a value. */
export function nativeEncoderOf(tokenizer: object): Promise<Encode | undefined> {
  return encoderOf(({ Tokenizer }) => Tokenizer.fromString(JSON.stringify(tokenizer)))
}

async function encoderOf(load: (binding: Binding) => Tokenizer): Promise<Encode | undefined> {
  const binding = await tryBinding()
  if (binding === undefined) return undefined
  const tokenizer = load(binding)
  return async text => (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds()
}

async function tryBinding(): Promise<Binding | undefined> {
  try {
    return await import('@anush008/tokenizers')
  } catch (error) {
    if (/native binding|Unsupported (OS|architecture)|Cannot find module/.test((error as Error).message))
      return undefined
    throw error
  }
}

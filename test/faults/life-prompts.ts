/**
 * The prompts of a history of lives, and the blocks that they begin with. There are few, so that every block
 * can be checked. A letter is a block: `abc` is three blocks, and shares the first two with `abd`.
 */

import { hashLocals, namespaceSeed } from '@homing/blocks'
import { promptHashes } from '@homing/engine'

export const BLOCK_TOKENS = 4

/** A prompt of whole blocks; checks include all its prefixes. */
export interface Prompt {
  readonly letters: string
  readonly salt: string | undefined
  readonly tokens: readonly number[]
  /** As an index knows its blocks: pairs. */
  readonly locals: Int32Array
  /** Of its blocks, as numbers of `BLOCKS`. */
  readonly blocks: readonly number[]
}

/** A block with all blocks before it. */
export interface Block {
  /** `abc`, or `abc+s` under the salt s. */
  readonly name: string
  readonly prompt: number
  /** Its place in the prompt, from 0. */
  readonly depth: number
}

const SALT = 's'

export const PLAIN = ['abcde', 'abcf', 'abgh', 'aij', 'klm', 'kln', 'kop', 'q', 'r'] as const
export const SALTED = ['abc', 'kl'] as const

export const BLOCKS: readonly Block[] = []
export const PROMPTS: readonly Prompt[] = [
  ...PLAIN.map((letters, i) => promptOf(letters, undefined, i)),
  ...SALTED.map((letters, i) => promptOf(letters, SALT, PLAIN.length + i)),
]

function promptOf(letters: string, salt: string | undefined, number: number): Prompt {
  const tokens = tokensOf(letters)
  const locals = new Int32Array(2 * letters.length)
  hashLocals(Int32Array.from(tokens), BLOCK_TOKENS, namespaceSeed({ cacheSalt: salt }), locals)
  const blocks = [...letters].map((_, depth) => {
    const name = letters.slice(0, depth + 1) + (salt === undefined ? '' : `+${salt}`)
    const known = BLOCKS.findIndex(block => block.name === name)
    return known >= 0 ? known : (BLOCKS as Block[]).push({ name, prompt: number, depth }) - 1
  })
  return { letters, salt, tokens, locals, blocks }
}

export function tokensOf(letters: string): number[] {
  return [...letters].flatMap(letter =>
    Array.from({ length: BLOCK_TOKENS }, (_, i) => 100 + letter.charCodeAt(0) * BLOCK_TOKENS + i),
  )
}

/** What an engine of this hash seed calls each block of `BLOCKS`. */
export function engineHashes(hashSeed: number, blockTokens: number): readonly string[] {
  const ofPrompt = PROMPTS.map(({ tokens, salt }) => promptHashes(hashSeed, tokens, blockTokens, salt))
  return BLOCKS.map(({ prompt, depth }) => ofPrompt[prompt]![depth] ?? '')
}

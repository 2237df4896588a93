/**
 * Conversations of four turns for a fleet of engines, and the share of their tokens that one cache with the
 * blocks of the whole fleet would hold.
 *
 * A turn is the prompt of the turn before, its answer, and new text. Turns of all conversations are mixed:
 * the next request is that of a random conversation with turns left. No two texts are alike.
 *
 * A token is a character that stands for itself in the tokenizer of the engines, so that a router that knows
 * texts alone gets the same prompts as one that knows tokens, and both know their lengths.
 */

import { type Random, seededRandom } from '@homing/base'

export const BLOCK_SIZE_TOKENS = 16
const TURNS = 4
const FIRST_TOKENS = [1500, 5000] as const
const TURN_TOKENS = [200, 1200] as const
export const OUTPUT_TOKENS = 16
/** Characters that no merge of fixtures/tiny of packages/tokenization joins. */
const ALPHABET = Int32Array.from('0123456789UXZ$%@^`~', character => character.codePointAt(0)!)

export interface SessionRequest {
  readonly atMs: number
  /** Character codes, one for each token. */
  readonly tokens: Int32Array
  /** Its conversation begins with the text that many share. */
  readonly isHot: boolean
}

export interface SessionLoad {
  readonly requests: readonly SessionRequest[]
  /** The text that hot conversations share, in tokens. */
  readonly hotTokens: Int32Array
  /** Blocks that all conversations together fill at their ends. */
  readonly workingSetBlocks: number
}

export interface SessionOptions {
  readonly seed: number
  readonly sessions: number
  readonly perSecond: number
  /** 0 … 1: of the conversations, how many begin with the shared text. */
  readonly hotShare: number
}

export function sessionLoad({ seed, sessions, perSecond, hotShare }: SessionOptions): SessionLoad {
  const random = seededRandom(seed)
  const hotTokens = text(random, between(random, [4000, 4001]))
  const texts = Array.from({ length: sessions }, (_, session) => {
    const isHot = session < hotShare * sessions
    const first = text(random, between(random, FIRST_TOKENS))
    return { isHot, tokens: isHot ? join(hotTokens, first) : first }
  })
  const open = texts.map((_, session) => ({ session, turn: 0 }))
  const requests: SessionRequest[] = []
  let atMs = 0
  while (open.length > 0) {
    const at = random.below(open.length)
    const one = open[at]!
    const conversation = texts[one.session]!
    requests.push({ atMs, tokens: conversation.tokens, isHot: conversation.isHot })
    atMs += (-Math.log(1 - random.next()) * 1000) / perSecond
    conversation.tokens = join(
      conversation.tokens,
      text(random, OUTPUT_TOKENS + between(random, TURN_TOKENS)),
    )
    if (++one.turn === TURNS) open.splice(at, 1)
  }
  const distinct = new Set<string>()
  for (const { tokens } of requests) for (const block of blocksOf(tokens)) distinct.add(block)
  return { requests, hotTokens, workingSetBlocks: distinct.size }
}

/**
 * Share of the prompt tokens that one LRU cache of so many blocks would have had, the requests one after the
 * other.
 */
export function hitRateOfOneCache(requests: readonly SessionRequest[], blocks: number): number {
  const cache = new Map<string, true>()
  let prompt = 0
  let hit = 0
  for (const { tokens } of requests) {
    const names = blocksOf(tokens)
    let held = 0
    while (held < names.length && cache.has(names[held]!)) held++
    // The last token is computed always.
    hit += Math.min(held * BLOCK_SIZE_TOKENS, tokens.length - 1)
    prompt += tokens.length
    // As engines do: the end of a prompt is let go before its beginning.
    for (const name of names.toReversed()) {
      cache.delete(name)
      cache.set(name, true)
    }
    for (const oldest of cache.keys()) {
      if (cache.size <= blocks) break
      cache.delete(oldest)
    }
  }
  return hit / prompt
}

/** A name for each full block, which says all that stands before it. */
function blocksOf(tokens: Int32Array): string[] {
  const names: string[] = []
  let hash = 0xcbf2_9ce4_8422_2325n
  for (let end = BLOCK_SIZE_TOKENS; end <= tokens.length; end += BLOCK_SIZE_TOKENS) {
    for (let i = end - BLOCK_SIZE_TOKENS; i < end; i++)
      hash = BigInt.asUintN(64, (hash ^ BigInt(tokens[i]!)) * 0x100_0000_01b3n)
    names.push(hash.toString(36))
  }
  return names
}

/** A new text of `length` tokens. */
export function text(random: Random, length: number): Int32Array {
  return Int32Array.from({ length }, () => ALPHABET[random.below(ALPHABET.length)]!)
}

/** The prompt that a client sends. */
export function promptOf(tokens: Int32Array): string {
  let prompt = ''
  for (let i = 0; i < tokens.length; i += 4096) prompt += String.fromCharCode(...tokens.subarray(i, i + 4096))
  return prompt
}

function between(random: Random, [low, high]: readonly [number, number]): number {
  return low + random.below(high - low)
}

function join(one: Int32Array, other: Int32Array): Int32Array {
  const both = new Int32Array(one.length + other.length)
  both.set(one)
  both.set(other, one.length)
  return both
}

/**
 * What the simulated engine "generates": the next token id is a seeded function of ALL ids before it, prompt
 * and output alike. So a test recognizes a wrong continuation, every replica with the same
 * seed behaves as the same model at temperature 0, and a request that is continued elsewhere with prompt +
 * output so far must go on with the very same ids.
 *
 *   state = fold of ids in order;   next id = vocabulary[state mod vocabulary size]
 */

/** Ids that the engine may emit when nothing else is said: the bytes a … z of a byte-level vocabulary. */
export const DEFAULT_VOCABULARY: Int32Array = Int32Array.from({ length: 26 }, (_, i) => 97 + i)

/** The state of one sequence; two int32 words. */
export class OutputSource {
  readonly #vocabulary: Int32Array
  #low: number
  #high: number

  /** `vocabulary`: the ids that may be emitted; not copied. `seed`: any integer. */
  constructor(seed: number, vocabulary: Int32Array = DEFAULT_VOCABULARY) {
    if (vocabulary.length === 0) throw new RangeError('cannot generate output: the vocabulary is empty')
    this.#vocabulary = vocabulary
    this.#low = Math.imul(seed | 0, 0x9e3779b1) ^ 0x1b873593
    this.#high = Math.imul(seed | 0, 0x85ebca77) ^ 0x27d4eb2f
  }

  /** Takes in one id of the prompt or of the output. */
  push(tokenId: number): void {
    this.#low = (Math.imul(rotate(this.#low ^ Math.imul(tokenId + 1, 0xcc9e2d51), 13), 5) + 0x52dce729) | 0
    this.#high = (Math.imul(rotate(this.#high ^ Math.imul(tokenId + 1, 0xc2b2ae3d), 17), 5) + this.#low) | 0
  }

  /** The id after those taken in; takes in nothing itself. */
  next(): number {
    return this.#vocabulary[this.digest() % this.#vocabulary.length]!
  }

  /** An unsigned 32-bit digest of everything taken in. */
  digest(): number {
    let mixed = this.#low ^ rotate(this.#high, 11)
    mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b)
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35)
    return (mixed ^ (mixed >>> 16)) >>> 0
  }
}

/** The first `count` ids that the engine generates for a prompt. */
export function expectedOutput(
  promptIds: ArrayLike<number>,
  count: number,
  seed: number,
  vocabulary: Int32Array = DEFAULT_VOCABULARY,
): number[] {
  const source = new OutputSource(seed, vocabulary)
  for (let i = 0; i < promptIds.length; i++) source.push(promptIds[i]!)
  const output: number[] = []
  while (output.length < count) {
    const tokenId = source.next()
    source.push(tokenId)
    output.push(tokenId)
  }
  return output
}

/** The answer ends by itself behind one in this number of ids. */
const ENDING_SHARE = 64

/**
 * How many tokens the engine generates, 1 … `tokensMax`, when a chat sets no limit: 64 on average. Where the
 * answer ends is a function of the ids before, so that one that is continued elsewhere ends there, too. The
 * answer then ends with finish reason `stop`.
 */
export function naturalOutputTokens(
  promptIds: ArrayLike<number>,
  seed: number,
  vocabulary: Int32Array,
  tokensMax: number,
): number {
  const source = new OutputSource(seed, vocabulary)
  for (let i = 0; i < promptIds.length; i++) source.push(promptIds[i]!)
  for (let count = 1; count < tokensMax; count++) {
    source.push(source.next())
    // The high bits: the low ones choose the next id.
    if (source.digest() < 2 ** 32 / ENDING_SHARE) return count
  }
  return tokensMax
}

function rotate(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits))
}

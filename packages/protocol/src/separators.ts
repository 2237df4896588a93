/**
 * Separators: what keeps caches of equal tokens apart within one engine. Not every form of events names them,
 * and then the blocks of two caches look alike:
 *
 *   form                                      salt    adapter   extra key
 *   vLLM up to 0.12, arrays of 6 and 7        no      by number no such thing
 *   vLLM 0.13 to 0.15, arrays of 8            no      yes       no such thing
 *   vLLM since, with `extra_keys`             yes     yes       no such thing
 *   SGLang, TensorRT-LLM                      lately  lately    no
 *
 * A set of separators is a number, one bit each.
 */

/** `cache_salt` of a request. */
export const SALT = 1
/** A LoRA adapter. */
export const ADAPTER = 2
/** SGLang's `extra_key`, which no event names. */
export const EXTRA_KEY = 4
export const ALL_SEPARATORS = SALT | ADAPTER | EXTRA_KEY

/**
 * How events begin a prompt that was sent with separators, where they do not name all of them. Element i:
 * they do not name `unnamed[i]`, and tokens that begin so hash to `hashes[2i, 2i + 1]` with the separators
 * that they do name.
 */
export interface SeparatedPrompt {
  /**
   * Leading tokens of the prompt that are hashed, as one block: at most a block of it. 0: they are not known.
   */
  readonly firstTokens: number
  /** Pairs [lo, hi]; none where the tokens are not known. */
  readonly hashes: Int32Array
  /** Sets of separators, none empty. */
  readonly unnamed: readonly number[]
}

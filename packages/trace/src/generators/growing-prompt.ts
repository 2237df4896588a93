/**
 * Growing prompt: the prefix ids of a prompt that is put together from parts, some of them shared with other
 * prompts.
 *
 * An id stands for a block of 512 tokens and everything before it. So two prompts get equal ids exactly as
 * far as they begin with the same parts. The last block, if it is not full, has an id too; it stands for the
 * tokens that are there. When the prompt grows, that block becomes another one, with another id.
 *
 * A part with a name is the same text in every prompt, and has the same length everywhere; a part without a
 * name occurs once. Blocks behind an unnamed part are never looked up again, so nothing is remembered of
 * them.
 */

/** Tokens of one block of a trace. */
const BLOCK_TOKENS = 512

/**
 * Gives out ids, and remembers the ids of shared blocks: one for each different beginning made of named
 * parts.
 */
export class PrefixIds {
  readonly #shared = new Map<string, number>()
  #next = 0

  /** An id that is given out once only. */
  fresh(): number {
    return this.#next++
  }

  /** The id of the block with this content behind `parent`; −1 is the beginning. */
  behind(parent: number, content: string): number {
    const key = `${parent} ${content}`
    const known = this.#shared.get(key)
    if (known !== undefined) return known
    const id = this.fresh()
    this.#shared.set(key, id)
    return id
  }
}

export class GrowingPrompt {
  readonly #ids: PrefixIds
  /** Ids of the full blocks. */
  readonly #full: number[] = []
  #tokens = 0
  /** Names of the parts that begin in the block that is not full yet. */
  #begun: string[] = []
  #isShared = true

  constructor(ids: PrefixIds) {
    this.#ids = ids
  }

  get tokens(): number {
    return this.#tokens
  }

  /** Adds a part; without a name it is new. */
  add(tokens: number, name?: string): void {
    if (tokens <= 0) return
    if (name === undefined) this.#isShared = false
    else this.#begun.push(name)
    this.#tokens += tokens
    while ((this.#full.length + 1) * BLOCK_TOKENS <= this.#tokens) {
      this.#full.push(this.#idOfNext(''))
      this.#begun = []
    }
  }

  /** The ids of the current prompt, with the id of the last block even if it is not full. */
  hashIds(): number[] {
    const rest = this.#tokens - this.#full.length * BLOCK_TOKENS
    return rest === 0 ? this.#full.slice() : [...this.#full, this.#idOfNext(`+${rest}`)]
  }

  #idOfNext(ending: string): number {
    if (!this.#isShared) return this.#ids.fresh()
    return this.#ids.behind(this.#full.at(-1) ?? -1, `${this.#begun.join(' ')}${ending}`)
  }
}

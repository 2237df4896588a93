/**
 * Token prompt: what a request needs for workers that take token ids: the ids of its prompt, what its client
 * wishes of the answer, and the text of the model's tokens. Of its answer it keeps the state, with which
 * another worker can go on.
 */

import type { TokenWishes } from '@homing/openai'
import type { TokenTexts } from '@homing/tokenization'
import type { TokenState, TokenStateParts } from './token-state.ts'

export class TokenPrompt implements TokenStateParts {
  /** Its model, as workers list it. */
  readonly model: string
  readonly ids: Int32Array
  readonly wishes: TokenWishes
  readonly texts: TokenTexts
  /** Tokens that the answer may have; undefined: what the model takes is not known. */
  readonly maxTokens: number | undefined
  /** Takes memory for ids of the answer; false: there is no room. */
  readonly take: (bytes: number) => boolean
  /** Every worker of the model takes token ids. */
  readonly isForAll: boolean
  /** Another worker began this answer; undefined: none. */
  readonly resumed: TokenState | undefined
  /** Of the last call; undefined: none has begun. */
  state: TokenState | undefined

  constructor(
    given: Pick<TokenPrompt, 'model' | 'ids' | 'wishes' | 'texts' | 'maxTokens' | 'take' | 'isForAll'>,
    resumed?: TokenState,
  ) {
    this.model = given.model
    this.ids = given.ids
    this.wishes = given.wishes
    this.texts = given.texts
    this.maxTokens = given.maxTokens
    this.take = given.take
    this.isForAll = given.isForAll
    this.resumed = resumed
    this.state = resumed
  }

  /** For a second worker of the same request, whose answer has a state of its own. */
  again(): TokenPrompt {
    return new TokenPrompt(this, this.resumed)
  }

  /** For the worker that goes on. */
  rest(): TokenPrompt {
    return new TokenPrompt(this, this.state)
  }
}

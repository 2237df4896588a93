/**
 * Token workers: which workers take token ids, what makes text of their models' tokens, and what a request
 * needs to go there.
 *
 * Owns    by model, the tables of its tokens, as the tokenizer gave them: asked for once, and again after a
 *         failure. The last fleet decides who takes what.
 * Fails   a request whose token ids are not known exactly, or whose model has no decoder here, is refused
 *         before it is placed.
 */

import type { ActorRef } from '@homing/actor'
import type { CompletionRoute, ReadRequest, TokenizerMessage } from '@homing/actors/tokenizer'
import { fromErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { BodyHold } from '@homing/http'
import { InvalidRequestError, readTokenWishes } from '@homing/openai'
import { TokenTexts } from '@homing/tokenization'
import { NoTokenIdsError } from '../errors.ts'
import { TokenPrompt } from './token-prompt.ts'

export interface TokenWorkersParts {
  readonly tokenizer: ActorRef<TokenizerMessage>
  readonly askMsMax: number
  /** Tokens that the model takes, prompt and answer together; undefined: not known. */
  readonly modelTokens: (model: string) => number | undefined
}

export interface TokenPromptGiven {
  readonly route: CompletionRoute
  readonly read: ReadRequest
  readonly body: Uint8Array
  readonly hold: BodyHold
}

/** For each id of the prompt: the id, and how the worker is sent it, up to ten digits and a comma. */
const BYTES_PER_ID = 15

export class TokenWorkers {
  readonly #parts: TokenWorkersParts
  /** By model: ids of workers that take token ids, and whether all of its workers do. */
  #models = new Map<string, { readonly ids: Set<string>; isForAll: boolean }>()
  readonly #texts = new Map<string, Promise<TokenTexts>>()

  constructor(parts: TokenWorkersParts) {
    this.#parts = parts
  }

  takeFleet({ workers }: Fleet): void {
    const models = new Map<string, { readonly ids: Set<string>; isForAll: boolean }>()
    for (const { id, models: cards } of workers)
      for (const { name, takesTokens } of cards)
        if (takesTokens === true) {
          const entry = models.get(name) ?? { ids: new Set<string>(), isForAll: true }
          entry.ids.add(id)
          models.set(name, entry)
        }
    for (const { models: cards } of workers)
      for (const { name, takesTokens } of cards) {
        const entry = models.get(name)
        if (entry !== undefined && takesTokens !== true) entry.isForAll = false
      }
    this.#models = models
    for (const model of this.#texts.keys()) if (!models.has(model)) this.#texts.delete(model)
  }

  /** Some worker takes token ids. */
  get areSome(): boolean {
    return this.#models.size > 0
  }

  /** Whether this worker takes the token ids of prompts for this model. */
  takes(workerId: string, model: string): boolean {
    return this.#models.get(model)?.ids.has(workerId) === true
  }

  /**
   * What the request needs for such workers; undefined: its model has none. Rejects with NoTokenIdsError,
   * InvalidRequestError, NoBodyRoomError, and what the tokenizer says of a model without a decoder.
   */
  async promptOf({ route, read, body, hold }: TokenPromptGiven): Promise<TokenPrompt | undefined> {
    const { model, promptTokens, tokenIds } = read
    const serving = this.#models.get(model)
    if (serving === undefined) return undefined
    if (route !== 'chat' && route !== 'completions')
      throw new InvalidRequestError(
        'model',
        JSON.stringify(model),
        'it with /v1/chat/completions or /v1/completions: its workers answer with token ids',
      )
    const given = readTokenWishes(body, route)
    const isExact = (read.isCounted === true && read.estimate === undefined) || read.tokenizedBy === 'client'
    if (!isExact || tokenIds === undefined)
      throw new NoTokenIdsError(model, read.unknownPromptReason ?? read.textBlocksReason ?? 'not counted')
    const wishes = { ...given, model: given.model === '' ? model : given.model }
    const modelTokens = this.#parts.modelTokens(model)
    const room = modelTokens === undefined ? undefined : modelTokens - promptTokens
    if (room !== undefined && room <= 0)
      throw new InvalidRequestError(
        route === 'chat' ? 'messages' : 'prompt',
        `of ${promptTokens} tokens`,
        `fewer than ${modelTokens}: prompt and answer of ${model} have that many together`,
      )
    const texts = await this.#textsOf(model)
    if (read.tokenizedBy === 'client') refuseUnknownIds(tokenIds, texts, model)
    hold.take(BYTES_PER_ID * tokenIds.length)
    return new TokenPrompt({
      model,
      ids: tokenIds,
      wishes,
      texts,
      maxTokens: leastOf(wishes.maxTokens, room),
      isForAll: serving.isForAll,
      take: bytes => hasRoom(hold, bytes),
    })
  }

  #textsOf(model: string): Promise<TokenTexts> {
    const known = this.#texts.get(model)
    if (known !== undefined) return known
    const { tokenizer, askMsMax } = this.#parts
    const asked = tokenizer.ask({ type: 'decoder', model }, { timeout: askMsMax }).then(answer => {
      if ('code' in answer) throw fromErrorRecord(answer)
      return new TokenTexts(answer)
    })
    this.#texts.set(model, asked)
    asked.catch(() => this.#texts.delete(model))
    return asked
  }
}

/** The program of a worker may look ids up in a table without a look at its end. */
function refuseUnknownIds(ids: Int32Array, { tokenCount }: TokenTexts, model: string): void {
  // Ids of 2^31 and more are negative in 32 bits.
  const unknown = ids.find(id => id < 0 || id >= tokenCount)
  if (unknown !== undefined)
    throw new InvalidRequestError(
      'prompt',
      `with token id ${unknown >>> 0}`,
      `ids below ${tokenCount}, which the tokenizer of ${model} has`,
    )
}

function leastOf(first: number | undefined, second: number | undefined): number | undefined {
  if (first === undefined || second === undefined) return first ?? second
  return Math.min(first, second)
}

/** Of an exchange that is over there is none. */
function hasRoom(hold: BodyHold, bytes: number): boolean {
  try {
    hold.take(bytes)
    return true
  } catch {
    return false
  }
}

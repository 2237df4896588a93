/**
 * Sliced prompt: a prompt whose tokens are known, in the form in which its slices are sent.
 *
 *   client   POST /v1/chat/completions {messages, …}          any route, any form of the prompt
 *   slice    POST /v1/completions {"model": …, "prompt": [1, 2, … n], "max_tokens": 1, …}
 *
 * A slice has the members of the client's request that choose its cache or its order at the engine (KEPT),
 * and none that steer the answer: the answer of a slice is dropped. A request with a member that ties its
 * prefill to something else (TIED) is not sliced.
 *
 * Memory: 4 bytes for each id, and what `text` renders of them, once, for all slices.
 */

import type { ReadRequest } from '@homing/actors/tokenizer'
import { scanRequest } from '@homing/openai'
import { giveUpBytes } from '@homing/transport'

/** Members of a body that its slices have, too. */
const KEPT = ['model', 'cache_salt', 'extra_key', 'lora_path', 'priority', 'data_parallel_rank']
/**
 * Members of bodies that are not sliced: caches of other engines, prompts that are more than their tokens.
 */
const TIED = [
  'kv_transfer_params',
  'bootstrap_host',
  'bootstrap_port',
  'bootstrap_room',
  'best_of',
  'echo',
  'prompt_logprobs',
  'input_ids',
  'input_embeds',
]

/** Why the rest of a prompt was sent whole. */
export type GivenUp = 'refused' | 'failed' | 'silent' | 'evicted' | 'not_placed'

export class SlicedPrompt {
  readonly #ids: Int32Array
  /** The members of its body that slices keep, each with a comma behind it. */
  readonly #members: string
  /** The ids before `#renderedTokens`, as they are in a body. */
  readonly #rendered: Buffer[] = []
  #renderedTokens = 0

  constructor(ids: Int32Array, members: string) {
    this.#ids = ids
    this.#members = members
  }

  /** Bytes of the ids. */
  get bytes(): number {
    return this.#ids.byteLength
  }

  /** Frees the ids; no slice is sent any more. */
  giveUp(): void {
    const { buffer, byteOffset, byteLength } = this.#ids
    giveUpBytes(new Uint8Array(buffer, byteOffset, byteLength))
  }

  /** The body of the slice that ends at `endTokens`, not before that of the slice before. */
  body(endTokens: number, wantsUsage: boolean): Uint8Array {
    const more = this.#ids.subarray(this.#renderedTokens, endTokens).join(',')
    if (more !== '') this.#rendered.push(Buffer.from(this.#renderedTokens === 0 ? more : `,${more}`))
    this.#renderedTokens = Math.max(this.#renderedTokens, endTokens)
    const usage = wantsUsage ? ',"stream_options":{"include_usage":true}' : ''
    return Buffer.concat([
      Buffer.from(`{${this.#members}"prompt":[`),
      ...this.#rendered,
      Buffer.from(`],"max_tokens":1,"temperature":0,"stream":true${usage}}`),
    ])
  }
}

/** Undefined: the tokens of its prompt are not known exactly, or its engine must get it whole. */
export function slicedPrompt(read: ReadRequest, body: Uint8Array): SlicedPrompt | undefined {
  const { tokenIds, tokenizedBy, isCounted, cacheUse, choicesCount = 1, previousResponseId } = read
  // Ids of the client are in the body itself; what it claims of a text has an estimate.
  const isExact = isCounted === true || tokenizedBy === 'client'
  if (!isExact || read.estimate !== undefined || tokenIds?.length !== read.promptTokens) return undefined
  if (cacheUse !== undefined || choicesCount > 1 || previousResponseId !== undefined) return undefined
  const { byName } = scanRequest(body)
  if (TIED.some(name => byName.has(name))) return undefined
  const members = KEPT.flatMap(name => {
    const { value } = byName.get(name) ?? {}
    if (value === undefined) return []
    const text = Buffer.from(body.buffer, body.byteOffset + value.start, value.end - value.start)
    return [`${JSON.stringify(name)}:${text.toString()},`]
  })
  return new SlicedPrompt(tokenIds, members.join(''))
}

/**
 * Leg bodies: what the two legs of a request are sent, and what the answer of the first one says. The bytes
 * of the client with the named members changed, and nothing else. They are scanned once, before the prefill
 * leg: a long prompt takes a millisecond to scan, and the decode leg waits for nothing but its blocks.
 *
 *   kv_transfer   prefill   one token, no stream, one choice; `kv_transfer_params` ask for a hand-over
 *                 decode    the client's request, with the `kv_transfer_params` of that answer
 *   bootstrap     both      the client's request, with host, port and room where they meet
 *
 * Source: vLLM's NixlConnector and its proxies, SGLang's router, as they are in 2026.
 */

import type { CompletionRoute } from '@homing/actors/tokenizer'
import { parseJson } from '@homing/base'
import { editMembers, type RequestScan, scanRequest } from '@homing/openai'

/** Members that bound the answer, by route; the first is added where a request has none. */
const LIMITS: Readonly<Record<CompletionRoute, readonly string[]>> = {
  chat: ['max_tokens', 'max_completion_tokens'],
  completions: ['max_tokens'],
  messages: ['max_tokens'],
  responses: ['max_output_tokens'],
}
/** Members that one token that no client sees cannot have, or that would ask for more of it. */
const CUT = ['stream_options', 'min_tokens', 'min_completion_tokens']
/** Members of requests that one worker gets whole: they say themselves where the prompt is, or are for it. */
const TIED = [
  'kv_transfer_params',
  'bootstrap_host',
  'bootstrap_port',
  'bootstrap_room',
  'best_of',
  'use_beam_search',
  'echo',
  'prompt_logprobs',
  'input_embeds',
  'prompt_embeds',
  'previous_response_id',
  'background',
]
const ASKS_FOR_HANDOVER =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}'
/**
 * How an answer ends by itself, in the words of the routes; a response is never taken for one, since engines
 * keep it under its id.
 */
const WHOLE: ReadonlySet<unknown> = new Set([
  ...['stop', 'tool_calls', 'function_call', 'content_filter'],
  ...['end_turn', 'tool_use', 'stop_sequence', 'refusal'],
])

/** Where the legs of one request meet; the room in decimals, for it may have 63 bits. */
export interface MeetingPoint {
  readonly host: string
  readonly port: number
  readonly room: string
}

/** The legs of one request. Throws MalformedJsonError where its body is no JSON object. */
export class LegBodies {
  readonly #body: Uint8Array
  readonly #scan: RequestScan

  constructor(body: Uint8Array) {
    this.#body = body
    this.#scan = scanRequest(body)
  }

  /** Whether its members let it go in two legs. */
  get hasNoTies(): boolean {
    return !TIED.some(name => this.#scan.byName.has(name))
  }

  /** Several prompts would have to be several requests. */
  hasOnePrompt(route: CompletionRoute): boolean {
    if (route !== 'completions') return true
    const prompt = this.#scan.byName.get('prompt')?.value
    return prompt === undefined || !hasLists(this.#body, prompt.start, prompt.end)
  }

  prefill(route: CompletionRoute): Uint8Array {
    const has = (name: string): boolean => this.#scan.byName.has(name)
    const given = LIMITS[route].filter(has)
    const limits = given.length > 0 ? given : LIMITS[route].slice(0, 1)
    const set: Record<string, string> = {}
    for (const name of limits) set[name] = '1'
    if (has('stream')) set['stream'] = 'false'
    if (has('n')) set['n'] = '1'
    // The response of this leg is not asked for by its id.
    if (route === 'responses') set['store'] = 'false'
    set['kv_transfer_params'] = ASKS_FOR_HANDOVER
    return editMembers(this.#body, this.#scan, { set, cut: CUT })
  }

  /**
   * With what the prefill leg handed over. Without ties, this and `meeting` only add behind the last member,
   * so an edit of the client's body that asks for usage holds for them as well.
   */
  decode(transferParams: string): Uint8Array {
    return editMembers(this.#body, this.#scan, { set: { kv_transfer_params: transferParams } })
  }

  /** Of both legs, where they meet by themselves. */
  meeting({ host, port, room }: MeetingPoint): Uint8Array {
    return editMembers(this.#body, this.#scan, {
      set: { bootstrap_host: JSON.stringify(host), bootstrap_port: String(port), bootstrap_room: room },
    })
  }
}

/** A list of texts or of lists. */
function hasLists(body: Uint8Array, start: number, end: number): boolean {
  if (body[start] !== 0x5b) return false
  let at = start + 1
  while (at < end && body[at]! <= 0x20) at++
  return body[at] === 0x22 || body[at] === 0x5b
}

/** `params`: JSON as the engine wrote it; undefined: it hands nothing over. `isWhole`: the answer ended. */
export interface PrefillAnswer {
  readonly params: string | undefined
  readonly isWhole: boolean
}

/** Undefined: it is no answer of a completion. */
export function readPrefillAnswer(body: Uint8Array): PrefillAnswer | undefined {
  try {
    const member = scanRequest(body).byName.get('kv_transfer_params')
    const text = member && Buffer.from(body).subarray(member.value.start, member.value.end).toString()
    const answer = parseJson(Buffer.from(body).toString()) as AnswerForms
    const reasons = answer.choices?.map(choice => choice.finish_reason) ?? [answer.stop_reason]
    return {
      params: text?.startsWith('{') === true ? text : undefined,
      isWhole: reasons.length > 0 && reasons.every(reason => WHOLE.has(reason)),
    }
  } catch {
    return undefined
  }
}

/** Ends of a completion and a message. */
interface AnswerForms {
  readonly choices?: readonly { readonly finish_reason?: unknown }[]
  readonly stop_reason?: unknown
}

/** A room of 63 bits, drawn from `bytes` (8 of them), that stands for this rank. */
export function roomFor(bytes: Uint8Array, ranks: number, dpRank: number): string {
  const drawn = Buffer.from(bytes).readBigUInt64BE() & ROOM_MASK
  const aligned = drawn - (drawn % BigInt(ranks)) + BigInt(dpRank)
  return String(aligned > ROOM_MASK ? aligned - BigInt(ranks) : aligned)
}

const ROOM_MASK = (1n << 63n) - 1n

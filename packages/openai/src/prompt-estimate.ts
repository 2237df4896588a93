/**
 * Prompt estimate: about how many tokens an engine makes of a body whose prompt is not known.
 *
 *   text     every text and every name in the body, without JSON escapes: as many tokens as `textTokens` says
 *   number   one token: of a list of token ids each is one
 *   media    a constant for each part, by its type; encoded bytes do not count as text
 *   embeds   a token in every EMBEDS_BYTES_PER_TOKEN
 *
 * Names stand in for what templates put around messages. Members that no engine puts into a prompt do not
 * count. An engine may well count more or less: the estimate is for load and turns until it has, and
 * `tokensMax` bounds what is believed of it then.
 *
 * Cost    linear, about 2 ns per byte of text, less of encoded bytes. The body is valid JSON: it was scanned.
 *
 * Source  vLLM 0.32 and SGLang 0.5, by the processors of their models. Images: Qwen-VL a token in 28² or 32²
 *         pixels, so about 1,024 of a megapixel, at most 16,384; Gemma 256; LLaVA 576; InternVL up to 3,328.
 *         Audio: Whisper's 30 s are 1,500 positions, of which Qwen-Audio makes 750 tokens, Voxtral 375.
 *         Video: 32 frames are taken of one by default, of about 256 tokens each.
 */

import type { Member, RequestScan } from './types.ts'

/** Tokens of a picture whose size is not known: about a megapixel. */
export const IMAGE_TOKENS = 1024
/** 30 seconds. */
const AUDIO_TOKENS = 750
/** 32 frames. */
const VIDEO_TOKENS = 8192
/** The most that an engine makes of one medium: twice what vLLM reserves for a picture of Qwen2-VL. */
const MEDIA_TOKENS_MAX = 32_768
/** What a template adds at most of its own: a page of rules for tools. */
const TEMPLATE_TOKENS_MAX = 8192
/** Base64 of 3,072 values of two bytes: models of that width are small, so a token has rarely fewer. */
const EMBEDS_BYTES_PER_TOKEN = 8192
/** Shorter texts are read as text, whatever their name. */
const ENCODED_BYTES_MIN = 128

/** Types of content parts, and names of members, that stand for a medium. */
const TOKENS_OF_MEDIUM: ReadonlyMap<string, number> = new Map([
  ...['image_url', 'input_image', 'image', 'image_pil', 'image_embeds'].map(
    name => [name, IMAGE_TOKENS] as const,
  ),
  ...['input_audio', 'audio_url', 'audio', 'audio_embeds'].map(name => [name, AUDIO_TOKENS] as const),
  ...['video_url', 'input_video', 'video'].map(name => [name, VIDEO_TOKENS] as const),
  // A page or two as pictures.
  ...['input_file', 'file', 'document'].map(name => [name, 2 * IMAGE_TOKENS] as const),
])
/** Members that name a medium without a type beside them, as vLLM takes them. */
const MEDIUM_NAMES: ReadonlySet<string> = new Set(['image_url', 'audio_url', 'video_url', 'input_audio'])
/** Members whose long text is encoded bytes. */
const ENCODED: ReadonlySet<string> = new Set([
  'data',
  'file_data',
  'b64_json',
  'image_embeds',
  'audio_embeds',
])
/** Encoded, too, but not shown to the model. */
const SEALED: ReadonlySet<string> = new Set(['encrypted_content', 'signature'])
const EMBEDS = 'prompt_embeds'
/** Members of a body that no engine puts into a prompt and that may be long. */
const NOT_PROMPT: ReadonlySet<string> = new Set([
  'nvext',
  'router_config_override',
  'model',
  'metadata',
  'logit_bias',
  'response_format',
  'structured_outputs',
  'guided_json',
  'guided_grammar',
  'kv_transfer_params',
])

export interface PromptEstimate {
  readonly tokens: number
  /** An engine that counts more is not believed; Infinity: a part of the prompt is not in the body. */
  readonly tokensMax: number
}

/** Tokens for a content part of this type; undefined: it is no medium. */
export function mediaTokensOf(type: string): number | undefined {
  return TOKENS_OF_MEDIUM.get(type)
}

/** `textTokens`: about how many tokens a text has, by its bytes. */
export function estimatePrompt(
  body: Uint8Array,
  { members, byName }: RequestScan,
  textTokens: (bytes: number) => number,
): PromptEstimate {
  const size = new PromptSize(body)
  for (const member of members) {
    if (!NOT_PROMPT.has(member.name) && byName.get(member.name) === member) size.add(member)
  }
  const { textBytes, numbers, embedsTokens } = size
  const { count, tokens: mediaTokens } = size.media
  const exact = numbers + embedsTokens
  const tokens = textTokens(textBytes) + exact + mediaTokens
  const isElsewhere = ELSEWHERE.some(name => byName.has(name))
  const tokensMax = isElsewhere
    ? Number.POSITIVE_INFINITY
    : textBytes + exact + count * MEDIA_TOKENS_MAX + TEMPLATE_TOKENS_MAX
  // Not `tokensMax`: engines and routes that ignore the member count the whole prompt.
  const most = truncatedTo(body, byName.get('truncate_prompt_tokens'))
  return { tokens: Math.ceil(Math.min(tokens, most)), tokensMax }
}

/** Members by which a prompt begins with what only the engine has. */
const ELSEWHERE = ['previous_response_id', 'previous_input_messages', 'conversation'] as const

function truncatedTo(body: Uint8Array, member: Member | undefined): number {
  if (member === undefined) return Number.POSITIVE_INFINITY
  const tokens = Number(Buffer.from(body.subarray(member.value.start, member.value.end)).toString())
  return Number.isSafeInteger(tokens) && tokens >= 1 ? tokens : Number.POSITIVE_INFINITY
}

const QUOTE = 0x22
const MINUS = 0x2d
const ZERO = 0x30
const NINE = 0x39
const COLON = 0x3a
const BACKSLASH = 0x5c
const LETTER_A = 0x61
const LETTER_E = 0x65
const LETTER_U = 0x75
const DATA_URL = 'data:'

class PromptSize {
  readonly #body: Buffer
  textBytes = 0
  numbers = 0
  embedsTokens = 0
  /** Media by the type of their part, and by the name of a member: most have both. */
  readonly #typed = { count: 0, tokens: 0 }
  readonly #named = { count: 0, tokens: 0 }
  #encoded = 0

  constructor(body: Uint8Array) {
    this.#body = Buffer.from(body.buffer, body.byteOffset, body.length)
  }

  get media(): { readonly count: number; readonly tokens: number } {
    const known = this.#named.tokens > this.#typed.tokens ? this.#named : this.#typed
    const others = Math.max(0, this.#encoded - known.count)
    return { count: known.count + others, tokens: known.tokens + others * IMAGE_TOKENS }
  }

  add({ name: member, value: { start, end } }: Member): void {
    const body = this.#body
    // Schemas of tools have members of any name.
    const hasMedia = member !== 'tools'
    let name = member
    for (let at = start; at < end; ) {
      const byte = body[at]!
      if (byte === QUOTE) {
        const close = closingQuote(body, at + 1)
        let next = close + 1
        while (next < end && body[next]! <= 0x20) next++
        if (next < end && body[next] === COLON) {
          name = this.#short(at + 1, close)
          this.textBytes += close - at - 1
          if (hasMedia && MEDIUM_NAMES.has(name)) add(this.#named, mediaTokensOf(name)!)
          at = next + 1
        } else {
          this.#addText(name, at + 1, close, hasMedia)
          at = close + 1
        }
      } else if (byte === MINUS || (byte >= ZERO && byte <= NINE)) {
        this.numbers++
        at++
        while (at < end && isOfNumber(body[at]!)) at++
      } else at++
    }
  }

  #addText(name: string, start: number, end: number, hasMedia: boolean): void {
    const isLong = end - start >= ENCODED_BYTES_MIN
    if (name === EMBEDS && isLong) {
      this.embedsTokens += Math.ceil((end - start) / EMBEDS_BYTES_PER_TOKEN)
    } else if (hasMedia && isLong && (ENCODED.has(name) || this.#short(start, start + 5) === DATA_URL)) {
      this.#encoded++
    } else if (!isLong || !SEALED.has(name)) {
      this.textBytes += plainBytes(this.#body, start, end)
      const tokens = hasMedia && name === 'type' ? mediaTokensOf(this.#short(start, end)) : undefined
      if (tokens !== undefined) add(this.#typed, tokens)
    }
  }

  /** The beginning of a text: enough for any name that means something here. */
  #short(start: number, end: number): string {
    return this.#body.toString('latin1', start, Math.min(end, start + NAME_BYTES_MAX))
  }
}

const NAME_BYTES_MAX = 32

function add(media: { count: number; tokens: number }, tokens: number): void {
  media.count++
  media.tokens += tokens
}

function isOfNumber(byte: number): boolean {
  // Digits, a point, signs and an exponent.
  return (byte >= 0x2b && byte <= NINE && byte !== 0x2c && byte !== 0x2f) || (byte | 0x20) === LETTER_E
}

/** Position of the quote that ends the text which begins at `start`. */
function closingQuote(body: Uint8Array, start: number): number {
  for (let at = nextOf(body, QUOTE, start); at >= 0; at = nextOf(body, QUOTE, at + 1)) {
    let escapes = at
    while (escapes > start && body[escapes - 1] === BACKSLASH) escapes--
    if ((at - escapes) % 2 === 0) return at
  }
  return body.length
}

/** Bytes of a JSON text in UTF-8, without its escapes. */
function plainBytes(body: Uint8Array, start: number, end: number): number {
  let bytes = end - start
  // Of this text alone: a search that went on behind it would take time in proportion to the body.
  const text = body.subarray(start, end)
  for (let at = nextOf(text, BACKSLASH, 0); at >= 0; at = nextOf(text, BACKSLASH, at)) {
    const isUnicode = text[at + 1] === LETTER_U
    bytes -= isUnicode ? 6 - bytesOfEscape(text, at + 2) : 1
    at += isUnicode ? 6 : 2
  }
  return bytes
}

/** A search costs as much as to look at this number of bytes. */
const LOOKED_AT = 32

/** Position of the byte from `from` on; -1: there is none. Quick where it is near, as escapes in code are. */
function nextOf(bytes: Uint8Array, byte: number, from: number): number {
  const near = Math.min(from + LOOKED_AT, bytes.length)
  for (let at = from; at < near; at++) if (bytes[at] === byte) return at
  return near < bytes.length ? bytes.indexOf(byte, near) : -1
}

/** Bytes of a character of which `at` is the first of four hex digits; half of a pair has two. */
function bytesOfEscape(body: Uint8Array, at: number): number {
  let code = 0
  for (let i = at; i < at + 4; i++) code = code * 16 + hexDigit(body[i]!)
  if (code < 0x80) return 1
  return code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 2 : 3
}

function hexDigit(byte: number): number {
  return byte <= NINE ? byte - ZERO : (byte | 0x20) - LETTER_A + 10
}

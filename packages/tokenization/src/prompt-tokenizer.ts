/**
 * PromptTokenizer: requests to the token ids that the engine will compute, or an honest refusal.
 *
 *   body (JSON text) -> values -> variables of the template -> text -> token ids
 *          json.ts      chat-request.ts      chat-template.ts    own encoder, or @huggingface/tokenizers
 *
 * The own encoder (encoder/, behind prompt-cache.ts) equals the engines' native library; what it cannot take
 * goes to the JavaScript library, where that is exact.
 *
 * Answers
 *   tokens        the ids, equal to the engine's as far as the rules here go
 *   delegate      this package might be wrong; ask the engine's /tokenize, or route by load
 *   unsupported   the request holds media, whose tokens only the engine knows
 *
 * Give the body as the text that arrived: JSON.parse loses `1.0`, big integers and the order of keys
 * like "2", and each of them changes the prompt.
 *
 * Cost: 0.1 to 0.2 µs per token with the own encoder, 5 µs with the library; long prompts belong on a thread
 * of their own.
 */

import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Tokenizer } from '@huggingface/tokenizers'
import { type ChatServerOptions, MediaContentError, prepareChat } from './chat-request.ts'
import { ChatTemplate } from './chat-template.ts'
import { type ContentFormat, detectContentFormat, type EngineDialect } from './content-format.ts'
import { Encoder } from './encoder/encoder.ts'
import { buildEncoderTables, type EncoderTables } from './encoder/encoder-tables.ts'
import { EncodeError, RenderingRefusedError, TokenizerLoadError } from './errors.ts'
import { fromParsedJson, tryParseJson } from './json.ts'
import type { JsonObject } from './json-object.ts'
import { LongText } from './long-text.ts'
import { PromptCache } from './prompt-cache.ts'
import { stripSpace } from './python-text.ts'
import type { PythonDict, PythonKey, PythonValue } from './python-value.ts'
import { parseTokenizer, readTokenizerFiles, type TokenizerFiles } from './tokenizer-files.ts'

/** The ids belong to the caller, but for those that are lent (`lendsIds`). */
export interface Tokens {
  readonly kind: 'tokens'
  readonly tokens: Int32Array
}

/** The ids of every prompt of a completion request; a router looks at the first. */
export interface PromptTokens {
  readonly kind: 'tokens'
  readonly prompts: readonly Int32Array[]
}

/** No ids, and why. */
export interface NoTokens {
  readonly kind: 'delegate' | 'unsupported'
  readonly reason: string
}

/** The rendered prompt, before it is encoded. */
export interface RenderedChat {
  readonly kind: 'text'
  readonly text: string
  /** Encoded by itself and put after the prompt; '' but for continuations of SGLang. */
  readonly textAfter: string
  readonly addSpecialTokens: boolean
}

/** The same in pieces; each is part of the text. */
interface RenderedPieces extends Omit<RenderedChat, 'kind' | 'text'> {
  readonly pieces: readonly string[]
}

/** How the engine behind this tokenizer was started. */
export interface PromptTokenizerOptions extends Partial<ChatServerOptions> {
  /** Replaces the template of the directory, as `--chat-template` does. */
  readonly chatTemplate?: string | undefined
  /** The wall clock, for templates that print the date; without it their chats are delegated. */
  readonly now?: (() => Date) | undefined
  /** Longer texts are delegated; in characters, 16 million by default. */
  readonly textLengthMax?: number | undefined
  /** Bytes for the table of words that the own encoder has seen; 8 MiB by default. */
  readonly wordTableBytesMax?: number | undefined
  /** What this thread remembers of prompts; by default nothing. */
  readonly promptCache?: PromptCache | undefined
  /**
   * True: ids that the own encoder gives are valid until the next call, instead of the caller's. Default
   * false.
   */
  readonly lendsIds?: boolean | undefined
}

/**
 * What one thread has loaded of a directory, for others: structured-clonable, its tables in shared memory.
 */
export interface LoadedTokenizer {
  /** Of this loading; copies have the same. */
  readonly id: string
  readonly directory: string
  readonly files: Omit<TokenizerFiles, 'tokenizer' | 'modelBytes' | 'tokenizerFile'>
  /** tokenizer.json in shared memory, for the library; undefined where `tables` are there. */
  readonly source: Uint8Array | undefined
  /** Undefined: the JavaScript library is used. */
  readonly tables: EncoderTables | undefined
  /** Why there are none. */
  readonly refusal: string | undefined
}

/** Which encoder runs, and why it is not our own. */
export type EncoderPath =
  | { readonly path: 'own'; readonly reason: undefined }
  | { readonly path: 'library' | 'engine'; readonly reason: string }

/**
 * A request body: its JSON text, its bytes, the values of `tryParseJson`, or (less exact) those of
 * JSON.parse.
 */
export type RequestBody = string | Uint8Array | PythonDict | object

interface CompiledTemplate {
  readonly template: ChatTemplate | undefined
  readonly refusal: string
  readonly format: ContentFormat
  readonly knowsDeveloper: boolean
}

const TEXT_LENGTH_MAX = 16_000_000
const WORD_TABLE_BYTES = 8 * 2 ** 20
const CONTINUE_MARK = 'CONTINUE_FINAL_MESSAGE_TAG '
const LONE_SURROGATE = 'the text holds half a character'

/** Which encoder runs for a tokenizer that is used as loaded. */
export function encoderPath({ files, tables, refusal }: LoadedTokenizer): EncoderPath {
  if (tables !== undefined) return { path: 'own', reason: undefined }
  if (files.hazard !== undefined) return { path: 'engine', reason: files.hazard }
  return { path: 'library', reason: refusal ?? '' }
}

/** Reads a tokenizer directory and builds the tables of the own encoder. Throws TokenizerLoadError. */
export async function loadTokenizer(directory: string): Promise<LoadedTokenizer> {
  const { tokenizer, modelBytes, tokenizerFile, ...files } = await readTokenizerFiles(directory)
  try {
    const built = buildEncoderTables(tokenizer, modelBytes)
    const tables = 'refusal' in built ? undefined : built
    const refusal = 'refusal' in built ? built.refusal : undefined
    const source = tables === undefined ? shared(tokenizerFile) : undefined
    return { id: randomUUID(), directory, files, source, tables, refusal }
  } catch (error) {
    throw new TokenizerLoadError(directory, (error as Error).message, error)
  }
}

/** One model's tokenizer and chat template; immutable but for caches, to be used by one thread. */
export class PromptTokenizer {
  readonly dialect: EngineDialect
  readonly #directory: string
  readonly #files: LoadedTokenizer['files']
  readonly #options: PromptTokenizerOptions
  readonly #standard: CompiledTemplate
  readonly #toolUse: CompiledTemplate
  readonly #encoder: Encoder | undefined
  readonly #cache: PromptCache
  readonly #scope: number
  /** The JavaScript library; made when it is first needed. */
  #library: Tokenizer | undefined
  /** Why special tokens cannot be added as the engine adds them. */
  readonly #specialsHazard: string | undefined

  /** Reads a tokenizer directory. Throws TokenizerLoadError. */
  static async load(directory: string, options: PromptTokenizerOptions = {}): Promise<PromptTokenizer> {
    return PromptTokenizer.of(await loadTokenizer(directory), options)
  }

  /** Of what this thread or another has loaded. Throws TokenizerLoadError. */
  static of(loaded: LoadedTokenizer, options: PromptTokenizerOptions = {}): PromptTokenizer {
    try {
      return new PromptTokenizer(loaded, options)
    } catch (error) {
      if (error instanceof TokenizerLoadError) throw error
      throw new TokenizerLoadError(loaded.directory, (error as Error).message, error)
    }
  }

  private constructor(
    { directory, files, source, tables }: LoadedTokenizer,
    options: PromptTokenizerOptions,
  ) {
    this.dialect = options.dialect ?? 'vllm'
    this.#directory = directory
    this.#files = files
    this.#options = options
    const wordTableBytesMax = options.wordTableBytesMax ?? WORD_TABLE_BYTES
    this.#encoder = tables === undefined ? undefined : new Encoder(tables, { wordTableBytesMax })
    this.#cache = options.promptCache ?? new PromptCache(0)
    this.#scope = this.#cache.newScope()
    if (this.#encoder === undefined) this.#library = libraryOf(directory, files.config, source)
    const standard = options.chatTemplate ?? files.templates?.standard
    const toolUse = options.chatTemplate ?? files.templates?.toolUse
    this.#standard = this.#compile(standard)
    this.#toolUse = toolUse === undefined ? this.#standard : this.#compile(toolUse)
    this.#specialsHazard = this.#findSpecialsHazard()
  }

  /** Why every answer will be "delegate"; undefined when this tokenizer can be used. */
  get hazard(): string | undefined {
    return this.#encoder === undefined ? this.#files.hazard : undefined
  }

  /** Why every chat will be "delegate"; undefined when the template can be rendered. */
  get chatHazard(): string | undefined {
    return this.hazard ?? (this.#standard.template === undefined ? this.#standard.refusal : undefined)
  }

  /** Chats are not what the template says: see `TokenizerFiles.isHarmony`. */
  get isHarmony(): boolean {
    return this.#files.isHarmony
  }

  /** How the template takes the content of messages. */
  get contentFormat(): ContentFormat {
    return this.#standard.format
  }

  /**
   * Bytes of the table of words that the own encoder has seen, within `wordTableBytesMax`; 0 without that
   * encoder.
   */
  get wordTableBytes(): number {
    return this.#encoder?.stats.wordTable.bytes ?? 0
  }

  /** The id of a token of the vocabulary, for instance the end of a turn. */
  tokenId(token: string): number | undefined {
    return this.#encoder === undefined ? this.#library!.token_to_id(token) : this.#encoder.idOf(token)
  }

  /** The token ids of a chat request. Never throws for what a request can hold. */
  encodeChat(body: RequestBody): Tokens | NoTokens {
    return this.#answer((): Tokens => {
      const request = requestOf(body)
      const given = this.dialect === 'sglang' ? request.get('input_ids') : undefined
      if (given !== undefined && given !== null) return { kind: 'tokens', tokens: idsOf(given) }
      const { pieces, textAfter, addSpecialTokens } = this.#render(request)
      const tokens = this.#encode(LongText.of(pieces), addSpecialTokens, textAfter === '')
      if (textAfter === '') return { kind: 'tokens', tokens }
      const after = this.#encodeAfter(textAfter)
      const both = new Int32Array(tokens.length + after.length)
      both.set(tokens)
      both.set(after, tokens.length)
      return { kind: 'tokens', tokens: both }
    })
  }

  /** The text that `encodeChat` encodes; for people and for comparisons. */
  renderChat(body: RequestBody): RenderedChat | NoTokens {
    return this.#answer((): RenderedChat => {
      const { pieces, ...rendered } = this.#render(requestOf(body))
      return { kind: 'text', text: pieces.join(''), ...rendered }
    })
  }

  /**
   * The token ids of a completion request: `prompt` is a text, a list of texts, a list of ids or a
   * list of lists of ids. Special tokens are added to texts unless the request says otherwise.
   */
  encodeCompletion(body: RequestBody): PromptTokens | NoTokens {
    return this.#answer((): PromptTokens => {
      const request = requestOf(body)
      for (const name of ['truncate_prompt_tokens', 'prompt_embeds', 'suffix']) {
        const value = request.get(name) ?? null
        if (value !== null) throw new RenderingRefusedError(`the request sets ${name}`)
      }
      const adds = request.get('add_special_tokens') ?? true
      if (typeof adds !== 'boolean') throw new RenderingRefusedError('add_special_tokens is no bool')
      const prompt = request.get('prompt')
      if (typeof prompt === 'string') return { kind: 'tokens', prompts: [this.#encode(prompt, adds, true)] }
      if (!Array.isArray(prompt) || prompt.length === 0)
        throw new RenderingRefusedError('prompt is no text and no list')
      if (typeof prompt[0] === 'number') return { kind: 'tokens', prompts: [idsOf(prompt)] }
      const prompts = prompt.map(item => (typeof item === 'string' ? this.#encode(item, adds) : idsOf(item)))
      return { kind: 'tokens', prompts }
    })
  }

  /** The token ids of a text. Throws EncodeError when they might differ from the engine's. */
  encodeText(
    text: string,
    { addSpecialTokens = true }: { readonly addSpecialTokens?: boolean } = {},
  ): Int32Array {
    try {
      return this.#encode(text, addSpecialTokens)
    } catch (error) {
      throw new EncodeError((error as Error).message, error)
    }
  }

  /** The text of token ids, special tokens included. */
  decode(ids: Iterable<number>): string {
    const list = Array.from(ids)
    if (list.length === 0) return ''
    const cleans = this.#files.config['clean_up_tokenization_spaces'] === true
    this.#library ??= libraryOf(this.#directory, this.#files.config, undefined)
    return this.#library.decode(list, { skip_special_tokens: false, clean_up_tokenization_spaces: cleans })
  }

  #render(request: PythonDict): RenderedPieces {
    const tools = request.get('tools') ?? null
    const { template, refusal, format, knowsDeveloper } = tools === null ? this.#standard : this.#toolUse
    if (template === undefined) throw new RenderingRefusedError(refusal)
    const options = { ...this.#options, dialect: this.dialect }
    const chat = prepareChat(request, options, format, knowsDeveloper)
    const cutAfter = chat.continueFinalMessage ? markFinalMessage(chat.messages, template) : undefined
    const variables: PythonDict = new Map<PythonKey, PythonValue>([
      ...this.#files.specialTokens,
      ...chat.variables,
      ['messages', chat.messages],
    ])
    const rendered = template.renderPieces(variables, { now: this.#options.now?.() })
    const pieces = cutAfter === undefined ? rendered : [cutAtMark(rendered.join(''), cutAfter)]
    return { pieces, textAfter: chat.textAfter, addSpecialTokens: chat.addSpecialTokens }
  }

  /** `mayLend`: no other text is encoded before the ids are given away. */
  #encode(text: string | LongText, addSpecialTokens: boolean, mayLend = false): Int32Array {
    const lengthMax = this.#options.textLengthMax ?? TEXT_LENGTH_MAX
    if (this.hazard !== undefined) throw new RenderingRefusedError(this.hazard)
    if (addSpecialTokens && this.#specialsHazard !== undefined)
      throw new RenderingRefusedError(this.#specialsHazard)
    if (text.length > lengthMax)
      throw new RenderingRefusedError(`the text has more than ${lengthMax} characters`)
    if (!text.isWellFormed()) throw new RenderingRefusedError(LONE_SURROGATE)
    if (this.#encoder !== undefined) return this.#encodeOwn(this.#encoder, text, addSpecialTokens, mayLend)
    const { ids } = this.#library!.encode(text.slice(0), { add_special_tokens: addSpecialTokens })
    const tokens = new Int32Array(ids.length)
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]
      if (id === undefined) throw new RenderingRefusedError('the text holds what the vocabulary does not')
      tokens[i] = id
    }
    return tokens
  }

  #encodeOwn(
    encoder: Encoder,
    text: string | LongText,
    addSpecialTokens: boolean,
    mayLend: boolean,
  ): Int32Array {
    try {
      const { ids, length } = this.#cache.encode(this.#scope, encoder, text)
      const prefix = addSpecialTokens ? encoder.prefixIds : []
      const suffix = addSpecialTokens ? encoder.suffixIds : []
      if (mayLend && this.#options.lendsIds === true && prefix.length + suffix.length === 0)
        return ids.subarray(0, length)
      const tokens = new Int32Array(prefix.length + length + suffix.length)
      tokens.set(prefix)
      tokens.set(ids.subarray(0, length), prefix.length)
      tokens.set(suffix, prefix.length + length)
      return tokens
    } catch (error) {
      if (error instanceof EncodeError) throw new RenderingRefusedError(String(error.details['why']))
      throw error
    }
  }

  /** What SGLang puts after the prompt: encoded with special tokens, without a BOS in front. */
  #encodeAfter(text: string): Int32Array {
    const tokens = this.#encode(text, true)
    const bos = this.#files.specialTokens.get('bos_token')
    return bos !== undefined && tokens[0] === this.tokenId(bos) ? tokens.subarray(1) : tokens
  }

  #compile(source: string | undefined): CompiledTemplate {
    const nothing = { template: undefined, format: 'string', knowsDeveloper: false } as const
    if (source === undefined) return { ...nothing, refusal: 'the model has no chat template' }
    try {
      const template = new ChatTemplate(source)
      const format = this.#options.contentFormat ?? detectContentFormat(template, this.dialect)
      return { template, refusal: '', format, knowsDeveloper: /(["'])developer\1/.test(source) }
    } catch (error) {
      if (error instanceof RenderingRefusedError) return { ...nothing, refusal: String(error.details['why']) }
      throw error
    }
  }

  /**
   * Some tokenizers add a BOS by tokenizer_config.json, although tokenizer.json, which is read here, does
   * not.
   */
  #findSpecialsHazard(): string | undefined {
    const configured = this.#files.config['add_bos_token']
    const bos = this.#files.specialTokens.get('bos_token')
    if (typeof configured !== 'boolean' || bos === undefined) return undefined
    const [first] = this.#encoder?.prefixIds ?? this.#library!.encode('a', { add_special_tokens: true }).ids
    const adds = first === this.tokenId(bos)
    return adds === configured ? undefined : 'tokenizer.json and tokenizer_config.json disagree on a BOS'
  }

  #answer<T>(compute: () => T): T | NoTokens {
    try {
      return compute()
    } catch (error) {
      if (error instanceof RenderingRefusedError)
        return { kind: 'delegate', reason: String(error.details['why']) }
      if (error instanceof MediaContentError) return { kind: 'unsupported', reason: error.message }
      throw error
    }
  }
}

function shared(bytes: Uint8Array): Uint8Array {
  const copy = new Uint8Array(new SharedArrayBuffer(bytes.length))
  copy.set(bytes)
  return copy
}

/** `source`: tokenizer.json; undefined: it is read from the directory. */
function libraryOf(directory: string, config: JsonObject, source: Uint8Array | undefined): Tokenizer {
  try {
    const file = source ?? readFileSync(join(directory, 'tokenizer.json'))
    return new Tokenizer(parseTokenizer(directory, file), config)
  } catch (error) {
    throw new TokenizerLoadError(directory, (error as Error).message, error)
  }
}

function requestOf(body: RequestBody): PythonDict {
  if (body instanceof Map) return body
  const text = body instanceof Uint8Array ? new TextDecoder().decode(body) : body
  const value = typeof text === 'string' ? tryParseJson(text) : fromParsedJson(text)
  if (!(value instanceof Map)) throw new RenderingRefusedError('the body is no JSON object')
  return value
}

function idsOf(value: PythonValue): Int32Array {
  if (!Array.isArray(value)) throw new RenderingRefusedError('a prompt is no text and no list of token ids')
  return Int32Array.from(value, id => {
    if (typeof id !== 'number' || id < 0 || id > 0xffff_ffff) {
      throw new RenderingRefusedError('a token id is no unsigned 32-bit integer')
    }
    return id | 0
  })
}

/** Puts the mark after the last text of the last message; returns that text. */
function markFinalMessage(messages: readonly PythonDict[], template: ChatTemplate): string {
  const last = messages.at(-1)!
  const content = last.get('content')
  if (!template.source.includes('content')) throw new RenderingRefusedError('the template shows no content')
  if (typeof content === 'string') {
    last.set('content', content + CONTINUE_MARK)
    return content
  }
  const parts = Array.isArray(content) ? content : []
  const part = parts.findLast(item => item instanceof Map && item.has('text')) as PythonDict | undefined
  const shown = part?.get('text')
  if (part === undefined || typeof shown !== 'string') {
    throw new RenderingRefusedError('the final message has no text to continue')
  }
  part.set('text', shown + CONTINUE_MARK)
  return shown
}

function cutAtMark(rendered: string, finalText: string): string {
  const mark = CONTINUE_MARK.trim()
  const at = rendered.lastIndexOf(mark)
  if (at === -1 || !rendered.includes(stripSpace(finalText))) {
    throw new RenderingRefusedError('the template changes the final message')
  }
  // A template that trims its messages has trimmed the mark too, and the engine then trims the text before
  // it.
  return rendered.startsWith(CONTINUE_MARK, at)
    ? rendered.slice(0, at)
    : stripSpace(rendered.slice(0, at), false)
}

/**
 * PromptTokenizer: requests to the token ids that the engine will compute, or an honest refusal.
 *
 *   body (JSON text) -> values -> variables of the template -> text -> token ids
 *          json.ts      chat-request.ts      chat-template.ts    @huggingface/tokenizers
 *
 * Answers
 *   tokens        the ids, equal to the engine's as far as the rules here go
 *   delegate      this package might be wrong; ask the engine's /tokenize, or route by load
 *   unsupported   the request holds media, whose tokens only the engine knows
 *
 * Give the body as the text that arrived: JSON.parse loses `1.0`, big integers and the order of keys
 * like "2", and each of them changes the prompt.
 *
 * Cost: one thread, in the order of 1 us per token; 128k characters block for some 50 ms, so it
 * belongs on a thread of its own.
 */

import { Tokenizer } from '@huggingface/tokenizers'
import { type ChatServerOptions, MediaContentError, prepareChat } from './chat-request.ts'
import { ChatTemplate } from './chat-template.ts'
import { type ContentFormat, detectContentFormat, type EngineDialect } from './content-format.ts'
import { EncodeError, RenderingRefusedError, TokenizerLoadError } from './errors.ts'
import { fromParsedJson, tryParseJson } from './json.ts'
import type { PythonDict, PythonValue } from './python-value.ts'
import { stripSpace } from './template-functions.ts'
import { readTokenizerFiles, type TokenizerFiles } from './tokenizer-files.ts'

/** The ids belong to the caller. */
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

/** How the engine behind this tokenizer was started. */
export interface PromptTokenizerOptions extends Partial<ChatServerOptions> {
  /** Replaces the template of the directory, as `--chat-template` does. */
  readonly chatTemplate?: string | undefined
  /** The wall clock, for templates that print the date; without it their chats are delegated. */
  readonly now?: (() => Date) | undefined
  /** Longer texts are delegated; in characters, 16 million by default. */
  readonly textLengthMax?: number | undefined
}

/** A request body: its JSON text, its bytes, or (less exact) the parsed object. */
export type RequestBody = string | Uint8Array | object

interface CompiledTemplate {
  readonly template: ChatTemplate | undefined
  readonly refusal: string
  readonly format: ContentFormat
  readonly knowsDeveloper: boolean
}

const TEXT_LENGTH_MAX = 16_000_000
const CONTINUE_MARK = 'CONTINUE_FINAL_MESSAGE_TAG '
const LONE_SURROGATE = 'the text holds half a character'

/** One model's tokenizer and chat template; immutable but for caches, to be used by one thread. */
export class PromptTokenizer {
  readonly dialect: EngineDialect
  readonly #tokenizer: Tokenizer
  readonly #files: TokenizerFiles
  readonly #options: PromptTokenizerOptions
  readonly #standard: CompiledTemplate
  readonly #toolUse: CompiledTemplate
  /** Why special tokens cannot be added as the engine adds them. */
  readonly #specialsHazard: string | undefined

  /** Reads a tokenizer directory. Throws TokenizerLoadError. */
  static async load(directory: string, options: PromptTokenizerOptions = {}): Promise<PromptTokenizer> {
    const files = await readTokenizerFiles(directory)
    try {
      return new PromptTokenizer(files, options)
    } catch (error) {
      throw new TokenizerLoadError(directory, (error as Error).message, error)
    }
  }

  private constructor(files: TokenizerFiles, options: PromptTokenizerOptions) {
    this.dialect = options.dialect ?? 'vllm'
    this.#files = files
    this.#options = options
    this.#tokenizer = new Tokenizer(files.tokenizer, files.config)
    const standard = options.chatTemplate ?? files.templates?.standard
    const toolUse = options.chatTemplate ?? files.templates?.toolUse
    this.#standard = this.#compile(standard)
    this.#toolUse = toolUse === undefined ? this.#standard : this.#compile(toolUse)
    this.#specialsHazard = this.#findSpecialsHazard()
  }

  /** Why every answer will be "delegate"; undefined when this tokenizer can be used. */
  get hazard(): string | undefined {
    return this.#files.hazard
  }

  /** Why every chat will be "delegate"; undefined when the template can be rendered. */
  get chatHazard(): string | undefined {
    return this.hazard ?? (this.#standard.template === undefined ? this.#standard.refusal : undefined)
  }

  /** How the template takes the content of messages. */
  get contentFormat(): ContentFormat {
    return this.#standard.format
  }

  /** The id of a token of the vocabulary, for instance the end of a turn. */
  tokenId(token: string): number | undefined {
    return this.#tokenizer.token_to_id(token)
  }

  /** The token ids of a chat request. Never throws for what a request can hold. */
  encodeChat(body: RequestBody): Tokens | NoTokens {
    return this.#answer((): Tokens => {
      const request = requestOf(body)
      const given = this.dialect === 'sglang' ? request.get('input_ids') : undefined
      if (given !== undefined && given !== null) return { kind: 'tokens', tokens: idsOf(given) }
      const { text, textAfter, addSpecialTokens } = this.#render(request)
      const tokens = this.#encode(text, addSpecialTokens)
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
    return this.#answer(() => this.#render(requestOf(body)))
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
      if (typeof prompt === 'string') return { kind: 'tokens', prompts: [this.#encode(prompt, adds)] }
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
    return this.#tokenizer.decode(list, { skip_special_tokens: false, clean_up_tokenization_spaces: cleans })
  }

  #render(request: PythonDict): RenderedChat {
    const tools = request.get('tools') ?? null
    const { template, refusal, format, knowsDeveloper } = tools === null ? this.#standard : this.#toolUse
    if (template === undefined) throw new RenderingRefusedError(refusal)
    const options = { ...this.#options, dialect: this.dialect }
    const chat = prepareChat(request, options, format, knowsDeveloper)
    const cutAfter = chat.continueFinalMessage ? markFinalMessage(chat.messages, template) : undefined
    const variables = new Map<string, PythonValue>([
      ...this.#files.specialTokens,
      ...chat.variables,
      ['messages', chat.messages],
    ])
    const rendered = template.render(variables, { now: this.#options.now?.() })
    const text = cutAfter === undefined ? rendered : cutAtMark(rendered, cutAfter)
    return { kind: 'text', text, textAfter: chat.textAfter, addSpecialTokens: chat.addSpecialTokens }
  }

  #encode(text: string, addSpecialTokens: boolean): Int32Array {
    const lengthMax = this.#options.textLengthMax ?? TEXT_LENGTH_MAX
    if (this.hazard !== undefined) throw new RenderingRefusedError(this.hazard)
    if (addSpecialTokens && this.#specialsHazard !== undefined)
      throw new RenderingRefusedError(this.#specialsHazard)
    if (text.length > lengthMax)
      throw new RenderingRefusedError(`the text has more than ${lengthMax} characters`)
    if (!text.isWellFormed()) throw new RenderingRefusedError(LONE_SURROGATE)
    const { ids } = this.#tokenizer.encode(text, { add_special_tokens: addSpecialTokens })
    const tokens = new Int32Array(ids.length)
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]
      if (id === undefined) throw new RenderingRefusedError('the text holds what the vocabulary does not')
      tokens[i] = id
    }
    return tokens
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

  /** Some tokenizers add a BOS by their configuration and not by tokenizer.json, which is what is read here. */
  #findSpecialsHazard(): string | undefined {
    const configured = this.#files.config['add_bos_token']
    const bos = this.#files.specialTokens.get('bos_token')
    if (typeof configured !== 'boolean' || bos === undefined) return undefined
    const [first] = this.#tokenizer.encode('a', { add_special_tokens: true }).ids
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

function requestOf(body: RequestBody): PythonDict {
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
  // A template that trims its messages has trimmed the mark, and the engine then trims what is before it.
  return rendered.startsWith(CONTINUE_MARK, at)
    ? rendered.slice(0, at)
    : stripSpace(rendered.slice(0, at), false)
}

/** Token ids of a prompt by the tokenizer of its model, or its text. */

import { isLocalFault } from '@homing/base'
import type { RequestFields } from '@homing/openai'
import {
  disabledThinkingEffort,
  type LoadedTokenizer,
  PromptCache,
  PromptTokenizer,
  type PythonDict,
  RenderingRefusedError,
  type RequestBody,
} from '@homing/tokenization'
import type { ModelEntry } from './model-table.ts'
import type { MessagesRules } from './prompt-view.ts'

export type Prompt =
  | { readonly kind: 'tokens'; readonly ids: Int32Array; readonly by: 'router' | 'client' }
  | { readonly kind: 'ask-engine'; readonly why: string }
  | { readonly kind: 'unknown'; readonly reason: string }
  /** No engine can be asked for its tokens, so its text is used instead. */
  | { readonly kind: 'as-text'; readonly why: string }

export const DISTRUSTED = 'ids of this tokenizer were seen to differ from those of an engine'

/** vLLM 0.32: `use_harmony` in renderers/online_renderer.py; its `/tokenize` goes by the template. */
const HARMONY = 'it is a model of gpt-oss, whose prompts the engine writes in the form of Harmony'

/** vLLM renders this to test whether a template accepts system messages after other messages. */
const SYSTEM_PROBE = {
  messages: ['system', 'user', 'system', 'user'].map(role => ({ role, content: 't' })),
  add_generation_prompt: false,
}

const UNKNOWN_RULES: MessagesRules = { mergesSystem: true, disabledEffort: undefined }

export interface ThreadTokenizersOptions {
  /** For what is remembered of prompts. */
  readonly promptCacheBytes: number
  /** For the words that each tokenizer has seen. */
  readonly wordTableBytes: number
}

/**
 * The tokenizers of one thread, loaded at first use, by directory, dialect and options of chats: bounded by
 * the models of the fleet.
 */
export class ThreadTokenizers {
  readonly #loaded = new Map<string, Promise<PromptTokenizer | string>>()
  /** The loaded ones. */
  readonly #ready = new Map<string, PromptTokenizer>()
  readonly #promptCache: PromptCache
  readonly #wordTableBytesMax: number
  #shared: ReadonlyMap<string, LoadedTokenizer> = new Map()
  readonly #messagesRules = new WeakMap<PromptTokenizer, MessagesRules>()
  #distrusted: ReadonlySet<string> = new Set()
  /** The time for templates that print the date; set before each rendering, which is synchronous. */
  #renderedAtMs = 0

  constructor({ promptCacheBytes, wordTableBytes }: ThreadTokenizersOptions) {
    this.#promptCache = new PromptCache(promptCacheBytes)
    this.#wordTableBytesMax = wordTableBytes
  }

  /** Bytes of what is remembered of prompts. */
  get bytes(): number {
    return this.#promptCache.bytes
  }

  /** Bytes of the words that its tokenizers have seen. */
  get wordTableBytes(): number {
    let bytes = 0
    for (const tokenizer of this.#ready.values()) bytes += tokenizer.wordTableBytes
    return bytes
  }

  /**
   * Tokenizers that one thread has loaded for all, by directory, replace those that this thread has loaded
   * itself.
   */
  use(shared: ReadonlyMap<string, LoadedTokenizer>, distrusted: ReadonlySet<string>): void {
    this.#distrusted = distrusted
    for (const name of this.#loaded.keys()) {
      const [directory] = JSON.parse(name) as [string]
      // Compared by id, because each configuration is a copy.
      if (shared.get(directory)?.id !== this.#shared.get(directory)?.id) this.#forget(name)
    }
    this.#shared = shared
  }

  /** Makes the tokenizer of a model: its first prompt would wait for tables and template. */
  async prepare(entry: ModelEntry): Promise<void> {
    const { tokenizerDirectory: directory } = entry
    if (directory !== undefined) await this.#load(directory, entry)
  }

  /**
   * `values`: of the body. `wallMs`: Unix milliseconds, by the clock of the actor: threads have none of their
   * own.
   */
  async prompt(
    values: () => PythonDict | undefined,
    request: RequestFields,
    entry: ModelEntry,
    wallMs: number,
  ): Promise<Prompt> {
    const { tokenizerDirectory, dialect } = entry
    if (tokenizerDirectory === undefined) {
      return { kind: 'ask-engine', why: `no tokenizer directory for ${entry.base}` }
    }
    if (this.#distrusted.has(tokenizerDirectory)) return { kind: 'ask-engine', why: DISTRUSTED }
    const tokenizer = await this.#load(tokenizerDirectory, entry)
    if (typeof tokenizer === 'string') return { kind: 'ask-engine', why: tokenizer }
    this.#renderedAtMs = wallMs
    const body = valuesOf(values)
    if (request.promptShape === 'messages') {
      if (tokenizer.isHarmony && dialect !== 'sglang') return { kind: 'as-text', why: HARMONY }
      const answer = tokenizer.encodeChat(body)
      if (answer.kind === 'tokens') return { kind: 'tokens', ids: answer.tokens, by: 'router' }
      return refusal(answer.kind, answer.reason)
    }
    const answer = tokenizer.encodeCompletion(body)
    if (answer.kind !== 'tokens') return refusal(answer.kind, answer.reason)
    // Several prompts in one request go to one worker: the first decides.
    const [first] = answer.prompts
    return first === undefined
      ? { kind: 'unknown', reason: 'the request has no prompt' }
      : { kind: 'tokens', ids: first, by: 'router' }
  }

  /**
   * Whether vLLM moves the system messages of a Messages request to the front, because its template refuses
   * them elsewhere; and how it treats disabled thinking.
   */
  async messagesRules(entry: ModelEntry): Promise<MessagesRules> {
    if (entry.tokenizerDirectory === undefined) return UNKNOWN_RULES
    const tokenizer = await this.#load(entry.tokenizerDirectory, entry)
    if (typeof tokenizer === 'string') return UNKNOWN_RULES
    let rules = this.#messagesRules.get(tokenizer)
    if (rules === undefined) {
      const rendered = (chat: RequestBody): string | undefined => {
        const answer = tokenizer.renderChat(chat)
        return answer.kind === 'text' ? answer.text + answer.textAfter : undefined
      }
      rules = {
        mergesSystem: rendered(SYSTEM_PROBE) === undefined,
        disabledEffort: disabledThinkingEffort(rendered),
      }
      this.#messagesRules.set(tokenizer, rules)
    }
    return rules
  }

  /** The rendered text of a chat where its template can be used; undefined: its messages must do. */
  async rendered(
    values: () => PythonDict | undefined,
    entry: ModelEntry,
    wallMs: number,
  ): Promise<string | undefined> {
    const { tokenizerDirectory } = entry
    if (tokenizerDirectory === undefined) return undefined
    const tokenizer = await this.#load(tokenizerDirectory, entry)
    if (typeof tokenizer === 'string') return undefined
    this.#renderedAtMs = wallMs
    const answer = tokenizer.renderChat(valuesOf(values))
    return answer.kind === 'text' ? answer.text + answer.textAfter : undefined
  }

  /**
   * The tokenizer, or why it cannot be loaded; that is not tried again, but where this machine lacked
   * something.
   */
  #load(directory: string, { dialect, chat }: ModelEntry): Promise<PromptTokenizer | string> {
    const name = JSON.stringify([directory, dialect, chat?.id])
    let loading = this.#loaded.get(name)
    if (loading === undefined) {
      const now = () => new Date(this.#renderedAtMs)
      const wordTableBytesMax = this.#wordTableBytesMax
      const options = {
        ...chat,
        dialect,
        now,
        promptCache: this.#promptCache,
        wordTableBytesMax,
        lendsIds: true,
      }
      const shared = this.#shared.get(directory)
      const made =
        shared === undefined
          ? PromptTokenizer.load(directory, options)
          : (async () => PromptTokenizer.of(shared, options))()
      loading = made.then(
        tokenizer => {
          if (this.#loaded.get(name) === loading) this.#ready.set(name, tokenizer)
          return tokenizer
        },
        (thrown: Error) => {
          if (isLocalFault(thrown.cause) && this.#loaded.get(name) === loading) this.#forget(name)
          return thrown.message
        },
      )
      this.#loaded.set(name, loading)
    }
    return loading
  }

  #forget(name: string): void {
    this.#loaded.delete(name)
    this.#ready.delete(name)
  }
}

/** A body that Python cannot read is delegated like one that is no object. */
function valuesOf(values: () => PythonDict | undefined): RequestBody {
  try {
    return values() ?? ''
  } catch (error) {
    if (error instanceof RenderingRefusedError) return ''
    throw error
  }
}

function refusal(kind: 'delegate' | 'unsupported', reason: string): Prompt {
  return kind === 'delegate' ? { kind: 'ask-engine', why: reason } : { kind: 'as-text', why: reason }
}

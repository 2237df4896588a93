/**
 * Body reader: request bytes to model, prompt tokens, block hashes and hints, on one thread.
 *
 *   read   scan the JSON, read what routing needs, render and tokenize, hash; or return the question for an
 *          engine; if no engine can be asked, hash the text in pieces
 *   hash   an engine's `/tokenize` reply to block hashes
 *
 * Until a worker has reported its block size, a prompt is hashed in blocks of an assumed size: guesses from
 * sent requests work with any size.
 *
 * Owns     every tokenizer that it has loaded, and the beginnings of bodies and prompts that it has read, up
 *          to a bound: when a conversation goes on, only the new part is read.
 */

import { isLocalFault, toErrorRecord } from '@homing/base'
import {
  formatHash,
  type HashNamespace,
  hashBlocks,
  hashText,
  namespaceSeed,
  textTokens,
  xxh3,
} from '@homing/blocks'
import { NO_ALIASES, servedModel } from '@homing/fleet/model-names'
import {
  type BodyEdit,
  cutMembers,
  estimatePrompt,
  IMAGE_TOKENS,
  InvalidRequestError,
  mediaTokensOf,
  type PromptEstimate,
  parseTokenIds,
  type ReadOptions,
  type RequestFields,
  type RequestScan,
  ROUTER_MEMBERS,
  readRequest,
  scanRequest,
  spliceMember,
  usageEdit,
} from '@homing/openai'
import { separatedPrompt, unknownPromptWith } from '@homing/placement/separated-prompt'
import { ADAPTER, EXTRA_KEY, SALT } from '@homing/protocol'
import {
  CACHE_MARK,
  conversationText,
  loadDecoder,
  loadTokenizer,
  RenderingRefusedError,
} from '@homing/tokenization'
import { BodyMemory, type ReadBody } from './body-memory.ts'
import { idsOfReply } from './ids-of-reply.ts'
import type { EngineQuestions, ModelEntry, ModelTable } from './model-table.ts'
import { type Prompt, ThreadTokenizers } from './prompt-tokens.ts'
import { convertedView, isConverted, type PromptView } from './prompt-view.ts'
import type { CompletionRoute, ReadRequest } from './read-request.ts'
import type {
  CheckTask,
  HashTask,
  ReaderConfiguration,
  ReaderOutcome,
  ReaderTask,
  ReadTask,
} from './reader-tasks.ts'
import { hasValue, mediaTypeIn, tokenizeBody } from './tokenize-body.ts'

/** Until a worker has said another one. */
const ASSUMED_BLOCK_SIZE_TOKENS = 16
/**
 * The share of the memory for remembered texts that is for bodies; the rest is for prompts and their tokens.
 */
const BODY_SHARE = 0.5

/** Of the tokens that a text looks like: texts have up to twice the usual bytes for each token. */
const CLAIMED_SHARE_MIN = 0.5

const utf8 = new TextEncoder()
/** Of a unit of UTF-16. */
const UNIT_BYTES_MAX = 3
/** For longer texts there is new memory each time. */
const TEXT_ROOM_BYTES_MAX = 4 * 2 ** 20

export interface BodyReaderOptions {
  /** Bytes for the beginnings of bodies and prompts. */
  readonly promptCacheBytes: number
  /** Bytes for the words that each tokenizer has seen. */
  readonly wordTableBytes: number
}

export class BodyReader {
  readonly #bodies: BodyMemory
  readonly #tokenizers: ThreadTokenizers
  #configuration: ReaderConfiguration | undefined
  /** For the bytes of a prompt that is known as text. */
  #textRoom = new Uint8Array(0)
  /** Never rejects. */
  #last: Promise<unknown> = Promise.resolve()

  constructor({ promptCacheBytes, wordTableBytes }: BodyReaderOptions) {
    this.#bodies = new BodyMemory(promptCacheBytes * BODY_SHARE)
    this.#tokenizers = new ThreadTokenizers({
      promptCacheBytes: promptCacheBytes * (1 - BODY_SHARE),
      wordTableBytes,
    })
  }

  configure(configuration: ReaderConfiguration): void {
    this.#configuration = configuration
    this.#tokenizers.use(configuration.tokenizers, configuration.distrusted)
  }

  /** Makes the tokenizers of its models, before their first prompts. */
  prepare(): void {
    // What is wrong with one, its first prompt says.
    for (const entry of this.#configuration?.table.values() ?? [])
      this.#tokenizers.prepare(entry).catch(() => {})
  }

  /** Bytes of what is remembered of bodies and prompts. */
  get bytes(): number {
    return this.#bodies.bytes + this.#tokenizers.bytes
  }

  /** Bytes of the words that its tokenizers have seen. */
  get wordTableBytes(): number {
    return this.#tokenizers.wordTableBytes
  }

  /** Tasks are done one after the other: token ids are lent until the next prompt. Never throws. */
  run(task: ReaderTask): Promise<ReaderOutcome> {
    const outcome = this.#last.then(() => this.#run(task))
    this.#last = outcome
    return outcome
  }

  async #run(task: ReaderTask): Promise<ReaderOutcome> {
    try {
      switch (task.type) {
        case 'read':
        case 'check': {
          const configuration = this.#configuration
          if (configuration === undefined || configuration.version < task.version)
            return { kind: 'unconfigured' }
          if (task.type === 'check') return await this.#check(task, configuration)
          return await this.#read(task, configuration)
        }
        case 'hash':
          return hashReply(task)
        case 'load':
          return await loadOf(task.directory, async directory => ({
            kind: 'loaded',
            loaded: await loadTokenizer(directory),
          }))
        case 'decoder':
          return await loadOf(task.directory, async directory => ({
            kind: 'decoder',
            tables: await loadDecoder(directory),
          }))
      }
    } catch (thrown) {
      const param = (thrown as { readonly param?: unknown } | undefined)?.param
      return {
        kind: 'refused',
        error: toErrorRecord(thrown),
        param: typeof param === 'string' ? param : undefined,
      }
    }
  }

  /** `isCheck`: its tokens are those of this router, even if engines make others. */
  async #read(task: ReadTask, configuration: ReaderConfiguration, isCheck = false): Promise<ReaderOutcome> {
    const { body, promptIds, headers, route, wantTokenIds, wallMs } = task
    const { table, names = NO_ALIASES, affinityFields = [], unlistedAdaptersOf } = configuration
    const readBody = this.#bodies.read(body)
    const { scan } = readBody
    const request = readRequest(body, scan, headers, {
      ...(promptIds === undefined ? optionsOf(route, scan) : {}),
      affinityFields,
    })
    const model = servedModel(request.model ?? onlyBaseModel(table), names, name => table.has(name))
    const entry = table.get(model) ?? adapterOf(table.get(unlistedAdaptersOf ?? ''), model)
    const namespace: HashNamespace = {
      ...(entry?.loraName === undefined ? {} : { loraName: entry.loraName }),
      ...(request.cacheSalt === undefined ? {} : { cacheSalt: request.cacheSalt }),
    }
    const upstreamBody = upstreamBodyOf(body, scan, request, model)
    const unread: ReadRequest = {
      model,
      isStream: request.isStream,
      promptTokens: 0,
      blockSizeTokens: entry?.blockSizeTokens ?? ASSUMED_BLOCK_SIZE_TOKENS,
      localHashes: new Int32Array(0),
      sequenceHashes: new Int32Array(0),
      tokenIds: undefined,
      unknownPromptReason: undefined,
      textBlocksReason: undefined,
      separated: unknownPromptWith(separatorsOf(request, namespace)),
      // A stream tells what was cached of the prompt that answers first.
      cacheUse:
        request.cacheUse ?? (request.isStream && isOneOfMany(body, request) ? 'unreported' : undefined),
      tokenizedBy: 'nobody',
      override: request.hints.override,
      moeQuery: request.hints.moeQuery,
      constraints: request.hints.constraints,
      priority: request.hints.priority,
      expectedOutputTokens: request.hints.expectedOutputTokens,
      outputTokensMax: request.outputTokensMax,
      choicesCount: request.choicesCount,
      session: request.session,
      tracking: request.hints.tracking,
      previousResponseId: request.previousResponseId,
      pinnedInstanceId: instanceIdOf(request),
      pinnedRank: request.hints.dpRank,
      ...prefillPinOf(request),
      annotations: request.hints.annotations,
      extraFields: request.hints.extraFields,
      upstreamBody,
      // Streams of the other forms contain usage by default.
      usageEdit: isConverted(route)
        ? undefined
        : usageEditOf(request, upstreamBody ?? body, upstreamBody === undefined ? scan : undefined),
    }
    const estimate = () => estimatePrompt(body, scan, textTokens)
    const unknown = (reason: string): ReaderOutcome => ({
      kind: 'read',
      request: { ...withEstimate(unread, estimate()), unknownPromptReason: reason },
    })

    // The router refuses this model, and its error lists the models.
    if (entry === undefined)
      return { kind: 'read', request: { ...unread, unknownPromptReason: 'no worker serves the model' } }
    if (promptIds !== undefined)
      return { kind: 'read', request: withTokens(unread, promptIds, namespace, wantTokenIds, 'client') }
    const view = isConverted(route)
      ? convertedView(route, readBody, request, entry, await this.#tokenizers.messagesRules(entry))
      : { ...readBody, body, request, isConverted: false }
    const asText = async (why: string): Promise<ReaderOutcome> => {
      const rendered = 'reason' in view ? undefined : await this.#textOf(view, entry, wallMs)
      const text = rendered ?? conversationOf(readBody)
      return text === undefined
        ? unknown(why)
        : { kind: 'read', request: withText(unread, text, namespace, why, estimate()) }
    }
    if ('reason' in view) return asText(view.reason)
    const questions = isCheck ? undefined : entry.engineTokenized?.get(route)
    const claimed = claimedIds(body, request)
    if (claimed !== undefined && configuration.trustsTokenData === true)
      return { kind: 'read', request: withClaimed(unread, claimed, estimate(), namespace, wantTokenIds) }
    const prompt = await this.#promptOf(body, view, entry, wallMs, questions)
    switch (prompt.kind) {
      case 'tokens': {
        const isFirst = isOneOfMany(body, request)
        const read = withTokens(unread, prompt.ids, namespace, wantTokenIds, prompt.by, isFirst)
        return { kind: 'read', request: isFirst ? withEstimate(read, estimate()) : read }
      }
      case 'unknown':
        return unknown(prompt.reason)
      case 'as-text':
        return asText(prompt.why)
      case 'ask-engine': {
        if (task.unaskable !== undefined) return asText(task.unaskable)
        const origins = questions?.origins ?? entry.tokenizeOrigins
        // A question is a copy of the prompt.
        if (origins.length === 0) return asText(`${prompt.why}; no worker can be asked to tokenize`)
        const question = tokenizeBody(view.body, view.scan, view.request, model)
        if (question.kind === 'unknown') return asText(`${prompt.why}; ${question.reason}`)
        return {
          kind: 'ask-engine',
          request: unread,
          namespace,
          tokenizeBody: question.body,
          origins,
          why: prompt.why,
        }
      }
    }
  }

  async #check(task: CheckTask, configuration: ReaderConfiguration): Promise<ReaderOutcome> {
    const { body } = task
    if (isConverted(task.route)) return { kind: 'uncheckable' }
    const outcome = await this.#read({ ...task, type: 'read', wantTokenIds: true }, configuration, true)
    if (outcome.kind !== 'read' || outcome.request.tokenizedBy !== 'router') return { kind: 'uncheckable' }
    const { model, tokenIds } = outcome.request
    const entry = configuration.table.get(model)
    const scan = scanRequest(body)
    // `/tokenize` does not take these fields, and would render another time of day.
    const isRenderedOtherwise =
      hasValue(body, scan, 'tool_choice') || hasValue(body, scan, 'input_ids') || this.#printsTime(entry)
    const question = tokenizeBody(body, scan, readRequest(body, scan, task.headers), model)
    const { tokenizerDirectory: directory, tokenizeOrigins: origins = [] } = entry ?? {}
    if (
      isRenderedOtherwise ||
      tokenIds === undefined ||
      directory === undefined ||
      origins.length === 0 ||
      question.kind !== 'body'
    )
      return { kind: 'uncheckable' }
    const bodyHash = xxh3(body, { lo: 0, hi: 0 })
    return {
      kind: 'check',
      model,
      directory,
      tokenIds,
      tokenizeBody: question.body,
      origins,
      bodyHash: formatHash(bodyHash.lo, bodyHash.hi),
    }
  }

  #printsTime(entry: ModelEntry | undefined): boolean {
    const { tokenizerDirectory = '', chat } = entry ?? {}
    const templates = this.#configuration?.tokenizers.get(tokenizerDirectory)?.files.templates
    const sources =
      chat?.chatTemplate === undefined ? [templates?.standard, templates?.toolUse] : [chat.chatTemplate]
    return sources.some(source => source?.includes('strftime') === true)
  }

  async #promptOf(
    body: Uint8Array,
    view: PromptView,
    entry: ModelEntry,
    wallMs: number,
    questions: EngineQuestions | undefined,
  ): Promise<Prompt> {
    const { request } = view
    if (!view.isConverted && hasValue(body, view.scan, 'truncate_prompt_tokens')) {
      return { kind: 'unknown', reason: 'truncate_prompt_tokens changes the prompt inside the engine' }
    }
    if (!view.isConverted && hasValue(body, view.scan, 'prompt_embeds')) {
      return { kind: 'unknown', reason: 'prompt_embeds come before the prompt' }
    }
    if (request.promptShape === 'tokens') {
      const prompt = request.prompt!
      const isPrompt = view.scan.byName.get('prompt')?.value.start === prompt.start
      const param = isPrompt ? 'prompt' : 'token_ids'
      return { kind: 'tokens', ids: parseTokenIds(body, prompt, param), by: 'client' }
    }
    if (questions !== undefined) return { kind: 'ask-engine', why: questions.why }
    return this.#tokenizers.prompt(view.values, request, entry, wallMs)
  }

  /**
   * The text of a prompt, as far as it decides what an engine caches; undefined where there is more than text
   * to it, or marks for caching, which move from turn to turn.
   */
  async #textOf(
    { body, scan, values, request }: PromptView,
    entry: ModelEntry,
    wallMs: number,
  ): Promise<Uint8Array | undefined> {
    if (request.promptShape === 'text')
      return body.subarray(request.prompt!.start + 1, request.prompt!.end - 1)
    if (request.promptShape !== 'messages' || mediaTypeIn(body, scan, values) !== undefined) return undefined
    const rendered = await this.#tokenizers.rendered(values, entry, wallMs)
    if (rendered !== undefined) return this.#utf8(rendered)
    // The text that templates put before the messages, and the messages without their end, so that a
    // conversation can continue.
    const whole = Buffer.from(body.buffer, body.byteOffset, body.byteLength)
    if (whole.includes(`"${CACHE_MARK}"`)) return undefined
    const parts: Uint8Array[] = []
    for (const name of ['chat_template', 'chat_template_kwargs', 'tools', 'documents', 'messages']) {
      const value = scan.byName.get(name)?.value
      if (value !== undefined)
        parts.push(body.subarray(value.start, name === 'messages' ? value.end - 1 : value.end))
    }
    return Buffer.concat(parts)
  }

  /** The bytes of a text, until the next call. Into room that is there it is one pass instead of two. */
  #utf8(text: string): Uint8Array {
    const bytesMax = UNIT_BYTES_MAX * text.length
    if (bytesMax > TEXT_ROOM_BYTES_MAX) return Buffer.from(text)
    if (this.#textRoom.length < bytesMax) this.#textRoom = new Uint8Array(bytesMax)
    return this.#textRoom.subarray(0, utf8.encodeInto(text, this.#textRoom).written)
  }
}

/** The text of a conversation that is more than text, as far as it can be told. */
function conversationOf({ values }: ReadBody): Uint8Array | undefined {
  try {
    const given = values()
    const text = given && conversationText(given, type => (type === '' ? IMAGE_TOKENS : mediaTokensOf(type)))
    return text === undefined ? undefined : Buffer.from(text)
  } catch (thrown) {
    if (!(thrown instanceof RenderingRefusedError)) throw thrown
    return undefined
  }
}

async function loadOf(
  directory: string,
  load: (directory: string) => Promise<ReaderOutcome>,
): Promise<ReaderOutcome> {
  try {
    return await load(directory)
  } catch (thrown) {
    const mayComeBack = isLocalFault((thrown as { readonly cause?: unknown }).cause)
    return { kind: 'notLoaded', error: toErrorRecord(thrown), mayComeBack }
  }
}

function hashReply(task: HashTask): ReaderOutcome {
  const { request, namespace, wantTokenIds } = task
  const ids = idsOfReply(task.reply)
  return {
    kind: 'read',
    request: withTokens(request, ids, namespace, wantTokenIds, 'engine'),
  }
}

function withTokens(
  request: ReadRequest,
  ids: Int32Array,
  namespace: HashNamespace,
  wantTokenIds: boolean,
  tokenizedBy: ReadRequest['tokenizedBy'],
  isOneOfMany = false,
): ReadRequest {
  const { local, sequence } = hashBlocks(ids, request.blockSizeTokens, namespaceSeed(namespace))
  return {
    ...request,
    promptTokens: ids.length,
    localHashes: local,
    sequenceHashes: sequence,
    // If there are several prompts, only the first one is known.
    separated:
      request.separated === undefined || isOneOfMany
        ? request.separated
        : separatedPrompt(ids, request.blockSizeTokens, namespace, request.separated.unnamed[0]!),
    isCounted: tokenizedBy !== 'client' && !isOneOfMany,
    // The tokenizer only lends them.
    tokenIds: wantTokenIds ? ids.slice() : undefined,
    tokenizedBy,
  }
}

/** The ids of `nvext.token_data`; undefined: there is none. Throws InvalidRequestError. */
function claimedIds(body: Uint8Array, { hints }: RequestFields): Int32Array | undefined {
  return hints.tokenData && parseTokenIds(body, hints.tokenData, 'nvext.token_data')
}

/**
 * A prompt by the word of its client. The engine gets the body: what it computes and has cached may be of
 * another prompt, so the length is at least a part of what the text of the body looks like.
 */
function withClaimed(
  unread: ReadRequest,
  ids: Int32Array,
  { tokens, tokensMax }: PromptEstimate,
  namespace: HashNamespace,
  wantTokenIds: boolean,
): ReadRequest {
  const read = withTokens(unread, ids, namespace, wantTokenIds, 'client')
  const atLeast = { tokens: Math.ceil(CLAIMED_SHARE_MIN * tokens), tokensMax }
  return { ...withEstimate(read, atLeast), cacheUse: unread.cacheUse ?? 'claimed' }
}

/** The prompt has at least the tokens that are known of it. */
function withEstimate(request: ReadRequest, { tokens, tokensMax }: PromptEstimate): ReadRequest {
  return { ...request, promptTokens: Math.max(request.promptTokens, tokens), estimate: { tokensMax } }
}

function withText(
  request: ReadRequest,
  text: Uint8Array,
  namespace: HashNamespace,
  why: string,
  { tokensMax }: PromptEstimate,
): ReadRequest {
  const { local, sequence } = hashText(text, request.blockSizeTokens, namespace)
  return {
    ...request,
    promptTokens: textTokens(text.length),
    estimate: { tokensMax },
    localHashes: local,
    sequenceHashes: sequence,
    textBlocksReason: why,
  }
}

/** A list of several prompts, of which only the first is read. */
function isOneOfMany(body: Uint8Array, { prompt, promptShape }: RequestFields): boolean {
  if (prompt === undefined || (promptShape !== 'texts' && promptShape !== 'token-lists')) return false
  const text = Buffer.from(body.subarray(prompt.start, prompt.end)).toString()
  return (JSON.parse(text) as readonly unknown[]).length > 1
}

/** The separators that give its blocks other hashes than equal prompts have. */
function separatorsOf({ hasExtraKey, hasLoraPath }: RequestFields, namespace: HashNamespace): number {
  const hasAdapter = namespace.loraName !== undefined || hasLoraPath
  return (
    (namespace.cacheSalt === undefined ? 0 : SALT) |
    (hasAdapter ? ADAPTER : 0) |
    (hasExtraKey ? EXTRA_KEY : 0)
  )
}

/** `/route` takes token ids for a prompt; the other routes leave it to the engine to refuse what it must. */
function optionsOf(route: CompletionRoute, scan: RequestScan): ReadOptions {
  if (route === 'chat' || route === 'messages') return { requires: 'messages' }
  if (route === 'responses') return { hasOtherInput: true }
  return scan.byName.has('token_ids') ? {} : { requires: 'prompt' }
}

/** Clients may leave the model out where there is but one, under whatever names, as engines allow. */
function onlyBaseModel(table: ModelTable): string {
  const entries = [...table.values()]
  const only = entries.find(({ isDefault }) => isDefault)
  if (only !== undefined) return only.name
  const bases = entries.filter(({ loraName }) => loraName === undefined)
  throw new InvalidRequestError(
    'model',
    '(missing)',
    `one of ${bases.map(({ name }) => name).join(', ') || 'the models served'}`,
  )
}

/** An adapter of which only its engine knows; undefined: its base model is not known either. */
function adapterOf(base: ModelEntry | undefined, name: string): ModelEntry | undefined {
  return base && { ...base, name, loraName: name }
}

/** What it says of two legs, if it says anything. */
function prefillPinOf({ hints }: RequestFields): Pick<ReadRequest, 'isWholePin' | 'prefillPin'> {
  const { isWholePin, prefillWorkerId: id, prefillDpRank: rank } = hints
  return {
    ...(isWholePin === true ? { isWholePin } : {}),
    ...(id === undefined && rank === undefined
      ? {}
      : { prefillPin: { instanceId: id === undefined ? undefined : Number(id), rank } }),
  }
}

function instanceIdOf(request: RequestFields): number | undefined {
  const { workerId } = request.hints
  // Worker ids are small here; a larger number matches none, and the router refuses it.
  return workerId === undefined ? undefined : Number(workerId)
}

/**
 * The body without the router's own fields, with the model that an alias stands for, and with the salt from a
 * header or `nvext`; undefined: it is the client's.
 */
function upstreamBodyOf(
  body: Uint8Array,
  scan: RequestScan,
  request: RequestFields,
  model: string,
): Uint8Array | undefined {
  let cut = request.hasNvext ? cutMembers(body, scan, ROUTER_MEMBERS) : undefined
  if (request.model !== undefined && request.model !== model) {
    const cutScan = cut === undefined ? scan : scanRequest(cut)
    cut = spliceMember(cut ?? body, cutScan, 'model', JSON.stringify(model))
  }
  const { cacheSalt } = request
  if (cacheSalt === undefined) return cut
  const current = cut ?? body
  const currentScan = cut === undefined ? scan : scanRequest(cut)
  const own = currentScan.byName.get('cache_salt')
  const wanted = JSON.stringify(cacheSalt)
  if (own !== undefined) {
    const text = Buffer.from(current.subarray(own.value.start, own.value.end)).toString()
    if (JSON.parse(text) === cacheSalt) return cut
  }
  return spliceMember(current, currentScan, 'cache_salt', wanted)
}

/**
 * `scan` where the body has been scanned already. A stream of several choices is not asked: each has a last
 * chunk, and what asking moves out of the earlier ones is known only at the end.
 */
function usageEditOf(
  request: RequestFields,
  body: Uint8Array,
  scan: RequestScan | undefined,
): BodyEdit | undefined {
  if (!request.isStream || request.includesUsage) return undefined
  const { choicesCount, promptShape } = request
  if (choicesCount > 1 || promptShape === 'texts' || promptShape === 'token-lists') return undefined
  return usageEdit(body, scan ?? scanRequest(body))
}

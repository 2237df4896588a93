/**
 * Tokenizer: extracts what routing needs from request bytes.
 *
 * In     `read` and `decoder` from the gateway; the fleet; `whenStarted` from the guardian.
 * Out    to the directory: engines that make other tokens of a chat (chat-comparer.ts).
 *        `read` is answered here for short requests, and by a reader on a thread of its own (reader.ts) for
 *        others. If the prompt's tokens cannot be known, an engine is asked (`/tokenize`). If no engine can
 *        be asked either, or none answers, the text of the prompt is hashed instead; a prompt that is more
 *        than text is not known.
 *        To near tokenizers (near-tokenizer.ts), which follow it: the configuration of readers.
 * Owns   the readers, whose threads are started at once, what waits for them, and their configuration. A
 *        tokenizer is loaded once, as soon as a model needs it; its tables are in memory that all threads
 *        share.
 * Order  none between requests.
 * Fails  a request that cannot be read is refused with the reason. Where `queueMax` requests wait, more are
 *        refused. A reader that ends is replaced; the request that it had is refused. If no thread can be
 *        started, waiting and new requests are refused until one can. If no engine tokenizes in time, the
 *        text remains: the worker is chosen by the texts that were sent to each. Engines that are silent
 *        are remembered (engine-tokenize.ts), so that other requests do not wait for them.
 */

import {
  type ActorContext,
  type Capability,
  defineActor,
  defineCapability,
  signal,
  type Terminated,
} from '@homing/actor'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import type { ModelAlias } from '@homing/config'
import { type Fleet, modelNames } from '@homing/fleet'
import { ChatComparer } from './chat-comparer.ts'
import type { GivenChatOptions } from './chat-options.ts'
import { Decoders } from './decoders.ts'
import { TokenizingEngines } from './engine-tokenize.ts'
import type { TokenizerMessage, TokenizerStatus } from './messages.ts'
import { type GivenTokenizers, modelTable, readGivenTokenizers } from './model-table.ts'
import type { GivenBody, ReadResult } from './read-request.ts'
import { ReaderFollowers } from './reader-followers.ts'
import type { ReaderOutcome } from './reader-tasks.ts'
import { SpawnedReaders } from './reader-threads.ts'
import { Readers } from './readers.ts'
import { TokenChecker } from './token-checker.ts'
import { INLINE_CACHE_SHARE, type TokenizerArgs } from './tokenizer-args.ts'

/**
 * Directories whose ids were seen to differ from an engine's: a restarted tokenizer must not trust them
 * again.
 */
const distrustCapability: Capability<Set<string>> = defineCapability({
  name: 'distrusted-tokenizers',
  create: () => new Set(),
})

export const tokenizer = defineActor(
  import.meta.url,
  'tokenizer',
)<TokenizerMessage, TokenizerArgs>({
  reentrant: true,
  setup(context, args) {
    const state = new Tokenizer(context, args)
    return {
      fleet: ({ fleet }) => state.takeFleet(fleet),
      compareChats: () => state.comparer?.again(),
      tokenizers: ({ reply }) => reply(state.status()),
      whenStarted: async ({ reply }) => reply(await state.start()),
      read: async message => message.reply(await state.read(message)),
      decoder: async ({ model, reply }) => reply(await state.decoders.of(model)),
      follow: message => state.followers.take(message),
      check: ({ route, body, headers, wantTokenIds }) => state.check({ route, body, headers, wantTokenIds }),
      [signal](event) {
        if (event.type !== 'terminated') return
        state.followers.remove(event.ref.key)
        state.threadEnded(event)
      },
    }
  },
})

type ReadMessage = Extract<TokenizerMessage, { readonly type: 'read' }>
type EngineQuestion = Extract<ReaderOutcome, { readonly kind: 'ask-engine' }>

class Tokenizer {
  readonly #context: ActorContext<TokenizerMessage>
  readonly #engines: TokenizingEngines
  readonly #given: GivenTokenizers
  readonly #chats: GivenChatOptions | undefined
  readonly #aliases: readonly ModelAlias[]
  readonly #threads: SpawnedReaders
  readonly #readers: Readers
  readonly #checker: TokenChecker
  readonly followers: ReaderFollowers
  readonly decoders: Decoders
  /** Undefined: chats are not compared. */
  readonly comparer: ChatComparer | undefined
  /** By origin. */
  #workerIds: ReadonlyMap<string, string> = new Map()

  constructor(context: ActorContext<TokenizerMessage>, args: TokenizerArgs) {
    const { promptCacheBytes, wordTableBytes, inlineBodyBytesMax } = args
    this.#context = context
    this.followers = new ReaderFollowers(context)
    this.#engines = new TokenizingEngines(context, {
      timeoutMs: args.tokenizeMsMax,
      hedgeMs: args.tokenizeHedgeMs,
    })
    this.#given = readGivenTokenizers(args.tokenizers)
    this.#chats = args.chats
    this.#aliases = args.modelAliases ?? []
    const inlineCacheBytes = inlineBodyBytesMax === 0 ? 0 : Math.floor(promptCacheBytes * INLINE_CACHE_SHARE)
    this.#threads = new SpawnedReaders(context, {
      threads: args.threads,
      isOnOneThread: args.isOnOneThread ?? false,
      queueMax: args.queueMax,
      promptCacheBytes: promptCacheBytes - inlineCacheBytes,
      wordTableBytes,
      onError: error => context.log.error({ error: toErrorRecord(error) }, 'tokenizer thread failed'),
    })
    this.#readers = new Readers({
      threads: this.#threads,
      inlineBodyBytesMax,
      promptCacheBytes: inlineCacheBytes,
      wordTableBytes,
      loaded: args.loaded,
      unlistedAdaptersOf: args.unlistedAdaptersOf,
      trustsTokenData: args.trustsTokenData ?? false,
      affinityFields: args.affinityFields ?? [],
      distrusted: context.use(distrustCapability),
      configured: configuration => this.followers.configured(configuration),
      onLoaded({ directory, tables, refusal }) {
        if (tables !== undefined)
          context.log.info({ directory }, 'tokenizer loaded; its prompts are encoded here')
        else
          context.log.warn(
            { directory, reason: refusal },
            'tokenizer loaded; a slower library encodes its prompts',
          )
      },
      onLoadFailed: (directory, error) =>
        context.log.warn({ directory, error }, 'tokenizer cannot be loaded; engines are asked'),
    })
    this.decoders = new Decoders({
      clock: context.clock,
      directoryOf: model => this.#readers.configuration.table.get(model)?.tokenizerDirectory,
      run: task => this.#threads.run(task),
    })
    this.#checker = new TokenChecker(context, args, { readers: this.#readers, engines: this.#engines })
    const { directory } = args
    this.comparer =
      directory && new ChatComparer({ context, readers: this.#readers, directory, engines: this.#engines })
  }

  takeFleet(fleet: Fleet): void {
    this.#workerIds = new Map(fleet.workers.map(({ origin, id }) => [origin, id]))
    this.#engines.retain(this.#workerIds)
    const table = modelTable(fleet, this.#given, this.#chats)
    this.#readers.setModels(table, modelNames(fleet, this.#aliases))
    this.comparer?.takeFleet(fleet)
  }

  status(): TokenizerStatus {
    const { checks, differences, checksFailed } = this.#checker
    const { paths: tokenizers, promptCacheBytes, wordTableBytes, vocabularyBytes } = this.#readers
    const near = this.followers.bytes
    const bytes = {
      promptCacheBytes: promptCacheBytes + near.promptCacheBytes,
      wordTableBytes: wordTableBytes + near.wordTableBytes,
      vocabularyBytes,
    }
    const { hedges } = this.#engines
    const setAside = this.#engines.setAside.flatMap(origin => this.#workerIds.get(origin) ?? [])
    return { tokenizers, checks, differences, checksFailed, hedges, setAside, ...bytes }
  }

  /** A prompt that a near tokenizer has tokenized is compared with its engine. */
  check(given: GivenBody): void {
    this.#checker.take({ ...given, wallMs: this.#context.clock.wallMs(), unaskable: undefined })
  }

  /** Undefined: every thread has started. */
  async start(): Promise<ErrorRecord | undefined> {
    try {
      await this.#threads.start()
      return undefined
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }

  threadEnded({ ref, error, reason }: Terminated): void {
    this.#threads.terminated(ref, error ?? reason)
  }

  /** Never rejects. */
  async read(message: ReadMessage): Promise<ReadResult> {
    const { route, body, promptIds, headers, wantTokenIds, waitMsMax } = message
    try {
      const wallMs = this.#context.clock.wallMs()
      const task = { route, body, promptIds, headers, wantTokenIds, wallMs }
      const outcome = await this.#readers.read({ ...task, unaskable: undefined }, waitMsMax)
      if (outcome.kind === 'read' && outcome.request.tokenizedBy === 'router') {
        this.#checker.offer({ ...task, unaskable: undefined })
      }
      if (outcome.kind !== 'ask-engine') return resultOf(outcome)
      const answer = await this.#askEngine(outcome, wantTokenIds)
      if (typeof answer !== 'string') return answer
      const { model } = outcome.request
      this.#context.log.debug({ model, reason: answer }, 'prompt is known only as text')
      return resultOf(await this.#readers.read({ ...task, unaskable: answer }, waitMsMax))
    } catch (thrown) {
      return { kind: 'refused', error: toErrorRecord(thrown), param: undefined }
    }
  }

  /** Has an engine tokenize, and a reader hash what it answers; or why that cannot be. */
  async #askEngine(question: EngineQuestion, wantTokenIds: boolean): Promise<ReadResult | string> {
    const { request, namespace, why } = question
    try {
      const reply = await this.#engines.ask(question)
      const hashed = await this.#readers.hash({ type: 'hash', reply, request, namespace, wantTokenIds })
      if (hashed.kind === 'read') return hashed
      return `${why}; /tokenize gave an answer that cannot be read`
    } catch (thrown) {
      return `${why}; ${toErrorRecord(thrown).message}`
    }
  }
}

function resultOf(outcome: ReaderOutcome): ReadResult {
  if (outcome.kind === 'read' || outcome.kind === 'refused') return outcome
  throw new Error(`cannot read a request: the reader answered "${outcome.kind}"`)
}

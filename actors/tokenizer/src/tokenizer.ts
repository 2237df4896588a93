/**
 * Tokenizer: extracts what routing needs from request bytes.
 *
 * In     `read` from the gateway; the fleet; `whenStarted` from the guardian.
 * Out    `read` is answered here for short requests, and by a reader on a thread of its own (reader.ts) for
 *        others. If the prompt's tokens cannot be known, an engine is asked (`/tokenize`). If no engine can
 *        be asked either, or none answers, the text of the prompt is hashed instead; a prompt that is more
 *        than text is not known.
 * Owns   the readers, whose threads are started at once, what waits for them, and their configuration. A
 *        tokenizer is loaded once, as soon as a model needs it; its tables are in memory that all threads
 *        share.
 * Order  none between requests.
 * Fails  a request that cannot be read is refused with the reason. Where `queueMax` requests wait, more are
 *        refused. A reader that ends is replaced; the request that it had is refused. If no thread can be
 *        started, waiting and new requests are refused until one can. If an engine does not tokenize in time,
 *        the text remains: the worker is chosen by the texts that were sent to each.
 */

import { type ActorContext, type Capability, defineActor, defineCapability, signal } from '@homing/actor'
import { toErrorRecord } from '@homing/base'
import type { LoadedTokenizer } from '@homing/tokenization'
import { askToTokenize } from './engine-tokenize.ts'
import type { ReadResult, TokenizerMessage } from './messages.ts'
import { modelTable, readGivenTokenizers } from './model-table.ts'
import type { ReaderOutcome } from './reader-tasks.ts'
import { SpawnedReaders } from './reader-threads.ts'
import { Readers } from './readers.ts'
import { TokenChecker } from './token-checker.ts'

export interface TokenizerArgs {
  /** By directory: tokenizers that are loaded already. */
  readonly loaded: ReadonlyMap<string, LoadedTokenizer>
  /**
   * Of so many prompts that are tokenized here, one is also given to its engine, and the ids compared; 0:
   * none is.
   */
  readonly checkEvery: number
  readonly threads: number
  /** `[MODEL=]DIR`. */
  readonly tokenizers: readonly string[]
  /** Requests that may wait for a thread. */
  readonly queueMax: number
  /** Bytes for what is remembered of request bodies and prompts, over all threads. */
  readonly promptCacheBytes: number
  /** Bytes for the words that each tokenizer has seen, on each thread that reads requests. */
  readonly wordTableBytes: number
  /** Bodies up to this size are read on the thread of this actor where that is cheap; in bytes. */
  readonly inlineBodyBytesMax: number
  /** Longest wait for an engine's `/tokenize`, in milliseconds. */
  readonly tokenizeMsMax: number
}

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
    const given = readGivenTokenizers(args.tokenizers)
    const inlineCacheBytes =
      args.inlineBodyBytesMax === 0 ? 0 : Math.floor(args.promptCacheBytes * INLINE_CACHE_SHARE)
    const threads = new SpawnedReaders(context, {
      threads: args.threads,
      queueMax: args.queueMax,
      promptCacheBytes: args.promptCacheBytes - inlineCacheBytes,
      wordTableBytes: args.wordTableBytes,
      onError: error => context.log.error({ error: toErrorRecord(error) }, 'tokenizer thread failed'),
    })
    const readers = new Readers({
      threads,
      inlineBodyBytesMax: args.inlineBodyBytesMax,
      promptCacheBytes: inlineCacheBytes,
      wordTableBytes: args.wordTableBytes,
      loaded: args.loaded,
      distrusted: context.use(distrustCapability),
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

    const checker = new TokenChecker(context, args, readers)

    return {
      fleet({ fleet }) {
        readers.setModels(modelTable(fleet, given))
      },

      tokenizers({ reply }) {
        const { checks, differences, checksFailed } = checker
        const { paths: tokenizers, promptCacheBytes, wordTableBytes, vocabularyBytes } = readers
        const bytes = { promptCacheBytes, wordTableBytes, vocabularyBytes }
        reply({ tokenizers, checks, differences, checksFailed, ...bytes })
      },

      async whenStarted({ reply }) {
        try {
          await threads.start()
          reply(undefined)
        } catch (thrown) {
          reply(toErrorRecord(thrown))
        }
      },

      async read(message) {
        message.reply(await read(message))
      },

      [signal](event) {
        if (event.type === 'terminated') threads.terminated(event.ref, event.error ?? event.reason)
      },
    }

    async function read(message: Extract<TokenizerMessage, { type: 'read' }>): Promise<ReadResult> {
      const { route, body, headers, wantTokenIds, waitMsMax } = message
      try {
        const wallMs = context.clock.wallMs()
        const task = { route, body, headers, wantTokenIds, wallMs }
        const outcome = await readers.read({ ...task, unaskable: undefined }, waitMsMax)
        if (outcome.kind === 'read' && outcome.request.tokenizedBy === 'router') {
          checker.offer({ ...task, unaskable: undefined })
        }
        if (outcome.kind !== 'ask-engine') return resultOf(outcome)
        const answer = await askEngine(context, args, outcome, wantTokenIds, readers)
        if (typeof answer !== 'string') return answer
        context.log.debug({ model: outcome.request.model, reason: answer }, 'prompt is known only as text')
        return resultOf(await readers.read({ ...task, unaskable: answer }, waitMsMax))
      } catch (thrown) {
        return { kind: 'refused', error: toErrorRecord(thrown), param: undefined }
      }
    }
  },
})

/** This thread reads short requests; it gets this part of the bytes for remembering bodies and prompts. */
const INLINE_CACHE_SHARE = 1 / 8

function resultOf(outcome: ReaderOutcome): ReadResult {
  if (outcome.kind === 'read' || outcome.kind === 'refused') return outcome
  throw new Error(`cannot read a request: the reader answered "${outcome.kind}"`)
}

/** Has an engine tokenize, and a reader hash what it answers; or why that cannot be. */
async function askEngine(
  context: ActorContext<TokenizerMessage>,
  args: TokenizerArgs,
  outcome: Extract<ReaderOutcome, { kind: 'ask-engine' }>,
  wantTokenIds: boolean,
  readers: Readers,
): Promise<ReadResult | string> {
  const { request, namespace, why } = outcome
  try {
    const reply = await askToTokenize(context, outcome, args.tokenizeMsMax)
    const hashed = await readers.hash({ type: 'hash', reply, request, namespace, wantTokenIds })
    if (hashed.kind === 'read') return hashed
    return `${why}; /tokenize gave an answer that cannot be read`
  } catch (thrown) {
    return `${why}; ${toErrorRecord(thrown).message}`
  }
}

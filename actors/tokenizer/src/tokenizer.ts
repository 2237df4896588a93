/**
 * Tokenizer: request bytes to what routing needs of them, off the main thread.
 *
 * In     `read` from the gateway; the fleet.
 * Out    `read` is answered by a thread of the pool. Where that thread cannot know the prompt's tokens, an
 *        engine is asked (`/tokenize`); where no engine can be asked either, or none answers, the text of the prompt is
 *        hashed instead; one that is more than text is not known.
 * Owns   the pool. Each of its threads holds its own copy of the tokenizers, loaded at first use.
 * Order  none between requests.
 * Fails  a request that cannot be read is refused with the reason. A pool with `queueMax` waiting
 *        requests refuses more. An engine that does not tokenize in time leaves the text: the worker is chosen by what was
 *        sent where.
 */

import { type ActorContext, defineActor, signal } from '@homing/actor'
import { toErrorRecord } from '@homing/errors'
import { transportCapability } from '@homing/transport'
import { TokenizerOverloadedError } from './errors.ts'
import type { ReadResult, TokenizerMessage } from './messages.ts'
import { type ModelTable, modelTable, readGivenTokenizers } from './model-table.ts'
import type { PoolOutcome, PoolTask } from './pool-tasks.ts'
import { taskPoolCapability } from './task-pool.ts'

export interface TokenizerArgs {
  readonly threads: number
  /** `[MODEL=]DIR`. */
  readonly tokenizers: readonly string[]
  /** Requests that may wait for a thread. */
  readonly queueMax: number
  /** Longest wait for an engine's `/tokenize`, in milliseconds. */
  readonly tokenizeMsMax: number
}

export const tokenizer = defineActor(
  import.meta.url,
  'tokenizer',
)<TokenizerMessage, TokenizerArgs>({
  reentrant: true,
  setup(context, args) {
    const given = readGivenTokenizers(args.tokenizers)
    let table: ModelTable = new Map()
    const pool = context.use(taskPoolCapability)({
      threads: args.threads,
      queueMax: args.queueMax,
      onError: error => context.log.error({ error: toErrorRecord(error) }, 'tokenizer thread failed'),
    })

    return {
      fleet({ fleet }) {
        table = modelTable(fleet, given)
      },

      async read(message) {
        message.reply(await read(message))
      },

      [signal](event) {
        if (event.type !== 'terminated') return pool.destroy()
      },
    }

    async function read(message: Extract<TokenizerMessage, { type: 'read' }>): Promise<ReadResult> {
      const { route, body, headers, wantTokenIds } = message
      try {
        const wallMs = context.clock.wallMs()
        const task = { type: 'read', route, body, headers, wantTokenIds, table, wallMs } as const
        const outcome = await run({ ...task, unaskable: undefined })
        if (outcome.kind !== 'ask-engine') return outcome
        const answer = await askEngine(context, args, outcome, wantTokenIds, run)
        if (typeof answer !== 'string') return answer
        context.log.debug({ model: outcome.request.model, reason: answer }, 'prompt is known as text only')
        const asText = await run({ ...task, unaskable: answer })
        if (asText.kind !== 'ask-engine') return asText
        throw new Error('asked for an engine that is not to be asked')
      } catch (thrown) {
        return { kind: 'refused', error: toErrorRecord(thrown), param: undefined }
      }
    }

    async function run(task: PoolTask): Promise<PoolOutcome> {
      if (pool.queueSize >= args.queueMax) throw new TokenizerOverloadedError(args.queueMax)
      return pool.run(task)
    }
  },
})

/** Has an engine tokenize, and a pool thread hash what it answers; or why that cannot be. */
async function askEngine(
  context: ActorContext<TokenizerMessage>,
  args: TokenizerArgs,
  outcome: Extract<PoolOutcome, { kind: 'ask-engine' }>,
  wantTokenIds: boolean,
  run: (task: PoolTask) => Promise<PoolOutcome>,
): Promise<ReadResult | string> {
  const { request, origins, tokenizeBody, why } = outcome
  const unknown = (reason: string): string => `${why}; ${reason}`
  const origin = origins[context.random.below(origins.length)]
  if (origin === undefined) return unknown('no engine can be asked to tokenize')
  try {
    const reply = await context.use(transportCapability).http.fetch(
      {
        origin,
        method: 'POST',
        path: '/tokenize',
        headers: { 'content-type': 'application/json' },
        body: tokenizeBody,
      },
      { timeoutMs: args.tokenizeMsMax, maxBytes: TOKENIZE_REPLY_BYTES_MAX },
    )
    if (reply.status !== 200) return unknown(`${origin}/tokenize answered ${reply.status}`)
    const hashed = await run({
      type: 'hash',
      reply: reply.body,
      request,
      namespace: outcome.namespace,
      wantTokenIds,
    })
    if (hashed.kind === 'read') return hashed
    return unknown(`${origin}/tokenize answered what cannot be read`)
  } catch (thrown) {
    return unknown(`${origin}/tokenize: ${toErrorRecord(thrown).message}`)
  }
}

/** Two million ids as JSON. */
const TOKENIZE_REPLY_BYTES_MAX = 16 * 2 ** 20

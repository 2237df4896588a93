/**
 * Tokenizer: request bytes to what routing needs of them, off the main thread.
 *
 * In     `read` from the gateway; the fleet.
 * Out    `read` is answered by a thread of the pool. Where that thread cannot know the prompt's tokens, an
 *        engine is asked (`/tokenize`); where no engine can be asked either, the prompt is not known.
 * Owns   the pool. Each of its threads holds its own copy of the tokenizers, loaded at first use.
 * Order  none between requests.
 * Fails  a request that cannot be read is refused with the reason. A pool with `queueMax` waiting
 *        requests refuses more. An engine that does not tokenize in time leaves the prompt unknown: the
 *        request is served by load.
 */

import { type ActorContext, defineActor, signal } from '@homing/actor'
import { toErrorRecord } from '@homing/errors'
import { transportCapability } from '@homing/transport'
import { TokenizerOverloadedError } from './errors.ts'
import type { ReadRequest, ReadResult, TokenizerMessage } from './messages.ts'
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
        const outcome = await run({ type: 'read', route, body, headers, wantTokenIds, table, wallMs })
        if (outcome.kind !== 'ask-engine') return outcome
        return await askEngine(context, args, outcome, wantTokenIds, run)
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

/** Has an engine tokenize, and a pool thread hash what it answers. */
async function askEngine(
  context: ActorContext<TokenizerMessage>,
  args: TokenizerArgs,
  outcome: Extract<PoolOutcome, { kind: 'ask-engine' }>,
  wantTokenIds: boolean,
  run: (task: PoolTask) => Promise<PoolOutcome>,
): Promise<ReadResult> {
  const { request, origins, tokenizeBody, why } = outcome
  const unknown = (reason: string): ReadResult => {
    context.log.debug({ model: request.model, reason }, 'prompt is not known')
    const unread: ReadRequest = { ...request, unknownPrompt: `${why}; ${reason}`, tokenizedBy: 'nobody' }
    return { kind: 'read', request: unread }
  }
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
      isBlockSizeKnown: outcome.isBlockSizeKnown,
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

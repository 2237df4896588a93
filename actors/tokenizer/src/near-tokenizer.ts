/**
 * Near tokenizer: reads short request bodies on the thread of a gateway, where that is not the thread of the
 * tokenizer.
 *
 * In     `read` from its gateway; `configure` from the tokenizer.
 * Out    to the tokenizer, every FOLLOW_MS: which configuration it has, and what it remembers; and a few of
 *        the bodies, which are to be compared with their engine.
 * Owns   a body reader: the tokenizers of this thread, over tables that all threads share, and the beginnings
 *        of short bodies and prompts that it has read.
 * Order  bodies are read as they come.
 * Fails  what it cannot read itself (a long body, a model without the own encoder, a prompt that only an
 *        engine tokenizes, or no configuration yet) is answered `elsewhere`, and the gateway has the
 *        tokenizer read it. So does a gateway whose near tokenizer fails.
 */

import { type ActorRef, defineActor } from '@homing/actor'
import type { RouterSettings } from '@homing/config'
import { BodyReader } from './body-reader.ts'
import type { NearTokenizerMessage, TokenizerMessage } from './messages.ts'
import { sizeToRead } from './read-request.ts'
import { FOLLOW_MS } from './reader-followers.ts'
import { mayReadInline } from './readers.ts'
import { INLINE_CACHE_SHARE } from './tokenizer-args.ts'

export interface NearTokenizerArgs {
  readonly tokenizer: ActorRef<TokenizerMessage>
  /** Longer bodies are read elsewhere; in bytes. */
  readonly inlineBodyBytesMax: number
  /** For what this thread remembers of bodies and prompts. */
  readonly promptCacheBytes: number
  /** For the words that each tokenizer has seen on this thread. */
  readonly wordTableBytes: number
  /** One in this many prompts is compared with those of its engine; 0: none. */
  readonly checkEvery: number
}

/** `count`: as many near tokenizers share the memory that one thread would have. */
export function nearTokenizerArgsFromSettings(
  settings: Pick<
    RouterSettings,
    'inlineBodyBytesMax' | 'promptCacheBytes' | 'wordTableBytes' | 'tokenizeCheckEvery'
  >,
  { tokenizer, count }: { readonly tokenizer: ActorRef<TokenizerMessage>; readonly count: number },
): NearTokenizerArgs {
  return {
    tokenizer,
    inlineBodyBytesMax: settings.inlineBodyBytesMax,
    promptCacheBytes: Math.floor((settings.promptCacheBytes * INLINE_CACHE_SHARE) / count),
    wordTableBytes: settings.wordTableBytes,
    checkEvery: settings.tokenizeCheckEvery,
  }
}

const ELSEWHERE = { kind: 'elsewhere' } as const

export const nearTokenizer = defineActor(
  import.meta.url,
  'nearTokenizer',
)<NearTokenizerMessage, NearTokenizerArgs>({
  setup(context, args) {
    const { self, clock, random } = context
    const { tokenizer, inlineBodyBytesMax, checkEvery } = args
    const bodies = new BodyReader(args)
    let has: string | undefined
    let version = 0
    let mayRead = false
    const report = (): void => {
      const { bytes: promptCacheBytes, wordTableBytes } = bodies
      tokenizer.tell({ type: 'follow', follower: self, has, promptCacheBytes, wordTableBytes })
    }
    report()
    context.scheduleEvery(FOLLOW_MS, { type: 'report' })
    return {
      configure({ name, configuration }) {
        has = name
        version = configuration.version
        bodies.configure(configuration)
        mayRead = mayReadInline(configuration)
        if (mayRead) bodies.prepare()
      },

      report,

      async read({ route, body, promptIds, headers, wantTokenIds, reply }) {
        if (!mayRead || sizeToRead({ body, promptIds }) > inlineBodyBytesMax) {
          reply(ELSEWHERE)
          return
        }
        const given = { route, body, headers, wantTokenIds }
        const task = {
          type: 'read',
          ...given,
          promptIds,
          version,
          wallMs: clock.wallMs(),
          unaskable: undefined,
        } as const
        const outcome = await bodies.run(task)
        if (outcome.kind !== 'read' && outcome.kind !== 'refused') {
          reply(ELSEWHERE)
          return
        }
        reply(outcome)
        if (outcome.kind !== 'read' || outcome.request.tokenizedBy !== 'router') return
        if (checkEvery > 0 && random.below(checkEvery) === 0) tokenizer.tell({ type: 'check', ...given })
      },
    }
  },
})

/**
 * Token checker: one in `checkEvery` prompts that are tokenized here is also tokenized by its engine, and the
 * ids are compared.
 *
 *   request ──1 in `checkEvery`──▶ our ids ──────┬─ equal ──▶ counted
 *                             └──▶ /tokenize ────┴─ differ ─▶ logged; from now on engines tokenize instead
 *
 * The request does not wait for any of this.
 *
 * Bounds   one check at a time; requests that are offered meanwhile are not checked. The report of a
 *          difference has a hash of the body, lengths and the first position that differs, but no text.
 */

import type { ActorContext } from '@homing/actor'
import { toErrorRecord } from '@homing/base'
import { firstDifference } from '@homing/fleet'
import type { TokenizingEngines } from './engine-tokenize.ts'
import { idsOfReply } from './ids-of-reply.ts'
import type { TokenizerMessage } from './messages.ts'
import type { ReadTask } from './reader-tasks.ts'
import type { Readers } from './readers.ts'

type Offered = Omit<ReadTask, 'type' | 'version'>

export interface TokenCheckerOptions {
  readonly checkEvery: number
}

export class TokenChecker {
  /** Prompts that were compared. */
  checks = 0
  /** Checked prompts whose ids differed. */
  differences = 0
  /** Prompts that an engine did not encode. */
  checksFailed = 0
  readonly #context: ActorContext<TokenizerMessage>
  readonly #options: TokenCheckerOptions
  readonly #readers: Readers
  readonly #engines: TokenizingEngines
  #isChecking = false

  constructor(
    context: ActorContext<TokenizerMessage>,
    options: TokenCheckerOptions,
    { readers, engines }: { readonly readers: Readers; readonly engines: TokenizingEngines },
  ) {
    this.#context = context
    this.#options = options
    this.#readers = readers
    this.#engines = engines
  }

  /** Offers a request whose prompt was tokenized here. Checks one in `checkEvery`. */
  offer(task: Offered): void {
    const { checkEvery } = this.#options
    if (checkEvery > 0 && this.#context.random.below(checkEvery) === 0) this.take(task)
  }

  /** Checks this one, unless another is being checked. */
  take(task: Offered): void {
    if (this.#isChecking) return
    this.#isChecking = true
    // The request may be over before, and its body gone with it. (`slice` of a Buffer is no copy.)
    this.#check({ ...task, body: new Uint8Array(task.body) })
      .catch((thrown: unknown) => {
        this.checksFailed++
        this.#context.log.debug({ error: toErrorRecord(thrown) }, 'prompt was not compared with an engine')
      })
      .finally(() => {
        this.#isChecking = false
      })
  }

  async #check(task: Offered): Promise<void> {
    const question = await this.#readers.check(task)
    if (question.kind !== 'check') return
    const engineIds = idsOfReply(await this.#engines.askOne(question))
    const { tokenIds } = question
    this.checks++
    const position = firstDifference(tokenIds, engineIds)
    if (position === undefined) return
    this.differences++
    this.#readers.distrust(question.directory)
    this.#context.log.warn(
      {
        model: question.model,
        directory: question.directory,
        bodyHash: question.bodyHash,
        tokens: tokenIds.length,
        engineTokens: engineIds.length,
        firstDifferentToken: position,
      },
      'token ids differ from those of the engine; engines are asked for this tokenizer from now on',
    )
  }
}

/**
 * Chat comparer: has every engine tokenize one chat for each of its models, and compares the ids with those
 * of this router. An engine with another chat template writes other prompts, and nothing of them would be
 * found in its cache.
 *
 *   a worker comes up, or runs as another process ──▶ compared at once ──▶ differs: the directory is told
 *   it differed ──▶ compared again every AGAIN_MS ──▶ agrees: the directory is told
 *   no answer ──▶ asked again after OPEN_AGAIN_MS, ATTEMPTS_MAX times in all
 *
 * Answers may show a difference that this chat does not: the directory weighs both.
 *
 * Bounds   one comparison at a time, of up to COMPARED_MODELS_MAX base models of each worker; a question is
 *          asked at most ATTEMPTS_MAX times without an answer.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { PromptsMessage } from '@homing/actors/directory'
import { toErrorRecord } from '@homing/base'
import { COMPARED_CHAT, type Fleet, firstDifference, type WorkerRecord } from '@homing/fleet'
import type { TokenizingEngines } from './engine-tokenize.ts'
import { idsOfReply } from './ids-of-reply.ts'
import type { TokenizerMessage } from './messages.ts'
import type { Readers } from './readers.ts'

const AGAIN_MS = 60_000
/** Before a question that had no answer is asked again. */
const OPEN_AGAIN_MS = 10_000
const COMPARED_MODELS_MAX = 16
const ATTEMPTS_MAX = 3

interface Compared {
  readonly worker: WorkerRecord
  readonly model: string
  state: 'open' | 'agrees' | 'differs'
  attempts: number
  /** The last one in which it was made; 0: none. */
  round: number
}

export interface ChatComparerOptions {
  readonly context: ActorContext<TokenizerMessage>
  readonly readers: Readers
  readonly directory: ActorRef<PromptsMessage>
  readonly engines: TokenizingEngines
}

function isDue({ state, attempts }: Compared): boolean {
  return state === 'differs' || (state === 'open' && attempts < ATTEMPTS_MAX)
}

export class ChatComparer {
  readonly #options: ChatComparerOptions
  /** By worker, its life and model. */
  #compared = new Map<string, Compared>()
  #isComparing = false
  /** Each comparison is made once in a round. */
  #round = 1
  #willLookAgain = false

  constructor(options: ChatComparerOptions) {
    this.#options = options
  }

  takeFleet({ workers }: Fleet): void {
    const compared = new Map<string, Compared>()
    for (const worker of workers) {
      if (worker.state !== 'up' || !worker.canTokenize) continue
      const { id, joinedMs, promptsEpoch } = worker
      for (const { name, base } of worker.models.slice(0, COMPARED_MODELS_MAX)) {
        if (base !== undefined) continue
        const key = JSON.stringify([id, joinedMs, promptsEpoch, name])
        compared.set(
          key,
          this.#compared.get(key) ?? { worker, model: name, state: 'open', attempts: 0, round: 0 },
        )
      }
    }
    this.#compared = compared
    void this.#compareAll()
  }

  /** Time has passed: those that differed may agree. */
  again(): void {
    this.#willLookAgain = false
    this.#round++
    void this.#compareAll()
  }

  async #compareAll(): Promise<void> {
    if (this.#isComparing) return
    this.#isComparing = true
    for (;;) {
      const next = [...this.#compared.values()].find(one => isDue(one) && one.round < this.#round)
      if (next === undefined) break
      next.attempts++
      next.round = this.#round
      await this.#compare(next).catch((thrown: unknown) => {
        const { log } = this.#options.context
        log.debug({ worker: next.worker.id, error: toErrorRecord(thrown) }, 'chat was not compared')
      })
    }
    this.#isComparing = false
    const all = [...this.#compared.values()]
    const isOpen = all.some(one => one.state === 'open' && isDue(one))
    if (this.#willLookAgain || !(isOpen || all.some(({ state }) => state === 'differs'))) return
    this.#willLookAgain = true
    this.#options.context.schedule(isOpen ? OPEN_AGAIN_MS : AGAIN_MS, { type: 'compareChats' })
  }

  async #compare(compared: Compared): Promise<void> {
    const { context, readers, directory, engines } = this.#options
    const { worker, model, state } = compared
    const body = new TextEncoder().encode(JSON.stringify({ model, messages: COMPARED_CHAT }))
    const question = await readers.check({
      route: 'chat',
      body,
      headers: {},
      wantTokenIds: true,
      wallMs: context.clock.wallMs(),
      unaskable: undefined,
    })
    if (question.kind !== 'check') {
      // Its chats are not tokenized here, or its template writes the time.
      compared.state = 'agrees'
      return
    }
    const asked = { ...question, origins: [worker.origin] }
    const engineIds = idsOfReply(await engines.askOne(asked))
    const { tokenIds } = question
    const position = firstDifference(tokenIds, engineIds)
    const isSame = position === undefined
    compared.state = isSame ? 'agrees' : 'differs'
    // One that has agreed from the start is no news.
    if (compared.state === state || (isSame && state === 'open')) return
    const reason = isSame
      ? 'it makes the same tokens of a chat as this router'
      : `it makes ${engineIds.length} tokens of a chat that are ${tokenIds.length} here, other ones from token ${position} on`
    const { id: workerId, promptsEpoch = 0 } = worker
    directory.tell({
      type: 'prompts',
      workerId,
      promptsEpoch,
      model,
      route: 'chat',
      by: 'router',
      verdict: isSame ? 'agrees' : 'differs',
      reason,
    })
  }
}

/**
 * Prompt audits: whether engines make the same tokens of a request as the router, and who tokenizes.
 *
 *   kind      prompts of one base model and one route: a template may differ for chats and not for texts
 *   verdict   of one worker on one kind, by answers (the router compares the tokens that they count) or by a
 *             chat that engine and router both tokenized (the tokenizer compares the ids)
 *
 *   router tokenizes ──most workers of the model differ from it──▶ engines that differ are asked
 *                    ◀──they no longer do: restarted, or agree────
 *
 * Rules
 *   R1  Tokens are chosen before the worker is, so the majority decides. A worker that differs from the
 *       tokens that are used is never `exact`, since its prompts are not found in its cache.
 *   R2  A worker that runs as another process has said nothing yet. `promptsEpoch` of its record grows.
 *   R3  Verdicts on tokens by engines count only while engines are asked.
 *
 * Owns     the verdicts, and `promptsEpoch` of every worker.
 * Bounds   KINDS_MAX kinds of each worker; verdicts on further ones are dropped.
 */

import type { ActorContext } from '@homing/actor'
import type { EngineTokenized } from '@homing/fleet'
import type { DirectoryMessage, PromptsMessage } from './messages.ts'
import type { Worker } from './worker.ts'
import type { WorkerTable } from './worker-table.ts'

const KINDS_MAX = 256

interface Verdicts {
  /** Why its tokens are not those of the router; undefined: not known to differ. */
  ours: string | undefined
  /** Why they are not those that are used. */
  used: string | undefined
}

export interface PromptAuditsOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly workers: WorkerTable
  /** The trust of these workers may have changed, and `engineTokenized` if `isOther`. */
  readonly changed: (workers: Iterable<Worker>, isOther: boolean) => void
}

export class PromptAudits {
  readonly #options: PromptAuditsOptions
  readonly #verdicts = new Map<Worker, Map<string, Verdicts>>()
  #engineTokenized: readonly EngineTokenized[] = []

  constructor(options: PromptAuditsOptions) {
    this.#options = options
  }

  /** Kinds of prompts whose tokens engines are asked for. */
  get engineTokenized(): readonly EngineTokenized[] {
    return this.#engineTokenized
  }

  heard({ workerId, promptsEpoch, model, route, by, verdict, reason }: PromptsMessage): void {
    const worker = this.#options.workers.get(workerId)
    if (worker === undefined || worker.promptsEpoch !== promptsEpoch) return
    const kind = JSON.stringify([model, route])
    const isAsked = this.#isAsked(kind)
    if (by === 'engine' && !isAsked) return
    const kinds = this.#kindsOf(worker)
    const verdicts = kinds.get(kind) ?? { ours: undefined, used: undefined }
    if (!kinds.has(kind) && kinds.size >= KINDS_MAX) return
    kinds.set(kind, verdicts)
    const fault = verdict === 'differs' ? reason : undefined
    const isNews = (by === 'router' ? verdicts.ours : verdicts.used) === undefined && fault !== undefined
    if (by === 'router') verdicts.ours = fault
    if ((by === 'engine') === isAsked) verdicts.used = fault
    if (isNews) {
      this.#options.context.log.warn(
        { worker: workerId, model, route, by, reason },
        'prompts have other tokens at the engine than were counted',
      )
    }
    this.#settle([worker])
  }

  /** Its models, or whether it tokenizes, may have changed. */
  reached(): void {
    if (this.#verdicts.size > 0) this.#settle([])
  }

  /** The worker runs as another process. */
  restarted(worker: Worker): void {
    worker.promptsEpoch++
    this.#verdicts.delete(worker)
    this.#settle([worker])
  }

  left(worker: Worker): void {
    this.#verdicts.delete(worker)
    this.#settle([])
  }

  /** Why prompts are not found in the cache of a worker, however well it is known; undefined: they are. */
  faultOf(worker: Worker): string | undefined {
    for (const [kind, { used }] of this.#verdicts.get(worker) ?? []) {
      if (used === undefined) continue
      const [model, route] = JSON.parse(kind) as [string, string]
      const asked = this.#isAsked(kind) ? 'those that an engine of the model was asked for' : 'counted here'
      return `prompts of ${model} (${route}) have other tokens there than ${asked}: ${used}. ${REMEDY}`
    }
    for (const { model, route, workerIds } of this.#engineTokenized) {
      if (workerIds.length > 0 || !serves(worker, model)) continue
      return `prompts of ${model} (${route}) are known only as text: engines make other tokens of them, and none can be asked to tokenize. ${REMEDY}`
    }
    return undefined
  }

  #isAsked(kind: string): boolean {
    return this.#engineTokenized.some(({ model, route }) => JSON.stringify([model, route]) === kind)
  }

  #kindsOf(worker: Worker): Map<string, Verdicts> {
    let kinds = this.#verdicts.get(worker)
    if (kinds === undefined) {
      kinds = new Map()
      this.#verdicts.set(worker, kinds)
    }
    return kinds
  }

  /** Decides anew who tokenizes. `touched`: workers whose own verdicts have changed. */
  #settle(touched: readonly Worker[]): void {
    const { context, changed } = this.#options
    const before = this.#engineTokenized
    const after = this.#decide()
    const isOther = JSON.stringify(before) !== JSON.stringify(after)
    this.#engineTokenized = after
    const flipped = [...flippedFrom(before, after), ...flippedFrom(after, before)]
    for (const { model, route, reason } of flipped) {
      const kind = JSON.stringify([model, route])
      const isAsked = this.#isAsked(kind)
      // From now on other tokens are used.
      for (const kinds of this.#verdicts.values()) {
        const verdicts = kinds.get(kind)
        if (verdicts !== undefined) verdicts.used = isAsked ? undefined : verdicts.ours
      }
      if (isAsked) context.log.warn({ model, route, reason, remedy: REMEDY }, 'engines are asked for tokens')
      else context.log.info({ model, route }, 'prompts are tokenized here again')
    }
    changed(flipped.length > 0 ? this.#options.workers.all() : touched, isOther)
  }

  #decide(): readonly EngineTokenized[] {
    const kinds = new Map<string, { workers: Worker[]; reason: string }>()
    for (const [worker, verdicts] of this.#verdicts) {
      for (const [kind, { ours }] of verdicts) {
        if (ours === undefined || !serves(worker, (JSON.parse(kind) as [string])[0])) continue
        const differing = kinds.get(kind) ?? { workers: [], reason: `${worker.spec.id}: ${ours}` }
        differing.workers.push(worker)
        kinds.set(kind, differing)
      }
    }
    return [...kinds].flatMap(([kind, { workers, reason }]) => {
      const [model, route] = JSON.parse(kind) as [string, string]
      let serving = 0
      for (const worker of this.#options.workers.all()) if (serves(worker, model)) serving++
      if (workers.length * 2 <= serving) return []
      const askable = workers.filter(worker => worker.outcome?.canTokenize === true)
      return [{ model, route, reason, workerIds: askable.map(({ spec }) => spec.id) }]
    })
  }
}

const REMEDY =
  'Give the router the tokenizer and chat template of the engine (--tokenizer, --chat-template, --default-chat-template-kwargs)'

function serves({ outcome }: Worker, model: string): boolean {
  return outcome?.models.some(card => card.name === model) === true
}

/** Kinds that are among `after` only. */
function flippedFrom(
  before: readonly EngineTokenized[],
  after: readonly EngineTokenized[],
): readonly EngineTokenized[] {
  return after.filter(
    ({ model, route }) => !before.some(other => other.model === model && other.route === route),
  )
}

/**
 * The models of the fleet, each with the requests that wait for it: a PriorityQueue, and the rules that hold
 * for the model.
 *
 * A model begins with the first fleet that has it. Before the first fleet of this life any name gets one,
 * because nothing is known of models. A model ends with the first fleet that lacks it, once no request uses
 * it.
 */

import type { Log } from '@homing/base'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import { PROMPT_TOKENS_MAX } from '@homing/placement'
import {
  ModelRules,
  PriorityQueue,
  type QueueRefusal,
  type QueueRequest,
  type QueueRoom,
} from '@homing/queue'
import { assumedByModel, NOTHING_ASSUMED } from './assumed.ts'
import type { AssumedRows } from './messages.ts'
import type { QueueArgs } from './queue-args.ts'

const UNKNOWN_STEP =
  'the queue goes by an assumed token budget: the engine does not report max_num_batched_tokens; give max_batched_tokens= with --worker'
const NO_WORKERS = { keys: 0, stepTokens: Number.POSITIVE_INFINITY, tokensMax: 0 }
/** Most models whose requests are accepted before the first fleet of this life has come. */
const MODELS_BEFORE_FLEET_MAX = 1024

export interface QueueModel<R extends QueueRequest> {
  readonly name: string
  readonly rules: ModelRules
  readonly queue: PriorityQueue<R>
  workers: number
  /** Most tokens of a request on any of its workers. */
  tokensMax: number
}

export class QueueModels<R extends QueueRequest> {
  readonly #args: QueueArgs
  readonly #room: QueueRoom
  readonly #displaced: (id: string, refusal: QueueRefusal) => void
  readonly #log: Log
  readonly #models = new Map<string, QueueModel<R>>()
  /** Workers whose assumed token budget was logged. */
  readonly #warned = new Set<string>()
  /** The latest fleet; undefined: none has come in this life. */
  #fleet: Fleet | undefined
  /** What is assumed in `#fleet`, by model; undefined: no request has asked for it yet. */
  #assumed: ReadonlyMap<string, AssumedRows> | undefined

  /** All queues share `room`. `displaced`: a request has made room for one of another tenant. */
  constructor(
    args: QueueArgs,
    room: QueueRoom,
    displaced: (id: string, refusal: QueueRefusal) => void,
    log: Log,
  ) {
    this.#args = args
    this.#room = room
    this.#displaced = displaced
    this.#log = log
  }

  [Symbol.iterator](): Iterator<QueueModel<R>> {
    return this.#models.values()
  }

  get(name: string): QueueModel<R> | undefined {
    return this.#models.get(name)
  }

  /** The model of a request; undefined: the fleet has none of that name. */
  of(name: string): QueueModel<R> | undefined {
    const known = this.#models.get(name)
    if (known !== undefined || this.#fleet !== undefined || name === '') return known
    return this.#models.size < MODELS_BEFORE_FLEET_MAX ? this.#newModel(name) : undefined
  }

  /** `inUse`: models of which requests have no answer yet. */
  takeFleet(fleet: Fleet, inUse: ReadonlySet<QueueModel<R>>): void {
    const workers = new Map<string, { keys: number; stepTokens: number; tokensMax: number }>()
    for (const worker of fleet.workers) {
      this.#tellOfUnknown(worker)
      const isUp = worker.state === 'up'
      for (const { name, maxModelTokens = PROMPT_TOKENS_MAX } of worker.models) {
        const { keys, stepTokens, tokensMax } = workers.get(name) ?? NO_WORKERS
        workers.set(name, {
          keys: isUp ? keys + worker.keys.length : keys,
          stepTokens: Math.min(stepTokens, worker.maxBatchedTokens.value),
          tokensMax: Math.max(tokensMax, maxModelTokens),
        })
      }
    }
    for (const [name, { keys, stepTokens, tokensMax }] of workers) {
      const model = this.#models.get(name) ?? this.#newModel(name)
      model.workers = keys
      model.tokensMax = tokensMax
      model.queue.setWorkers(keys)
      model.queue.setStepTokens(stepTokens)
    }
    for (const model of this.#models.values()) {
      if (workers.has(model.name)) continue
      model.workers = 0
      model.queue.setWorkers(0)
      // The router refuses the requests that wait for this model, and says why.
      if (!inUse.has(model)) this.#models.delete(model.name)
    }
    // Set last: a fleet on which the steps above fail does not count.
    this.#fleet = fleet
    this.#assumed = undefined
  }

  assumedOf(model: string): AssumedRows {
    if (this.#fleet === undefined) return NOTHING_ASSUMED
    this.#assumed ??= assumedByModel(this.#fleet, name => this.#models.get(name)?.rules.mayWait === true)
    return this.#assumed.get(model) ?? NOTHING_ASSUMED
  }

  /**
   * Logs a worker whose token budget is assumed. It is a warning only if a threshold is set as a part of that
   * budget; otherwise there is nothing to do.
   */
  #tellOfUnknown({ id, models, maxBatchedTokens }: WorkerRecord): void {
    const rules = models.flatMap(({ name }) => this.#models.get(name)?.rules ?? [])
    const isUsed = rules.some(({ mayWait }) => mayWait)
    if (!isUsed || maxBatchedTokens.source !== 'default' || this.#warned.has(id)) return
    this.#warned.add(id)
    const level = rules.some(({ isInSteps }) => isInSteps) ? 'warn' : 'debug'
    this.#log[level]({ worker: id, tokens: maxBatchedTokens.value }, UNKNOWN_STEP)
  }

  #newModel(name: string): QueueModel<R> {
    const rules = new ModelRules(name, this.#args.rules)
    const { agingMs, tenantWeights, unnamedTenants, contentionMs } = this.#args
    // Limits of classes are per worker; the fleet says how many workers there are.
    const options = {
      profile: rules.profile,
      room: this.#room,
      displaced: this.#displaced,
      workers: 1,
      agingMs,
      ...(tenantWeights === undefined ? {} : { tenantWeights }),
      ...(unnamedTenants === undefined ? {} : { unnamedTenants }),
      ...(contentionMs === undefined ? {} : { contentionMs }),
    }
    const queue = new PriorityQueue<R>(options)
    const model = { name, rules, queue, workers: 0, tokensMax: PROMPT_TOKENS_MAX }
    this.#models.set(name, model)
    return model
  }
}

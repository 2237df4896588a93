/** Answers about the fleet that the gateway gives itself: models, health, readiness. */

import { type Fleet, type ModelNames, servedModel, type WorkerRecord } from '@homing/fleet'
import { type HttpAnswer, jsonAnswer, NotFoundError, sendAnswer } from '@homing/http'
import { type ModelCard, modelsBody } from '@homing/openai'
import { ModelNotListedYetError } from '@homing/placement'
import type { HttpExchange } from '@homing/transport'
import { leaseOf, modelsOf } from './keyed-exchange.ts'

/** `starting`: workers are still probed for the first time. `stopping`: the port closes soon. */
export type Stage = 'starting' | 'started' | 'stopping'

export interface FleetViewsParts {
  readonly fleet: () => Fleet
  /** Aliases of models. */
  readonly names: () => ModelNames
  /** Workers that may still bring a model that none lists. */
  readonly loading: () => readonly WorkerRecord[]
  readonly stage: () => Stage
}

export class FleetViews {
  readonly #fleet: () => Fleet
  readonly #names: () => ModelNames
  readonly #loading: () => readonly WorkerRecord[]
  readonly #stage: () => Stage

  constructor({ fleet, names, loading, stage }: FleetViewsParts) {
    this.#fleet = fleet
    this.#names = names
    this.#loading = loading
    this.#stage = stage
  }

  models(exchange: HttpExchange): void {
    const body = modelsBody(this.#modelCards(exchange))
    sendAnswer(exchange, { status: 200, headers: { 'content-type': 'application/json' }, body })
  }

  model(exchange: HttpExchange, name: string): void {
    const cards = this.#modelCards(exchange)
    const model = servedModel(name, this.#names(), listed => cards.some(({ id }) => id === listed))
    const found = cards.find(({ id }) => id === name) ?? cards.find(({ id }) => id === model)
    if (found === undefined) {
      // Who may not use every model does not learn which workers there are.
      const loading = leaseOf(exchange)?.key.models === undefined ? this.#loading() : []
      if (loading.length > 0) throw new ModelNotListedYetError(name, loading)
      throw new NotFoundError('model', name, 'no worker serves it; GET /v1/models lists them')
    }
    const card = { ...found, id: name }
    const list = JSON.parse(Buffer.from(modelsBody([card])).toString()) as {
      readonly data: readonly unknown[]
    }
    sendJson(exchange, 200, list.data[0])
  }

  /**
   * 200 while this process answers: to restart it would not bring back workers. `status` in the body tells
   * how the workers are.
   */
  get health(): HttpAnswer {
    const { up, workers, waiting } = this.#standing()
    const status =
      this.#stage() === 'starting' ? 'starting' : waiting.length > 0 || up === 0 ? 'degraded' : 'ok'
    const hint =
      status === 'starting'
        ? 'workers are probed for the first time: GET /ready is 200 when requests can be answered'
        : up === 0
          ? 'no worker is up, so requests are answered with 503: GET /workers says why'
          : `${up} of ${workers.length} workers are up: GET /workers says why the others are not`
    return jsonAnswer(200, {
      status,
      workers: { up, total: workers.length },
      ...(status === 'ok' ? {} : { hint }),
    })
  }

  /** 200 once the start is over and until the end is near, while at least one worker can be routed to. */
  ready(exchange: HttpExchange): void {
    const { waiting } = this.#standing()
    const stage = this.#stage()
    const { isReady } = this
    sendJson(exchange, isReady ? 200 : 503, {
      status: isReady ? 'ready' : stage === 'started' ? 'no worker is up' : stage,
      waiting_for: waiting.map(({ id, state, stateReason }) => ({ worker: id, state, reason: stateReason })),
    })
  }

  get isReady(): boolean {
    return this.#stage() === 'started' && this.#standing().up > 0
  }

  #standing(): { workers: readonly WorkerRecord[]; waiting: readonly WorkerRecord[]; up: number } {
    const { workers } = this.#fleet()
    const waiting = workers.filter(({ state }) => state !== 'up')
    return { workers, waiting, up: workers.length - waiting.length }
  }

  /**
   * The first entry of each name; then the aliases, with the entry of their model. Without those that the
   * client may not use.
   */
  #modelCards(exchange: HttpExchange): readonly ModelCard[] {
    const cards = new Map<string, ModelCard>()
    for (const worker of this.#fleet().workers) {
      if (worker.state !== 'up') continue
      for (const { name, base, root, maxModelTokens } of worker.models)
        if (!cards.has(name)) cards.set(name, { id: name, parent: base, root, maxModelTokens })
    }
    for (const [alias, model] of this.#names().whole) {
      const card = cards.get(model)
      if (card !== undefined && !cards.has(alias)) cards.set(alias, { ...card, id: alias })
    }
    const all = [...cards.values()]
    const served = (name: string): string => servedModel(name, this.#names(), listed => cards.has(listed))
    const allowed = modelsOf(exchange, served)
    return allowed === undefined ? all : all.filter(({ id }) => allowed.has(served(id)))
  }
}

function sendJson(exchange: HttpExchange, status: number, value: unknown): void {
  sendAnswer(exchange, jsonAnswer(status, value))
}

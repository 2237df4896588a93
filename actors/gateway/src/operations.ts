/** The routes for people and their tools: models, workers, receipts, health, metrics. */

import { modelsBody } from '@homing/openai'
import type { HttpExchange } from '@homing/transport'
import { actorsText, actorsView, flightText, flightView } from './actors-view.ts'
import { BadParameterError, NotFoundError } from './errors.ts'
import type { GatewayParts } from './gateway-parts.ts'
import { sendJson, sendText } from './send.ts'
import { receiptView, workersView } from './views.ts'

const RECEIPTS_LIMIT = { default: 20, max: 1000 }
const ACTORS_LIMIT = { default: 1000, max: 10_000 }
const FLIGHT_LIMIT = { default: 100, max: 3072 }
const TEXT = 'text/plain; charset=utf-8'

export class Operations {
  readonly #parts: GatewayParts

  constructor(parts: GatewayParts) {
    this.#parts = parts
  }

  models(exchange: HttpExchange): void {
    const body = modelsBody(this.#modelCards())
    exchange.writeHead(200, { 'content-type': 'application/json', 'content-length': String(body.length) })
    exchange.end(body)
  }

  model(exchange: HttpExchange, name: string): void {
    const card = this.#modelCards().find(({ id }) => id === name)
    if (card === undefined)
      throw new NotFoundError('model', name, 'no worker serves it; GET /v1/models lists them')
    const list = JSON.parse(Buffer.from(modelsBody([card])).toString()) as {
      readonly data: readonly unknown[]
    }
    sendJson(exchange, 200, list.data[0])
  }

  async workers(exchange: HttpExchange): Promise<void> {
    sendJson(exchange, 200, await this.#workersView())
  }

  async receipt(exchange: HttpExchange, id: string): Promise<void> {
    const { args } = this.#parts
    const receipt = await args.router.ask({ type: 'receipt', id }, { timeout: args.askMsMax })
    if (receipt === undefined) {
      throw new NotFoundError(
        'decision',
        id,
        'no such decision is kept (--decisions-kept); GET /decisions lists the latest',
      )
    }
    sendJson(exchange, 200, receiptView(receipt))
  }

  async receipts(exchange: HttpExchange): Promise<void> {
    const { args } = this.#parts
    const limit = limitOf(exchange, RECEIPTS_LIMIT)
    const receipts = await args.router.ask({ type: 'receipts', limit }, { timeout: args.askMsMax })
    sendJson(exchange, 200, { decisions: receipts.map(receiptView) })
  }

  /** The threads, and the tree of actors: `?limit=`, `?format=text`. */
  async actors(exchange: HttpExchange): Promise<void> {
    const limit = limitOf(exchange, ACTORS_LIMIT)
    const isText = wantsText(exchange)
    const { system } = this.#parts
    const view = actorsView(await system.census(), system, limit)
    if (isText) sendText(exchange, 200, actorsText(view), TEXT)
    else sendJson(exchange, 200, view)
  }

  /** The last things that a thread did: `?thread=`, `?limit=`, `?format=text`. */
  flight(exchange: HttpExchange): void {
    const limit = limitOf(exchange, FLIGHT_LIMIT)
    const isText = wantsText(exchange)
    const thread = new URLSearchParams(exchange.query).get('thread') ?? 'main'
    const events = this.#parts.system.flight(thread, limit)
    if (events === undefined) throw new NotFoundError('thread', thread, 'GET /actors lists them')
    if (isText) sendText(exchange, 200, flightText(events), TEXT)
    else sendJson(exchange, 200, flightView(thread, events))
  }

  /** The whole index, by worker key: to compare with an engine's cache, block for block. */
  async dump(exchange: HttpExchange): Promise<void> {
    const { args, fleet } = this.#parts
    const dump: Record<string, unknown> = {}
    for (const worker of fleet().workers) {
      for (const { key, shard, workerSlot } of worker.keys) {
        const indexer = args.indexers[shard]
        if (indexer === undefined) continue
        const blocks = await indexer.ask({ type: 'dump', workerSlot }, { timeout: args.readMsMax })
        dump[key] = {
          block_size: worker.blockSizeTokens?.value ?? null,
          blocks: blocks.map(block => ({
            block_hash: block.engineHash,
            parent_block_hash: block.parentEngineHash ?? null,
            tokens_hash: block.localHash,
          })),
        }
      }
    }
    sendJson(exchange, 200, dump)
  }

  /** This process answers. Says nothing about workers: that is `/ready`. */
  health(exchange: HttpExchange): void {
    const { workers } = this.#parts.fleet()
    const up = workers.filter(({ state }) => state === 'up').length
    sendJson(exchange, 200, { status: 'ok', workers: workers.length, workers_up: up })
  }

  /** 200 while at least one worker can be routed to. */
  ready(exchange: HttpExchange): void {
    const { workers } = this.#parts.fleet()
    const waiting = workers.filter(({ state }) => state !== 'up')
    const isReady = waiting.length < workers.length
    sendJson(exchange, isReady ? 200 : 503, {
      status: isReady ? 'ready' : 'no worker is up',
      waiting_for: waiting.map(({ id, state, stateReason }) => ({ worker: id, state, reason: stateReason })),
    })
  }

  async metrics(exchange: HttpExchange): Promise<void> {
    const text = await this.#parts.metrics.render()
    sendText(exchange, 200, text, 'text/plain; version=0.0.4; charset=utf-8')
  }

  overview(exchange: HttpExchange): void {
    sendJson(exchange, 200, {
      product: 'homing',
      routes: {
        'POST /v1/chat/completions, POST /v1/completions':
          'OpenAI-compatible; sent to the worker that holds the prefix',
        'GET /v1/models': 'models of all workers',
        'POST /route': 'the decision for a body, without sending it',
        'GET /decisions?limit=, GET /decisions/:id': 'receipts: every candidate, every term',
        'GET /workers': 'workers, trust, blocks held, load',
        'GET /actors?format=text&limit=': 'threads and actors: state, restarts, what waits',
        'GET /actors/flight?thread=&format=text&limit=': 'the last things that a thread did',
        'GET /dump': 'the prefix index, by worker key',
        'GET /health, GET /ready, GET /metrics': 'for machines',
      },
    })
  }

  async #workersView(): Promise<object> {
    const { args } = this.#parts
    const deadline = { timeout: args.askMsMax }
    const [report, loads, audits, ...shards] = await Promise.all([
      args.directory.ask({ type: 'describe' }, deadline),
      args.tracker.ask({ type: 'loads' }, deadline),
      args.router.ask({ type: 'audits' }, deadline),
      // A shard that does not answer in time is shown without its blocks, not as an error.
      ...args.indexers.map(indexer => indexer.ask({ type: 'status' }, deadline).catch(() => undefined)),
    ])
    return workersView(report, shards, loads.rows, audits)
  }

  #modelCards(): {
    readonly id: string
    readonly parent?: string
    readonly root?: string
    readonly maxModelTokens?: number
  }[] {
    const cards = new Map<string, { id: string; parent?: string; root?: string; maxModelTokens?: number }>()
    for (const worker of this.#parts.fleet().workers) {
      if (worker.state !== 'up') continue
      for (const { name, base, root, maxModelTokens } of worker.models) {
        if (cards.has(name)) continue
        cards.set(name, {
          id: name,
          ...(base === undefined ? {} : { parent: base }),
          ...(root === undefined ? {} : { root }),
          ...(maxModelTokens === undefined ? {} : { maxModelTokens }),
        })
      }
    }
    return [...cards.values()]
  }
}

function limitOf(exchange: HttpExchange, range: { readonly default: number; readonly max: number }): number {
  const text = new URLSearchParams(exchange.query).get('limit') ?? String(range.default)
  const limit = Number(text)
  if (!Number.isInteger(limit) || limit < 1 || limit > range.max) {
    throw new BadParameterError('limit', text, `use a whole number from 1 to ${range.max}`)
  }
  return limit
}

function wantsText(exchange: HttpExchange): boolean {
  const format = new URLSearchParams(exchange.query).get('format') ?? 'json'
  if (format !== 'json' && format !== 'text')
    throw new BadParameterError('format', format, 'use json or text')
  return format === 'text'
}

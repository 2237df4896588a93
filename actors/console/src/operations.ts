/** The answer of each operator route. */

import type { ActorRef, SystemView } from '@homing/actor'
import type { Clock, Log } from '@homing/base'
import {
  type AdminKeys,
  CostlyViews,
  HostNames,
  type HttpAnswer,
  jsonAnswer,
  limitOf,
  NotFoundError,
  queryOf,
  RefusedError,
  rowsAnswer,
  type Slices,
  Turns,
  takesMethod,
  textAnswer,
  wantsText,
} from '@homing/http'
import {
  type FilesFigures,
  type Metrics,
  renamedFamilies,
  type ViewFigures,
  viewMetrics,
} from '@homing/metrics'
import { type Receipt, receiptView } from '@homing/placement'
import type { Transport } from '@homing/transport'
import { type Access, type AdminKeyRefusal, assertMayChange, assertMayRead } from './admin-access.ts'
import { busyThresholds } from './changes/busy-thresholds.ts'
import { addWorker, drainWorker, removeWorker } from './changes/worker-changes.ts'
import type { ConsoleArgs } from './console-args.ts'
import { RoutesBusyError } from './errors.ts'
import type { Explained, FromConsole, OperatorAnswer, OperatorRequest } from './messages.ts'
import { collectAdminKeys } from './metrics/admin-key-metrics.ts'
import { collectBrokers } from './metrics/broker-metrics.ts'
import { consoleMetrics } from './metrics/console-metrics.ts'
import { dynamoFamilies } from './metrics/dynamo-names.ts'
import { gatewayMetrics } from './metrics/gateway-metrics.ts'
import { collectPage, type PageFigures } from './metrics/page-metrics.ts'
import { collectTransport } from './metrics/transport-metrics.ts'
import { collectTurns } from './metrics/turn-metrics.ts'
import { AT_METRICS_PORT } from './metrics-door.ts'
import type { OpenDump } from './open-dump.ts'
import type { OperatorPath } from './operator-routes.ts'
import { PageAnswers } from './page/page-answers.ts'
import {
  bestWorker,
  eventPieces,
  findMatches,
  freeBooked,
  freeRequest,
  type ProgramParts,
  potentialLoads,
  prefillComplete,
} from './programs.ts'
import { actorsText, actorsView, flightText, flightView } from './views/actors-view.ts'
import { diagnosis } from './views/diagnosis.ts'
import { dumpPieces } from './views/dump-view.ts'
import { queueView } from './views/queue-view.ts'
import { replicasView } from './views/replicas-view.ts'
import { askWhatIf, cancelWhatIf, whatIfState } from './views/what-if.ts'
import { type WorkersState, type WorkersView, type WorkerView, workerViews } from './views/workers-view.ts'

const RECEIPTS_LIMIT = { default: 20, max: 1000 }
const ACTORS_LIMIT = { default: 1000, max: 10_000 }
const FLIGHT_LIMIT = { default: 100, max: 3072 }
/** `POST /route` answered at one time: each may make an engine tokenize, for any client. */
const EXPLAINS_MAX = 4
const EXPLAINS_PER_CLIENT_MAX = 2
const TEXT = { 'content-type': 'text/plain; charset=utf-8' }
const METRICS = { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }
const ELSEWHERE = '/v1/*, /health, /ready and the relayed routes are on --port'
const NOTHING = new Uint8Array(0)
const API_ROUTES = {
  'POST /v1/chat/completions, POST /v1/completions':
    'OpenAI-compatible; sent to the worker that holds the prefix',
  'GET /v1/models': 'models of all workers',
}

type Answers = (request: OperatorRequest, parameter: string) => Promise<OperatorAnswer> | OperatorAnswer

export interface OperationsParts {
  readonly args: ConsoleArgs
  readonly system: SystemView
  readonly clock: Clock
  readonly openDump: OpenDump
  /** Of its own port; undefined: it has none, and the gateway counts. */
  readonly room: ViewFigures | undefined
  /** Of its port for metrics; undefined: it has none. */
  readonly metricsRoom: ViewFigures | undefined
  /** Metrics of the process. */
  readonly process: Metrics
  /** At least one. */
  readonly gateways: () => Promise<readonly ActorRef<FromConsole>[]>
  /** Cost of the page, and number of open tabs. */
  readonly page: () => PageFigures
  readonly brokers: Transport['brokers']
  /** The file of --admin-keys-file, and what counts of it; undefined: there is none. */
  readonly adminKeys: FilesFigures | undefined
  readonly keys: () => AdminKeys | undefined
  readonly log: Pick<Log, 'info'>
}

export class Operations {
  readonly #args: ConsoleArgs
  readonly #access: Access
  readonly #log: Pick<Log, 'info'>
  readonly #keyRefused: (reason: AdminKeyRefusal) => void
  readonly #system: SystemView
  readonly #gateways: OperationsParts['gateways']
  readonly #metrics: Metrics
  readonly #page: PageAnswers
  readonly #clock: Clock
  readonly #openDump: OpenDump
  readonly #explains: Turns
  readonly #costly: CostlyViews
  readonly #programs: ProgramParts
  readonly #metricsAnswer: () => Promise<HttpAnswer>
  readonly #workersAnswer: () => Promise<HttpAnswer>
  readonly #workersObject: () => Promise<WorkersView>

  constructor(parts: OperationsParts) {
    const { args, system, clock, process, gateways, page, brokers, openDump, adminKeys, keys } = parts
    this.#args = args
    this.#log = parts.log
    this.#system = system
    this.#gateways = gateways
    this.#access = {
      adminKey: args.adminKey,
      keys,
      names: new HostNames(args.host, args.hostNames),
      refused: reason => this.#keyRefused(reason),
    }
    this.#page = new PageAnswers(args, this.#access)
    this.#clock = clock
    this.#openDump = openDump
    this.#costly = new CostlyViews(clock)
    this.#programs = {
      gateways,
      askMsMax: args.readMsMax,
      // Programs call as often as requests come: no line for each.
      assertMayChange: request => void assertMayChange(request, this.#access),
    }
    this.#metricsAnswer = this.#costly.shared(
      () => this.#metrics.gather(),
      async (_, slices) => textAnswer(200, await this.#metricsText(slices), METRICS),
    )
    this.#workersAnswer = this.#costly.shared(
      () => this.#workersState(),
      (state, slices) =>
        rowsAnswer({ version: state.report.fleet.version }, 'workers', workerViews(state), slices),
    )
    this.#workersObject = this.#costly.shared(
      () => this.#workersState(),
      async (state, slices) => {
        const workers: WorkerView[] = []
        for (const worker of workerViews(state)) {
          workers.push(worker)
          await slices.next()
        }
        return { version: state.report.fleet.version, workers }
      },
    )
    this.#explains = new Turns({
      clock,
      atOnceMax: EXPLAINS_MAX,
      waitingMax: 0,
      waitMsMax: 0,
      perKeyMax: EXPLAINS_PER_CLIENT_MAX,
      refusal: () => new RoutesBusyError(EXPLAINS_MAX, EXPLAINS_PER_CLIENT_MAX),
    })
    const ofGateways = gatewayMetrics(gateways, args.askMsMax)
    this.#metrics = consoleMetrics(args, system, clock, [ofGateways, () => process.render()])
    this.#keyRefused = collectAdminKeys(this.#metrics, adminKeys)
    collectPage(this.#metrics, page)
    collectBrokers(this.#metrics, brokers)
    collectTransport(this.#metrics)
    const collectRoom = (room: ViewFigures | undefined, prefix: string, what: string): void => {
      if (room !== undefined) this.#metrics.collect(viewMetrics(this.#metrics, prefix, room, what))
    }
    collectRoom(parts.room, 'homing_operator', 'operator requests')
    collectRoom(parts.metricsRoom, 'homing_metrics_port', AT_METRICS_PORT)
    collectTurns(this.#metrics, { dump: openDump.turns, route: this.#explains })
  }

  /** As a gateway answers it at its own port. */
  health(): Promise<HttpAnswer> {
    return this.#askOne(gateway => gateway.ask({ type: 'health' }, { timeout: this.#args.askMsMax }))
  }

  /** Its client has left without the answer, so it does not know where the request goes. */
  undelivered(booked: string): Promise<unknown> {
    return freeBooked(booked, this.#programs)
  }

  /** Rejects with what becomes an error answer. `parameter`: what the '*' of the path stands for. */
  async answer(path: OperatorPath, request: OperatorRequest, parameter: string): Promise<OperatorAnswer> {
    // The files of the page say nothing of this router, and its stream has a rule of its own.
    const isOpen = path === '/page/*' || (path === '/' && (!this.#hasRoles || this.#page.wantsPage(request)))
    if (!isOpen) assertMayRead(request, this.#access)
    return this.#answers[path](request, parameter)
  }

  get #hasRoles(): boolean {
    return this.#access.keys() !== undefined
  }

  readonly #answers: Readonly<Record<OperatorPath, Answers>> = {
    '/route': request => this.#explain(request),
    '/decisions': request => this.#receipts(request),
    '/decisions/*': (request, id) => this.#receipt(request, id),
    '/workers': request => {
      if (request.method !== 'POST') return this.#workers(request)
      this.#assertMayChange(request)
      return addWorker(request, this.#args)
    },
    '/workers/*': (request, parameter) => {
      if (takesMethod({ method: 'GET' }, request.method)) return diagnosis(request, parameter, this.#args)
      this.#assertMayChange(request)
      if (request.method === 'POST') return drainWorker(request, parameter, this.#args)
      return removeWorker(request, parameter, this.#args)
    },
    '/queue': request => this.#queue(request),
    '/replicas': request => this.#replicas(request),
    '/busy_threshold': request => {
      if (request.method === 'POST') this.#assertMayChange(request)
      return busyThresholds(request, this.#args)
    },
    '/what_if': request => {
      if (takesMethod({ method: 'GET' }, request.method)) return whatIfState(request, this.#args)
      this.#assertMayChange(request)
      return request.method === 'POST' ? askWhatIf(request, this.#args) : cancelWhatIf(request, this.#args)
    },
    '/v1/router/best_worker': request => bestWorker(request, this.#programs),
    '/v1/router/new': request => bestWorker(request, this.#programs),
    '/v1/router/potential_loads': request => potentialLoads(request, this.#programs),
    '/v1/router/find_matches': request => findMatches(request, this.#programs),
    '/v1/router/query': request => findMatches(request, this.#programs),
    '/v1/router/mark_prefill_complete': request => prefillComplete(request, this.#programs),
    '/v1/router/mark_prefill': request => prefillComplete(request, this.#programs),
    '/v1/router/free': request => freeRequest(request, this.#programs),
    '/v1/router/mark_free': request => freeRequest(request, this.#programs),
    '/v1/router/dump_events': request => this.#dumped(request, () => eventPieces(this.#args)),
    '/actors': request => this.#actors(request),
    '/actors/flight': request => this.#flight(request),
    '/dump': request => this.#dumped(request, () => dumpPieces(this.#args, this.#clock)),
    '/metrics': () => this.#metricsAnswer(),
    '/page/*': (request, path) => {
      queryOf(request)
      return this.#page.file(request, path)
    },
    '/': request => (this.#page.wantsPage(request) ? this.#page.page(request) : this.#overview(request)),
  }

  async #metricsText(slices: Slices): Promise<string> {
    const text = await this.#metrics.write(() => slices.next())
    const { dynamoNames = false, hasFrontend = true } = this.#args
    return dynamoNames ? text + renamedFamilies(text, dynamoFamilies(hasFrontend)) : text
  }

  #assertMayChange(request: OperatorRequest): void {
    const { method, path } = request
    const name = assertMayChange(request, this.#access)
    if (name !== undefined) this.#log.info({ key: name, method, path }, 'an operator changes something')
  }

  /** The receipt of a decision without effect: no request is sent, and no state changes. */
  async #explain(request: OperatorRequest): Promise<HttpAnswer> {
    queryOf(request)
    const { body = NOTHING, headers } = request
    const over = await this.#explains.take(request.peerAddress)
    const explained = await this.#explained(body, headers).finally(over)
    if (explained.kind === 'refused') throw new RefusedError(explained.error, explained.param)
    return jsonAnswer(200, { ...receiptView(explained.receipt), tokenized_by: explained.tokenizedBy })
  }

  #explained(body: Uint8Array, headers: OperatorRequest['headers']): Promise<Explained> {
    return this.#askOne(gateway =>
      gateway.ask({ type: 'explain', body, headers }, { timeout: this.#args.readMsMax }),
    )
  }

  async #askOne<A>(ask: (gateway: ActorRef<FromConsole>) => Promise<A>): Promise<A> {
    const gateways = await this.#gateways()
    // One whose thread has just ended is not there to answer; any other can.
    return gateways.slice(1).reduce((asked, next) => asked.catch(() => ask(next)), ask(gateways[0]!))
  }

  #workers(request: OperatorRequest): Promise<HttpAnswer> {
    queryOf(request)
    return this.#workersAnswer()
  }

  /** The answer of `/workers`, as an object. */
  workers(): Promise<WorkersView> {
    return this.#workersObject()
  }

  async #workersState(): Promise<WorkersState> {
    const args = this.#args
    const deadline = { timeout: args.askMsMax }
    const [report, loads, audits, healths, tokenizer, ...shards] = await Promise.all([
      args.directory.ask({ type: 'describe' }, deadline),
      args.tracker.ask({ type: 'loads' }, deadline),
      args.router.ask({ type: 'audits' }, deadline),
      args.router.ask({ type: 'health' }, deadline),
      args.tokenizer.ask({ type: 'tokenizers' }, deadline).catch(() => undefined),
      // A shard that does not answer in time is shown without its blocks, not as an error.
      ...args.indexers.map(indexer => indexer.ask({ type: 'status' }, deadline).catch(() => undefined)),
    ])
    return { report, shards, loads: loads.rows, audits, tokenizers: tokenizer?.tokenizers ?? [], healths }
  }

  async #queue(request: OperatorRequest): Promise<HttpAnswer> {
    queryOf(request)
    const { queue, askMsMax } = this.#args
    return jsonAnswer(200, queueView(await queue.ask({ type: 'queueStatus' }, { timeout: askMsMax })))
  }

  async #replicas(request: OperatorRequest): Promise<HttpAnswer> {
    queryOf(request)
    return jsonAnswer(200, await replicasView(this.#args))
  }

  async #receipt(request: OperatorRequest, id: string): Promise<HttpAnswer> {
    queryOf(request)
    const args = this.#args
    const receipt = await args.router.ask({ type: 'receipt', id }, { timeout: args.askMsMax })
    if (receipt === undefined) {
      throw new NotFoundError(
        'decision',
        id,
        'no such decision is kept (--decisions-kept); GET /decisions lists the latest',
      )
    }
    return jsonAnswer(200, receiptView(receipt))
  }

  async #receipts(request: OperatorRequest): Promise<HttpAnswer> {
    const args = this.#args
    const limit = limitOf(queryOf(request, ['limit']).limit, RECEIPTS_LIMIT)
    return this.#costly.make(
      () => args.router.ask({ type: 'receipts', limit }, { timeout: args.askMsMax }),
      (receipts, slices) => rowsAnswer({}, 'decisions', viewsOf(receipts), slices),
    )
  }

  /** The threads, and the tree of actors: `?limit=`, `?format=text`. */
  async #actors(request: OperatorRequest): Promise<HttpAnswer> {
    const query = queryOf(request, ['limit', 'format'])
    const limit = limitOf(query.limit, ACTORS_LIMIT)
    const isText = wantsText(query.format)
    const system = this.#system
    const view = actorsView(await system.census(), system, limit)
    return isText ? textAnswer(200, actorsText(view), TEXT) : jsonAnswer(200, view)
  }

  /** The last things that a thread did: `?thread=`, `?limit=`, `?format=text`. */
  #flight(request: OperatorRequest): HttpAnswer {
    const query = queryOf(request, ['thread', 'limit', 'format'])
    const limit = limitOf(query.limit, FLIGHT_LIMIT)
    const isText = wantsText(query.format)
    const { thread = 'main' } = query
    const events = this.#system.flight(thread, limit)
    if (events === undefined) throw new NotFoundError('thread', thread, 'GET /actors lists them')
    return isText ? textAnswer(200, flightText(events), TEXT) : jsonAnswer(200, flightView(thread, events))
  }

  /** The whole index: by worker key, to compare with an engine's cache, or as events. */
  async #dumped(
    request: OperatorRequest,
    pieces: () => AsyncGenerator<Uint8Array, void, undefined>,
  ): Promise<OperatorAnswer> {
    queryOf(request)
    const dump = await this.#openDump.begin(pieces)
    return { status: 200, headers: { 'content-type': 'application/json' }, body: NOTHING, dump }
  }

  #overview(request: OperatorRequest): HttpAnswer {
    queryOf(request)
    const { adminPort, relayed, hasFrontend = true } = this.#args
    return jsonAnswer(200, {
      product: 'homing',
      routes: {
        ...(hasFrontend ? API_ROUTES : {}),
        'POST /route': 'the decision for a body, without sending it',
        'GET /decisions?limit=, GET /decisions/:id': 'receipts: every candidate, every term',
        'GET /workers': 'workers, trust, blocks held, load',
        'POST /workers, DELETE /workers/ID, POST /workers/ID/drain': 'workers that join, leave and drain',
        'GET /workers/ID/diagnosis': 'a fresh look at a worker: what is wrong, what to change',
        'POST /v1/router/best_worker, POST /v1/router/potential_loads':
          'the worker for token ids, booked under a request_id; the load of each with them',
        'POST /v1/router/mark_prefill_complete, POST /v1/router/free': 'what becomes of what is booked',
        'GET /v1/router/dump_events': 'the prefix index, as events',
        'GET /queue': 'requests that wait, by model, class, tenant and strict priority',
        'GET /replicas': 'other routers of the same workers, and what they have open there',
        'GET /busy_threshold, POST /busy_threshold': 'the load past which workers take no more',
        'POST /what_if, GET /what_if, DELETE /what_if':
          'what another fleet or policy would have done with the requests of the last minutes',
        'GET /actors?format=text&limit=': 'threads and actors: state, restarts, waiting messages',
        'GET /actors/flight?thread=&format=text&limit=': 'the last things that a thread did',
        'GET /dump': 'the prefix index, by worker key',
        'GET / with accept: text/html': 'the page for people, which shows all this as it happens',
        'GET /health, GET /ready, GET /metrics': 'for machines',
      },
      ...(adminPort === undefined ? {} : { elsewhere: ELSEWHERE }),
      relayed,
    })
  }
}

function* viewsOf(receipts: readonly Receipt[]): Generator<object> {
  for (const receipt of receipts) yield receiptView(receipt)
}

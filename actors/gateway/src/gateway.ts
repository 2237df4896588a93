/**
 * Gateway: HTTP in, token stream out.
 *
 * In     HTTP exchanges from the transport; the fleet from the directory; from the console, questions and its
 *        own counts; from programs that route by themselves, questions and bookings (reservations.ts).
 * Out    for each completion, by its exchange (exchange.ts): to tokenizer, queue and router, then the call to
 *        the worker; to tracker: first byte and signs of life; to directory: workers that could not be
 *        reached. To console: requests for the operator routes, unless the console has its own port. If the
 *        console does not answer in time, that request gets 503 or 504; nothing else waits for it.
 *        On a thread of its own beside other gateways it also gets from the directory where the keys of
 *        origins stand, and from the others what they learned (gateway-peers.ts).
 * Owns   the HTTP listener, the streams of the operators' page on it, and the open exchanges with everything
 *        that they hold: bodies, placements, calls, answers.
 * Order  bytes reach the client in the order in which the worker sent them. Sockets and their bytes stay on
 *        this thread: they never pass through a mailbox.
 * Fails  every exchange ends with exactly one answer: the engine's, or an error in OpenAI's form. A failure
 *        in one exchange never touches another. A gateway that stops or restarts ends its exchanges first. If
 *        its thread dies, it cannot: then its next life reports its start to queue, router and tracker, which
 *        release what the dead life held. If the gateway cannot listen, it says so when asked for its
 *        address; if it was serving already, it fails.
 */

import { type ActorContext, type ActorRef, defineActor, signal } from '@homing/actor'
import type { ConsoleMessage } from '@homing/actors/console'
import type { WorkerDoor } from '@homing/actors/directory'
import { type Clock, type ErrorRecord, type Log, toErrorRecord } from '@homing/base'
import type { ModelAlias } from '@homing/config'
import { type Fleet, loadingWorkers, type ModelNames, modelNames, NO_ALIASES } from '@homing/fleet'
import {
  Bodies,
  BodyArena,
  commonCount,
  EventStreams,
  FrontDoor,
  type HttpAnswer,
  LentBodies,
  mayStillRead,
  refuseRoute,
  ViewRoom,
} from '@homing/http'
import { FirstTokenTimes } from '@homing/load'
import { MODEL_LABELS_DEFAULT } from '@homing/metrics'
import { RetryBudget } from '@homing/placement'
import { TenantNames } from '@homing/queue'
import {
  type ConnectionRefusal,
  type HttpExchange,
  type HttpTransport,
  type TlsIdentity,
  transportCapability,
} from '@homing/transport'
import { customRandom, urlAlphabet } from 'nanoid'
import type { AccessNote } from './access-note.ts'
import { type AccessNotes, openAccessNotes } from './access-notes.ts'
import { BadAnswers } from './bad-answers.ts'
import { ClientAnswer } from './client-answer.ts'
import { ContinuationMemory } from './continuation-memory.ts'
import { isPreflight } from './cors.ts'
import { DeadlyPrompts, type PromptWord } from './deadly-prompts.ts'
import { EngineDoors } from './engine-doors.ts'
import { GatewayRestartedError, NoBodyRoomError, ShuttingDownError } from './errors.ts'
import type { ReadStep } from './exchange-parts.ts'
import { Exchanges } from './exchanges.ts'
import { FleetViews } from './fleet-views.ts'
import { GatewayAccess } from './gateway-access.ts'
import { type GatewayArgs, type OwnThread, RESERVATION_MS_MAX, type TenantArgs } from './gateway-args.ts'
import { GatewayMetrics } from './gateway-metrics.ts'
import { GatewayPeers } from './gateway-peers.ts'
import { GatewayRoutes } from './gateway-routes.ts'
import type { GatewayAddress, GatewayMessage } from './messages.ts'
import { NextTurns } from './next-turn.ts'
import { operatorRoutes } from './operator-routes.ts'
import { Picker, type PickerParts } from './picker.ts'
import type { PickerArgs } from './picker-args.ts'
import { Placements } from './placement.ts'
import { PrefillPools } from './prefill-pools.ts'
import { RequestReader } from './request-reader.ts'
import { Reservations } from './reservations.ts'
import { ResponseHolders } from './response-holders.ts'
import { SliceTrust } from './slice-trust.ts'
import { StreamForms } from './stream-forms.ts'
import { TokenWorkers } from './tokens/token-workers.ts'
import { Tracing } from './tracing.ts'
import { WorkerProgress } from './worker-progress.ts'

/** How often the log says that connections are refused; all are counted. */
const REFUSAL_LOG_MS = 60_000

/** Ids of requests and decisions: 21 characters of nanoid's alphabet, drawn from the thread's randomness. */
const ID_LENGTH = 21
const LOOK_INTERVAL_MS = 1000
/**
 * Of bodies in shared memory: 75 of 100,000 tokens. It stays with the router while it is used, so it is not
 * more; bodies that find no room are copied to the thread that reads them.
 */
const ARENA_BYTES_MAX = 32 * 2 ** 20
/** Of bodies in the counts that all gateways share. */
const BODIES_UNIT_BYTES = 1024
/** For guardian and directory, which may be starting, too. */
const SURROUNDINGS_MS_MAX = 30_000
const ANY_TENANTS: TenantArgs = { weights: new Map(), unnamed: 'own', trusted: 'all' }

export const gateway = defineActor(
  import.meta.url,
  'gateway',
)<GatewayMessage, GatewayArgs>({
  reentrant: true,
  async setup(context, args) {
    const surroundings = args.own && (await surroundingsOf(context, args, args.own))
    const { clock, random, log } = context
    const tracing = args.tracing && (await Tracing.open(args.tracing, { clock, random, log }))
    const state = new Gateway(context, args, surroundings?.peers, tracing)
    const { reader, metrics } = state
    if (surroundings !== undefined) state.takeDoors(surroundings.doors, true)
    const door = await state.open(args)
    context.scheduleEvery(LOOK_INTERVAL_MS, { type: 'look' })
    return {
      fleet: ({ fleet, overdue }) => state.takeFleet(fleet, overdue),
      doors: ({ doors, isAll }) => state.takeDoors(doors, isAll),
      promptBroke: word => state.heardPrompt(word),
      promptServed: word => state.heardPrompt(word),
      responseHeld: ({ id, held }) => state.responses.heard(id, held),
      heldOf: ({ id, reply }) => reply(state.responses.heldOf(id)),
      started() {
        door.assertOpen()
        state.started()
      },
      look: () => state.look(),
      leave: () => state.leave(door),
      address: ({ reply }) => reply(state.address(door)),
      metrics: async ({ reply }) => reply({ life: state.life, text: await state.rendered() }),
      health: ({ reply }) => reply(state.health),
      explain: async ({ body, headers, reply }) => reply(await reader.explain(body, headers)),
      bestWorker: async ({ prompt, id, reply }) => reply(await state.reservations.bestWorker(prompt, id)),
      potentialLoads: async ({ prompt, reply }) => reply(await state.reservations.potentialLoads(prompt)),
      reservedPrefilled: ({ id, reply }) => reply(state.reservations.prefilled(id)),
      freeReserved: ({ id, reply }) => reply(state.reservations.free(id)),
      refused: ({ route, status }) => metrics.refused(route, status),
      clientStalled: ({ route }) => metrics.clientStalled(route),
      drain: async ({ graceMs, reply }) => reply(await state.drain(door, graceMs)),
      [signal](event) {
        if (event.type === 'terminated') return
        return state.end(door)
      },
    }
  },
})

class Gateway {
  readonly metrics: GatewayMetrics
  readonly reader: RequestReader
  readonly reservations: Reservations
  readonly #clock: Clock
  readonly #log: Log
  readonly #http: HttpTransport
  readonly #doors: EngineDoors
  readonly #bodies: Bodies
  readonly responses: ResponseHolders
  /** Id of this life. */
  readonly life: string
  readonly #deadlyPrompts: DeadlyPrompts
  readonly #progress: WorkerProgress
  readonly #exchanges: Exchanges
  readonly #slices: SliceTrust
  readonly #tokens: TokenWorkers
  #door: FrontDoor | undefined
  readonly #access: GatewayAccess
  #refusalLoggedMs = Number.NEGATIVE_INFINITY
  readonly #pools: PrefillPools
  readonly #continuationMemory: ContinuationMemory
  /** Undefined: there is no access log, and requests are not traced. */
  readonly #accessNotes: AccessNotes | undefined
  /** Undefined: no Envoy asks it. */
  readonly #picker: Picker | undefined
  readonly #views: FleetViews
  /** The page that is open on this port; undefined: the operator routes have a port of their own. */
  readonly #tabs: EventStreams | undefined
  readonly #routes: GatewayRoutes
  readonly #aliases: readonly ModelAlias[]
  #fleet: Fleet = { version: 0, workers: [] }
  readonly #nextTurns: NextTurns
  #names = NO_ALIASES
  #isStarted = false
  #isLeaving = false
  #isDraining = false

  /** `peers`: the other gateways, if there are any. `tracing` undefined: requests are not traced. */
  constructor(
    context: ActorContext<GatewayMessage>,
    args: GatewayArgs,
    peers: GatewayPeers | undefined,
    tracing: Tracing | undefined,
  ) {
    const { clock, log, random } = context
    const { http, tcp } = context.use(transportCapability)
    this.metrics = new GatewayMetrics(args.modelLabels ?? MODEL_LABELS_DEFAULT, clock, tcp)
    const { metrics } = this
    const newId = customRandom(urlAlphabet, ID_LENGTH, count => random.bytes(count))
    this.life = newId()
    const life = { name: context.name, life: this.life }
    args.router.tell({ type: 'gatewayStarted', gateway: life })
    args.queue.tell({ type: 'gatewayStarted', gateway: life })

    const row = args.own?.row
    const bodies = new Bodies(
      args.bodiesBytesMax,
      (bytes, bytesMax) => new NoBodyRoomError(bytes, bytesMax),
      new BodyArena(
        Math.min(args.bodiesBytesMax, Math.floor(ARENA_BYTES_MAX / (args.own?.count ?? 1))),
        clock,
      ),
      commonCount(row, 'bodies', BODIES_UNIT_BYTES),
    )
    const responses = new ResponseHolders(args.rememberedResponsesMax, (id, held) =>
      peers?.tellHeld(id, held),
    )
    this.#deadlyPrompts = new DeadlyPrompts(word => peers?.tellPrompt(word))
    this.#clock = clock
    this.#log = log
    this.#aliases = args.modelAliases ?? []
    this.#http = http
    this.#doors = new EngineDoors(http)
    this.#bodies = bodies
    this.responses = responses
    this.#slices = new SliceTrust(args.queueMsMax > 0 ? (args.slicesWithinMs ?? 0) : 0)
    const slices = this.#slices
    this.#pools = new PrefillPools(args.disagg)
    this.#nextTurns = new NextTurns({
      openMax: args.nextTurnsMax ?? 0,
      begin: exchange => this.#begin(exchange),
      isDraining: () => this.#isDraining,
    })
    const { weights, unnamed } = args.tenants ?? ANY_TENANTS
    const placements = new Placements({ ...args, gateway: life, newId })
    const fleet = (): Fleet => this.#fleet
    const names = (): ModelNames => this.#names
    this.#tokens = new TokenWorkers({
      tokenizer: args.tokenizer,
      askMsMax: args.readMsMax,
      modelTokens: model => this.reader.modelTokens(model),
    })
    const tokens = this.#tokens
    const known = { fleet, names, responses, peers, slices, tokens }
    this.reader = new RequestReader({ args, clock, bodies, metrics, newId, ...known })
    this.#continuationMemory = new ContinuationMemory(args.exchangeLimits.migrationBytesMax ?? 0)
    this.#progress = new WorkerProgress(args.exchangeLimits.stallMsMin)
    this.#exchanges = new Exchanges({
      bodies,
      openMax: args.openRequestsMax,
      common: commonCount(row, 'open'),
      tenants: new TenantNames(weights, unnamed),
      overloadStatus: args.overloadStatus,
      context,
      http,
      metrics,
      placements,
      retryBudget: new RetryBudget(args.exchangeLimits.retryShare),
      deadlyPrompts: this.#deadlyPrompts,
      badAnswers: new BadAnswers(),
      progress: this.#progress,
      firstTokens: new FirstTokenTimes(),
      lentBodies: new LentBodies(),
      streamForms: new StreamForms(),
      responses,
      tracker: args.tracker,
      directory: args.directory,
      limits: args.exchangeLimits,
      audit: args.audit,
      slices,
      pools: this.#pools,
      tokens,
      continuations: {
        limits: args.exchangeLimits,
        memory: this.#continuationMemory,
        metrics,
        reader: this.reader,
        clock,
      },
    })
    const changed = (identity: TlsIdentity): void => {
      this.#door?.setIdentity(identity)
      this.#picker?.setIdentity(identity)
    }
    this.#access = new GatewayAccess({ args, clock, log, metrics, changed })
    this.#accessNotes = openAccessNotes(context, args.accessLog, tracing)
    const { router, tracker, askMsMax, openRequestsMax: openMax } = args
    this.reservations = new Reservations({
      clock,
      log,
      placements,
      router,
      tracker,
      fleet,
      metrics,
      read: (prompt, id) => this.reader.placeable(prompt, id),
      askMsMax,
      openMax,
      idleMsMax: args.reservationMsMax ?? RESERVATION_MS_MAX,
    })
    const { workerLoadingMsMax = 0 } = args
    const views = new FleetViews({
      fleet,
      names,
      loading: () => loadingWorkers(this.#fleet, clock.wallMs(), workerLoadingMsMax),
      stage: () => (this.#isLeaving ? 'stopping' : this.#isStarted ? 'started' : 'starting'),
    })
    this.#views = views
    this.#picker = args.picker && this.#newPicker({ ...args, picker: args.picker }, context)
    this.#tabs =
      args.operators === undefined ? undefined : pageTabs(clock, args, args.operators.console, context.name)
    const room = new ViewRoom({ openMax: args.openOperatorRequestsMax, common: commonCount(row, 'views') })
    if (args.operators !== undefined) metrics.addViews(room)
    const ofOperators = operatorRoutes(args, metrics, this.#tabs, room)
    this.#routes = new GatewayRoutes(args, this.reader, views, ofOperators)
  }

  #newPicker(
    args: GatewayArgs & { readonly picker: PickerArgs },
    context: ActorContext<GatewayMessage>,
  ): Picker {
    const { exchangeLimits: limits } = args
    const { reader, metrics } = this
    const { clock, log } = context
    const serve: PickerParts['serve'] = (given, route, read, parts) => {
      const noted = this.#accessNotes?.begin(given, () => route, true)
      const exchange = noted?.exchange ?? given
      try {
        if (this.#isDraining) throw new ShuttingDownError()
        const { clients } = this.#access
        const admitted = clients === undefined ? exchange : clients.admit(exchange, noted?.note)
        void this.#exchanges.open(admitted, route, noted?.note, false, parts).serve(read)
      } catch (thrown) {
        noted?.note.refused(toErrorRecord(thrown).code)
        new ClientAnswer(exchange, route, clock, metrics).refuse(thrown, log)
      }
    }
    return new Picker({
      args,
      extProc: context.use(transportCapability).extProc,
      tls: () => this.#access.tls?.value,
      fleet: () => this.#fleet,
      reader,
      common: {
        limits,
        continuations: { limits, memory: this.#continuationMemory, metrics, reader, clock },
      },
      serve,
    })
  }

  /** Where it listens, or what it cannot listen for. */
  address(door: FrontDoor): GatewayAddress | ErrorRecord {
    const [own, picker] = [door.address, this.#picker?.address]
    if ('code' in own || picker === undefined) return own
    return 'code' in picker ? picker : { ...own, picker }
  }

  /** From now on requests are served. */
  async open(args: GatewayArgs): Promise<FrontDoor> {
    const { host, port, bodySilenceMsMax, clientStallMsMax, keepAliveMsMax, connectionsMax, own } = args
    await this.#access.begin()
    await this.#picker?.open()
    this.#door = await FrontDoor.open(
      this.#http,
      {
        ...{ host, port, bodySilenceMsMax, keepAliveMsMax, connectionsMax },
        readerStallMsMax: clientStallMsMax,
        isShared: own !== undefined,
        tls: this.#access.tls?.value,
        onConnectionRefused: why => this.#connectionRefused(why),
      },
      status => {
        this.metrics.refused('none', status)
        this.#accessNotes?.noRequest(status)
      },
      opened => this.#begin(opened),
    )
    return this.#door
  }

  #connectionRefused(reason: ConnectionRefusal): void {
    this.metrics.connectionRefused(reason)
    const nowMs = this.#clock.nowMs()
    if (nowMs < this.#refusalLoggedMs + REFUSAL_LOG_MS) return
    this.#refusalLoggedMs = nowMs
    const advice =
      reason === 'bound' ? 'raise --max-connections' : 'raise the limit of open files (ulimit -n)'
    const connections = this.#door?.connections ?? 0
    this.#log.warn({ reason, connections, advice }, 'connections of clients are refused')
  }

  takeFleet(fleet: Fleet, overdue: readonly string[] = []): void {
    this.#fleet = fleet
    this.#progress.takeFleet(fleet, this.#clock.nowMs())
    this.#slices.takeFleet(fleet)
    this.#tokens.takeFleet(fleet)
    for (const [model, state] of this.#pools.takeFleet(fleet)) {
      const level = state === 'unavailable' ? 'warn' : 'info'
      this.#log[level]({ model, state: state ?? 'none' }, 'prefill on workers of its own has another state')
    }
    this.#names = modelNames(fleet, this.#aliases)
    this.#exchanges.takeFleet(fleet, overdue)
    this.#tellReady()
  }

  /** From the directory: where the keys of origins stand, and which way requests go there. */
  takeDoors(doors: readonly WorkerDoor[], isAll: boolean): void {
    this.#doors.take(doors, isAll)
  }

  heardPrompt(word: PromptWord): void {
    this.#deadlyPrompts.heard(word, this.#clock.nowMs())
  }

  started(): void {
    this.#isStarted = true
    this.#tellReady()
  }

  #tellReady(): void {
    this.#picker?.setServing(this.#views.isReady)
  }

  /** The answer of `/health`. */
  get health(): HttpAnswer {
    return this.#views.health
  }

  look(): void {
    // Later than `started`, which goes out together with the line that the router is ready.
    if (this.#isStarted) this.#accessNotes?.log?.release()
    this.reservations.look()
    this.#exchanges.look()
    this.#access.look()
  }

  /** The metrics, in Prometheus' text form. */
  async rendered(): Promise<string> {
    const keys = new Set(this.#fleet.workers.flatMap(worker => worker.keys.map(({ key }) => key)))
    await this.metrics.workersLeft(worker => keys.has(worker))
    const { size } = this.#exchanges
    this.metrics.prefillStates(this.#pools.active)
    this.metrics.nextTurns(this.#nextTurns.counts)
    this.metrics.reservations(this.reservations.counts)
    this.metrics.picked(this.#picker?.counts)
    this.metrics.continuationMemory(this.#continuationMemory)
    this.metrics.traced(this.#accessNotes?.tracing?.figures)
    return this.metrics.render(
      size,
      this.#door?.connections ?? 0,
      this.#bodies,
      this.responses.size,
      this.#accessNotes?.log,
    )
  }

  leave(door: FrontDoor): void {
    this.#isLeaving = true
    this.#tellReady()
    door.endConnections()
  }

  /** How many requests were cut because `graceMs` was over. */
  async drain(door: FrontDoor, graceMs: number): Promise<number> {
    this.#isDraining = true
    this.#tabs?.close()
    let cutRequests = 0
    // Set before the listener's own timer, which fires at the same time and cuts all open connections.
    const timer = this.#clock.after(graceMs, () => {
      cutRequests = this.#exchanges.size
      this.#exchanges.endAll(toErrorRecord(new ShuttingDownError(true)))
    })
    await Promise.all([door.close(graceMs), this.#picker?.close(graceMs)])
    timer.cancel()
    await this.#accessNotes?.close()
    return cutRequests
  }

  /** This life of the gateway is over. */
  async end(door: FrontDoor): Promise<void> {
    this.reservations.endAll()
    this.#exchanges.endAll(toErrorRecord(new GatewayRestartedError()))
    this.#tabs?.close()
    // Also before a restart: the next instance listens on the same port.
    await Promise.all([door.close(0), this.#picker?.close(0)])
    await this.#accessNotes?.closeSoon()
  }

  #begin(given: HttpExchange): void {
    const opened = this.#nextTurns.watch(given)
    const routeName = (exchange: HttpExchange): string => this.#routes.nameOf(exchange)
    const noted = this.#accessNotes?.begin(opened, routeName, this.#routes.isForClients(opened))
    const note = noted?.note
    const cors = this.#routes.corsOf(opened)
    const plain = noted?.exchange ?? opened
    const exchange = cors === undefined || isPreflight(opened) ? plain : cors.over(plain)
    exchange.onClientGone(reason => {
      if (reason === 'stalled') this.metrics.clientStalled(routeName(exchange))
    })
    this.#serve(exchange, note).catch((thrown: unknown) => {
      note?.refused(toErrorRecord(thrown).code)
      const answer = new ClientAnswer(exchange, routeName(exchange), this.#clock, this.metrics)
      answer.refuse(thrown, this.#log)
    })
  }

  async #serve(opened: HttpExchange, note: AccessNote | undefined): Promise<void> {
    if (this.#isDraining) throw new ShuttingDownError()
    const found = this.#routes.lookUp(opened)
    const cors = isPreflight(opened) ? this.#routes.corsOf(opened) : undefined
    if (cors !== undefined && !('route' in found)) {
      const methods = found.length > 0 ? found : this.#routes.passed(opened)
      if (methods !== true && methods.length === 0) refuseRoute(opened, [], this.#routes.hint)
      cors.answerPreflight(opened, methods)
      return
    }
    const { clients } = this.#access
    const exchange =
      clients !== undefined && this.#routes.isForClients(opened) ? clients.admit(opened, note) : opened
    if ('route' in found) {
      const { route, parameter } = found
      if ('view' in route) await route.view(exchange, parameter)
      else {
        const isOperators = this.#routes.isOfOperators(exchange)
        await this.#exchanges.open(exchange, route.name, note, isOperators).serve(route.read)
      }
      return
    }
    const passes = found.length > 0 ? found : this.#routes.passed(exchange)
    if (passes !== true) refuseRoute(exchange, passes, this.#routes.hint)
    const relay: ReadStep = (relayed, hold) => this.reader.relayed(relayed, hold)
    await this.#exchanges.open(exchange, 'other', note).serve(relay)
  }
}

/** What a gateway on a thread of its own has to know before it takes a connection. */
async function surroundingsOf(
  context: ActorContext<GatewayMessage>,
  { directory }: GatewayArgs,
  { keeper, engineCertificates }: OwnThread,
) {
  if (engineCertificates !== undefined) context.use(transportCapability).http.trust(engineCertificates)
  const deadline = { timeout: SURROUNDINGS_MS_MAX }
  const [all, doors] = await Promise.all([
    keeper.ask({ type: 'gateways' }, deadline),
    directory.ask({ type: 'doors', holder: context.self }, deadline),
  ])
  const others = all.filter(({ key }) => key !== context.self.key)
  return { peers: new GatewayPeers(others), doors }
}

/** The tabs of the page that are open on this port; the console makes their contents. */
function pageTabs(
  clock: Clock,
  { pageTabsMax, clientStallMsMax, askMsMax, readMsMax, own }: GatewayArgs,
  console: ActorRef<ConsoleMessage>,
  gateway: string,
): EventStreams {
  return new EventStreams({
    clock,
    readersMax: pageTabsMax,
    common: commonCount(own?.row, 'tabs'),
    silenceMsMax: clientStallMsMax,
    pull: isFirst => console.ask({ type: 'pageUpdate', gateway, isFirst }, { timeout: askMsMax + readMsMax }),
    mayStay: exchange =>
      mayStillRead(exchange, request => console.ask({ type: 'serve', request }, { timeout: askMsMax })),
    told: counts => void console.tell({ type: 'pageTabs', gateway, counts }),
  })
}

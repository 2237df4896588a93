/**
 * Console: answers operators and their tools: views of the router, and the metrics of all actors.
 *
 * In     requests of operators: from the gateway, as plain data, or from its own port if it has one
 *        (--admin-port).
 * Out    questions to router, directory, tracker, indexers and the gateway, each with a deadline. Changes of
 *        workers and thresholds are requests to the directory, which owns them; the gateway counts the errors
 *        and the cut clients of its own port.
 * Owns   its listener, if it has one, with the streams of the page there; the page content, built again for
 *        each update. All figures belong to other actors and are asked for each time, so a restart loses only
 *        the count of failed collectors. The gateway counts its own requests, and renders these metrics
 *        itself.
 * Order  none between requests: at most OPEN_MAX are answered at one time, further ones get 503.
 * Fails  an error inside one request becomes its answer. While the console restarts, requests wait for it up
 *        to their deadline; then the gateway answers 503 or 504, and everything else goes on. If it cannot
 *        listen, it tells the guardian, or fails if the start is over.
 */

import { type ActorContext, type ActorRef, defineActor, signal, systemView } from '@homing/actor'
import { type Clock, KEYS_FILE_BYTES_MAX, type Log, toErrorRecord } from '@homing/base'
import {
  type AdminKey,
  AdminKeys,
  Bodies,
  EventStreams,
  errorAnswer,
  FollowedFiles,
  FrontDoor,
  fetchPieces,
  followTls,
  mayStillRead,
  type Pulled,
  parseAdminKeys,
  RouteTable,
  sendAnswer,
  sendBooked,
  sendView,
  ViewRoom,
} from '@homing/http'
import {
  type HttpExchange,
  type HttpTransport,
  type TlsIdentity,
  transportCapability,
} from '@homing/transport'
import type { ConsoleArgs } from './console-args.ts'
import { ConsoleBusyError } from './errors.ts'
import type { ConsoleMessage, FromConsole, OperatorAnswer, OperatorRequest } from './messages.ts'
import { processMetrics } from './metrics/process-metrics.ts'
import { OpenDump } from './open-dump.ts'
import { Operations } from './operations.ts'
import { OPERATOR_ROUTES } from './operator-routes.ts'
import { PageBuilder } from './page/page-builder.ts'
import { PageTabs } from './page/page-tabs.ts'

const OPEN_MAX = 100
const FILES_LOOK_INTERVAL_MS = 1000
/** Bodies of `POST /route` on a port of its own, all together. */
const BODIES_COUNT_MAX = 4
const CONSOLE_LIFE_BYTES = 9

export const operatorConsole = defineActor(
  import.meta.url,
  'operatorConsole',
)<ConsoleMessage, ConsoleArgs>({
  reentrant: true,
  async setup(context, args) {
    const state = new Console(context, args)
    const door = await state.open(args)
    if (state.hasFiles) context.scheduleEvery(FILES_LOOK_INTERVAL_MS, { type: 'lookAtFiles' })
    return {
      serve: async ({ request, reply }) => reply(await state.answer(request)),
      dumpPiece: async ({ dump, reply }) => reply(await state.openDump.next(dump).catch(toErrorRecord)),
      endDump: ({ dump }) => state.openDump.end(dump),
      undelivered: ({ booked }) => state.undelivered(booked),
      pageUpdate: async ({ gateway, isFirst, reply }) => reply(await state.pageUpdate(gateway, isFirst)),
      pageTabs: ({ gateway, counts }) => state.tabs.take(gateway, counts),
      gateways: ({ gateways }) => state.takeGateways(gateways),
      started: () => door?.assertOpen(),
      lookAtFiles: () => state.lookAtFiles(),
      address: ({ reply }) => reply(door?.address),
      [signal](event) {
        if (event.type === 'terminated') return
        state.streams.close()
        // Also before a restart: the next instance listens on the same port.
        return door?.close(0)
      },
    }
  },
})

class Console {
  readonly tabs: PageTabs
  readonly streams: EventStreams
  readonly openDump: OpenDump
  /** Of its own port; undefined: plain HTTP, or no port of its own. */
  readonly tls: FollowedFiles<TlsIdentity> | undefined
  readonly #adminKeys: FollowedFiles<readonly AdminKey[]> | undefined
  /** Undefined: keys have no roles. */
  #keys: AdminKeys | undefined
  /** Grows with each file of keys that counts. */
  #keysVersion = 0
  /** Of this console: another one counts its files of keys anew. */
  readonly #life: string
  readonly #log: Log
  readonly #clock: Clock
  readonly #http: HttpTransport
  readonly #room: ViewRoom
  readonly #operations: Operations
  readonly #routes = new RouteTable(OPERATOR_ROUTES)
  /** After a start it is known with the guardian's next word; what needs it waits until then. */
  readonly #known = Promise.withResolvers<readonly ActorRef<FromConsole>[]>()
  #gateways: readonly ActorRef<FromConsole>[] = []
  #openCount = 0
  #door: FrontDoor | undefined

  constructor(context: ActorContext<ConsoleMessage>, args: ConsoleArgs) {
    const { clock, log, random } = context
    this.#clock = clock
    const system = context.use(systemView)
    const { http, brokers } = context.use(transportCapability)
    this.#log = log
    if (args.tls !== undefined && args.adminPort !== undefined) {
      // The first gateway has the same files, and tells.
      this.tls = followTls(args.tls, identity => this.#door?.setIdentity(identity), undefined)
    }
    if (args.adminKeys !== undefined) {
      const { file, keys } = args.adminKeys
      this.#keys = new AdminKeys(keys)
      this.#adminKeys = new FollowedFiles({
        files: [{ option: '--admin-keys-file', path: file }],
        bytesMax: KEYS_FILE_BYTES_MAX,
        parse: ([text]) => parseAdminKeys(text!, file),
        value: keys,
        changed: changed => {
          this.#keys = new AdminKeys(changed)
          this.#keysVersion++
        },
        log,
      })
    }
    this.#http = http
    this.openDump = new OpenDump(clock)
    this.#room = new ViewRoom({ openMax: args.openOperatorRequestsMax })
    this.#operations = new Operations({
      args,
      system,
      clock,
      process: context.use(processMetrics),
      gateways: () => this.#known.promise,
      page: () => this.tabs.figures,
      brokers,
      adminKeys: this.#adminKeys,
      keys: () => this.#keys,
      log,
      openDump: this.openDump,
      room: args.adminPort === undefined ? undefined : this.#room,
    })
    const life = Buffer.from(random.bytes(CONSOLE_LIFE_BYTES)).toString('base64url')
    this.#life = life
    const workers = () => this.#operations.workers()
    this.tabs = new PageTabs(() => new PageBuilder({ args, clock, system, life, workers }))
    this.streams = new EventStreams({
      clock,
      readersMax: args.pageTabsMax,
      silenceMsMax: args.clientStallMsMax,
      pull: isFirst => this.pageUpdate(context.name, isFirst),
      mayStay: exchange => mayStillRead(exchange, request => this.answer(request)),
      told: counts => this.tabs.take(context.name, counts),
    })
  }

  /** The port of its own; undefined: there is none. */
  async open(args: ConsoleArgs): Promise<FrontDoor | undefined> {
    await this.#adminKeys?.begin(this.#clock)
    if (args.adminPort === undefined) return undefined
    await this.tls?.begin(this.#clock)
    this.#door = await openDoor(
      this.#http,
      { ...args, port: args.adminPort, identity: this.tls?.value },
      {
        answer: request => this.answer(request),
        undelivered: booked => this.undelivered(booked),
        // A gateway counts for both ports; before it is known, nothing is counted.
        count: message => void this.#gateways[0]?.tell(message),
        routeName: path => this.#routes.at(path)?.name ?? 'none',
        streams: this.streams,
        openDump: this.openDump,
        room: this.#room,
      },
    )
    return this.#door
  }

  /** For the tabs of this gateway, or of the console's own port. */
  async pageUpdate(place: string, isFirst: boolean): Promise<Pulled> {
    const pulled = await this.tabs.of(place).update(isFirst)
    return this.#adminKeys === undefined ? pulled : { ...pulled, rules: `${this.#life}:${this.#keysVersion}` }
  }

  get hasFiles(): boolean {
    return this.tls !== undefined || this.#adminKeys !== undefined
  }

  lookAtFiles(): void {
    void this.tls?.look()
    void this.#adminKeys?.look()
  }

  takeGateways(gateways: readonly ActorRef<FromConsole>[]): void {
    this.#gateways = gateways
    this.#known.resolve(gateways)
  }

  undelivered(booked: string): void {
    this.#operations.undelivered(booked).catch((error: unknown) => {
      this.#log.warn(
        { id: booked, error: toErrorRecord(error) },
        'what was booked for a client that left expires',
      )
    })
  }

  /** Never rejects. */
  async answer(request: OperatorRequest): Promise<OperatorAnswer> {
    this.#openCount++
    try {
      if (this.#openCount > OPEN_MAX) throw new ConsoleBusyError('are being answered', OPEN_MAX)
      const { route, parameter } = this.#routes.find(request, 'GET / lists them')
      return await this.#operations.answer(route.path, request, parameter)
    } catch (thrown) {
      const refusal = errorAnswer(thrown)
      if (refusal.status >= 500)
        this.#log.warn({ path: request.path, error: toErrorRecord(thrown) }, 'request failed')
      return refusal
    } finally {
      this.#openCount--
    }
  }
}

type CountedMessage = Exclude<FromConsole, { readonly reply: unknown }>

interface DoorParts {
  /** Never rejects. */
  readonly answer: (request: OperatorRequest) => Promise<OperatorAnswer>
  /** The client of an answer left before it had it. */
  readonly undelivered: (booked: string) => void
  readonly count: (message: CountedMessage) => void
  /** Its label in metrics. */
  readonly routeName: (path: string) => string
  readonly streams: EventStreams
  readonly openDump: OpenDump
  readonly room: ViewRoom
}

/** A port of its own. */
function openDoor(
  http: HttpTransport,
  {
    host,
    port,
    identity: tls,
    bodyBytesMax,
    bodySilenceMsMax,
    clientStallMsMax: readerStallMsMax,
    keepAliveMsMax,
  }: ConsoleArgs & { readonly port: number; readonly identity: TlsIdentity | undefined },
  { answer, undelivered, count, routeName, streams, openDump, room }: DoorParts,
): Promise<FrontDoor> {
  const bodies = new Bodies(
    BODIES_COUNT_MAX * bodyBytesMax,
    (bytes, bytesMax) => new ConsoleBusyError(`bytes of bodies are held, of ${bytesMax}`, bytes),
  )
  const serve = async (exchange: HttpExchange): Promise<void> => {
    const { method, path, query, headers, peerAddress } = exchange
    const hold = bodies.hold()
    exchange.onClientGone(reason => {
      if (reason === 'stalled') count({ type: 'clientStalled', route: routeName(path) })
    })
    const serveView = async (): Promise<number> => {
      const place = room.enter(exchange, routeName(path) === 'metrics')
      const body = method === 'POST' ? await hold.readDecoded(exchange, bodyBytesMax) : undefined
      const answered = await answer({ method, path, query, headers, peerAddress, body })
      const { dump, booked } = answered
      if (dump === undefined)
        return sendBooked(exchange, booked === undefined ? undefined : () => undelivered(booked), () =>
          sendView(exchange, place, answered, { streams, pieces: undefined }),
        )
      const pieces = fetchPieces(
        () => openDump.next(dump),
        () => openDump.end(dump),
      )
      return sendView(exchange, place, answered, { streams, pieces })
    }
    const status = await serveView()
      .catch((thrown: unknown) => (exchange.isClosed ? 0 : sendAnswer(exchange, errorAnswer(thrown))))
      .finally(() => hold.release())
    if (status >= 400) count({ type: 'refused', route: routeName(path), status })
  }
  const options = { host, port, bodySilenceMsMax, readerStallMsMax, keepAliveMsMax, tls }
  const malformed = (status: number): void => count({ type: 'refused', route: 'none', status })
  return FrontDoor.open(http, options, malformed, exchange => void serve(exchange))
}

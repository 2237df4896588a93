/**
 * Console: answers operators and their tools: views of the router, and the metrics of all actors.
 *
 * In     requests of operators: from the gateway, as plain data, or from its own port if it has one
 *        (--admin-port), and for metrics and health from a further one (--metrics-port).
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
  EventStreams,
  errorAnswer,
  FollowedFiles,
  type FrontDoor,
  followTls,
  type HttpAnswer,
  mayStillRead,
  type Pulled,
  parseAdminKeys,
  RouteTable,
  ViewRoom,
} from '@homing/http'
import { type HttpTransport, type TlsIdentity, transportCapability } from '@homing/transport'
import type { ConsoleArgs } from './console-args.ts'
import { ConsoleBusyError } from './errors.ts'
import type { ConsoleMessage, FromConsole, OperatorAnswer, OperatorRequest } from './messages.ts'
import { processMetrics } from './metrics/process-metrics.ts'
import { AT_METRICS_PORT, openMetricsDoor } from './metrics-door.ts'
import { OpenDump } from './open-dump.ts'
import { Operations } from './operations.ts'
import { OPERATOR_ROUTES, type OperatorRoute } from './operator-routes.ts'
import { type CountedMessage, openDoor } from './own-door.ts'
import { PageBuilder } from './page/page-builder.ts'
import { PageTabs } from './page/page-tabs.ts'

const OPEN_MAX = 100
const METRICS = '/metrics'
const HINT = 'GET / lists them'
const FILES_LOOK_INTERVAL_MS = 1000
const CONSOLE_LIFE_BYTES = 9

export const operatorConsole = defineActor(
  import.meta.url,
  'operatorConsole',
)<ConsoleMessage, ConsoleArgs>({
  reentrant: true,
  async setup(context, args) {
    const state = new Console(context, args)
    const { door, metricsDoor } = await state.open(args)
    if (state.hasFiles) context.scheduleEvery(FILES_LOOK_INTERVAL_MS, { type: 'lookAtFiles' })
    return {
      serve: async ({ request, reply }) => reply(await state.answer(request)),
      dumpPiece: async ({ dump, reply }) => reply(await state.openDump.next(dump).catch(toErrorRecord)),
      endDump: ({ dump }) => state.openDump.end(dump),
      undelivered: ({ booked }) => state.undelivered(booked),
      pageUpdate: async ({ gateway, isFirst, reply }) => reply(await state.pageUpdate(gateway, isFirst)),
      pageTabs: ({ gateway, counts }) => state.tabs.take(gateway, counts),
      gateways: ({ gateways }) => state.takeGateways(gateways),
      started() {
        door?.assertOpen()
        metricsDoor?.assertOpen()
      },
      lookAtFiles: () => state.lookAtFiles(),
      address: ({ reply }) => reply(door?.address),
      metricsAddress: ({ reply }) => reply(metricsDoor?.address),
      async [signal](event) {
        if (event.type === 'terminated') return
        state.streams.close()
        // Also before a restart: the next instance listens on the same port.
        await Promise.all([door?.close(0), metricsDoor?.close(0)])
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
  readonly #metricsRoom: ViewRoom
  readonly #operations: Operations
  readonly #routes = new RouteTable<OperatorRoute>(OPERATOR_ROUTES)
  /** After a start it is known with the guardian's next word; what needs it waits until then. */
  readonly #known = Promise.withResolvers<readonly ActorRef<FromConsole>[]>()
  #gateways: readonly ActorRef<FromConsole>[] = []
  #openCount = 0
  #doors: readonly (FrontDoor | undefined)[] = []
  readonly #identified = (identity: TlsIdentity): void => {
    for (const door of this.#doors) door?.setIdentity(identity)
  }

  constructor(context: ActorContext<ConsoleMessage>, args: ConsoleArgs) {
    const { clock, log, random } = context
    this.#clock = clock
    const system = context.use(systemView)
    const { http, brokers } = context.use(transportCapability)
    this.#log = log
    if (args.tls !== undefined && (args.adminPort !== undefined || args.metricsPort !== undefined)) {
      // The first gateway has the same files, and tells.
      this.tls = followTls(args.tls, this.#identified, undefined)
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
    this.#metricsRoom = new ViewRoom({ what: AT_METRICS_PORT, openMax: args.openOperatorRequestsMax })
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
      metricsRoom: args.metricsPort === undefined ? undefined : this.#metricsRoom,
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

  /** Its ports: of the operator routes, and of metrics and health; undefined: it has none. */
  async open(args: ConsoleArgs): Promise<{
    readonly door: FrontDoor | undefined
    readonly metricsDoor: FrontDoor | undefined
  }> {
    await this.#adminKeys?.begin(this.#clock)
    await this.tls?.begin(this.#clock)
    const { adminPort, metricsPort } = args
    const identity = this.tls?.value
    const { streams, openDump } = this
    // A gateway counts for all ports; before it is known, nothing is counted.
    const count = (message: CountedMessage): void => void this.#gateways[0]?.tell(message)
    const door =
      adminPort === undefined
        ? undefined
        : await openDoor(
            this.#http,
            { ...args, port: adminPort, identity },
            {
              answer: request => this.answer(request),
              undelivered: booked => this.undelivered(booked),
              count,
              routeName: path => this.#routes.at(path)?.name ?? 'none',
              streams,
              openDump,
              room: this.#room,
            },
          )
    const metricsDoor =
      metricsPort === undefined
        ? undefined
        : await openMetricsDoor(
            this.#http,
            { ...args, port: metricsPort, identity },
            {
              metrics: request =>
                this.#answered(request, () => this.#operations.answer(METRICS, request, '')),
              health: request => this.#answered(request, () => this.#operations.health()),
              count,
              streams,
              room: this.#metricsRoom,
            },
          )
    this.#doors = [door, metricsDoor]
    return { door, metricsDoor }
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
    const answered = await this.#answered(request, () => {
      if (this.#openCount > OPEN_MAX) throw new ConsoleBusyError('are being answered', OPEN_MAX)
      const { route, parameter } = this.#routes.find(request, HINT)
      return this.#operations.answer(route.path, request, parameter)
    })
    this.#openCount--
    return answered
  }

  /** Never rejects. */
  async #answered<A extends HttpAnswer>(
    request: OperatorRequest,
    answer: () => Promise<A>,
  ): Promise<A | HttpAnswer> {
    try {
      return await answer()
    } catch (thrown) {
      const refusal = errorAnswer(thrown)
      if (refusal.status >= 500)
        this.#log.warn({ path: request.path, error: toErrorRecord(thrown) }, 'request failed')
      return refusal
    }
  }
}

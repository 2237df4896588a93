/**
 * Index service: the prefix index alone, over HTTP, for routers other than Homing.
 *
 * In     HTTP exchanges from the transport; `source` from listeners; `shardReset` and `shardMemory` from
 *        indexers.
 * Out    a listener per registered rank; answers directly from shared memory.
 * Owns   the registrations, worker slots, peers, the HTTP listener; indexers and listeners as children. Its
 *        modules share `Rank` (rank.ts), where each field has one writer:
 *          registry        registered ranks, slots and shards
 *          rank-listeners  the lives of the listeners
 *          shards          indexers, the reader of their memory
 *          peers           what other services know
 *          routes          requests to answers
 *          inheritance     blocks known only from a peer
 * Order  at the start: listeners of the given ranks; then dumps of peers; then HTTP. A worker slot serves
 *        another rank only after its listener has ended and its indexer has forgotten it.
 * Fails  an error inside one request becomes its answer. An indexer that is lost for good, or a bug here,
 *        ends the service: then the engines must be registered again.
 */

import { type ActorContext, type ActorRef, defineActor, type Reply, signal } from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import { checkpointOptions, saveCheckpoints, savingMs } from '@homing/actors/listener'
import { type ErrorRecord, toErrorRecord } from '@homing/base'
import {
  AccessLog,
  assertNoStrangePage,
  HostNames,
  prepareAccessLog,
  type RouteTable,
  type Turns,
} from '@homing/http'
import {
  type HttpExchange,
  type HttpListener,
  type HttpTransport,
  transportCapability,
} from '@homing/transport'
import { sendError } from './answers.ts'
import { ServiceStoppingError } from './errors.ts'
import { Inheritance } from './inheritance.ts'
import type { IndexServiceMessage, ServiceReady } from './messages.ts'
import { OpenRequests } from './open-requests.ts'
import { IndexQuery } from './overlap-answer.ts'
import { Peers } from './peers.ts'
import { serviceProcessMetrics } from './process-metrics.ts'
import type { Rank } from './rank.ts'
import { nameOf, RankListeners } from './rank-listeners.ts'
import { Registry } from './registry.ts'
import { dumpTurns, type RequestNote, routeTable, type ServiceRoute } from './routes.ts'
import type { IndexServiceArgs } from './service-args.ts'
import { ServiceMetrics } from './service-metrics.ts'
import { Shards } from './shards.ts'

const SHARD_ASK_MS_MAX = 5000

export const indexService = defineActor(
  import.meta.url,
  'indexService',
)<IndexServiceMessage, IndexServiceArgs>({
  reentrant: true,
  setup(context, args) {
    const state = new IndexService(context, args)
    let started: ServiceReady | ErrorRecord | undefined
    const waiting: Reply<ServiceReady | ErrorRecord>[] = []
    context.pipe(
      state.start(),
      outcome => ({ type: 'started', outcome }),
      thrown => ({ type: 'started', outcome: toErrorRecord(thrown) }),
    )
    return {
      whenReady({ reply }) {
        if (started === undefined) waiting.push(reply)
        else reply(started)
      },
      started({ outcome }) {
        started = outcome
        for (const reply of waiting.splice(0)) reply(outcome)
      },
      async drain({ graceMs, reply }) {
        reply(await state.drain(graceMs))
      },
      source(message) {
        const rank = state.registry.ofSlot(message.workerSlot)
        if (rank === undefined) return
        state.listeners.heard(rank, message)
        state.inheritance.confirm(rank)
      },
      shardReset(message) {
        if (!state.shards.isReset(message)) return
        const { shard, openSlots } = message
        context.log.warn({ shard }, 'index shard was reset; its sources are rebuilt')
        for (const rank of state.registry.all()) {
          // A listener that has opened its slot since then is rebuilding already.
          if (rank.shard !== shard || openSlots.includes(rank.workerSlot)) continue
          rank.listener?.tell({ type: 'resync', cause: 'lost', reason: 'the index was reset' })
        }
      },
      shardMemory: message => state.shards.moved(message),
      listenerDue({ workerSlot }) {
        const rank = state.registry.ofSlot(workerSlot)
        if (rank !== undefined) state.listeners.due(rank)
      },
      released({ workerSlot, isReleased }) {
        const rank = state.registry.ofSlot(workerSlot)
        if (rank !== undefined) state.listeners.released(rank, isReleased)
      },
      lookAfterShards() {
        state.shards.look()
        state.reviewInheritance()
      },
      inheritedCounted: ({ counts }) => state.inheritance.review(state.registry.all(), counts),
      watchAgain: ({ shard }) => state.shards.watchAgain(shard),
      [signal](received) {
        if (received.type !== 'terminated') return state.close()
        if (state.shards.terminated(received)) return
        for (const rank of state.registry.all()) {
          if (rank.listener?.key !== received.ref.key) continue
          state.listeners.terminated(rank, received)
          return
        }
      },
    }
  },
})

class IndexService {
  readonly registry: Registry
  readonly shards: Shards
  readonly listeners: RankListeners
  readonly inheritance: Inheritance
  readonly #context: ActorContext<IndexServiceMessage>
  readonly #args: IndexServiceArgs
  readonly #peers: Peers
  readonly #metrics: ServiceMetrics
  readonly #open: OpenRequests
  readonly #names: HostNames
  readonly #dumps: Turns
  #accessLog: AccessLog | undefined
  readonly #routes: RouteTable<ServiceRoute>
  /** Ranks that start now may inherit: their events go through an inheritor. */
  #isRecovering = false
  #http: HttpListener | undefined
  #isDraining = false
  #isClosed = false

  constructor(context: ActorContext<IndexServiceMessage>, args: IndexServiceArgs) {
    const { threads, indexBytes, workerSlotsMax, peersMax, replayTimeoutMs } = args
    const eventPool = args.eventPool ?? 'events'
    this.#context = context
    this.#args = args
    this.#open = new OpenRequests(args)
    this.#names = new HostNames(args.host, args.hostNames)
    this.#dumps = dumpTurns(context.clock)
    this.#peers = new Peers({
      peersMax,
      waitMs: args.peerWaitMs,
      timeoutMs: args.peerTimeoutMs,
      dumpBytesMax: args.peerDumpBytesMax,
    })
    this.registry = new Registry({ shardCount: threads, workerSlotsMax })
    const inherits = args.peers.length > 0 && args.registrations.length > 0
    this.shards = new Shards(context, { count: threads, indexBytes, workerSlotsMax, eventPool, inherits })
    const { indexers, inheritors, reader, inheritedReader } = this.shards
    this.listeners = new RankListeners({
      context,
      // A listener tells an indexer nothing that an inheritor does not pass on.
      sinkOf: ({ shard }) =>
        this.#isRecovering
          ? (inheritors[shard]! as ActorRef<never> as ActorRef<IndexerMessage>)
          : indexers[shard]!,
      releaserOf: ({ shard }) => inheritors[shard] ?? indexers[shard]!,
      eventPool,
      replayTimeoutMs,
      checkpoints: checkpointOptions(args),
      ended: rank => this.registry.end(rank),
    })
    this.inheritance = new Inheritance(inheritors)
    this.#metrics = new ServiceMetrics({
      process: context.use(serviceProcessMetrics),
      registry: this.registry,
      shards: this.shards,
      peers: this.#peers,
      askMsMax: SHARD_ASK_MS_MAX,
      workerSlotsMax,
      openRequests: () => this.#open.count,
      views: this.#open.views,
      dumps: this.#dumps,
      bodyBytes: () => this.#open.bodyBytes,
      accessLinesDropped: () => this.#accessLog?.dropped ?? 0,
    })
    this.#routes = routeTable({
      context,
      registry: this.registry,
      listeners: this.listeners,
      shards: this.shards,
      lookup: new IndexQuery({ reader, inheritedReader, workerSlotsMax }),
      peers: this.#peers,
      metrics: this.#metrics,
      accessLog: () => this.#accessLog,
      askMsMax: SHARD_ASK_MS_MAX,
      dumps: this.#dumps,
    })
  }

  /** Listens when it resolves. Rejects with what the settings turn out not to allow. */
  async start(): Promise<ServiceReady> {
    const { registrations, host, port, peers, accessLog } = this.#args
    if (accessLog !== undefined) {
      await prepareAccessLog(accessLog)
      const { clock, log } = this.#context
      this.#accessLog = new AccessLog({ path: accessLog, clock, log })
    }
    for (const url of peers) this.#peers.add(url)
    const { http } = this.#context.use(transportCapability)
    this.#isRecovering = this.shards.inheritors.length > 0
    const ranks = registrations.map(registration => this.registry.register(registration))
    for (const rank of ranks) {
      this.inheritance.expect(rank)
      this.listeners.reconcile(rank)
    }
    let recovery: string | undefined
    if (this.#isRecovering) recovery = await this.#recover(http, ranks)
    else if (peers.length > 0)
      recovery = 'no rank was given at the start, so there was nothing to ask peers for'
    this.#isRecovering = false
    if (this.#isClosed) throw new ServiceStoppingError()
    const listening = {
      host,
      port,
      bodySilenceMsMax: this.#args.bodyTimeoutMs,
      readerStallMsMax: this.#args.clientStallTimeoutMs,
      keepAliveMsMax: this.#args.keepAliveTimeoutMs,
    }
    this.#http = await http.listen(listening, exchange => void this.#serve(exchange))
    if (this.#isClosed) {
      await this.#http.close(0)
      throw new ServiceStoppingError()
    }
    return { host: this.#http.host, port: this.#http.port, ranks: ranks.length, recovery }
  }

  reviewInheritance(): void {
    if (this.#isRecovering || this.shards.inheritors.length === 0) return
    this.#context.pipe(
      this.shards.inheritedBlocks(SHARD_ASK_MS_MAX),
      counts => ({ type: 'inheritedCounted', counts }),
      () => ({ type: 'inheritedCounted', counts: [] }),
    )
  }

  async drain(graceMs: number): Promise<number> {
    this.#isDraining = true
    const { clock } = this.#context
    const graceEndMs = clock.nowMs() + graceMs
    let cutRequests = 0
    // Set before the listener's own timer, which is due with it and cuts what is still open then.
    const timer = clock.after(graceMs, () => {
      cutRequests = this.#open.count
    })
    await this.#http?.close(graceMs)
    timer.cancel()
    await this.#accessLog?.close()
    if (this.#args.checkpointDirectory !== undefined)
      await this.#lastCheckpoints(savingMs(graceEndMs, clock.nowMs()))
    return cutRequests
  }

  /** Takes checkpoints when no more queries come: engines can repeat what they publish after this moment. */
  async #lastCheckpoints(timeoutMs: number): Promise<void> {
    const listeners = [...this.registry.all()].flatMap(({ listener }) =>
      listener === undefined ? [] : [listener],
    )
    const report = await saveCheckpoints(listeners, timeoutMs, this.#context.clock)
    this.#context.log.info({ ...report }, 'last checkpoints')
  }

  /** Also while it starts. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#http?.close(0)
    await this.#accessLog?.close()
  }

  /** What came of it, for people. */
  async #recover(http: HttpTransport, ranks: readonly Rank[]): Promise<string> {
    const { clock, log } = this.#context
    const found = await this.#peers.firstDump(http, clock, log)
    if (found === undefined) {
      for (const rank of ranks) this.inheritance.drop(rank)
      return 'no peer could be asked: the index begins empty'
    }
    const { url, dumps } = found
    const { blocks, refused } = await this.inheritance.take(url, dumps, ranks)
    for (const { rank, why } of refused) {
      log.warn(
        { rank: nameOf(rank), endpoint: rank.endpoint, peer: url, reason: why },
        'nothing is inherited: the peer may mean another engine',
      )
    }
    const inherited = ranks.filter(({ inheritedFrom }) => inheritedFrom !== undefined).length
    const others = refused.length === 0 ? '' : `; for ${refused.length} it may mean another engine`
    return `${blocks} blocks of ${inherited} of ${ranks.length} ranks are known only from ${url}${others}`
  }

  async #serve(exchange: HttpExchange): Promise<void> {
    const { clock, log } = this.#context
    const startedMs = clock.nowMs()
    const note: RequestNote = { model: undefined }
    let status: number
    const name = this.#routes.at(exchange.path)?.path ?? 'none'
    try {
      if (this.#isDraining) throw new ServiceStoppingError()
      const { handle, kind, isForPages } = this.#routes.find(exchange, 'GET / lists them').route
      if (!isForPages) assertNoStrangePage(exchange, this.#names)
      status = await this.#open.during(exchange, kind, (body, place) => handle(exchange, body, note, place))
    } catch (thrown) {
      const record = toErrorRecord(thrown)
      if (record.code === 'HOMING_TRANSPORT_CLIENT_GONE' || exchange.isClosed) return
      status = sendError(exchange, thrown, record)
      if (status >= 500) log.warn({ path: exchange.path, error: record }, 'request failed')
    }
    const durationMs = clock.nowMs() - startedMs
    this.#metrics.answered(name, status, durationMs)
    const traceId = exchange.headers[this.#args.traceIdHeader]
    this.#accessLog?.write({
      ts: new Date(clock.wallMs()).toISOString(),
      trace_id: typeof traceId === 'string' ? traceId : '-',
      method: exchange.method,
      path: name,
      model: note.model ?? '-',
      status,
      duration_ms: Math.round(durationMs * 1000) / 1000,
    })
  }
}

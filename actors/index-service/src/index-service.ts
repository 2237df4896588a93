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

import { type ActorContext, type ActorRef, defineActor, signal } from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import { checkpointOptions, saveCheckpoints, savingMs } from '@homing/actors/listener'
import { JsonService, serviceArms, type Turns } from '@homing/http'
import { serviceProcessMetrics } from '@homing/metrics'
import { type HttpTransport, transportCapability } from '@homing/transport'
import { dumpTurns } from './dump-answer.ts'
import { statusOf } from './error-answer.ts'
import { ServiceBusyError, ServiceStoppingError } from './errors.ts'
import { IndexMetrics } from './index-metrics.ts'
import { Inheritance } from './inheritance.ts'
import type { IndexServiceMessage, ServiceReady } from './messages.ts'
import { IndexQuery } from './overlap-answer.ts'
import { Peers } from './peers.ts'
import type { Rank } from './rank.ts'
import { rankArms } from './rank-arms.ts'
import { nameOf, RankListeners } from './rank-listeners.ts'
import { Registry } from './registry.ts'
import { type RoutesOptions, routeTable } from './routes.ts'
import type { IndexServiceArgs } from './service-args.ts'
import { Shards } from './shards.ts'

const SHARD_ASK_MS_MAX = 5000

export const indexService = defineActor(
  import.meta.url,
  'indexService',
)<IndexServiceMessage, IndexServiceArgs>({
  reentrant: true,
  setup(context, args) {
    const state = new IndexService(context, args)
    const { registry, shards, listeners } = state
    return {
      ...serviceArms<ServiceReady>(context, state),
      ...rankArms({ registry, shards, listeners, log: context.log }),
      source(message) {
        const rank = state.registry.ofSlot(message.workerSlot)
        if (rank === undefined) return
        state.listeners.heard(rank, message)
        state.inheritance.confirm(rank)
      },
      lookAfterShards() {
        state.shards.look()
        state.reviewInheritance()
      },
      inheritedCounted: ({ counts }) => state.inheritance.review(state.registry.all(), counts),
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
  readonly #metrics: IndexMetrics
  readonly #service: JsonService
  readonly #dumps: Turns
  readonly #routes: RoutesOptions
  /** Ranks that start now may inherit: their events go through an inheritor. */
  #isRecovering = false

  constructor(context: ActorContext<IndexServiceMessage>, args: IndexServiceArgs) {
    const { threads, indexBytes, labelBytes, labelShape, workerSlotsMax, peersMax, replayTimeoutMs } = args
    const eventPool = args.eventPool ?? 'events'
    this.#context = context
    this.#args = args
    this.#service = new JsonService(args, {
      clock: context.clock,
      log: context.log,
      busy: (what, max, option) => new ServiceBusyError(what, max, option),
      stopping: () => new ServiceStoppingError(),
      statusOf,
      answered: (route, status, durationMs) => this.#metrics.answered(route, status, durationMs),
    })
    this.#dumps = dumpTurns(context.clock)
    this.#peers = new Peers({
      peersMax,
      waitMs: args.peerWaitMs,
      timeoutMs: args.peerTimeoutMs,
      dumpBytesMax: args.peerDumpBytesMax,
    })
    this.registry = new Registry({ shardCount: threads, workerSlotsMax })
    const inherits = args.peers.length > 0 && args.registrations.length > 0
    this.shards = new Shards(context, {
      count: threads,
      indexBytes,
      labelBytes,
      labelShape,
      workerSlotsMax,
      eventPool,
      inherits,
    })
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
    this.#metrics = new IndexMetrics({
      process: context.use(serviceProcessMetrics),
      registry: this.registry,
      shards: this.shards,
      peers: this.#peers,
      askMsMax: SHARD_ASK_MS_MAX,
      workerSlotsMax,
      openRequests: () => this.#service.open.count,
      views: this.#service.open.views,
      dumps: this.#dumps,
      bodyBytes: () => this.#service.open.bodyBytes,
      accessLinesDropped: () => this.#service.accessLog?.dropped ?? 0,
    })
    this.#routes = {
      context,
      registry: this.registry,
      listeners: this.listeners,
      shards: this.shards,
      lookup: new IndexQuery({ reader, inheritedReader, labels: this.shards.labels, workerSlotsMax }),
      peers: this.#peers,
      metrics: this.#metrics,
      accessLog: () => this.#service.accessLog,
      askMsMax: SHARD_ASK_MS_MAX,
      dumps: this.#dumps,
    }
  }

  /** Listens when it resolves. Rejects with what the settings turn out not to allow. */
  async start(): Promise<ServiceReady> {
    const { registrations, peers } = this.#args
    await this.#service.prepare()
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
    const address = await this.#service.listen(http, routeTable(this.#routes))
    return { ...address, ranks: ranks.length, recovery }
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
    const { clock } = this.#context
    const graceEndMs = clock.nowMs() + graceMs
    const cutRequests = await this.#service.drain(graceMs)
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
  close(): Promise<void> {
    return this.#service.close()
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
}

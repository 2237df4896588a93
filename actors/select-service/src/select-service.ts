/**
 * Selection service: the choice of workers alone, over HTTP, for those who send requests themselves.
 *
 *   caller ──POST /select──▶ selection service ──▶ router ──▶ shards of the index ◀── indexers ◀── listeners
 *          ──/reservations──▶                  ──▶ tracker                                          ◀──
 *          engines
 *
 * In     HTTP exchanges from the transport; `source` from listeners; `shardReset` and `shardMemory` from
 *        indexers; `subscribe` from the router, for which it is the directory.
 * Out    the workers to router and tracker, as a fleet; questions to the router; bookings and their ends; a
 *        listener per rank that names a source of events.
 * Owns   the catalog of workers, the selections that can be reserved, the reservations by id, the HTTP
 *        listener; router, tracker, indexers and listeners as children: those of `homing router`, so what it
 *        chooses is what a router would choose. The load itself is the tracker's.
 * Order  what changes the catalog is told to router and tracker at once, so a question that follows finds it.
 * Fails  an error inside one request becomes its answer. A tracker or router that is restarted knows the
 *        workers at once or within RENEW_MS; what was reserved before does not count as load. One that is
 *        lost for good, or a shard, ends the service.
 */

import { type ActorContext, type ActorRef, defineActor, signal } from '@homing/actor'
import {
  dumpTurns,
  IndexQuery,
  nameOf,
  type Rank,
  RankListeners,
  rankArms,
  Shards,
} from '@homing/actors/index-service'
import { labelShapeOf } from '@homing/actors/indexer'
import { FollowedPeers, type ReplicaBridgeMessage, spawnServiceBridge } from '@homing/actors/replica-bridge'
import { type RouterMessage, router, routerArgsFromSettings } from '@homing/actors/router'
import { type TrackerMessage, tracker } from '@homing/actors/tracker'
import { type RouterSettings, routerSettingsOfSelect } from '@homing/config'
import {
  BodyTypeError,
  CHILD_SUPERVISION,
  JsonService,
  type Service,
  ServiceActorLostError,
  ServiceBusyError,
  ServiceStoppingError,
  serviceArms,
  type Turns,
} from '@homing/http'
import { transportCapability } from '@homing/transport'
import { customRandom, urlAlphabet } from 'nanoid'
import { type CatalogChange, SelectCatalog } from './catalog.ts'
import { statusOfSelectError } from './errors.ts'
import type { SelectServiceMessage, SelectServiceReady } from './messages.ts'
import { PendingSelections } from './pending-selections.ts'
import { Reservations } from './reservations.ts'
import { routeTable, SELECT_ASK_MS_MAX } from './routes.ts'
import { SelectMetrics } from './select-metrics.ts'
import { Selections } from './selections.ts'
import type { SelectServiceArgs } from './service-args.ts'

const RENEW_MS = 1000
/** Messages of an open request. */
const MESSAGES_PER_REQUEST = 4
const MAILBOX_SLACK = 1024
const ID_LENGTH = 21
/** Decisions of a reservation: a new one may begin before the router knows the end of the last. */
const DECISIONS_PER_REQUEST = 2

export const selectService = defineActor(
  import.meta.url,
  'selectService',
)<SelectServiceMessage, SelectServiceArgs>({
  reentrant: true,
  setup(context, args) {
    const state = new SelectService(context, args)
    const { shards, listeners } = state
    const { registry } = state.catalog
    return {
      ...serviceArms<SelectServiceReady>(context, state),
      ...rankArms({ registry, shards, listeners, log: context.log }),
      renew: () => state.renew(),
      source(message) {
        const rank = registry.ofSlot(message.workerSlot)
        if (rank === undefined) return
        const { epoch } = rank.heard
        const before = state.catalog.trustOf(rank)
        state.listeners.heard(rank, message)
        const { trust, trustReason } = state.catalog.trustOf(rank)
        if (rank.heard.epoch !== epoch) state.catalog.begin(rank.workerSlot)
        else if (trust === before.trust && trustReason === before.trustReason) return
        state.tellFleetSoon()
      },
      fleetDue: () => state.tellFleet(),
      lookAfterShards: () => state.shards.look(),
      subscribe: ({ subscriber }) => void subscriber.tell({ type: 'fleet', fleet: state.catalog.fleet() }),
      // Of answers of engines, which do not pass here.
      audit() {},
      computed() {},
      prompts() {},
      [signal](received) {
        if (received.type !== 'terminated') return state.close()
        if (state.shards.terminated(received)) return
        for (const rank of state.catalog.registry.all()) {
          if (rank.listener?.key !== received.ref.key) continue
          state.listeners.terminated(rank, received)
          state.tellFleetSoon()
          return
        }
        throw new ServiceActorLostError(received.ref.name, received.error?.message ?? received.reason)
      },
    }
  },
})

class SelectService implements Service<SelectServiceReady> {
  readonly catalog: SelectCatalog
  readonly shards: Shards
  readonly listeners: RankListeners
  readonly #context: ActorContext<SelectServiceMessage>
  readonly #args: SelectServiceArgs
  readonly #tracker: ActorRef<TrackerMessage>
  readonly #router: ActorRef<RouterMessage>
  readonly #bridge: ActorRef<ReplicaBridgeMessage> | undefined
  readonly #peers: FollowedPeers
  readonly #pending: PendingSelections
  readonly #reservations: Reservations
  readonly #service: JsonService
  readonly #metrics: SelectMetrics
  readonly #dumps: Turns
  readonly #lookup: IndexQuery
  #isFleetDue = false

  constructor(context: ActorContext<SelectServiceMessage>, args: SelectServiceArgs) {
    const { settings, eventPool = 'events' } = args
    const { workerSlotsMax, activeRequestsMax, activeRequestExpiryMs } = settings
    this.#context = context
    this.#args = args
    const { clock, log } = context
    this.catalog = new SelectCatalog({
      shardCount: settings.eventThreads,
      workerSlotsMax,
      ignoresCaches: settings.overlapWeight === 0,
      busyThresholds: {
        decodeBlocksFraction: settings.activeDecodeBlocksThreshold,
        prefillTokens: settings.activePrefillTokensThreshold,
        prefillFraction: settings.activePrefillTokensThresholdFraction,
      },
    })
    this.shards = new Shards(context, {
      count: settings.eventThreads,
      indexBytes: settings.indexBytes,
      labelBytes: settings.labelBytes,
      labelShape: labelShapeOf(settings),
      workerSlotsMax,
      eventPool,
      inherits: false,
      guesses: { blocksMax: settings.guessBlocksMax, pruneTargetRatio: settings.pruneTargetRatio },
    })
    const { indexers, reader } = this.shards
    this.listeners = new RankListeners({
      context,
      sinkOf: ({ shard }) => indexers[shard]!,
      releaserOf: ({ shard }) => indexers[shard]!,
      eventPool,
      replayTimeoutMs: settings.replayTimeoutMs,
      checkpoints: undefined,
      holdsGuesses: true,
      ended: rank => this.#ended(rank),
    })
    const capacity = args.openRequestsMax * MESSAGES_PER_REQUEST + MAILBOX_SLACK
    this.#tracker = this.#spawnTracker(capacity)
    this.#router = this.#spawnRouter(capacity, routerSettingsOfSelect(settings))
    const { replicaEndpoint: endpoint, replicaExpiryMs: expiryMs } = settings
    this.#bridge =
      endpoint === undefined
        ? undefined
        : spawnServiceBridge(context, {
            tracker: this.#tracker,
            router: this.#router,
            endpoint,
            expiryMs,
            capacity,
          })
    this.#peers = new FollowedPeers({
      bridge: this.#bridge,
      peers: settings.replicas,
      log,
      askMsMax: SELECT_ASK_MS_MAX,
    })
    this.#reservations = new Reservations({
      clock,
      log,
      tracker: this.#tracker,
      router: this.#router,
      openMax: activeRequestsMax,
      idleMsMax: activeRequestExpiryMs,
      askMsMax: SELECT_ASK_MS_MAX,
    })
    this.#pending = new PendingSelections(
      {
        ttlMs: settings.selectionTtlMs,
        entriesMax: settings.selectionsMax,
        bytesMax: settings.selectionBytesMax,
      },
      () => clock.nowMs(),
    )
    this.#service = new JsonService(args, {
      clock,
      log,
      busy: (what, max, option) => new ServiceBusyError(what, max, option),
      notJson: contentType => new BodyTypeError(contentType),
      stopping: () => new ServiceStoppingError(),
      statusOf: statusOfSelectError,
      answered: (route, status, durationMs) => this.#metrics.answered(route, status, durationMs),
    })
    this.#dumps = dumpTurns(clock)
    this.#metrics = new SelectMetrics({
      context,
      args,
      catalog: this.catalog,
      shards: this.shards,
      pending: this.#pending,
      tracker: this.#tracker,
      bridge: this.#bridge,
      service: this.#service,
      dumps: this.#dumps,
      askMsMax: SELECT_ASK_MS_MAX,
    })
    this.#lookup = new IndexQuery({ reader, inheritedReader: undefined, workerSlotsMax })
  }

  async start(): Promise<SelectServiceReady> {
    await this.#service.prepare()
    this.renew()
    const { http } = this.#context.use(transportCapability)
    const { random } = this.#context
    const { settings } = this.#args
    return this.#service.listen(
      http,
      routeTable({
        context: this.#context,
        args: this.#args,
        catalog: this.catalog,
        shards: this.shards,
        tracker: this.#tracker,
        router: this.#router,
        selections: new Selections({
          catalog: this.catalog,
          lookup: this.#lookup,
          router: this.#router,
          lookAgain: () => this.shards.lookAgain(),
          countsPrefill: settings.trackPrefillTokens,
          askMsMax: SELECT_ASK_MS_MAX,
        }),
        pending: this.#pending,
        reservations: this.#reservations,
        peers: this.#peers,
        metrics: this.#metrics,
        dumps: this.#dumps,
        newId: customRandom(urlAlphabet, ID_LENGTH, count => random.bytes(count)),
        accessLog: () => this.#service.accessLog,
        changed: change => this.#changed(change),
      }),
    )
  }

  renew(): void {
    void this.#reservations.look()
    this.#peers.renew()
    this.#pending.expire()
    this.tellFleet()
    this.#context.schedule(RENEW_MS, { type: 'renew' })
  }

  /** Behind what waits in the mailbox: that may be the same of other ranks. */
  tellFleetSoon(): void {
    this.catalog.touch()
    if (this.#isFleetDue) return
    // Without room it is told with the next `renew`.
    this.#isFleetDue = this.#context.self.tell({ type: 'fleetDue' }) === 'ok'
  }

  /** One that finds no room is told again with the next `renew`. */
  tellFleet(): void {
    this.#isFleetDue = false
    const message = { type: 'fleet', fleet: this.catalog.fleet() } as const
    this.#tracker.tell(message)
    this.#router.tell(message)
  }

  drain(graceMs: number): Promise<number> {
    return this.#service.drain(graceMs)
  }

  close(): Promise<void> {
    return this.#service.close()
  }

  #changed({ begun, gone }: Omit<CatalogChange, 'worker'>): void {
    this.#reservations.forget(gone)
    for (const rank of gone) this.#retire(rank)
    for (const rank of begun) this.#follow(rank)
    this.tellFleet()
  }

  #ended(rank: Rank): void {
    const begun = this.catalog.end(rank, this.#context.clock.wallMs())
    if (begun.length > 0) this.#changed({ begun, gone: [] })
  }

  #retire(rank: Rank): void {
    const { workerSlot, shard } = rank
    const epoch = this.catalog.begin(workerSlot)
    const indexer = this.shards.indexers[shard]!
    // Messages still on the way from the router must not count for the next rank of this slot.
    indexer.tell({ type: 'forgetRouted', workerSlot, epoch })
    indexer.tell({ type: 'forgetSeparated', workerSlot, epoch })
    this.listeners.reconcile(rank)
  }

  #follow(rank: Rank): void {
    if (this.#args.settings.overlapWeight === 0) rank.fault = 'caches are ignored'
    this.#context.log.debug({ rank: nameOf(rank), slot: rank.workerSlot }, 'rank begins')
    this.listeners.reconcile(rank)
  }

  #spawnTracker(capacity: number): ActorRef<TrackerMessage> {
    const { settings } = this.#args
    const ref = this.#context.spawn(tracker, {
      name: 'tracker',
      supervision: CHILD_SUPERVISION,
      mailbox: { capacity },
      args: {
        workerSlotsMax: settings.workerSlotsMax,
        requestsMax: settings.activeRequestsMax,
        activeBlocksMax: settings.activeBlocksMax,
        idleMsMax: settings.activeRequestExpiryMs,
        tracking: {
          activeBlocks: settings.trackActiveBlocks,
          prefillTokens: settings.trackPrefillTokens,
          // Callers count them.
          outputBlocks: false,
          assumesReuse: settings.assumeKvReuse,
        },
        replicationMs: settings.replicaEndpoint === undefined ? undefined : settings.replicaDelayMs,
      },
    })
    this.#context.watch(ref)
    return ref
  }

  #spawnRouter(capacity: number, settings: RouterSettings): ActorRef<RouterMessage> {
    const { customSelection } = this.#args
    const { activeRequestsMax } = this.#args.settings
    const args = routerArgsFromSettings(
      { ...settings, overloadStatus: OVERLOAD_STATUS },
      {
        customSelection,
        tracker: this.#tracker,
        directory: this.#context.self,
        indexMemories: this.shards.doors,
        indexers: this.shards.indexers,
      },
    )
    const ref = this.#context.spawn(router, {
      name: 'router',
      supervision: CHILD_SUPERVISION,
      mailbox: { capacity },
      args: { ...args, openMax: activeRequestsMax * DECISIONS_PER_REQUEST },
    })
    this.#context.watch(ref)
    return ref
  }
}

/** As the reference has it. */
const OVERLOAD_STATUS = 429

/**
 * Slot service: the slot tracker alone, over HTTP, for those who choose workers and send requests themselves.
 *
 *   caller ──POST /add, /prefill_complete, /free──▶ slot service ──▶ tracker ◀──▶ replica bridge ◀──▶ others
 *
 * In     HTTP exchanges from the transport.
 * Out    the registered workers to its tracker, as a fleet; bookings and their ends; peers to its bridge.
 * Owns   the catalog of workers and their slots, the list of peers, the HTTP listener; tracker and replica
 *        bridge as children. The load itself is the tracker's.
 * Order  what changes the catalog is told to the tracker at once, so a booking that follows finds it there.
 * Fails  an error inside one request becomes its answer. A tracker that is restarted holds no request, and is
 *        told the workers within RENEW_MS; a bridge, the peers. One that is lost for good ends the service.
 */

import { type ActorContext, type ActorRef, defineActor, signal } from '@homing/actor'
import { FollowedPeers, type ReplicaBridgeMessage, spawnServiceBridge } from '@homing/actors/replica-bridge'
import { type TrackerMessage, tracker } from '@homing/actors/tracker'
import {
  BodyTypeError,
  CHILD_SUPERVISION,
  JsonService,
  ServiceActorLostError,
  ServiceBusyError,
  ServiceStoppingError,
  serviceArms,
  statusOfServiceError,
} from '@homing/http'
import { transportCapability } from '@homing/transport'
import { SlotCatalog } from './catalog.ts'
import type { SlotServiceMessage, SlotServiceReady } from './messages.ts'
import { CHILD_ASK_MS_MAX, routeTable } from './routes.ts'
import type { SlotServiceArgs } from './service-args.ts'
import { SlotMetrics } from './slot-metrics.ts'

const RENEW_MS = 1000
/** Messages of an open request, and of replicas beside them. */
const MESSAGES_PER_REQUEST = 4
const MAILBOX_SLACK = 1024

export const slotService = defineActor(
  import.meta.url,
  'slotService',
)<SlotServiceMessage, SlotServiceArgs>({
  reentrant: true,
  setup(context, args) {
    const state = new SlotService(context, args)
    return {
      ...serviceArms<SlotServiceReady>(context, state),
      renew: () => state.renew(),
      [signal](received) {
        if (received.type !== 'terminated') return state.close()
        throw new ServiceActorLostError(received.ref.name, received.error?.message ?? received.reason)
      },
    }
  },
})

class SlotService {
  readonly #context: ActorContext<SlotServiceMessage>
  readonly #args: SlotServiceArgs
  readonly #catalog: SlotCatalog
  readonly #tracker: ActorRef<TrackerMessage>
  readonly #bridge: ActorRef<ReplicaBridgeMessage> | undefined
  readonly #peers: FollowedPeers
  readonly #service: JsonService
  readonly #metrics: SlotMetrics

  constructor(context: ActorContext<SlotServiceMessage>, args: SlotServiceArgs) {
    const { workerSlotsMax, replicas } = args
    this.#context = context
    this.#args = args
    this.#catalog = new SlotCatalog(workerSlotsMax)
    const capacity = args.openRequestsMax * MESSAGES_PER_REQUEST + MAILBOX_SLACK
    this.#tracker = context.spawn(tracker, {
      name: 'tracker',
      supervision: CHILD_SUPERVISION,
      mailbox: { capacity },
      args: {
        workerSlotsMax,
        requestsMax: args.activeRequestsMax,
        activeBlocksMax: args.activeBlocksMax,
        idleMsMax: args.activeRequestExpiryMs,
        replicationMs: replicas?.delayMs,
      },
    })
    context.watch(this.#tracker)
    this.#bridge =
      replicas &&
      spawnServiceBridge(context, {
        tracker: this.#tracker,
        endpoint: replicas.endpoint,
        expiryMs: replicas.expiryMs,
        capacity,
      })
    this.#peers = new FollowedPeers({
      bridge: this.#bridge,
      peers: replicas?.peers ?? [],
      log: context.log,
      askMsMax: CHILD_ASK_MS_MAX,
    })
    this.#service = new JsonService(args, {
      clock: context.clock,
      log: context.log,
      busy: (what, max, option) => new ServiceBusyError(what, max, option),
      notJson: contentType => new BodyTypeError(contentType),
      stopping: () => new ServiceStoppingError(),
      statusOf: statusOfServiceError,
      answered: (route, status, durationMs) => this.#metrics.answered(route, status, durationMs),
    })
    this.#metrics = new SlotMetrics({
      context,
      args,
      catalog: this.#catalog,
      tracker: this.#tracker,
      bridge: this.#bridge,
      service: this.#service,
      askMsMax: CHILD_ASK_MS_MAX,
    })
  }

  /** Listens when it resolves. */
  async start(): Promise<SlotServiceReady> {
    await this.#service.prepare()
    this.renew()
    const { http } = this.#context.use(transportCapability)
    return this.#service.listen(
      http,
      routeTable({
        context: this.#context,
        args: this.#args,
        catalog: this.#catalog,
        tracker: this.#tracker,
        peers: this.#peers,
        metrics: this.#metrics,
        accessLog: () => this.#service.accessLog,
        tellFleet: () => this.#tellFleet(),
      }),
    )
  }

  renew(): void {
    this.#tellFleet()
    this.#peers.renew()
    this.#context.schedule(RENEW_MS, { type: 'renew' })
  }

  drain(graceMs: number): Promise<number> {
    return this.#service.drain(graceMs)
  }

  close(): Promise<void> {
    return this.#service.close()
  }

  /** One that finds no room is told again with the next `renew`. */
  #tellFleet(): void {
    this.#tracker.tell({ type: 'fleet', fleet: this.#catalog.fleet() })
  }
}

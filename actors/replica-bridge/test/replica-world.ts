/** Replicas in one simulated network: trackers with a bridge each, on one clock. */

import { setImmediate } from 'node:timers/promises'
import { type ActorRef, defineActor } from '@homing/actor'
import { createTestSystem, type Probe } from '@homing/actor/testing'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import { type TrackerMessage, tracker } from '@homing/actors/tracker'
import { recordingLog, SimulatedClock, seededRandom } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import type { WaitingRow } from '@homing/replication'
import { MemoryNetwork, transportCapability } from '@homing/transport'
import type { Test } from 'tap'
import { type ReplicaBridgeMessage, type ReplicaPlane, replicaBridge } from '../src/index.ts'

const waitingStub = defineActor(
  import.meta.url,
  'waitingStub',
)<Extract<QueueMessage, { readonly type: 'exchangeWaiting' }>, WaitingStub>({
  setup: (_context, stub) => ({
    exchangeWaiting({ elsewhere, reply }) {
      stub.elsewhere = elsewhere
      reply([...stub.here])
    },
  }),
})

const ASK = { timeout: 60_000 } as const
export const SERVER = '10.0.0.9:4222'
export const ETCD = '10.0.0.8:2379'
export const EXPIRY_MS = 3000
export const NATS: Plane = () => ({ kind: 'nats', servers: [SERVER], group: 'test' })
export const ZMQ: Plane = (i, count) => ({
  kind: 'zmq',
  endpoint: endpointOf(i),
  others: Array.from({ length: count }, (_, other) => endpointOf(other)).filter(
    endpoint => endpoint !== endpointOf(i),
  ),
})

/** Sockets; where the others are is told at a server, which may be away. */
export const FOUND: Plane = i => ({
  kind: 'zmq',
  endpoint: `tcp://*:${5800 + 2 * i}`,
  others: [],
  meeting: { servers: [`http://${ETCD}`], group: 'test', host: `10.0.0.${i + 1}` },
})

export type Plane = (i: number, count: number) => ReplicaPlane

export function endpointOf(i: number): string {
  return `tcp://10.0.0.${i + 1}:5800`
}

export function fleetOf(workers: number): Fleet {
  return {
    version: 1,
    workers: Array.from({ length: workers }, (_, slot) => ({
      ...{ id: `h:${slot}`, models: [], taints: [] },
      keys: [{ key: `h:${slot}/0`, workerSlot: slot }],
    })),
  } as unknown as Fleet
}

/** Replicas with a system and a transport each, on one clock and one network. */
export class World {
  readonly clock = new SimulatedClock()
  readonly network = new MemoryNetwork({ clock: this.clock, latencyMs: 0.2 })
  readonly log = recordingLog()
  readonly replicas: Replica[] = []

  start(t: Test, count: number, plane: Plane): void {
    for (let i = 0; i < count; i++) this.join(t, plane(i, count))
  }

  join(t: Test, plane: ReplicaPlane, workers = 2): Replica {
    const transport = this.network.transport()
    const seed = this.replicas.length + 1
    const name = seed.toString(16).padStart(16, '0')
    const random = seededRandom(seed)
    const system = createTestSystem({
      clock: this.clock,
      random,
      log: this.log,
      provide: [[transportCapability, transport]],
    })
    const trackerRef = system.spawn(tracker, {
      name: 'tracker',
      args: { workerSlotsMax: 8, requestsMax: 1000, idleMsMax: 20_000, replicationMs: 2 },
    })
    trackerRef.tell({ type: 'fleet', fleet: fleetOf(workers) })
    const router = system.probe<Extract<RouterMessage, { readonly type: 'boundElsewhere' }>>('router')
    const waiting: WaitingStub = { here: [], elsewhere: [] }
    const queue = system.spawn(waitingStub, { name: 'queue', args: waiting })
    const narrow: ActorRef<TrackerMessage> = {
      ...trackerRef,
      tell: message => (replica.isFull ? 'full' : trackerRef.tell(message)),
      ask: (message, options) => trackerRef.ask(message, options),
    }
    const spawnBridge = () =>
      system.spawn(replicaBridge, {
        name: 'bridge',
        // As the guardian has it.
        supervision: {
          directive: 'restart',
          max: 10,
          within: '1m',
          backoff: { min: '20ms', max: '5s', jitter: 0.2 },
        },
        args: { tracker: narrow, router: router.ref, queue, plane, expiryMs: EXPIRY_MS, name },
      })
    t.teardown(() => system.shutdown())
    const replica: Replica = {
      system,
      transport,
      tracker: trackerRef,
      bridge: spawnBridge(),
      router,
      waiting,
      booked: 0,
      isFull: false,
      async restartBridge() {
        await system.stop(replica.bridge)
        replica.bridge = spawnBridge()
      },
    }
    this.replicas.push(replica)
    return replica
  }

  /** Lets time pass, a little at a time, so that actors and messages take their turns. */
  async pass(ms: number, stepMs = 1): Promise<void> {
    for (let left = ms; left > 0; left -= stepMs) {
      this.clock.advance(Math.min(stepMs, left))
      for (let turn = 0; turn < 3; turn++) await setImmediate()
    }
  }

  async book(replica: Replica, slot: number, id = `${this.replicas.indexOf(replica)}-${replica.booked++}`) {
    const hashes = Int32Array.from({ length: 10 }, (_, i) => i + 100 * slot)
    const booking = {
      decisionId: id,
      gateway: { name: 'g', life: 'one' },
      worker: `h:${slot}/0`,
      workerSlot: slot,
      sequenceHashes: hashes,
      promptTokens: 100,
      prefillTokens: 60,
      isStream: true,
      stepTokens: 8192,
      session: `session of ${slot}`,
    }
    const booked = replica.tracker.ask({ type: 'book', booking }, ASK)
    await this.pass(1)
    if ((await booked) !== 'booked') throw new Error('not booked')
    return id
  }

  async loads(replica: Replica) {
    const asked = replica.tracker.ask({ type: 'loads' }, ASK)
    await this.pass(1)
    return (await asked).rows.map(({ activeRequests, activeBlocks, activePrefillTokens }) => [
      activeRequests,
      activeBlocks,
      activePrefillTokens,
    ])
  }

  /** How long a replica that starts now waits until it knows the others, and whether it does then. */
  async untilKnown(replica: Replica): Promise<{ readonly isKnown: boolean; readonly ms: number }> {
    let isKnown: boolean | undefined
    void replica.bridge.ask({ type: 'whenKnown' }, ASK).then(known => {
      isKnown = known
    })
    let ms = 0
    for (; isKnown === undefined && ms < 10_000; ms++) await this.pass(1)
    if (isKnown === undefined) throw new Error('nobody says whether the others are known')
    return { isKnown, ms }
  }

  async report(replica: Replica) {
    const asked = replica.bridge.ask({ type: 'report' }, ASK)
    await this.pass(1)
    return asked
  }
}

export interface Replica {
  readonly system: ReturnType<typeof createTestSystem>
  readonly transport: ReturnType<MemoryNetwork['transport']>
  readonly tracker: ActorRef<TrackerMessage>
  bridge: ActorRef<ReplicaBridgeMessage>
  readonly router: Probe<Extract<RouterMessage, { readonly type: 'boundElsewhere' }>>
  readonly waiting: WaitingStub
  booked: number
  /** What its bridge tells its tracker finds no room. */
  isFull: boolean
  restartBridge(): Promise<void>
}

/** A queue of which the test says what waits. */
export interface WaitingStub {
  here: WaitingRow[]
  /** As it was told last. */
  elsewhere: readonly WaitingRow[]
}

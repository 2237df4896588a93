/**
 * Replica bridge: tells other replicas of the router what this one has booked, and tells its tracker what
 * they have booked.
 *
 *   tracker ── ownOperations ──▶ bridge ──▶ every replica       batches, numbered by the tracker
 *   a replica ──▶ bridge ── replicaOperations ──▶ tracker
 *   queue ◀── exchangeWaiting ──▶ bridge ◀──▶ every replica     waiting requests: sums by model, policy class
 *
 * In     `ownOperations` from the tracker; batches, questions, answers and sums of other replicas; `report`;
 *        `whenKnown`, which a router that starts awaits before it says that it is ready.
 * Out    to the tracker: `replicate`, every second; what others booked and freed, or all that is open there.
 *        To the router: sessions that they bound. To the queue, every WAITING_MS: what waits elsewhere; the
 *        queue answers with what waits there.
 * Owns   its sockets, a mirror of the open bookings of every other replica, and the last sums of its queue.
 * Order  batches of a replica are applied in the order of their numbers; if one is missing, the bridge asks
 *        the replica for all that is open there.
 * Fails  restarted by the guardian: the tracker keeps what was booked until the mirrors are there again; what
 *        no mirror has after `expiryMs` is freed. A replica that said good-bye is forgotten at once. One that
 *        is silent, or gives no answer, for `expiryMs` does not count. What the tracker had no room for is
 *        sent to it again.
 *
 * The other replicas are the named ones (ZeroMQ), those that are present at etcd (ZeroMQ), or at the broker
 * (NATS). What is heard over ZeroMQ goes on while etcd is away.
 */

import { type ActorContext, defineActor, type Reply, signal } from '@homing/actor'
import { toErrorRecord } from '@homing/base'
import type { AffinityBinding } from '@homing/placement'
import { PacedReplies } from '@homing/publisher'
import {
  encodeBatch,
  encodeBye,
  encodeDigests,
  encodeMoved,
  encodeOpenDigests,
  encodeSnapshot,
  encodeWaiting,
  isQuestion,
  type OpenBooking,
  type ReplicaBatch,
  type ReplicaOperation,
  type WaitingRow,
} from '@homing/replication'
import {
  type Frames,
  faultOfEndpoint,
  type OwnPresence,
  type Publisher,
  presenceEndpoint,
  type RouterSocket,
  transportCapability,
} from '@homing/transport'
import { faultOfPeer } from './followed-peers.ts'
import type { FollowOutcome, ReplicaBridgeMessage, ReplicasReport } from './messages.ts'
import { Peer } from './peer.ts'
import type { ReplicaBridgeArgs, ReplicaPlane } from './replica-bridge-args.ts'

const TICK_MS = 1000
const BIND_AGAIN_MS = 1000
/** How old the sums of waiting requests may be. */
const WAITING_MS = 250
const REPLICA_ASK_MS_MAX = 5000
/**
 * Every present replica has reported by then: at a broker since the question, over sockets since they began
 * to connect.
 */
const REPLICA_LISTEN_MS = 300
/** Longest delay of the start while the bookings of other replicas are unknown. */
const KNOWN_MS_MAX = 3000
const LOOK_AGAIN_MS = 20
/** So long the last life of this replica itself may still be present, and a bit more. */
const CLASH_MS = 10_000
const NAME = /^[0-9a-f]{16}$/
const EMPTY = new Uint8Array(0)
/** Replicas that are followed; anything at the broker may say that it is one. */
const REPLICAS_MAX = 128
/** Replicas that are answered at full speed at one time; see PacedReplies. */
const ANSWERS_MAX = 16
/** Messages of an answer that wait in the socket for a replica that does not read. */
const ANSWER_WINDOW_MESSAGES = 4
/** Replicas that wait for the next snapshot; further ones ask again. */
const ASKERS_MAX = 1024
/** Least time between two snapshots: replicas that ask meanwhile share the next one. */
const SNAPSHOT_MS_MIN = 100

export const replicaBridge = defineActor(
  import.meta.url,
  'replicaBridge',
)<ReplicaBridgeMessage, ReplicaBridgeArgs>({
  setup(context, args) {
    const bridge = new ReplicaBridge(context, args)
    bridge.start()
    return {
      ownOperations: ({ batch }) => bridge.tellOperations(batch),
      tellAgain: () => bridge.tellAgain(),
      bind: () => bridge.bind(),
      bound: ({ endpoint }) => bridge.bound(endpoint),
      notBound({ reason }) {
        context.log.warn({ reason }, 'other replicas cannot be told what is booked here: tried again')
        context.schedule(BIND_AGAIN_MS, { type: 'bind' })
      },
      asked: ({ identity }) => bridge.asked(identity),
      present: ({ life, card }) => bridge.present(life, card),
      absent: ({ life, reason }) => bridge.absent(life, reason === 'bye'),
      heard: ({ endpoint, frames }) => bridge.peer(endpoint)?.heard(frames),
      moved: ({ endpoint, isUp }) => bridge.moved(endpoint, isUp),
      answered: ({ endpoint, attempt, frames }) => bridge.peer(endpoint)?.answered(attempt, frames),
      follow: ({ endpoint, reply }) => reply(bridge.follow(endpoint)),
      unfollow: ({ endpoint, reply }) => reply(bridge.unfollow(endpoint)),
      followOnly: ({ endpoints }) => bridge.followOnly(endpoints),
      tellWaiting: () => bridge.tellWaiting(),
      waitingHere: ({ rows }) => bridge.waitingHere(rows),
      tick: () => bridge.tick(),
      whenKnown: ({ reply }) => bridge.whenKnown(reply),
      connected: () => bridge.connected(),
      lookIfKnown: () => bridge.lookIfKnown(),
      booked: ({ isSo }) => bridge.booked(isSo),
      report: ({ reply }) => reply(bridge.report()),
      [signal](received) {
        if (received.type === 'stopped') bridge.sayGoodBye()
        // A restarted bridge is back at once: until then the open bookings count elsewhere.
        if (received.type === 'stopped' || received.type === 'beforeRestart') bridge.close()
      },
    }
  },
})

class ReplicaBridge {
  readonly #context: ActorContext<ReplicaBridgeMessage>
  readonly #args: ReplicaBridgeArgs
  readonly #messages
  readonly #peers = new Map<string, Peer>()
  /**
   * Endpoints of the replicas that are present at the meeting point, by life; replicas may use different
   * addresses of one broker.
   */
  readonly #lives = new Map<string, string>()
  readonly #own: string
  /** Where the others are found; undefined: they are named. */
  readonly #meetingPoint: string | undefined
  /** The own endpoint as others reach it; undefined: not known yet, or no router is told. */
  #reachedAt: string | undefined
  /** Since when another life is present at the own endpoint; undefined: none is. */
  #clashMs: number | undefined
  #hasToldClash = false
  #publisher: Publisher | undefined
  #router: RouterSocket | undefined
  readonly #replies: PacedReplies
  /** By identity as hexadecimal text. */
  #askers = new Map<string, Uint8Array>()
  #isAnswering = false
  #hasToldMany = false
  #presence: OwnPresence | undefined
  #endpoint: string | undefined
  #trackerLife: string | undefined
  #isClosed = false
  #toldWaitingMs = 0
  #tickedMs: number
  /**
   * Since when it listens; undefined: the tracker's bookings of replicas that are unknown here are freed
   * already.
   */
  #sinceMs: number | undefined
  /** Endpoints of replicas whose last message found no room at the tracker. */
  readonly #untold = new Set<string>()
  /** Since when present replicas can report. */
  #listensMs: number | undefined
  /** The routers that wait until the other replicas are known, and until when. */
  #waiting: { readonly reply: Reply<boolean>; readonly endMs: number }[] = []

  constructor(context: ActorContext<ReplicaBridgeMessage>, args: ReplicaBridgeArgs) {
    this.#context = context
    this.#args = args
    this.#tickedMs = context.clock.nowMs()
    this.#sinceMs = this.#tickedMs
    this.#messages = context.use(transportCapability).messages
    this.#replies = new PacedReplies({
      clock: context.clock,
      peersMax: ANSWERS_MAX,
      // A replica keeps its connection, and asks again after each gap.
      peerBytesMax: Number.POSITIVE_INFINITY,
      offer: (identity, frames) => this.#router?.offer(identity, frames) ?? 'gone',
    })
    const { plane } = args
    this.#meetingPoint = meetingPointOf(plane)
    this.#own = plane.kind === 'zmq' ? plane.endpoint : `${this.#meetingPoint}.${args.name}`
  }

  start(): void {
    const { plane } = this.#args
    this.bind()
    if (plane.kind === 'zmq') {
      for (const endpoint of plane.others) this.#follow(endpoint)
      if (this.#meetingPoint === undefined) this.connected()
    }
    this.tick()
    this.#context.scheduleEvery(TICK_MS, { type: 'tick' })
    if (this.#args.queue !== undefined) this.#context.scheduleEvery(WAITING_MS, { type: 'tellWaiting' })
  }

  bind(): void {
    const { self } = this.#context
    const open = async (): Promise<string> => {
      const publisher = await this.#messages.publish({ endpoint: this.#own })
      try {
        this.#router = await this.#messages.serve(
          { endpoint: questionsAt(publisher.endpoint), queuedMessagesMax: ANSWER_WINDOW_MESSAGES },
          (identity, frames) => {
            if (frames.length === 2 && isQuestion(frames[1]!)) self.tell({ type: 'asked', identity })
          },
        )
      } catch (error) {
        publisher.close()
        throw error
      }
      this.#publisher = publisher
      if (this.#isClosed) this.close()
      return publisher.endpoint
    }
    this.#context.pipe(
      open(),
      endpoint => ({ type: 'bound', endpoint }),
      error => ({ type: 'notBound', reason: toErrorRecord(error).message }),
    )
  }

  bound(endpoint: string): void {
    this.#endpoint = endpoint
    const { plane, name } = this.#args
    if (this.#meetingPoint === undefined || this.#presence !== undefined) return
    const { self } = this.#context
    if (plane.kind === 'zmq') {
      this.#reachedAt = `tcp://${plane.meeting!.host}${endpoint.slice(endpoint.lastIndexOf(':'))}`
      this.#context.log.info({ endpoint: this.#reachedAt }, 'other replicas are told where this one is')
    }
    this.#presence = this.#messages.present(
      { endpoint: this.#meetingPoint, card: Buffer.from(this.#reachedAt ?? name) },
      {
        present: ({ life, card }) => {
          self.tell({ type: 'present', life, card: Buffer.from(card).toString() })
        },
        gone: (life, reason) => {
          self.tell({ type: 'absent', life, reason })
        },
        connected: () => void self.tell({ type: 'connected' }),
      },
    )
  }

  peer(endpoint: string): Peer | undefined {
    return this.#peers.get(endpoint)
  }

  tellOperations(batch: ReplicaBatch): void {
    const digests = encodeDigests(batch)
    if (digests !== undefined) this.tell(digests)
    this.tell(encodeBatch(batch))
    const moved = encodeMoved(batch)
    if (moved !== undefined) this.tell(moved)
  }

  tell(message: Uint8Array): void {
    this.#publisher?.send([EMPTY, message])
  }

  /** Another replica asks. One that finds no room among those that wait asks again. */
  asked(identity: Uint8Array): void {
    const name = Buffer.from(identity).toString('hex')
    if (this.#askers.size >= ASKERS_MAX && !this.#askers.has(name)) return
    this.#askers.set(name, identity)
    if (this.#isAnswering) return
    this.#isAnswering = true
    this.#answerAll().catch((error: unknown) => {
      this.#context.log.warn({ error: toErrorRecord(error) }, 'a replica got no answer')
    })
  }

  /** One snapshot for all that asked before it was taken, sent no faster than each reads. */
  async #answerAll(): Promise<void> {
    const { clock } = this.#context
    try {
      while (this.#askers.size > 0 && !this.#isClosed) {
        const askers = this.#askers
        this.#askers = new Map()
        const messages = await this.#snapshotMessages()
        for (const identity of askers.values()) this.#replies.begin(identity, messages)
        await new Promise<void>(resolve => clock.after(SNAPSHOT_MS_MIN, resolve, { unref: true }))
      }
    } finally {
      this.#isAnswering = false
    }
  }

  /** The tracker answers with its open bookings, after the operations that it told before. */
  async #snapshotMessages(): Promise<readonly Frames[]> {
    const { tracker } = this.#args
    const snapshot = await tracker.ask({ type: 'ownBookings' }, { timeout: REPLICA_ASK_MS_MAX })
    if (snapshot === undefined) return []
    const parts = [...encodeOpenDigests(snapshot), ...encodeSnapshot(snapshot)]
    return parts.map(part => [EMPTY, part])
  }

  present(life: string, card: string): void {
    // A stranger may say anything.
    const endpoint = this.#endpointOn(card)
    if (endpoint === undefined) return
    this.#lives.set(life, endpoint)
    this.#follow(endpoint)
  }

  /** Where another replica publishes, by its card; undefined: nowhere that can be followed. */
  #endpointOn(card: string): string | undefined {
    if (this.#args.plane.kind === 'nats') return NAME.test(card) ? `${this.#meetingPoint}.${card}` : undefined
    return faultOfPeer(card) === undefined && faultOfEndpoint(card) === undefined ? card : undefined
  }

  absent(life: string, hasSaidGoodBye: boolean): void {
    const endpoint = this.#lives.get(life)
    this.#lives.delete(life)
    // A replica that is only silent may come back: its bookings count until they expire.
    if (endpoint === undefined || !hasSaidGoodBye) return
    // One that is back at its endpoint already.
    if ([...this.#lives.values()].includes(endpoint)) return
    this.#context.log.info({ replica: endpoint }, 'a replica has left')
    this.#forget(endpoint)
  }

  moved(endpoint: string, isUp: boolean): void {
    const peer = this.#peers.get(endpoint)
    if (peer === undefined) return
    this.#context.log.info(
      { replica: endpoint, isUp },
      isUp ? 'a replica is heard' : 'a replica is not heard',
    )
    peer.moved(isUp)
  }

  tellAgain(): void {
    for (const peer of this.#peers.values()) peer.tellAgain()
  }

  follow(endpoint: string): FollowOutcome {
    if (endpoint === this.#endpoint || endpoint === this.#own) return 'itself'
    if (this.#peers.has(endpoint)) return 'followed'
    if (this.#peers.size >= REPLICAS_MAX) return 'full'
    this.#follow(endpoint)
    return 'followed'
  }

  unfollow(endpoint: string): boolean {
    if (!this.#peers.has(endpoint)) return false
    this.#forget(endpoint)
    return true
  }

  followOnly(endpoints: readonly string[]): void {
    const named = new Set(endpoints)
    for (const endpoint of [...this.#peers.keys()]) if (!named.has(endpoint)) this.#forget(endpoint)
    for (const endpoint of named) this.follow(endpoint)
  }

  tellWaiting(): void {
    const { self } = this.#context
    const elsewhere = [...this.#peers.values()].flatMap(({ waiting }) => waiting)
    const { queue } = this.#args
    queue?.ask({ type: 'exchangeWaiting', elsewhere }, { timeout: REPLICA_ASK_MS_MAX }).then(
      rows => void self.tell({ type: 'waitingHere', rows }),
      // The queue is asked again in a moment.
      () => {},
    )
  }

  /** An empty queue is reported with every tick, because a message may be lost. */
  waitingHere(rows: readonly WaitingRow[]): void {
    const nowMs = this.#context.clock.nowMs()
    if (rows.length === 0 && nowMs - this.#toldWaitingMs < TICK_MS) return
    this.#toldWaitingMs = nowMs
    this.tell(encodeWaiting(rows))
  }

  tick(): void {
    const { tracker } = this.#args
    tracker.ask({ type: 'replicate', bridge: this.#context.self }, { timeout: REPLICA_ASK_MS_MAX }).then(
      life => {
        if (life === this.#trackerLife) return
        this.#trackerLife = life
        this.tellAgain()
      },
      // The tracker is asked again in a second.
      () => {},
    )
    this.#expire()
    this.#tellUntold()
  }

  connected(): void {
    this.#listensMs ??= this.#context.clock.nowMs()
  }

  whenKnown(reply: Reply<boolean>): void {
    const isFirst = this.#waiting.length === 0
    this.#waiting.push({ reply, endMs: this.#context.clock.nowMs() + KNOWN_MS_MAX })
    if (isFirst) this.lookIfKnown()
  }

  lookIfKnown(): void {
    const nowMs = this.#context.clock.nowMs()
    this.#waiting = this.#waiting.filter(({ reply, endMs }) => {
      if (nowMs < endMs) return true
      reply(false)
      return false
    })
    if (this.#waiting.length === 0) return
    const { self } = this.#context
    if (!this.#areOthersKnown(nowMs)) {
      this.#context.schedule(LOOK_AGAIN_MS, { type: 'lookIfKnown' })
      return
    }
    // The tracker answers after what it was told of other replicas; and what it says of a fleet that it has
    // just heard of comes before 'booked'.
    const timeout = Math.min(REPLICA_ASK_MS_MAX, ...this.#waiting.map(({ endMs }) => endMs - nowMs))
    this.#args.tracker.ask({ type: 'replicate', bridge: self }, { timeout }).then(
      () => void self.tell({ type: 'booked', isSo: true }),
      () => void self.tell({ type: 'booked', isSo: false }),
    )
  }

  booked(isSo: boolean): void {
    if (!isSo) this.#context.schedule(LOOK_AGAIN_MS, { type: 'lookIfKnown' })
    else for (const { reply } of this.#waiting.splice(0)) reply(true)
  }

  report(): ReplicasReport {
    const peers = [...this.#peers.values()]
    return {
      endpoint: this.#reachedAt ?? this.#endpoint,
      replicas: peers.map(peer => peer.view()),
      malformed: peers.reduce((sum, { malformed }) => sum + malformed, 0),
    }
  }

  sayGoodBye(): void {
    if (this.#args.plane.kind === 'zmq') this.tell(encodeBye())
    this.#presence?.close()
  }

  /** Closes without a good-bye. */
  close(): void {
    this.#isClosed = true
    this.#presence?.leave()
    this.#publisher?.close()
    this.#replies.close()
    this.#router?.close()
    for (const peer of this.#peers.values()) peer.close()
    this.#peers.clear()
  }

  /** The tracker was told the open bookings of all present replicas. */
  #areOthersKnown(nowMs: number): boolean {
    if (this.#endpoint === undefined || this.#untold.size > 0) return false
    if (this.#listensMs === undefined || nowMs - this.#listensMs < REPLICA_LISTEN_MS) return false
    const isLive = (endpoint: string): boolean => this.#peers.get(endpoint)?.view().state === 'live'
    if (this.#args.plane.kind === 'nats') return [...new Set(this.#lives.values())].every(isLive)
    // A named replica that cannot be reached is not waited for.
    return [...this.#peers].every(([endpoint, { isKnown }]) => !isKnown || isLive(endpoint))
  }

  #expire(): void {
    const nowMs = this.#context.clock.nowMs()
    // The thread stood still: messages of other replicas from this time are still to be read.
    const stoodStill = nowMs - this.#tickedMs >= 2 * TICK_MS
    this.#tickedMs = nowMs
    if (stoodStill) return
    const present = new Set(this.#lives.values())
    this.#tellClash(this.#reachedAt !== undefined && present.has(this.#reachedAt), nowMs)
    for (const [endpoint, peer] of [...this.#peers]) {
      const reason = peer.tick()
      if (reason !== undefined)
        this.#context.log.warn(
          { replica: endpoint, reason, expiryMs: this.#args.expiryMs },
          'a replica cannot be heard: its bookings do not count any more',
        )
      if (this.#meetingPoint !== undefined && !peer.isKnown && !present.has(endpoint)) this.#forget(endpoint)
    }
    if (this.#sinceMs === undefined || nowMs - this.#sinceMs < this.#args.expiryMs) return
    const replicas = [...this.#peers].filter(([, peer]) => peer.isKnown).map(([endpoint]) => endpoint)
    if (this.#args.tracker.tell({ type: 'replicasKnown', replicas }) === 'ok') this.#sinceMs = undefined
  }

  #tellClash(isThere: boolean, nowMs: number): void {
    this.#clashMs = isThere ? (this.#clashMs ?? nowMs) : undefined
    if (this.#clashMs === undefined || nowMs - this.#clashMs < CLASH_MS || this.#hasToldClash) return
    this.#hasToldClash = true
    this.#context.log.warn(
      { endpoint: this.#reachedAt },
      'another router registers the endpoint of this one, so they do not hear each other: give each its own --router-replica-host',
    )
  }

  #tellUntold(): void {
    for (const endpoint of [...this.#untold]) {
      this.#untold.delete(endpoint)
      const peer = this.#peers.get(endpoint)
      if (peer === undefined) this.#reset(endpoint, [])
      else peer.tellAgain()
    }
  }

  #reset(endpoint: string, bookings: readonly OpenBooking[]): void {
    const told = this.#args.tracker.tell({ type: 'replicaBookings', replica: endpoint, bookings })
    if (told !== 'ok') this.#untold.add(endpoint)
  }

  #follow(endpoint: string): void {
    // Itself: its own last life may still be present.
    if (endpoint === this.#endpoint || endpoint === this.#reachedAt) return
    if (this.#peers.has(endpoint)) return
    if (this.#peers.size >= REPLICAS_MAX) {
      if (!this.#hasToldMany)
        this.#context.log.warn(
          { endpoint, replicasMax: REPLICAS_MAX },
          'too many replicas: further ones are not followed',
        )
      this.#hasToldMany = true
      return
    }
    const { self, clock } = this.#context
    const { tracker, expiryMs } = this.#args
    this.#peers.set(
      endpoint,
      new Peer({
        endpoint,
        questionEndpoint: questionsAt(endpoint),
        messages: this.#messages,
        clock,
        expiryMs,
        heard: frames => void self.tell({ type: 'heard', endpoint, frames }),
        moved: isUp => void self.tell({ type: 'moved', endpoint, isUp }),
        answered: (attempt, frames) => void self.tell({ type: 'answered', endpoint, attempt, frames }),
        apply: (operations, isLate) => {
          const told = tracker.tell({ type: 'replicaOperations', replica: endpoint, operations, isLate })
          if (told !== 'ok') this.#untold.add(endpoint)
          this.#tellSessions(operations)
        },
        reset: bookings => {
          this.#reset(endpoint, bookings)
          this.#tellSessions(bookings)
        },
        moveSessions: moved => this.#tellBindings(moved.map(each => ({ ...each, isMoved: true }))),
      }),
    )
  }

  #tellSessions(operations: readonly ReplicaOperation[]): void {
    const bindings: AffinityBinding[] = []
    for (const operation of operations) {
      if (operation.kind !== 'booked' || operation.session === undefined) continue
      bindings.push({ session: operation.session, worker: operation.worker })
    }
    this.#tellBindings(bindings)
  }

  #tellBindings(bindings: readonly AffinityBinding[]): void {
    if (bindings.length > 0) this.#args.router?.tell({ type: 'boundElsewhere', bindings })
  }

  #forget(endpoint: string): void {
    const peer = this.#peers.get(endpoint)
    peer?.gone()
    peer?.close()
    this.#peers.delete(endpoint)
  }
}

function meetingPointOf(plane: ReplicaPlane): string | undefined {
  const meeting = plane.kind === 'nats' ? plane : plane.meeting
  return meeting && presenceEndpoint(meeting.servers, `homing.replicas.${meeting.group}`)
}

/** Questions go to the port behind that of the batches; at a broker, under the same subject. */
function questionsAt(endpoint: string): string {
  if (!endpoint.startsWith('tcp://')) return endpoint
  const at = endpoint.lastIndexOf(':')
  const port = Number(endpoint.slice(at + 1))
  return `${endpoint.slice(0, at)}:${port === 0 ? 0 : port + 1}`
}

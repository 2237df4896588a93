/**
 * Runtime: the actors of one thread. It keeps the cells, the run queue, the asks, the deadlines and a
 * Peer for every other thread. It neither makes threads nor knows how links are built.
 */

import type { Clock, Random } from '@homing/clock'
import type { RouterError } from '@homing/errors'
import type { Log } from '@homing/log'
import { InboundAsk, type OpenAsk } from './asks.ts'
import { Capabilities } from './capabilities.ts'
import { Cell } from './cell.ts'
import { CellTable } from './cell-table.ts'
import { newChild } from './children.ts'
import {
  DEAD_LETTER_REASONS,
  type DeadLetterCounts,
  DeadLetterLog,
  type DeadLetterReason,
} from './dead-letters.ts'
import { Deadlines } from './deadlines.ts'
import { type DefinitionSource, moduleDefinitions } from './definitions.ts'
import { SystemStoppedError, ThreadDownError, UnknownThreadError } from './errors.ts'
import {
  type AskFailure,
  type Ending,
  type Halt,
  type HaltRequest,
  OP,
  type Registration,
  type RuntimeQuery,
  type SpawnSpec,
  type ThreadEndReason,
} from './frames.ts'
import { HeapGauge, type HeapSize } from './heap-gauge.ts'
import { ID_SPAN, uidOf } from './ids.ts'
import { Kinship } from './kinship.ts'
import { compiledOf, compileLayout } from './layout/compile.ts'
import { type Held, Limbo } from './limbo.ts'
import type { Frame, LinkHandlers, ThreadLink } from './link.ts'
import { Counts } from './observe/counts.ts'
import { FlightRecorder } from './observe/flight.ts'
import { ThreadMemory } from './observe/thread-memory.ts'
import { Outbound } from './outbound.ts'
import { type PatchReader, type RefTarget, unpack } from './pack.ts'
import { Peer } from './peer.ts'
import { PendingAsks } from './pending-asks.ts'
import { type PoolMap, resolvePlacement } from './placement.ts'
import { type AnyRef, LocalRef, RemoteRef } from './refs.ts'
import { GUARDIAN_SETTINGS, toSettings } from './settings.ts'
import { describe } from './thrown.ts'
import { Turns } from './turns.ts'
import type {
  ActorDefinition,
  ActorRef,
  ActorStatus,
  Capability,
  Message,
  Provided,
  SpawnOptions,
  TellStatus,
  TerminationReason,
} from './types.ts'
import { Watches } from './watches.ts'

/** Name of the thread that keeps the others. */
export const MAIN = 'main'

const SLOW_MAX = 1000

/** Who keeps the list of threads: main itself, or main reached by frames. */
export interface Registrar {
  register(registration: Registration): void
  /** The actor is to be brought back no more, and stopped where it may still run. */
  unregister(id: number): void
  resolve(thread: string): void
}

export interface RuntimeOptions {
  readonly thread: string
  /** The life of the thread: unique in the system, 1 for main, below 2^20. */
  readonly uid: number
  readonly pools: PoolMap
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly provide: readonly Provided[]
  /** Every placement means this thread: for tests. */
  readonly isAlone: boolean
  /** Plans a call of `turns.take`, instead of microtasks and immediates: for simulations. */
  readonly planTurn?: ((runtime: Runtime) => void) | undefined
  /** Default: exports of modules. */
  readonly definitions?: DefinitionSource | undefined
  /** What earlier lives of the thread wrote about themselves, to go on with; default: new memory. */
  readonly memory?: ThreadMemory | undefined
  /** The heap of the thread; default: as V8 says. */
  readonly heap?: (() => HeapSize) | undefined
}

/** An actor as a runtime reports it; main puts the tree together. */
export type FlatStatus = Omit<ActorStatus, 'children'> & { readonly id: number; readonly parentId: number }

/** What a runtime answers to `stats`. */
export interface RuntimeStats {
  readonly sent: number
  readonly handled: number
  readonly deadLetters: number
  readonly refused: number
  readonly restarts: number
  readonly asksTimedOut: number
  readonly actors: number
  readonly asksPending: number
  readonly deadLettersByReason: DeadLetterCounts
}

/** What a runtime answers to `dispose`. */
export interface Disposal {
  readonly slow: readonly string[]
  readonly droppedMessages: number
}

export class Runtime {
  readonly thread: string
  readonly uid: number
  readonly pools: PoolMap
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly deadlines: Deadlines
  readonly cells = new CellTable()
  readonly peers = new Map<string, Peer>()
  readonly slow: string[] = []
  /** What this thread says about itself, and every life of it before. */
  readonly memory: ThreadMemory
  readonly counts: Counts
  readonly flight: FlightRecorder
  readonly heap: HeapGauge
  readonly turns: Turns
  readonly asks: PendingAsks
  readonly outbound: Outbound
  readonly watches: Watches
  readonly kinship: Kinship
  readonly limbo: Limbo
  /** The parent of all top-level actors; on main only. */
  readonly guardian: Cell | undefined
  /** Set once, right after construction. */
  registrar: Registrar | undefined = undefined
  /** Takes the frames that only main or only a thread understands. */
  onControl: ((peer: Peer, frame: Frame) => void) | undefined = undefined
  /** Messages of other threads are refused, except to control and to the runtime itself: the heap is nearly full. */
  isShedding = false
  /** False once the system shuts down: nothing is spawned any more. */
  isOpen = true

  readonly #capabilities: Capabilities
  readonly #deadLetters: DeadLetterLog
  readonly isAlone: boolean
  readonly #definitions: DefinitionSource
  #idCount = 0
  readonly #patchReader: PatchReader
  #uidMax = 0

  constructor(options: RuntimeOptions) {
    this.thread = options.thread
    this.uid = options.uid
    this.pools = options.pools
    this.clock = options.clock
    this.random = options.random
    this.log = options.log
    this.isAlone = options.isAlone
    this.#definitions = options.definitions ?? moduleDefinitions
    this.memory = options.memory ?? new ThreadMemory()
    this.counts = new Counts(this.memory)
    this.counts.begin(options.uid)
    this.flight = new FlightRecorder(this.memory, options.clock)
    this.flight.note('threadStarted', 0, '', options.uid)
    this.heap = new HeapGauge(this.counts, this.flight, options.heap)
    const { planTurn } = options
    this.turns = new Turns(this, planTurn === undefined ? undefined : () => planTurn(this))
    this.deadlines = new Deadlines(options.clock)
    this.asks = new PendingAsks(this)
    this.outbound = new Outbound(this)
    this.#capabilities = new Capabilities(options, options.provide)
    this.#deadLetters = new DeadLetterLog(options.clock, options.log)
    this.limbo = new Limbo(this.deadlines)
    this.watches = new Watches(this)
    this.kinship = new Kinship(this)
    this.#patchReader = {
      ref: target => this.refTo(target),
      reply: target => this.outbound.replyFor(target),
    }
    if (options.thread === MAIN) {
      const init = {
        id: 0,
        name: 'guardian',
        args: undefined,
        settings: GUARDIAN_SETTINGS,
        parent: undefined,
        restarts: 0,
      }
      this.guardian = new Cell(this, init, guardianDefinition)
      this.turns.enqueue(this.guardian)
    }
  }

  /** True when nothing waits for an actor, and no arm is in flight. */
  get isDrained(): boolean {
    if (!this.turns.isIdle) return false
    for (const cell of this.cells.values()) if (cell.isBusy) return false
    return true
  }

  // ── Spawn and stop ───────────────────────────────────────────────────────────────────────────

  /** Makes a child of `parent`, here or on another thread. */
  spawn<M extends Message, A>(
    parent: Cell,
    definition: ActorDefinition<M, A>,
    options: SpawnOptions<A>,
  ): ActorRef<M> {
    if (!this.isOpen) throw new SystemStoppedError(`spawn ${options.name}`)
    const settings = toSettings(options, definition as never, parent.isGrouping)
    const id = this.#nextId()
    const { thread, isDedicated } = this.#place(options.thread, id)
    const erased = definition as unknown as ActorDefinition<Message, unknown>
    if (thread === this.thread) {
      const init = { id, name: options.name, args: options.args, settings, parent, restarts: 0 }
      const cell = new Cell(this, init, erased)
      this.#add(cell)
      parent.addChild(newChild(cell.ref, settings, undefined, false))
      this.turns.enqueue(cell)
      return cell.ref as ActorRef<Message> as ActorRef<M>
    }
    this.#definitions.verify(erased)
    const packed = this.outbound.pack(options.args)
    const spec: SpawnSpec = {
      id,
      name: options.name,
      moduleUrl: definition.moduleUrl,
      exportName: definition.exportName,
      args: packed.body,
      argsPatches: packed.patches,
      settings,
      parent: { thread: this.thread, uid: this.uid, id: parent.id },
      restarts: 0,
    }
    const peer = isDedicated ? this.#addPeer(thread) : this.peer(thread)
    if (peer.state === 'gone') throw new ThreadDownError(thread, 'it is not coming back')
    const ref = new RemoteRef(this, id, options.name, peer, compiledOf(definition.layout))
    const isSent = peer.state === 'up' && !isDedicated
    const isRegistered = !isSent || settings.directive === 'restart'
    parent.addChild(newChild(ref, settings, thread, isRegistered))
    if (isSent) peer.send({ op: OP.SPAWN, target: id, corr: 0, body: spec, patches: 0 })
    if (isRegistered)
      this.registrar!.register({ spec, thread, sentToUid: isSent ? peer.uid : 0, isDedicated })
    return ref as ActorRef<Message> as ActorRef<M>
  }

  /** Makes an actor that another thread spawned here. */
  acceptSpawn(spec: SpawnSpec): void {
    const { id, name, settings, parent, restarts } = spec
    if (this.cells.has(id)) return
    if (this.#isOver(parent)) {
      this.limbo.giveUp(id)
      return
    }
    const args = unpack(spec.args, spec.argsPatches, this.#patchReader)
    const cell = new Cell(this, { id, name, args, settings, parent, restarts }, undefined)
    this.#add(cell)
    this.limbo.deliver(cell)
    this.#definitions.find(spec.moduleUrl, spec.exportName, this.thread).then(
      definition => cell.define(definition),
      (error: RouterError) => cell.cannotStart(error),
    )
  }

  #add(cell: Cell): void {
    this.cells.set(cell.id, cell)
    this.counts.actors = this.cells.size
    this.flight.name(cell.id, cell.name)
  }

  /** True when a parent on another thread ended with the life of its thread. */
  #isOver(parent: SpawnSpec['parent']): boolean {
    const peer = this.peers.get(parent.thread)
    if (peer === undefined || peer.uid < parent.uid) return false
    return peer.uid > parent.uid || peer.state !== 'up'
  }

  /** A cell has ended: forget it, tell its parent. */
  ended(cell: Cell, ending: Ending): void {
    this.cells.delete(cell.id)
    this.counts.actors = this.cells.size
    this.flight.note('stopped', cell.id, '', cell.endReason === 'failed' ? 1 : 0)
    this.watches.noteEnding(cell)
    this.kinship.ended(cell, ending)
  }

  noteSlow(name: string): void {
    this.log.warn({ actor: name }, 'actor abandoned: it did not stop in time')
    if (this.slow.length < SLOW_MAX) this.slow.push(name)
  }

  #place(placement: SpawnOptions<unknown>['thread'], id: number): { thread: string; isDedicated: boolean } {
    if (this.isAlone || placement === undefined || placement === 'here') {
      return { thread: this.thread, isDedicated: false }
    }
    if (placement === 'dedicated') return { thread: `dedicated-${id.toString(36)}`, isDedicated: true }
    const thread = resolvePlacement(placement, this.pools, name => this.peers.get(name)?.state !== 'gone')
    const isKnown = thread === MAIN || thread === this.thread || this.peers.has(thread)
    if (!isKnown && !this.pools.some(pool => pool.threads.includes(thread))) {
      throw new UnknownThreadError(thread, 'the system has no such thread')
    }
    return { thread, isDedicated: false }
  }

  #nextId(): number {
    this.#idCount++
    return this.#lastId
  }

  get #lastId(): number {
    return this.uid * ID_SPAN + this.#idCount
  }

  // ── Refs ─────────────────────────────────────────────────────────────────────────────────────

  refTo({ thread, id, name, layout }: Omit<RefTarget, 'kind'>): AnyRef {
    if (thread !== this.thread) {
      const compiled = layout === undefined ? undefined : compileLayout(layout)
      return new RemoteRef(this, id, name, this.peer(thread), compiled)
    }
    const cell = this.cells.get(id)
    return cell === undefined ? new LocalRef(this, id, name, undefined) : cell.ref
  }

  // ── Asks ─────────────────────────────────────────────────────────────────────────────────────

  /** Asks the runtime of another thread about itself. */
  query(thread: string, query: RuntimeQuery, timeoutMs: number): Promise<unknown> {
    return new RemoteRef(this, 0, `runtime of ${thread}`, this.peer(thread), undefined).ask(query, {
      timeout: timeoutMs,
    })
  }

  // ── Peers ────────────────────────────────────────────────────────────────────────────────────

  /** The peer of a name; unknown ones are asked about. */
  peer(name: string): Peer {
    const known = this.peers.get(name)
    if (known !== undefined) return known
    const peer = this.#addPeer(name)
    this.registrar?.resolve(name)
    return peer
  }

  #addPeer(name: string): Peer {
    const peer = new Peer(name)
    this.peers.set(name, peer)
    return peer
  }

  /** Links this thread with a (new) life of another. `open` builds the link. */
  connect(
    name: string,
    uid: number,
    open: (handlers: LinkHandlers, previous: ThreadLink | undefined) => ThreadLink,
  ): void {
    const peer = this.peers.get(name) ?? this.#addPeer(name)
    // The end of the life before may not have been noticed yet.
    if (peer.state === 'up') this.peerLost(name, peer.uid)
    this.#uidMax = Math.max(this.#uidMax, uid)
    const handlers: LinkHandlers = {
      onFrame: frame => this.#take(peer, frame),
      onBatch: () => this.turns.runNow(),
      onClosed: () => this.#closed(peer, uid),
      onUnsendable: (frame, error) => this.outbound.unsendable(peer, frame, error),
      onUnreadable: error => {
        this.counts.deadLetters++
        this.log.error({ peer: name, error: describe(error) }, 'frames lost: they could not be read')
      },
    }
    this.flight.note('linkOpened', 0, name, uid)
    const link = open(handlers, peer.link)
    const waited = peer.state === 'down' ? [...peer.watches.keys()] : []
    peer.attach(uid, link, { op: OP.HELLO, target: this.#lastId, corr: uid, body: 0, patches: 0 })
    for (const id of waited) peer.send({ op: OP.WATCH, target: id, corr: 0, body: 0, patches: 0 })
    for (const listener of [...peer.listeners]) listener.onUp()
  }

  /** The thread's life `uid` is over. What it had posted is taken first. */
  peerLost(name: string, uid: number, reason: ThreadEndReason = 'threadExit'): void {
    const peer = this.peers.get(name)
    if (peer === undefined || peer.uid !== uid) return
    if (peer.state !== 'up') return
    peer.endReason = reason
    peer.link!.close()
  }

  /** The thread is not coming back: everything that hangs on it ends. */
  peerGone(name: string): void {
    const isPooled = this.pools.some(pool => pool.threads.includes(name))
    // A thread of a pool is kept as gone even when it was never heard of, so that no key goes there.
    const peer = this.peers.get(name) ?? (isPooled ? this.#addPeer(name) : undefined)
    if (peer === undefined) return
    if (peer.state === 'up') peer.link!.close()
    for (const listener of [...peer.listeners]) listener.onGone()
    const lostTells = peer.giveUp()
    if (lostTells > 0) {
      this.counts.deadLetters += lostTells
      this.log.warn({ peer: name, messages: lostTells }, 'messages lost: their thread is not coming back')
    }
    this.#failPeer(peer, 'unreachable', new ThreadDownError(name, 'it is not coming back'))
    this.kinship.giveUpChildrenOn(name, new ThreadDownError(name, 'it is not coming back'))
    // Refs keep the object; a new one would have to ask main again.
    if (!isPooled) this.peers.delete(name)
  }

  #closed(peer: Peer, uid: number): void {
    if (peer.uid !== uid || peer.state !== 'up') return
    peer.lose()
    this.flight.note('linkClosed', 0, peer.name, uid)
    const error = new ThreadDownError(peer.name, 'it has ended')
    this.#failPeer(peer, peer.endReason, error)
    this.kinship.endChildrenOn(peer, error)
    this.limbo.giveUpWhere(id => uidOf(id) === uid)
    this.kinship.stopChildrenOf(peer.name, uid)
    for (const listener of [...peer.listeners]) listener.onDown()
  }

  /** The tells to an actor that its thread, which is being replaced, had not taken; nobody else gets them. */
  takeBackTells(ref: RemoteRef): Message[] {
    const frames = ref.peer.state === 'down' ? (ref.peer.link?.takeBackTells?.(ref.id) ?? []) : []
    return frames.map(({ body, patches }) => unpack(body, patches, this.#patchReader) as Message)
  }

  #failPeer(peer: Peer, reason: TerminationReason, error: ThreadDownError): void {
    // A thread that hung may have gone on since, and taken what it had not.
    const untaken = reason === 'threadHung' ? undefined : peer.link?.untakenAsks?.()
    this.asks.threadLost(peer.name, error, untaken)
    for (const ask of peer.inboundAsks.all()) ask.release()
    peer.inboundAsks.clear()
    this.watches.threadLost(peer, reason, error)
  }

  // ── Frames ───────────────────────────────────────────────────────────────────────────────────

  #take(peer: Peer, frame: Frame): void {
    switch (frame.op) {
      case OP.TELL:
        this.#takeTell(frame)
        return
      case OP.ASK:
        this.#takeAsk(peer, frame)
        return
      case OP.REPLY:
        this.asks.get(frame.corr)?.answer(unpack(frame.body, frame.patches, this.#patchReader))
        return
      case OP.ASK_FAILED:
        this.asks.get(frame.corr)?.failRemotely(frame.body as AskFailure)
        return
      case OP.CANCEL:
        peer.inboundAsks.get(frame.corr)?.release()
        peer.inboundAsks.delete(frame.corr)
        return
      case OP.WATCH:
        this.watches.takeWatch(peer, frame.target)
        return
      case OP.UNWATCH:
        this.watches.takeUnwatch(peer, frame.target)
        return
      case OP.TERMINATED:
        this.watches.takeTerminated(peer, frame.target, frame.body as Ending)
        return
      case OP.HELLO:
        peer.lastSpawnId = frame.target
        this.#giveUpAwaited(peer)
        return
      case OP.BEAT:
        if (this.guardian === undefined)
          peer.send({ op: OP.BEAT, target: 0, corr: frame.corr, body: 0, patches: 0 })
        else this.onControl?.(peer, frame)
        return
      case OP.SPAWN:
        if (uidOf(frame.target) === peer.uid) peer.lastSpawnId = frame.target
        this.acceptSpawn(frame.body as SpawnSpec)
        return
      case OP.STOP:
        this.kinship.takeStop(frame.target, frame.body === true)
        return
      case OP.CHILD_ENDED:
        this.kinship.takeEnded(frame.target, frame.corr, frame.body as Ending)
        return
      case OP.HALT:
        this.kinship.takeHalt(frame.target, frame.body as HaltRequest)
        return
      case OP.HALTED:
        this.kinship.takeHalted(peer, frame.target, frame.corr, frame.body as Halt)
        return
      case OP.RELEASE:
        this.kinship.takeRelease(frame.target)
        return
      default:
        this.onControl?.(peer, frame)
    }
  }

  #takeTell(frame: Frame): void {
    const message = unpack(frame.body, frame.patches, this.#patchReader) as Message
    const cell = this.cells.get(frame.target)
    if (cell === undefined) this.tellMissing(frame.target, `#${frame.target}`, message)
    else if (this.isShedding && !cell.isControl(message))
      this.deadLetter(cell.name, message.type, 'shed', cell.id)
    else this.#deliverTell(cell, message)
  }

  #deliverTell(cell: Cell, message: Message): void {
    this.#makeRoom(cell)
    if (cell.enqueue(message) === 'full') this.deadLetter(cell.name, message.type, 'overflow')
  }

  /** Takes a message for an actor of this thread that is not here: it may be on its way. */
  tellMissing(id: number, name: string, message: Message): TellStatus {
    const held: Held = {
      deliver: cell => this.#deliverTell(cell, message),
      giveUp: () => this.deadLetter(name, message.type, 'dead'),
    }
    if (this.isAwaited(id) && this.limbo.hold(id, held)) return 'ok'
    held.giveUp()
    return 'dead'
  }

  #takeAsk(peer: Peer, frame: Frame): void {
    const { target, corr } = frame
    const ask = new InboundAsk(this.outbound, peer.name, corr)
    peer.inboundAsks.add(ask)
    const message = unpack(frame.body, frame.patches, this.#patchReader) as Message
    if (target === 0) {
      this.#answerQuery(message as RuntimeQuery, ask)
      return
    }
    const deliver = (to: Cell): void => {
      ask.layout = to.layout
      ask.variant = ask.layout?.variantOf(message.type)
      this.#makeRoom(to)
      to.enqueueInbound(message, ask)
    }
    const cell = this.cells.get(target)
    if (this.isShedding && cell?.isControl(message) === false) {
      this.deadLetter(cell.name, message.type, 'shed', cell.id)
      ask.fail('refused', new Error(`the heap of thread ${this.thread}`))
      return
    }
    if (cell === undefined) this.askMissing(target, `#${target}`, message.type, ask, deliver)
    else deliver(cell)
  }

  /** Takes an ask of an actor of this thread that is not here: it may be on its way. */
  askMissing(id: number, name: string, type: string, ask: OpenAsk, deliver: (cell: Cell) => void): void {
    const held: Held = {
      deliver(cell) {
        if (!ask.isSettled) deliver(cell)
      },
      giveUp: () => {
        this.deadLetter(name, type, 'dead')
        ask.fail('terminated')
      },
    }
    if (!this.isAwaited(id) || !this.limbo.hold(id, held)) held.giveUp()
  }

  /** True when an actor that is not here may yet come: its spawner has not said otherwise. */
  isAwaited(id: number): boolean {
    const uid = uidOf(id)
    if (uid === this.uid) return false
    for (const spawner of this.peers.values()) {
      if (spawner.uid === uid)
        return spawner.state === 'up' && (spawner.hasSpawnsAtMain || id > spawner.lastSpawnId)
    }
    return uid > this.#uidMax
  }

  /** This life has just begun: spawns that thread `name` had for earlier ones may come through main. */
  awaitSpawns(name: string): void {
    const peer = this.peers.get(name)
    if (peer?.state === 'up') peer.hasSpawnsAtMain = true
  }

  /** Main's word that no more of them come. */
  allSpawned(name: string, uid: number): void {
    const peer = this.peers.get(name)
    if (peer?.uid !== uid) return
    peer.hasSpawnsAtMain = false
    this.#giveUpAwaited(peer)
  }

  /** What waits for actors that were spawned over there, and are not on their way any more. */
  #giveUpAwaited({ uid, lastSpawnId, hasSpawnsAtMain }: Peer): void {
    if (!hasSpawnsAtMain) this.limbo.giveUpWhere(id => uidOf(id) === uid && id <= lastSpawnId)
  }

  /** A batch of frames may hold more than a mailbox: an actor that can run empties it first. */
  #makeRoom(cell: Cell): void {
    if (cell.isFullButRunnable) cell.work()
  }

  // ── Facilities ───────────────────────────────────────────────────────────────────────────────

  /** `id`: of the actor, when it is or was on this thread. */
  deadLetter(actor: string, type: string, reason: DeadLetterReason, id = 0, why?: string): void {
    this.counts.deadLetter(reason)
    // What coalescing is there for is no event.
    if (reason !== 'coalesced') this.flight.note('deadLetter', id, type, DEAD_LETTER_REASONS.indexOf(reason))
    this.#deadLetters.note(actor, type, reason, why)
  }

  /** Provides a value for a capability, unless the creator of the system did. */
  provide<T>(capability: Capability<T>, value: T): void {
    this.#capabilities.provide(capability.name, value)
  }

  use<T>(capability: Capability<T>): T {
    return this.#capabilities.use(capability)
  }

  #answerQuery(query: RuntimeQuery, ask: InboundAsk): void {
    if (query.type === 'stats') ask.answer(this.stats())
    else if (query.type === 'describe') ask.answer(this.describe())
    else {
      this.dispose(query.limitMs).then(
        disposal => ask.answer(disposal),
        (error: unknown) => ask.fail('failed', error),
      )
    }
  }

  stats(): RuntimeStats {
    const { sent, handled, deadLetters, deadLettersByReason, refused, restarts, asksTimedOut } = this.counts
    return {
      sent,
      handled,
      deadLetters,
      deadLettersByReason,
      refused,
      restarts,
      asksTimedOut,
      actors: this.cells.size,
      asksPending: this.counts.asksPending,
    }
  }

  describe(): FlatStatus[] {
    return [...this.cells.values()].map(cell => ({
      ...cell.status(),
      thread: this.thread,
      id: cell.id,
      parentId: cell.parent?.id ?? 0,
    }))
  }

  /** Ends what is left here and releases the capabilities, which may take them `limitMs`. */
  async dispose(limitMs: number): Promise<Disposal> {
    this.isOpen = false
    for (const cell of [...this.cells.values()]) cell.abandon()
    const stuck = await this.#capabilities.dispose(limitMs)
    return { slow: [...this.slow, ...stuck], droppedMessages: this.counts.dropped }
  }

  /** Closes every link and fails every ask that is left. */
  close(): void {
    for (const peer of [...this.peers.values()]) peer.link?.close()
    this.asks.close()
    this.deadlines.clear()
  }
}

const guardianDefinition: ActorDefinition<Message, unknown> = {
  moduleUrl: '',
  exportName: '',
  reentrant: false,
  setup: () => ({}),
}

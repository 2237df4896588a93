/**
 * Runtime: the actors of one thread. It keeps and creates the cells, and decides where others are created. It
 * composes the rest from parts that own their state:
 *
 *   turns              which cells have work, and when they do it
 *   asks, limbo        asks that wait for an answer; messages for an actor that is on its way here
 *   peers, lives       the other threads; the consequences of the end of one of their lives
 *   watches, kinship   watchers of an end; messages between parents and children
 *   outbound, inbound  tells, asks and answers between threads
 *
 * No part knows the runtime: each declares, as an interface beside it, the few things that it needs from its
 * thread. The runtime neither makes threads nor knows how links are built.
 */

import type { Clock, CodedError, Log, Random } from '@homing/base'
import type { InboundAsk } from '../asks/asks.ts'
import { PendingAsks } from '../asks/pending-asks.ts'
import { Cell } from '../cell/cell.ts'
import { CellTable } from '../cell/cell-table.ts'
import type { CellHost, EndedCell } from '../cell/host.ts'
import { type Ending, type LocalParent, newChild } from '../cell/kin.ts'
import { LocalRef } from '../cell/local-ref.ts'
import type { Ref } from '../cell/ref.ts'
import { Turns } from '../cell/turns.ts'
import { isDefinition } from '../contract/define.ts'
import { ROOT_SETTINGS, shown, type ThreadBounds, toSettings } from '../contract/settings.ts'
import type {
  ActorDefinition,
  ActorRef,
  ActorStatus,
  Capability,
  Provided,
  SpawnOptions,
  ThreadPlacement,
} from '../contract/types.ts'
import { OP, type RuntimeQuery, type SpawnSpec } from '../links/frames.ts'
import { MAIN } from '../links/life.ts'
import type { Frame, LinkedThread } from '../links/link.ts'
import type { Peer } from '../links/peer.ts'
import { Counts, type HeapFigures } from '../observe/counts.ts'
import { DeadLetters } from '../observe/dead-letters.ts'
import { FlightRecorder } from '../observe/flight.ts'
import { HeapGauge } from '../observe/heap-gauge.ts'
import { SlowActors } from '../observe/slow-actors.ts'
import { ThreadMemory } from '../observe/thread-memory.ts'
import type { RefTarget } from '../packing/pack.ts'
import type { DeadLetterCounts } from '../values/dead-letters.ts'
import { Deadlines } from '../values/deadlines.ts'
import { SystemStoppedError, ThreadDownError, UnknownThreadError } from '../values/errors.ts'
import { ID_SPAN } from '../values/ids.ts'
import type { Message } from '../values/message.ts'
import type { PastLife } from '../values/thread-end.ts'
import { Capabilities } from './capabilities.ts'
import { type DefinitionSource, moduleDefinitions } from './definitions.ts'
import { Inbound } from './inbound.ts'
import { ThreadKinship } from './kinship.ts'
import { Limbo } from './limbo.ts'
import { Outbound } from './outbound.ts'
import { PeerLives } from './peer-lives.ts'
import { Peers } from './peers.ts'
import { boundsOf, checkedPlacement, type PoolMap, resolvePlacement } from './placement.ts'
import type { Places } from './places.ts'
import type { Registrar } from './registrar.ts'
import { RemoteRef } from './remote-ref.ts'
import { Watches } from './watches.ts'

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
  /** Where actors would live that are on this thread because it is alone; default: all in one place. */
  readonly places?: Places | undefined
  /** Plans a call of `turns.take`, instead of microtasks and immediates: for simulations. */
  readonly planTurn?: ((runtime: Runtime) => void) | undefined
  /** Default: exports of modules. */
  readonly definitions?: DefinitionSource | undefined
  /** What earlier lives of the thread wrote about themselves, to go on with; default: new memory. */
  readonly memory?: ThreadMemory | undefined
  /** How the lives before this one ended, oldest first: the latest of them. */
  readonly pastLives?: readonly PastLife[]
  /** The heap of the thread; default: as V8 says. */
  readonly heap?: (() => HeapFigures) | undefined
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
  readonly undrained?: readonly string[]
}

export class Runtime implements CellHost, LinkedThread {
  readonly thread: string
  readonly uid: number
  readonly pools: PoolMap
  readonly clock: Clock
  readonly random: Random
  readonly log: Log
  readonly deadlines: Deadlines
  readonly cells = new CellTable()
  readonly peers: Peers
  readonly lives: PeerLives
  /** What this thread says about itself, and every life of it before. */
  readonly memory: ThreadMemory
  readonly pastLives: readonly PastLife[]
  readonly counts: Counts
  readonly flight: FlightRecorder
  readonly heap: HeapGauge
  readonly deadLetters: DeadLetters
  readonly slowActors: SlowActors
  readonly undrained: SlowActors
  readonly turns: Turns
  readonly asks: PendingAsks
  readonly outbound: Outbound
  readonly inbound: Inbound
  readonly watches: Watches
  readonly kinship: ThreadKinship
  readonly limbo: Limbo
  /** Set once, right after construction. */
  registrar: Registrar | undefined = undefined
  /** Takes the frames that only main or only a thread understands. */
  onControl: ((peer: Peer, frame: Frame) => void) | undefined = undefined
  /** False once the system shuts down: nothing is spawned any more. */
  isOpen = true

  readonly #capabilities: Capabilities
  readonly #isAlone: boolean
  readonly #places: Places | undefined
  readonly #definitions: DefinitionSource
  #idCount = 0

  constructor(options: RuntimeOptions) {
    this.thread = options.thread
    this.uid = options.uid
    this.pools = options.pools
    this.clock = options.clock
    this.random = options.random
    this.log = options.log
    this.#isAlone = options.isAlone
    this.#places = options.places
    this.#definitions = options.definitions ?? moduleDefinitions
    this.memory = options.memory ?? new ThreadMemory()
    this.memory.begin(options.uid)
    this.pastLives = options.pastLives ?? []
    this.counts = new Counts(this.memory)
    this.counts.begin(options.uid)
    this.flight = new FlightRecorder(this.memory, options.clock)
    this.flight.note('threadStarted', 0, '', options.uid)
    this.heap = new HeapGauge(this.counts, this.flight, options.heap)
    this.deadLetters = new DeadLetters(this.counts, this.flight, options.clock, options.log)
    this.slowActors = new SlowActors(options.clock, options.log)
    this.undrained = new SlowActors(options.clock, options.log, 'actor stopped before it had drained')
    const { planTurn } = options
    this.turns = new Turns(this, planTurn === undefined ? undefined : () => planTurn(this))
    this.deadlines = new Deadlines(options.clock)
    this.asks = new PendingAsks(this)
    this.#capabilities = new Capabilities(options, options.provide)
    // Each part declares the little that it needs of this thread, and reads what is made after it only when
    // it is called.
    this.limbo = new Limbo(this.deadlines)
    this.peers = new Peers(this)
    this.watches = new Watches(this)
    this.kinship = new ThreadKinship(this)
    this.outbound = new Outbound(this)
    this.inbound = new Inbound(this)
    this.lives = new PeerLives(this)
    if (options.thread === MAIN) {
      const init = {
        id: 0,
        name: 'root',
        args: undefined,
        settings: ROOT_SETTINGS,
        parent: undefined,
        restartAgesMs: [],
      }
      this.cells.root = new Cell(this, init, rootDefinition)
      this.turns.enqueue(this.cells.root)
    }
  }

  /** The parent of all top-level actors; on main only. */
  get root(): Cell | undefined {
    return this.cells.root
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
    parent: LocalParent,
    definition: ActorDefinition<M, A>,
    options: SpawnOptions<A>,
  ): ActorRef<M> {
    if (!isDefinition(definition)) {
      throw new RangeError(`cannot spawn ${shown(definition)}: use what defineActor has made`)
    }
    if (!this.isOpen) throw new SystemStoppedError(`spawn ${options?.name}`)
    const settings = toSettings(options, definition as never)
    const id = this.#nextId()
    const { thread, bounds } = this.#place(options.thread, id)
    const isDedicated = bounds !== undefined
    const erased = definition as unknown as ActorDefinition<Message, unknown>
    if (thread === this.thread) {
      const places = this.#places
      const args =
        places === undefined ? options.args : places.enter(id, parent.id, options.thread, options.args)
      const init = { id, name: options.name, args, settings, parent, restartAgesMs: [] }
      const cell = new Cell(this, init, erased)
      this.#add(cell)
      const ref = places === undefined ? cell.ref : places.refFor(cell.ref, parent.id)
      parent.addChild(newChild(ref, settings, undefined, false, false))
      this.turns.enqueue(cell)
      return ref as ActorRef<Message> as ActorRef<M>
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
      restartAgesMs: [],
    }
    const peer = isDedicated ? this.peers.add(thread) : this.peers.to(thread)
    if (peer.state === 'gone') throw new ThreadDownError(thread, 'it is not coming back')
    const ref = new RemoteRef(this, id, options.name, peer, definition.control)
    const isSent = peer.state === 'up' && !isDedicated
    const isRegistered = !isSent || settings.directive === 'restart'
    parent.addChild(newChild(ref, settings, thread, isRegistered, isDedicated))
    if (isSent) peer.send({ op: OP.SPAWN, target: id, corr: 0, body: spec, patches: 0 })
    if (isRegistered) this.registrar!.register({ spec, thread, sentToUid: isSent ? peer.uid : 0, bounds })
    return ref as ActorRef<Message> as ActorRef<M>
  }

  /** Makes an actor that another thread spawned here. */
  acceptSpawn(spec: SpawnSpec): void {
    const { id, name, settings, parent, restartAgesMs } = spec
    if (this.cells.has(id)) return
    if (this.peers.isOver(parent)) {
      this.limbo.giveUp(id)
      return
    }
    const args = this.inbound.unpack(spec.args, spec.argsPatches)
    const cell = new Cell(this, { id, name, args, settings, parent, restartAgesMs }, undefined)
    this.#add(cell)
    this.limbo.deliver(cell)
    this.#definitions.find(spec.moduleUrl, spec.exportName, this.thread).then(
      definition => cell.define(definition),
      (error: CodedError) => cell.cannotStart(error),
    )
  }

  #add(cell: Cell): void {
    this.cells.set(cell.id, cell)
    this.counts.actors = this.cells.size
    this.flight.name(cell.id, cell.name)
  }

  /** A cell has ended: forget it, tell its parent. */
  ended(cell: EndedCell, ending: Ending): void {
    this.cells.delete(cell.id)
    this.counts.actors = this.cells.size
    this.flight.note('stopped', cell.id, '', cell.endReason === 'failed' ? 1 : 0)
    this.watches.noteEnding(cell)
    this.#places?.leave(cell.id)
    this.kinship.ended(cell, ending)
  }

  /** `bounds`: of a thread of its own; undefined where it is none. */
  #place(
    placement: SpawnOptions<unknown>['thread'],
    id: number,
  ): { thread: string; bounds: ThreadBounds | undefined } {
    if (placement !== undefined && placement !== 'here') checkedPlacement(placement)
    if (this.#isAlone || placement === undefined || placement === 'here') {
      return { thread: this.thread, bounds: undefined }
    }
    const bounds = boundsOf(placement)
    if (bounds !== undefined) return { thread: `dedicated-${id.toString(36)}`, bounds }
    const shared = placement as Exclude<ThreadPlacement, { readonly dedicated: unknown }>
    const thread = resolvePlacement(shared, this.pools, name => this.peers.get(name)?.state !== 'gone')
    const isKnown = thread === MAIN || thread === this.thread || this.peers.get(thread) !== undefined
    if (!isKnown && !this.pools.some(pool => pool.threads.includes(thread))) {
      throw new UnknownThreadError(thread, 'the system has no such thread')
    }
    return { thread, bounds: undefined }
  }

  #nextId(): number {
    this.#idCount++
    return this.lastId
  }

  /** The id of the actor that was spawned last on this thread. */
  get lastId(): number {
    return this.uid * ID_SPAN + this.#idCount
  }

  refTo({ thread, id, name, control }: Omit<RefTarget, 'kind'>): Ref {
    if (thread === this.thread) return this.localRef(id, name)
    const overtaking = control === undefined ? undefined : new Set(control)
    return new RemoteRef(this, id, name, this.peers.to(thread), overtaking)
  }

  localRef(id: number, name: string): LocalRef {
    return this.cells.get(id)?.ref ?? new LocalRef(this, id, name, undefined)
  }

  // ── What its parts tell others ───────────────────────────────────────────────────────────────

  cancelAsk(thread: string, corr: number): void {
    this.#places?.cancelAsk(corr)
    this.peers.get(thread)?.send({ op: OP.CANCEL, target: 0, corr, body: 0, patches: 0 })
  }

  resolve(name: string): void {
    this.registrar?.resolve(name)
  }

  // ── Facilities ───────────────────────────────────────────────────────────────────────────────

  /** Provides a value for a capability, unless the creator of the system did. */
  provide<T>(capability: Capability<T>, value: T): void {
    this.#capabilities.provide(capability.name, value)
  }

  use<T>(capability: Capability<T>): T {
    return this.#capabilities.use(capability)
  }

  // ── What it says about itself ────────────────────────────────────────────────────────────────

  /** Asks the runtime of another thread about itself. */
  query(thread: string, query: RuntimeQuery, timeoutMs: number): Promise<unknown> {
    const ref = new RemoteRef(this, 0, `runtime of ${thread}`, this.peers.to(thread), undefined)
    return ref.ask(query, { timeout: timeoutMs })
  }

  /**
   * Calls `done` once all has come that other threads had sent here; waits for none of them longer than
   * `limitMs`.
   */
  whenCaughtUp(limitMs: number, done: () => void): void {
    let awaitedCount = 1
    const answered = (): void => {
      awaitedCount--
      if (awaitedCount === 0) done()
    }
    for (const peer of this.peers.values()) {
      if (peer.state !== 'up') continue
      awaitedCount++
      this.query(peer.name, { type: 'fence' }, limitMs).then(answered, answered)
    }
    answered()
  }

  /** Answers what another thread asks about this one. */
  answer(query: RuntimeQuery, ask: InboundAsk): void {
    if (query.type === 'stats') ask.answer(this.stats())
    else if (query.type === 'describe') ask.answer(this.describe())
    else if (query.type === 'fence') ask.answer(undefined)
    else {
      this.dispose(query.limitMs, query.reportedMs).then(
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

  /**
   * Ends what is left here and releases the capabilities, which may take them `limitMs`. Reports what was
   * abandoned in the last `reportedMs` and now.
   */
  async dispose(limitMs: number, reportedMs: number): Promise<Disposal> {
    const sinceMs = this.clock.nowMs() - reportedMs
    this.isOpen = false
    for (const cell of [...this.cells.values()]) cell.abandon()
    const stuck = await this.#capabilities.dispose(limitMs)
    return { slow: [...this.slowActors.since(sinceMs), ...stuck], undrained: this.undrained.since(sinceMs) }
  }

  /** Closes every link and fails every ask that is left. */
  close(): void {
    this.peers.close()
    this.asks.close()
    this.deadlines.clear()
  }
}

const rootDefinition: ActorDefinition<Message, unknown> = {
  moduleUrl: '',
  exportName: '',
  reentrant: false,
  setup: () => ({}),
}

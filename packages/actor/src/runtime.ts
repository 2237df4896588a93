/**
 * Runtime: the actors of one thread. It keeps the cells, makes them and says where others are made; the rest it puts
 * together from parts that own their state:
 *
 *   turns              which cells have work, and when they do it
 *   outbound, inbound  what is told, asked and answered between threads
 *   asks, limbo        asks that wait for their answer; what waits for an actor that is on its way here
 *   watches, kinship   who is told of an end; what parents and children tell each other
 *   peers              the other threads, and what is lost with one
 *
 * It neither makes threads nor knows how links are built.
 */

import type { Clock, Random } from '@homing/clock'
import type { RouterError } from '@homing/errors'
import type { Log } from '@homing/log'
import type { InboundAsk } from './asks.ts'
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
import { type Ending, OP, type Registration, type RuntimeQuery, type SpawnSpec } from './frames.ts'
import { HeapGauge, type HeapSize } from './heap-gauge.ts'
import { ID_SPAN } from './ids.ts'
import { Inbound } from './inbound.ts'
import { Kinship } from './kinship.ts'
import { compiledOf, compileLayout } from './layout/compile.ts'
import { Limbo } from './limbo.ts'
import { LineLimit } from './line-limit.ts'
import type { Frame } from './link.ts'
import { Counts } from './observe/counts.ts'
import { FlightRecorder } from './observe/flight.ts'
import { ThreadMemory } from './observe/thread-memory.ts'
import { Outbound } from './outbound.ts'
import type { RefTarget } from './pack.ts'
import type { Peer } from './peer.ts'
import { Peers } from './peers.ts'
import { PendingAsks } from './pending-asks.ts'
import { type PoolMap, resolvePlacement } from './placement.ts'
import { type AnyRef, LocalRef, RemoteRef } from './refs.ts'
import { GUARDIAN_SETTINGS, toSettings } from './settings.ts'
import { Turns } from './turns.ts'
import type {
  ActorDefinition,
  ActorRef,
  ActorStatus,
  Capability,
  Message,
  Provided,
  SpawnOptions,
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
  readonly peers: Peers
  /** What this thread says about itself, and every life of it before. */
  readonly memory: ThreadMemory
  readonly counts: Counts
  readonly flight: FlightRecorder
  readonly heap: HeapGauge
  readonly turns: Turns
  readonly asks: PendingAsks
  readonly outbound: Outbound
  readonly inbound: Inbound
  readonly watches: Watches
  readonly kinship: Kinship
  readonly limbo: Limbo
  /** The parent of all top-level actors; on main only. */
  readonly guardian: Cell | undefined
  /** Set once, right after construction. */
  registrar: Registrar | undefined = undefined
  /** Takes the frames that only main or only a thread understands. */
  onControl: ((peer: Peer, frame: Frame) => void) | undefined = undefined
  /** False once the system shuts down: nothing is spawned any more. */
  isOpen = true

  readonly #capabilities: Capabilities
  readonly #deadLetters: DeadLetterLog
  /** Actors that were abandoned, the last SLOW_MAX. */
  readonly #slow: { readonly name: string; readonly atMs: number }[] = []
  readonly #slowLines: LineLimit
  readonly isAlone: boolean
  readonly #definitions: DefinitionSource
  #idCount = 0

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
    this.inbound = new Inbound(this)
    this.#capabilities = new Capabilities(options, options.provide)
    this.#deadLetters = new DeadLetterLog(options.clock, options.log)
    this.#slowLines = new LineLimit(options.clock)
    this.limbo = new Limbo(this.deadlines)
    this.peers = new Peers(this)
    this.watches = new Watches(this)
    this.kinship = new Kinship(this)
    if (options.thread === MAIN) {
      const init = {
        id: 0,
        name: 'guardian',
        args: undefined,
        settings: GUARDIAN_SETTINGS,
        parent: undefined,
        restartAgesMs: [],
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
      const init = { id, name: options.name, args: options.args, settings, parent, restartAgesMs: [] }
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
      restartAgesMs: [],
    }
    const peer = isDedicated ? this.peers.add(thread) : this.peers.to(thread)
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
      (error: RouterError) => cell.cannotStart(error),
    )
  }

  #add(cell: Cell): void {
    this.cells.set(cell.id, cell)
    this.counts.actors = this.cells.size
    this.flight.name(cell.id, cell.name)
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
    const { leftOut, isAllowed } = this.#slowLines.next()
    if (leftOut > 0) this.log.warn({ actors: leftOut }, 'more actors abandoned, not shown')
    if (isAllowed) this.log.warn({ actor: name }, 'actor abandoned: it did not stop in time')
    if (this.#slow.length >= SLOW_MAX) this.#slow.shift()
    this.#slow.push({ name, atMs: this.clock.nowMs() })
  }

  #place(placement: SpawnOptions<unknown>['thread'], id: number): { thread: string; isDedicated: boolean } {
    if (this.isAlone || placement === undefined || placement === 'here') {
      return { thread: this.thread, isDedicated: false }
    }
    if (placement === 'dedicated') return { thread: `dedicated-${id.toString(36)}`, isDedicated: true }
    const thread = resolvePlacement(placement, this.pools, name => this.peers.get(name)?.state !== 'gone')
    const isKnown = thread === MAIN || thread === this.thread || this.peers.get(thread) !== undefined
    if (!isKnown && !this.pools.some(pool => pool.threads.includes(thread))) {
      throw new UnknownThreadError(thread, 'the system has no such thread')
    }
    return { thread, isDedicated: false }
  }

  #nextId(): number {
    this.#idCount++
    return this.lastId
  }

  /** The id of the actor that was spawned last on this thread. */
  get lastId(): number {
    return this.uid * ID_SPAN + this.#idCount
  }

  refTo({ thread, id, name, layout }: Omit<RefTarget, 'kind'>): AnyRef {
    if (thread !== this.thread) {
      const compiled = layout === undefined ? undefined : compileLayout(layout)
      return new RemoteRef(this, id, name, this.peers.to(thread), compiled)
    }
    const cell = this.cells.get(id)
    return cell === undefined ? new LocalRef(this, id, name, undefined) : cell.ref
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

  // ── What it says about itself ────────────────────────────────────────────────────────────────

  /** Asks the runtime of another thread about itself. */
  query(thread: string, query: RuntimeQuery, timeoutMs: number): Promise<unknown> {
    return new RemoteRef(this, 0, `runtime of ${thread}`, this.peers.to(thread), undefined).ask(query, {
      timeout: timeoutMs,
    })
  }

  /** Answers what another thread asks about this one. */
  answer(query: RuntimeQuery, ask: InboundAsk): void {
    if (query.type === 'stats') ask.answer(this.stats())
    else if (query.type === 'describe') ask.answer(this.describe())
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
   * Ends what is left here and releases the capabilities, which may take them `limitMs`. Reports what was abandoned in
   * the last `reportedMs` and now.
   */
  async dispose(limitMs: number, reportedMs: number): Promise<Disposal> {
    const sinceMs = this.clock.nowMs() - reportedMs
    this.isOpen = false
    for (const cell of [...this.cells.values()]) cell.abandon()
    const stuck = await this.#capabilities.dispose(limitMs)
    const slow = this.#slow.filter(({ atMs }) => atMs >= sinceMs).map(({ name }) => name)
    return { slow: [...slow, ...stuck] }
  }

  /** Closes every link and fails every ask that is left. */
  close(): void {
    this.peers.close()
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

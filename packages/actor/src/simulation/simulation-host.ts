/**
 * SimulationHost: threads are runtimes of one real thread, linked by simulated links. The registrar of
 * threads on main (threads.ts) is the very same as over workers.
 */

import type { Log, Random } from '@homing/base'
import type { Provided } from '../contract/types.ts'
import { OP, type PeerAddress } from '../links/frames.ts'
import { AWAY, type Life, MAIN } from '../links/life.ts'
import { type Frame, LINK_FRAMES_MAX } from '../links/link.ts'
import type { DefinitionSource } from '../runtime/definitions.ts'
import type { Runtime } from '../runtime/runtime.ts'
import { startThread, type ThreadInit } from '../threads/thread.ts'
import type { HostedThread, LifeEvents, ThreadHost } from '../threads/thread-host.ts'
import { copyMessage } from './copy.ts'
import { SimulatedFailure, SimulationError } from './errors.ts'
import {
  CRASH_POINTS,
  type CrashPoint,
  type FaultName,
  type LossCause,
  type SimulatedFaults,
} from './faults.ts'
import { addressOf, type LinkSurroundings, Pipe, SimulatedLink, Wire } from './simulated-link.ts'
import { type ThreadEvents, VirtualThread } from './virtual-thread.ts'
import { drawInterval, type World } from './world.ts'

/** A new life takes so long when a spare is ready. */
const VIRTUAL_START_MS_MAX = 3
/** How long after a death others hear of it. */
const VIRTUAL_CLOSE_MS_MAX = 2
const SLOW_START_MS_MAX_DEFAULT = 2000
const HANG_MS_MAX_DEFAULT = 200
const DELAY_MS_MAX_DEFAULT = 20
const PIPE_FRAMES_DEFAULT = 1024
const SLOWNESS_MAX = 0.9

/** What a simulation tells about what happens between its threads; for checkers. */
export interface SimulationObserver {
  /** A tell, ask or answer left for another thread, or is kept until it can. */
  sent?(frame: Frame, from: string, to: string): void
  /** It was handed to the runtime of `thread`, in its life `uid`. */
  taken?(frame: Frame, thread: string, uid: number): void
  lost?(frame: Frame, cause: LossCause, from: string, to: string): void
  /** A thread is over: crashed, terminated, or failed. */
  ended?(thread: string, uid: number, why: string): void
  started?(thread: string, uid: number): void
  fault?(name: FaultName, what: string): void
}

export interface SimulationHostOptions {
  readonly faults: SimulatedFaults
  readonly observer: SimulationObserver
  readonly log: (thread: string) => Log
  readonly provide: (thread: VirtualThread) => readonly Provided[]
  readonly definitions: DefinitionSource
}

export class SimulationHost implements ThreadHost, ThreadEvents {
  readonly world: World
  readonly main: VirtualThread
  /** Living threads by name; main included. */
  readonly threads = new Map<string, VirtualThread>()
  readonly #options: SimulationHostOptions
  #faults: SimulatedFaults
  /** For faults only: what they roll changes nothing else. */
  readonly #random: Random
  readonly #pipes = new Map<number, Pipe>()
  /** By writing life and reading thread. */
  readonly #pipeIds = new Map<string, number>()
  readonly #wires = new Map<number, Wire>()
  readonly #lives = new Map<number, VirtualThread>()
  readonly #events = new Map<number, LifeEvents>()
  #idCount = 0
  #crashCount = 0
  #hangCount = 0
  #nextCrash: number
  #nextHang: number
  readonly #links: LinkSurroundings
  /** Links that were written in this step. */
  readonly #written: SimulatedLink[] = []
  /** Threads whose next life dies as it starts. */
  readonly #doomedStarts = new Set<string>()

  constructor(world: World, options: SimulationHostOptions) {
    this.world = world
    this.#options = options
    this.#faults = options.faults
    this.#random = world.generator(1)
    this.main = this.#newThread(MAIN, 1)
    this.#nextCrash = this.#draw(options.faults.crash)
    this.#nextHang = this.#draw(options.faults.hang)
    const { faults, observer } = options
    this.#links = {
      pipeFrames: faults.linkFrames ?? PIPE_FRAMES_DEFAULT,
      spillFrames: faults.spillFrames ?? LINK_FRAMES_MAX,
      isEager: () => {
        const { eager = 0 } = this.#faults
        return eager > 0 && this.#random.next() < eager
      },
      delayMs: pipe => {
        const { delay = 0, delayMsMax = DELAY_MS_MAX_DEFAULT } = this.#faults
        if (delay === 0 || this.#random.next() >= delay) return 0
        observer.fault?.('delay', `${pipe.writer} to ${pipe.reader}`)
        return this.#random.next() * delayMsMax
      },
      fateOf: (pipe, frame) => {
        const { drop = 0, duplicate = 0 } = this.#faults
        if (drop === 0 && duplicate === 0) return 'deliver'
        const roll = this.#random.next()
        if (roll < drop) {
          observer.fault?.('drop', `${pipe.writer} to ${pipe.reader}`)
          return 'drop'
        }
        if (roll >= drop + duplicate || (frame.op === OP.ASK && frame.target === 0)) return 'deliver'
        observer.fault?.('duplicate', `${pipe.writer} to ${pipe.reader}`)
        return 'duplicate'
      },
      wrote: link => void this.#written.push(link),
      sent: (pipe, frame) => {
        if (frame.op <= OP.REPLY) observer.sent?.(frame, pipe.writer, pipe.reader)
      },
      taken: (_pipe, frame, thread) => observer.taken?.(frame, thread.name, thread.uid),
      lost: (pipe, frame, cause) => {
        if (frame.op <= OP.REPLY) observer.lost?.(frame, cause, pipe.writer, pipe.reader)
      },
      discarded: ({ id }) => void this.#pipes.delete(id),
    }
    world.onStepEnd = () => this.#endStep()
  }

  // ── ThreadHost ───────────────────────────────────────────────────────────────────────────────

  start(given: ThreadInit, events: LifeEvents): HostedThread {
    const init = copyMessage(given) as ThreadInit
    const thread = this.#newThread(init.thread, init.uid)
    this.#events.set(init.uid, events)
    const { spareNotReady = 0, slowStartMsMax = SLOW_START_MS_MAX_DEFAULT } = this.#faults
    const isSlow = spareNotReady > 0 && this.#random.next() < spareNotReady
    if (isSlow) this.#options.observer.fault?.('spareNotReady', thread.name)
    const delayMs = this.#random.next() * (isSlow ? slowStartMsMax : VIRTUAL_START_MS_MAX)
    this.world.timer(thread, delayMs, () => this.#run(thread, init))
    return {
      terminate: () => this.#terminate(thread),
      abandon: () => {},
    }
  }

  #run(thread: VirtualThread, init: ThreadInit): void {
    this.#options.observer.started?.(thread.name, thread.uid)
    thread.runtime = startThread(init, {
      clock: thread.clock,
      random: thread.random,
      log: this.#options.log(thread.name),
      provide: this.#options.provide(thread),
      open: (runtime, address) => this.open(runtime, address),
      planTurn: thread.planTurn,
      heap: thread.heap,
      definitions: this.#options.definitions,
    })
    if (this.#doomedStarts.delete(thread.name)) thread.doom = 'atStart'
    thread.diesAt('atStart')
  }

  link(running: Life, starting: Life): readonly [PeerAddress, PeerAddress] {
    const key = `${running.uid} ${starting.name}`
    const inherited = this.#pipeIds.get(key)
    const isHeir = inherited !== undefined
    const toStarting = inherited ?? this.#newPipe(key, running, starting.name)
    const toRunning = this.#newPipe(`${starting.uid} ${running.name}`, starting, running.name)
    this.#idCount++
    const wire = new Wire(this.#idCount, [running.uid, starting.uid], !isHeir)
    this.#wires.set(wire.id, wire)
    return [
      addressOf(running.name, running.uid, wire.id, toRunning, toStarting, isHeir),
      addressOf(starting.name, starting.uid, wire.id, toStarting, toRunning, false),
    ]
  }

  linkAway(name: string, starting: Life): PeerAddress {
    const toAway = this.#newPipe(`${starting.uid} ${name}`, starting, name)
    this.#idCount++
    const silent = new Pipe(this.#idCount, name, AWAY, starting.name)
    this.#pipes.set(silent.id, silent)
    this.#idCount++
    const wire = new Wire(this.#idCount, [AWAY, starting.uid], true)
    this.#wires.set(wire.id, wire)
    return addressOf(name, AWAY, wire.id, toAway, silent.id, false)
  }

  open(runtime: Runtime, address: PeerAddress): void {
    const thread = this.#lives.get(runtime.uid)!
    const wire = this.#wires.get(address.port as never)!
    const out = this.#pipes.get(address.out as never)!
    const into = this.#pipes.get(address.in as never)!
    runtime.lives.connect(address.name, address.uid, (handlers, previous) => {
      if (previous instanceof SimulatedLink) {
        previous.reopen(into, wire, handlers)
        return previous
      }
      return new SimulatedLink(thread, this.#links, out, into, wire, address.isHeir, handlers)
    })
    // It may have died of what it took from the life before.
    if (wire.isCut && thread.isAlive) this.#closeEnd(wire, thread)
  }

  linked(): void {}

  forgetLife({ uid }: Life): void {
    this.#forgetPipes(key => key.startsWith(`${uid} `))
  }

  forgetThread(name: string): void {
    this.#forgetPipes(key => key.endsWith(` ${name}`))
  }

  forgot(): void {}

  /** Nobody inherits these; a reader that lives may still take what it can see. */
  #forgetPipes(isMeant: (key: string) => boolean): void {
    for (const [key, id] of [...this.#pipeIds]) {
      if (!isMeant(key)) continue
      this.#pipeIds.delete(key)
      const pipe = this.#pipes.get(id)!
      // A writer that lives counts what it had sent, when it hears that the reader is not coming back.
      if (!this.#isRead(pipe) && !this.#lives.has(pipe.writerUid)) this.#dropPipe(pipe)
    }
  }

  /**
   * A living thread has opened its end, or is about to: a life that was never linked with the writer is
   * neither.
   */
  #isRead({ reader, writerUid, delivery }: Pipe): boolean {
    const life = this.threads.get(reader)
    if (life === undefined) return false
    if (delivery?.inbound?.isClosed === false) return true
    return [...this.#wires.values()].some(
      ({ uids, ends }) => uids.includes(writerUid) && uids.includes(life.uid) && !ends.has(life.uid),
    )
  }

  #dropPipe(pipe: Pipe): void {
    this.#pipes.delete(pipe.id)
    pipe.publish()
    while (pipe.readable > 0) this.#links.lost(pipe, pipe.take(), 'orphaned')
  }

  noteModule(): void {}

  started(): void {}

  async dispose(): Promise<void> {}

  // ── Deaths ───────────────────────────────────────────────────────────────────────────────────

  doomed(thread: VirtualThread, point: CrashPoint): void {
    this.#options.observer.fault?.('crash', `${thread.name} ${point}`)
    this.#exit(thread, `it crashed ${point}`)
  }

  failed(thread: VirtualThread, error: unknown): void {
    if (thread === this.main) throw error
    this.#events.get(thread.uid)?.failed(error)
    this.#exit(thread, 'it threw')
  }

  /** Ends a life at once; main hears of it some time later. */
  #exit(thread: VirtualThread, why: string): void {
    if (!thread.isAlive) return
    this.#end(thread, why)
    const events = this.#events.get(thread.uid)
    this.#events.delete(thread.uid)
    this.world.timer(this.main, this.#closeMs(), () => events?.exited(why))
  }

  #terminate(thread: VirtualThread): Promise<unknown> {
    const { promise, resolve } = Promise.withResolvers<unknown>()
    this.world.timer(this.main, this.#closeMs(), () => {
      const events = this.#events.get(thread.uid)
      this.#events.delete(thread.uid)
      if (thread.isAlive) this.#end(thread, 'it was terminated')
      events?.exited('it was terminated')
      resolve(undefined)
    })
    return promise
  }

  #end(thread: VirtualThread, why: string): void {
    this.world.mix(thread.uid)
    for (const link of thread.links) link.die()
    thread.end()
    if (this.threads.get(thread.name) === thread) this.threads.delete(thread.name)
    this.#lives.delete(thread.uid)
    for (const pipe of [...this.#pipes.values()]) {
      if (pipe.reader !== thread.name && pipe.writerUid !== thread.uid) continue
      const isInherited = this.#pipeIds.get(`${pipe.writerUid} ${pipe.reader}`) === pipe.id
      if (!isInherited && !this.#isRead(pipe)) this.#dropPipe(pipe)
    }
    this.#options.observer.ended?.(thread.name, thread.uid, why)
    for (const wire of [...this.#wires.values()]) {
      const [one, other] = wire.uids
      if (one !== thread.uid && other !== thread.uid) continue
      wire.isCut = true
      const left = this.#lives.get(one === thread.uid ? other : one)
      if (left === undefined) this.#wires.delete(wire.id)
      else this.#closeEnd(wire, left)
    }
  }

  /** The other life of the wire is over: this one is told, when it has opened its end. */
  #closeEnd(wire: Wire, thread: VirtualThread): void {
    const inbound = wire.ends.get(thread.uid)
    if (inbound === undefined) return
    this.#wires.delete(wire.id)
    this.world.timer(thread, this.#closeMs(), () => inbound.link.finish(inbound))
  }

  // ── Faults ───────────────────────────────────────────────────────────────────────────────────

  /** From now on only these. */
  setFaults(faults: SimulatedFaults): void {
    this.#faults = faults
    this.#nextCrash = this.world.steps + this.#draw(faults.crash)
    this.#nextHang = this.world.steps + this.#draw(faults.hang)
    for (const thread of this.threads.values()) thread.doom = undefined
    this.#doomedStarts.clear()
  }

  crash(name: string, point: CrashPoint): void {
    this.#doom(this.#living(name), point)
  }

  #doom(thread: VirtualThread, point: CrashPoint): void {
    if (point === 'atStart') this.#doomedStarts.add(thread.name)
    thread.doom = point === 'atStart' ? 'beforeTurn' : point
  }

  hang(name: string, ms: number): void {
    this.#options.observer.fault?.('hang', name)
    this.#living(name).hang(ms)
  }

  /**
   * Lets an instance fail, as a throw in an arm would, when it runs; false when no actor of that name does.
   */
  fail(actor: string): boolean {
    for (const thread of this.threads.values()) {
      for (const cell of thread.runtime?.cells.values() ?? []) {
        if (cell.name !== actor || cell.status().state !== 'running') continue
        this.#options.observer.fault?.('fail', actor)
        thread.task(8, () => {
          if (cell.status().state === 'running') cell.fail(new SimulatedFailure(actor), undefined)
        })
        return true
      }
    }
    return false
  }

  #living(name: string): VirtualThread {
    const thread = this.threads.get(name)
    if (thread === undefined || thread === this.main) {
      throw new SimulationError(`hurt thread ${name}`, 'no thread of that name runs beside main')
    }
    return thread
  }

  #endStep(): void {
    // A sender, in a turn, a timer or a promise, publishes its frames in the next microtask.
    if (this.#written.length > 0) for (const link of this.#written.splice(0)) link.publish()
    const { steps } = this.world
    if (steps >= this.#nextCrash) this.#dealCrash()
    if (steps >= this.#nextHang) this.#dealHang()
  }

  #dealCrash(): void {
    const { crash, crashesMax = Number.POSITIVE_INFINITY, crashPoints = CRASH_POINTS } = this.#faults
    this.#nextCrash = this.world.steps + this.#draw(crash)
    const thread = this.#victim()
    if (thread === undefined || this.#crashCount >= crashesMax) return
    this.#crashCount++
    this.#doom(thread, crashPoints[this.#random.below(crashPoints.length)]!)
  }

  #dealHang(): void {
    const { hang, hangsMax = Number.POSITIVE_INFINITY, hangMsMax = HANG_MS_MAX_DEFAULT } = this.#faults
    this.#nextHang = this.world.steps + this.#draw(hang)
    const thread = this.#victim()
    if (thread === undefined || this.#hangCount >= hangsMax) return
    this.#hangCount++
    this.hang(thread.name, this.#random.next() * hangMsMax)
  }

  #victim(): VirtualThread | undefined {
    const { threads: names } = this.#faults
    const victims = [...this.threads.values()].filter(
      ({ name }) => name !== MAIN && (names === undefined || names.includes(name)),
    )
    return victims.length === 0 ? undefined : victims[this.#random.below(victims.length)]
  }

  #draw(chance = 0): number {
    return drawInterval(this.#random, chance)
  }

  #closeMs(): number {
    return this.#random.next() * VIRTUAL_CLOSE_MS_MAX
  }

  #newThread(name: string, uid: number): VirtualThread {
    const slowness = this.#random.below(3) === 0 ? this.#random.next() * SLOWNESS_MAX : 0
    const thread = new VirtualThread(this.world, name, uid, slowness, this)
    this.threads.set(name, thread)
    this.#lives.set(uid, thread)
    return thread
  }

  #newPipe(key: string, { name, uid }: Life, reader: string): number {
    this.#idCount++
    this.#pipes.set(this.#idCount, new Pipe(this.#idCount, name, uid, reader))
    this.#pipeIds.set(key, this.#idCount)
    return this.#idCount
  }
}

/**
 * Threads: main's list of the threads of a system, and of the actors that must follow them.
 *
 * Every life is started here through the host, with a direct link to every other thread. A thread that ends
 * without being told to is replaced, as often as `threadRestartsMax` within a minute allows; the actors
 * registered on it whose directive is `restart` go with the new life and are there before its first frame is
 * read.
 *
 * A thread is ended and replaced if the watchdog finds that it hangs, or if it reports that its heap is full.
 * It can be stuck where nothing ends it (native synchronous I/O): after TERMINATE_MS_MAX it is a zombie,
 * which is reported, cut off from every other thread and replaced like a dead one.
 */

import type { Transferable } from 'node:worker_threads'
import type { CodedError, LogFormat, LogLevel } from '@homing/base'
import { backoffMs } from '../cell/supervision.ts'
import type { Settings, ThreadBounds } from '../contract/settings.ts'
import { OP, type PeerAddress, type PeerLoss, type Registration, type SpawnSpec } from '../links/frames.ts'
import { type Life, MAIN } from '../links/life.ts'
import type { Frame } from '../links/link.ts'
import type { Peer } from '../links/peer.ts'
import { Observatory } from '../observe/observatory.ts'
import type { PoolMap } from '../runtime/placement.ts'
import type { Registrar } from '../runtime/registrar.ts'
import type { Disposal, Runtime } from '../runtime/runtime.ts'
import { ThreadDownError, ThreadStartError, UnknownThreadError } from '../values/errors.ts'
import { describe } from '../values/thrown.ts'
import { DRAIN_MS_MAX, type HeapPressure } from './heap-guard.ts'
import { Registrations } from './registrations.ts'
import type { ThreadInit } from './thread.ts'
import type { ThreadHost } from './thread-host.ts'
import { ThreadSlot, type ThreadStanding } from './thread-slot.ts'
import { Watchdog, type WatchdogHost } from './watchdog.ts'

const THREAD_START_MS_MAX = 30_000
const TERMINATE_MS_MAX = 2000
const UID_MAIN = 1
const LIFE_OF_MAIN: Life = { name: MAIN, uid: UID_MAIN }
/** Beyond the time that a full thread has to end its work. */
const RECYCLE_MARGIN_MS = 500

export interface ThreadsOptions {
  readonly pools: PoolMap
  readonly logLevel: LogLevel
  readonly logFormat: LogFormat
  readonly threadRestartsMax: number
  /** A thread that gives no sign of life for so long is replaced; 0: never. */
  readonly hungAfterMs: number
  readonly backoffMsMin: number
  readonly backoffMsMax: number
  /** What a thread does when its heap fills; undefined: nothing. */
  readonly heapPressure?: HeapPressure | undefined
}

export class Threads implements Registrar {
  readonly observatory: Observatory
  readonly #runtime: Runtime
  readonly #options: ThreadsOptions
  readonly #host: ThreadHost
  readonly #slots = new Map<string, ThreadSlot>()
  readonly #registrations: Registrations
  readonly #watchdog: Watchdog
  #uid = UID_MAIN
  #restartCount = 0
  #recycleCount = 0
  #zombieCount = 0
  #isShuttingDown = false

  constructor(runtime: Runtime, host: ThreadHost, options: ThreadsOptions) {
    this.#runtime = runtime
    this.#host = host
    this.#options = options
    this.observatory = new Observatory(MAIN, runtime.memory)
    this.#registrations = new Registrations(runtime)
    const watched: WatchdogHost = {
      clock: runtime.clock,
      slots: () => this.#slots.values(),
      beatsOf: slot => this.observatory.memoryFor(slot.name).beats,
      hangs: slot => this.#endHung(slot),
    }
    this.#watchdog = new Watchdog(watched, options.hungAfterMs)
    runtime.registrar = this
    runtime.onControl = (peer, frame) => this.#takeControl(peer, frame)
  }

  get restartCount(): number {
    return this.#restartCount
  }

  /** Threads replaced because their heap was full. */
  get recycleCount(): number {
    return this.#recycleCount
  }

  /** Lives that could not be ended, and are left behind. */
  get zombieCount(): number {
    return this.#zombieCount
  }

  /** Names of the threads that run, main included. */
  get names(): string[] {
    const running = [...this.#slots.values()].filter(slot => slot.worker !== undefined && !slot.isStopping)
    return [MAIN, ...running.map(slot => slot.name)]
  }

  /** How the threads beside main stand, in the order in which they were added. */
  get standings(): readonly ThreadStanding[] {
    return [...this.#slots.values()].map(slot => {
      const { standing } = slot
      const isShedding = slot.isRecycling || this.#runtime.peers.get(slot.name)?.isShedding === true
      return isShedding && standing.state === 'running' ? { ...standing, state: 'shedding' } : standing
    })
  }

  /** Starts every thread of the pools. Rejects with ThreadStartError when one does not come up. */
  async start(): Promise<void> {
    for (const pool of this.#options.pools) {
      for (const name of pool.threads) this.#addSlot(name, undefined)
    }
    for (const slot of [...this.#slots.values()]) this.#startLife(slot)
    await Promise.all([...this.#slots.values()].map(slot => slot.whenReady.promise))
    if (this.#slots.size > 0) this.#host.started()
    this.#watchdog.start()
  }

  // ── Registrar ────────────────────────────────────────────────────────────────────────────────

  register(registration: Registration): void {
    const { spec, thread, sentToUid, bounds } = registration
    const { id } = spec
    const registrations = this.#registrations
    registrations.add(registration)
    this.#host.noteModule(spec.moduleUrl)
    if (this.#isShuttingDown) {
      registrations.end(id, 'unreachable', new ThreadDownError(thread, 'the system is shutting down'))
      if (bounds !== undefined) this.#reportGone(thread)
      return
    }
    if (bounds !== undefined) {
      this.#startLife(this.#addSlot(thread, bounds))
      return
    }
    if (thread === MAIN) {
      if (sentToUid === 0) this.#runtime.acceptSpawn(spec)
      registrations.place(id, UID_MAIN)
      return
    }
    const slot = this.#slots.get(thread)
    if (slot === undefined) registrations.end(id, 'unreachable', new ThreadDownError(thread, 'it has ended'))
    else if (slot.uid !== sentToUid) {
      // It was meant for an earlier life, or for none: the present one gets it, or the next.
      if (sentToUid !== 0 && spec.settings.directive !== 'restart') return
      const uid = this.#isOver(slot) ? 0 : slot.uid
      registrations.place(id, uid)
      if (uid !== 0) this.#send(thread, OP.SPAWN, id, spec)
    }
  }

  unregister(id: number): void {
    const registration = this.#registrations.remove(id)
    if (registration === undefined) return
    const { thread, bounds, spec } = registration
    // It may have ended by itself, and its thread have been replaced and given it back since.
    this.#send(thread, OP.STOP, id, false)
    if (bounds !== undefined) void this.#stopDedicated(thread, spec.settings.isKilled)
  }

  resolve(thread: string): void {
    // Main knows every thread that there is.
    if (!this.#slots.has(thread)) this.#runtime.lives.gone(thread)
  }

  #takeControl(peer: Peer, frame: Frame): void {
    if (frame.op === OP.READY) this.#becomeReady(peer)
    else if (frame.op === OP.RECYCLE) this.#recycle(peer, frame.body === true)
    else if (frame.op === OP.REGISTER) this.register(frame.body as Registration)
    else if (frame.op === OP.UNREGISTER) this.unregister(frame.target)
    else if (frame.op === OP.LINKED) this.#linked(peer, frame.body as string, frame.corr)
    else if (frame.op === OP.RESTARTED)
      this.#registrations.restarted(frame.target, this.#runtime.clock.nowMs())
    else if (frame.op === OP.GONE) this.#host.forgot(peer, frame.body as string)
    else if (frame.op === OP.RESOLVE && !this.#slots.has(frame.body as string)) {
      this.#send(peer.name, OP.GONE, 0, frame.body)
    }
  }

  // ── Lives ────────────────────────────────────────────────────────────────────────────────────

  #addSlot(name: string, bounds: ThreadBounds | undefined): ThreadSlot {
    const slot = new ThreadSlot(name, bounds)
    this.#slots.set(name, slot)
    return slot
  }

  #startLife(slot: ThreadSlot): void {
    this.#uid++
    const uid = this.#uid
    slot.begin(uid)
    const now = this.#runtime.clock.nowMs()
    const spawns = this.#registrations.takeWaiting(slot.name, uid, now, spec => !this.#isOrphan(spec))
    const peers: PeerAddress[] = []
    const [ofMain, atMain] = this.#host.link(LIFE_OF_MAIN, { name: slot.name, uid })
    peers.push(ofMain)
    this.#host.open(this.#runtime, atMain)
    this.#host.linked(LIFE_OF_MAIN, { name: slot.name, uid })
    for (const other of this.#slots.values()) {
      if (other === slot) continue
      if (this.#isOver(other)) {
        if (other.hasLived) peers.push(this.#host.linkAway(other.name, { name: slot.name, uid }))
      } else if (other.worker !== undefined) {
        const [ofOther, atOther] = this.#host.link(other, { name: slot.name, uid })
        peers.push(ofOther)
        this.#send(other.name, OP.CONNECT, 0, atOther, [atOther.port])
      }
    }
    const init: ThreadInit = {
      thread: slot.name,
      uid,
      pools: this.#options.pools,
      gone: this.#options.pools.flatMap(pool => pool.threads).filter(name => !this.#slots.has(name)),
      logLevel: this.#options.logLevel,
      logFormat: this.#options.logFormat,
      peers,
      spawns,
      pastLives: slot.pastLives,
      memory: this.observatory.memoryFor(slot.name).buffer,
      beatMs: this.#watchdog.intervalMs,
      heapPressure: this.#options.heapPressure,
      heapMb: slot.bounds?.heapMb,
    }
    try {
      slot.worker = this.#host.start(init, {
        failed: error => {
          if (slot.uid === uid) this.#lifeFailed(slot, error)
        },
        exited: why => this.#lifeEnded(slot, uid, why),
      })
    } catch (error) {
      slot.lastError = error
      queueMicrotask(() => this.#lifeEnded(slot, uid, 'it could not be made'))
      return
    }
    this.#boundStart(slot, uid)
  }

  /** Its present life has ended: the link is closed, also when its end has yet to be reported. */
  #isOver({ name, uid }: ThreadSlot): boolean {
    const peer = this.#runtime.peers.get(name)
    return uid === 0 || (peer?.uid === uid && peer.state === 'down')
  }

  /**
   * Its parent is over, if not yet reported to be: a life that starts now is not linked with it, and would
   * never know.
   */
  #isOrphan({ parent }: SpawnSpec): boolean {
    const slot = this.#slots.get(parent.thread)
    return slot?.uid === parent.uid && this.#isOver(slot)
  }

  /**
   * What `peer` had registered for earlier lives of the thread was sent before: it learns that no more comes.
   */
  #linked(peer: Peer, thread: string, uid: number): void {
    this.#host.linked(peer, { name: thread, uid })
    if (this.#slots.get(thread)?.uid === uid)
      this.#send(thread, OP.SPAWNED, 0, peer.name, undefined, peer.uid)
  }

  #lifeFailed(slot: ThreadSlot, error: unknown): void {
    slot.lastError = error
    if ((error as { code?: unknown } | null)?.code !== 'ERR_WORKER_OUT_OF_MEMORY') return
    slot.endReason = 'threadOom'
    this.#tellLoss(slot, slot.uid)
  }

  /** Tells every thread why one ends, before they see its link close. */
  #tellLoss(slot: ThreadSlot, uid: number): void {
    this.#runtime.lives.noteEnd(slot.name, uid, slot.end)
    this.#sendLoss(OP.LOST, slot, uid)
  }

  #sendLoss(op: typeof OP.LOST | typeof OP.ENDING, slot: ThreadSlot, uid: number): void {
    const loss: PeerLoss = { name: slot.name, uid, end: slot.end }
    for (const other of this.#slots.values()) if (other !== slot) this.#send(other.name, op, 0, loss)
  }

  #boundStart(slot: ThreadSlot, uid: number): void {
    const limit = this.#runtime.clock.after(
      THREAD_START_MS_MAX,
      () => {
        if (slot.uid !== uid || slot.isReady) return
        slot.lastError = new ThreadStartError(slot.name, `it was not ready within ${THREAD_START_MS_MAX} ms`)
        void this.#terminate(slot)
      },
      { unref: true },
    )
    slot.whenReady.promise.then(
      () => limit.cancel(),
      () => limit.cancel(),
    )
  }

  #becomeReady(peer: Peer): void {
    const slot = this.#slots.get(peer.name)
    if (slot === undefined || slot.uid !== peer.uid) return
    slot.isReady = true
    this.#watchdog.ready(slot)
    slot.whenReady.resolve()
    this.#runtime.log.debug({ peer: slot.name }, 'thread ready')
  }

  /** A worker has ended, or is beyond help; called once per life. */
  #lifeEnded(slot: ThreadSlot, uid: number, why: string, hasEnded = true): void {
    if (slot.uid !== uid) return
    const { name } = slot
    const wasEnded = this.#isShuttingDown || (slot.isStopping && !slot.hasDied)
    slot.uid = 0
    slot.worker = undefined
    this.#host.forgetLife({ name, uid }, hasEnded)
    const wasReady = slot.isReady
    slot.isReady = false
    // This takes what the dead had sent, registrations too.
    this.#runtime.lives.lost(name, uid, slot.end)
    // They may not know why; and no link to one that could not be ended closes by itself.
    this.#sendLoss(OP.LOST, slot, uid)
    // Parents on the dead thread are gone, so their children elsewhere cannot be restarted.
    for (const { thread, bounds, spec } of this.#registrations.removeChildrenOf(uid)) {
      if (bounds !== undefined) void this.#stopDedicated(thread, spec.settings.isKilled)
    }
    this.observatory.ended(name, uid, this.#runtime.clock)
    const error = slot.lastError
    if (!wasEnded) {
      const fields = { peer: name, why, ...(error === undefined ? {} : { error: describe(error) }) }
      this.#runtime.log.error(fields, 'thread ended')
      this.observatory.dump(name, this.#runtime.clock.nowMs(), this.#runtime.log)
    }
    if (slot.isStopping || this.#isShuttingDown) {
      // Its actor has ended, and nothing is left to follow it.
      if (this.#slots.get(name) === slot) this.#slotGone(slot, new ThreadDownError(name, 'it was stopped'))
      return
    }
    if (wasReady) slot.awaitReady()
    const isFirstStart = !wasReady && !slot.wasReplaced && !slot.isDedicated
    if (isFirstStart) {
      const cause = error instanceof Error ? `${why}: ${error.message}` : why
      this.#slotGone(slot, new ThreadStartError(name, cause))
      return
    }
    this.#replace(slot)
  }

  #replace(slot: ThreadSlot): void {
    const { threadRestartsMax } = this.#options
    const now = this.#runtime.clock.nowMs()
    if (slot.isDedicated) {
      this.#registrations.displace(slot, now)
      if (!this.#registrations.hasAnyOn(slot.name)) {
        this.#slotGone(slot, new ThreadDownError(slot.name, 'its actor has ended'))
        return
      }
    }
    const restarts = slot.countRestart(now, threadRestartsMax)
    if (restarts === undefined) {
      const error = new ThreadDownError(
        slot.name,
        `it ended more than ${threadRestartsMax} times within a minute`,
      )
      this.#runtime.log.error({ peer: slot.name, threadRestartsMax }, 'thread given up')
      this.#slotGone(slot, error)
      return
    }
    this.#restartCount++
    if (!slot.isDedicated) this.#registrations.displace(slot, now)
    this.#runtime.log.warn({ peer: slot.name, restarts }, 'thread is replaced')
    const attempt = restarts - 1
    const delayMs = attempt === 0 ? 0 : backoffMs(this.#threadBackoff, attempt, this.#runtime.random.next())
    const start = (): void => {
      if (slot.uid === 0 && !slot.isStopping && !this.#isShuttingDown) this.#startLife(slot)
    }
    if (delayMs === 0) start()
    else this.#runtime.clock.after(delayMs, start, { unref: true })
  }

  get #threadBackoff(): Settings {
    const { backoffMsMin, backoffMsMax } = this.#options
    return { backoffMsMin, backoffMsMax, jitter: 0.2 } as Settings
  }

  #slotGone(slot: ThreadSlot, error: CodedError): void {
    this.#slots.delete(slot.name)
    this.#host.forgetThread(slot.name)
    this.observatory.gone(slot.name)
    this.#registrations.removeAllOn(slot.name)
    slot.whenReady.reject(error)
    this.#reportGone(slot.name)
  }

  #reportGone(thread: string): void {
    this.#runtime.lives.gone(thread)
    this.#host.forgot(LIFE_OF_MAIN, thread)
    for (const other of this.#slots.values()) this.#send(other.name, OP.GONE, 0, thread, undefined, 1)
  }

  // ── Threads that hang or are full ────────────────────────────────────────────────────────────

  /** A thread whose heap is full has stopped reading its rings; its heir goes on with them. */
  #recycle(peer: Peer, isDrained: boolean): void {
    const slot = this.#slots.get(peer.name)
    if (slot === undefined || slot.uid !== peer.uid || slot.isStopping) return
    const { uid } = slot
    const end = (): void => {
      if (slot.uid !== uid || slot.isStopping || slot.endReason !== 'threadExit') return
      this.#recycleCount++
      slot.endReason = 'threadOom'
      // It takes nothing any more.
      this.#tellLoss(slot, uid)
      void this.#terminate(slot)
    }
    if (isDrained) end()
    else if (!slot.isRecycling) {
      slot.isRecycling = true
      this.#runtime.log.warn({ peer: slot.name }, 'heap of a thread is full: it is ended')
      this.#runtime.clock.after(DRAIN_MS_MAX + RECYCLE_MARGIN_MS, end, { unref: true })
    }
  }

  #endHung(slot: ThreadSlot): void {
    const hungAfterMs = slot.hungAfterMs(this.#options.hungAfterMs)
    this.#runtime.log.error({ peer: slot.name, hungAfterMs }, 'thread hangs: it is ended')
    this.#runtime.flight.note('hung', 0, slot.name, hungAfterMs)
    slot.endReason = 'threadHung'
    this.#tellLoss(slot, slot.uid)
    void this.#terminate(slot)
  }

  // ── Ends ─────────────────────────────────────────────────────────────────────────────────────

  /** Ends a thread as a crash would; resolves when it has ended and, if it is to be, been replaced. */
  async kill(name: string): Promise<void> {
    const slot = this.#slots.get(name)
    if (slot === undefined) {
      throw new UnknownThreadError(
        name,
        name === MAIN ? 'main cannot be killed' : 'the system has no such thread',
      )
    }
    if (slot.worker !== undefined) await this.#terminate(slot)
    await slot.whenReady.promise.catch(() => {})
  }

  /** Ends every thread within `limitMs`; returns what they report of the last `reportedMs`. */
  async stop(limitMs: number, reportedMs: number): Promise<Disposal[]> {
    this.#isShuttingDown = true
    this.#watchdog.stop()
    void this.#host.dispose()
    const slots = [...this.#slots.values()]
    return Promise.all(slots.map(slot => this.#stopSlot(slot, limitMs, reportedMs)))
  }

  async #stopDedicated(name: string, isKilled: boolean): Promise<void> {
    const slot = this.#slots.get(name)
    if (slot === undefined || slot.isStopping) return
    slot.isKilled = isKilled
    await this.#stopSlot(slot, TERMINATE_MS_MAX, Number.POSITIVE_INFINITY)
  }

  #stopSlot(slot: ThreadSlot, limitMs: number, reportedMs: number): Promise<Disposal> {
    slot.isStopping = true
    slot.stopping ??= this.#endSlot(slot, limitMs, reportedMs)
    return slot.stopping
  }

  async #endSlot(slot: ThreadSlot, limitMs: number, reportedMs: number): Promise<Disposal> {
    if (slot.worker === undefined) {
      if (this.#slots.has(slot.name)) this.#slotGone(slot, new ThreadDownError(slot.name, 'it was stopped'))
      return { slow: [] }
    }
    if (this.#isOver(slot)) slot.hasDied = true
    if (slot.hasDied || slot.isKilled) {
      await this.#terminate(slot)
      return { slow: [] }
    }
    let disposal: Disposal
    try {
      disposal = (await this.#runtime.query(
        slot.name,
        { type: 'dispose', limitMs, reportedMs },
        Math.max(limitMs, 1),
      )) as Disposal
    } catch (error) {
      this.#runtime.log.warn({ peer: slot.name, error: describe(error) }, 'thread ended without a report')
      disposal = { slow: [`thread ${slot.name}`] }
    }
    if (slot.worker !== undefined) await this.#terminate(slot)
    return disposal
  }

  async #terminate(slot: ThreadSlot): Promise<void> {
    const { worker, uid } = slot
    if (worker === undefined) return
    // It says nothing any more.
    this.#runtime.lives.noteEnd(slot.name, uid, slot.end)
    this.#sendLoss(OP.ENDING, slot, uid)
    const limit = Promise.withResolvers<'late'>()
    const timer = this.#runtime.clock.after(TERMINATE_MS_MAX, () => limit.resolve('late'))
    const outcome = await Promise.race([worker.terminate(), limit.promise])
    timer.cancel()
    if (slot.uid !== uid) return
    if (outcome === 'late') {
      this.#zombieCount++
      this.#runtime.log.error(
        { thread: slot.name, limitMs: TERMINATE_MS_MAX },
        'thread does not end: a zombie',
      )
      worker.abandon()
    }
    if (outcome === 'late') this.#lifeEnded(slot, uid, 'it could not be terminated', false)
    else this.#lifeEnded(slot, uid, 'it was terminated')
  }

  #send(
    thread: string,
    op: number,
    target: number,
    body: unknown,
    transfer?: readonly Transferable[],
    corr = 0,
  ): void {
    const frame: Frame = {
      op,
      target,
      corr,
      body,
      patches: 0,
      ...(transfer === undefined ? {} : { transfer }),
    }
    this.#runtime.peers.get(thread)?.send(frame)
  }
}

/**
 * Access log: one JSON line per request, into a file that may be moved away, or to standard output.
 *
 *   write ─▶ waiting lines ─▶ one batch ─▶ sink
 *                │ full                     │ fails
 *                ▼                          ▼
 *             dropped                    broken ──after LOOK_MS──▶ tried again
 *
 * Lines that come while a write is under way are the next batch, so a fast disk sees single lines and a slow one few writes.
 * Every LOOK_MS it looks whether its file was moved away or removed, and begins a new one then.
 *
 * Invariants
 *   I1  Nobody waits for it, and at most WAITING_BYTES_MAX wait. A line that finds no room is dropped and counted.
 *   I2  The file has whole lines: a write that was cut short goes on where it was cut, and a line of which a part went into a file
 *       that was moved away is not gone on with in another one.
 *   I3  Written lines and dropped ones, and those that wait, are all that it was given.
 */

import type { Clock, Log, Timer } from '@homing/base'
import { type LineSink, sinkOf } from './line-sinks.ts'

/** Members that are undefined are left out. */
export type AccessLine = Readonly<Record<string, string | number | boolean | undefined>>

export interface AccessLogOptions {
  /** `-`: standard output. */
  readonly path: string
  readonly log: Log
  readonly clock: Clock
  /** Default: what `path` names. */
  readonly sink?: LineSink
  /** Lines wait until `release`. Default: false. */
  readonly isHeld?: boolean
}

/** Lines that wait, in bytes. */
export const WAITING_BYTES_MAX = 4 * 1024 * 1024
const BATCH_LINES_MAX = 1000
const LOOK_MS = 1000
/** Whoever does not read must not keep a process from ending. */
const CLOSE_MS_MAX = 2000

export class AccessLog {
  readonly #path: string
  readonly #log: Log
  readonly #clock: Clock
  readonly #sink: LineSink
  #waiting: Uint8Array[] = []
  #waitingBytes = 0
  /** The first line that waits was begun already. */
  #isFirstBegun = false
  #written = 0
  #dropped = 0
  #fault: string | undefined
  #running: Promise<void> | undefined
  #isHeld: boolean
  #isClosed = false
  readonly #timers = new Set<Timer>()

  constructor({ path, log, clock, sink = sinkOf(path), isHeld = false }: AccessLogOptions) {
    this.#isHeld = isHeld
    this.#path = path
    this.#log = log
    this.#clock = clock
    this.#sink = sink
    this.#after(LOOK_MS, () => this.#look())
  }

  get written(): number {
    return this.#written
  }

  /** Lines that are in no file, and are not going to be. */
  get dropped(): number {
    return this.#dropped
  }

  /** Why it cannot be written; undefined: it can. */
  get fault(): string | undefined {
    return this.#fault
  }

  write(line: AccessLine): void {
    const bytes = Buffer.from(`${JSON.stringify(line)}\n`)
    if (this.#isClosed || this.#waitingBytes + bytes.length > WAITING_BYTES_MAX) {
      this.#dropped++
      return
    }
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
    if (this.#fault === undefined) this.#run()
  }

  /** Lets lines pass from now on. Idempotent. */
  release(): void {
    if (!this.#isHeld) return
    this.#isHeld = false
    this.#run()
  }

  /** Goes on in a new file of the same name, as after the old one was moved away. Rejects with AccessLogError; then it goes on as before. */
  async reopen(): Promise<void> {
    while (this.#running !== undefined) await this.#running
    let refusal: unknown
    this.#start(
      this.#sink.reopen().then(
        () => this.#beginsAnew(),
        thrown => {
          refusal = thrown
        },
      ),
    )
    await this.#running
    if (refusal !== undefined) throw refusal
  }

  /** Resolves when all lines are written, or cannot be, or after CLOSE_MS_MAX. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#isHeld = false
    for (const timer of this.#timers) timer.cancel()
    this.#run()
    const late = new Promise<void>(resolve => this.#after(CLOSE_MS_MAX, resolve))
    await Promise.race([this.#ended(), late])
    for (const timer of this.#timers) timer.cancel()
  }

  async #ended(): Promise<void> {
    while (this.#running !== undefined) await this.#running
    await this.#sink.close().catch(() => {})
  }

  #run(): void {
    if (this.#running === undefined && this.#waiting.length > 0 && !this.#isHeld)
      this.#start(this.#writeWaiting())
  }

  /** One thing at a time; what came meanwhile is next. */
  #start(work: Promise<void>): void {
    this.#running = work.then(
      () => this.#ran(),
      (thrown: unknown) => this.#broke(thrown),
    )
  }

  #ran(): void {
    this.#running = undefined
    if (this.#fault === undefined) this.#run()
  }

  #broke(thrown: unknown): void {
    this.#running = undefined
    const isNew = this.#fault === undefined
    this.#fault = thrown instanceof Error ? thrown.message : String(thrown)
    const fields = { path: this.#path, reason: this.#fault }
    if (isNew) this.#log.error(fields, 'access log cannot be written')
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length > 0) {
      this.#wrote(await this.#sink.append(Buffer.concat(this.#waiting.slice(0, BATCH_LINES_MAX))))
      if (this.#fault === undefined) continue
      this.#fault = undefined
      const fields = { path: this.#path, droppedLines: this.#dropped }
      this.#log.info(fields, 'access log is written again')
    }
  }

  #wrote(bytes: number): void {
    this.#waitingBytes -= bytes
    let count = 0
    let left = bytes
    while (count < this.#waiting.length && this.#waiting[count]!.length <= left) {
      left -= this.#waiting[count]!.length
      count++
    }
    this.#waiting.splice(0, count)
    this.#written += count
    if (left > 0) this.#waiting[0] = this.#waiting[0]!.subarray(left)
    this.#isFirstBegun = left > 0 || (count === 0 && this.#isFirstBegun)
  }

  /** The rest of a line has no place in another file. */
  #beginsAnew(): void {
    if (!this.#isFirstBegun) return
    this.#isFirstBegun = false
    this.#waitingBytes -= this.#waiting.shift()!.length
    this.#dropped++
  }

  #look(): void {
    this.#after(LOOK_MS, () => this.#look())
    if (this.#running !== undefined) return
    const looked = async (): Promise<void> => {
      if (await this.#sink.look()) this.#beginsAnew()
      if (!this.#isHeld) await this.#writeWaiting()
    }
    this.#start(looked())
  }

  #after(delayMs: number, callback: () => void): void {
    const timer = this.#clock.after(
      delayMs,
      () => {
        this.#timers.delete(timer)
        callback()
      },
      { unref: true },
    )
    this.#timers.add(timer)
  }
}

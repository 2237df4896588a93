/**
 * Worker progress: which workers send output, so that a worker that takes requests and never answers is
 * found by comparison with the others, and one that is frozen or out of reach is left.
 *
 * A call is stalled when all of this holds: its worker has sent nothing to any request since the call began;
 * another worker has sent something meanwhile; and the call has lasted longer than `stallMsMin`, than
 * SLOWEST_FACTOR times the slowest first byte of the last SEEN_KEPT answers of its kind (streams, or whole
 * answers), and than MS_PER_PROMPT_TOKEN for each token of its prompt. Before SEEN_MIN answers of that kind
 * nothing is known, and nothing is stalled.
 *
 * A call is lost, also in the middle of its answer, when all of this holds: probes call its worker down and
 * get no answer (one that ends may say so, and go on with what it has); the worker has sent nothing to any
 * request for `stallMsMin`; and it is not this router that is cut off: another worker has sent something in
 * the last RECENT_MS, or is up still, `stallMsMin` after this one went down. A worker that is only slow
 * answers its probes, so its streams are left alone. The directory does not probe one that has left while
 * it was up: its streams that have begun are lost after GONE_FACTOR times that silence.
 *
 * Bounds   PROGRESS_WORKERS_MAX workers; the one that has sent nothing for longest is forgotten, and of those
 *          that are lost the one that is so for longest.
 */

import type { Fleet } from '@homing/fleet'

const SLOWEST_FACTOR = 10
const MS_PER_PROMPT_TOKEN = 1
const SEEN_KEPT = 128
/** Chunks that follow each other faster are not noted. */
const SENT_EVERY_MS = 50
const SEEN_MIN = 16
const PROGRESS_WORKERS_MAX = 4096
const RECENT_MS = 2000
const GONE_FACTOR = 6

export interface OpenCall {
  readonly workerId: string
  readonly isStream: boolean
  readonly promptTokens: number
  readonly calledMs: number
}

/** A worker that probes do not reach, or that has left the fleet. */
interface Absent {
  readonly sinceMs: number
  /** Probes have called it down. */
  readonly isDown: boolean
}

export class WorkerProgress {
  /** By worker: when it last sent something; the most recent last. */
  readonly #sentMs = new Map<string, number>()
  readonly #streams: number[] = []
  readonly #wholes: number[] = []
  readonly #stallMsMin: number
  readonly #absent = new Map<string, Absent>()
  #present: ReadonlySet<string> = new Set()
  /** Since when probes call any worker up. */
  #upMs = Number.POSITIVE_INFINITY

  /** `stallMsMin`: the least age of a stalled call, in milliseconds; 0: no call is ever stalled or lost. */
  constructor(stallMsMin: number) {
    this.#stallMsMin = stallMsMin
  }

  /** A worker has sent output: no head alone, no comment. */
  sent(workerId: string, nowMs: number): void {
    const lastMs = this.#sentMs.get(workerId)
    if (lastMs !== undefined && nowMs - lastMs < SENT_EVERY_MS) return
    this.#sentMs.delete(workerId)
    this.#sentMs.set(workerId, nowMs)
    if (this.#sentMs.size > PROGRESS_WORKERS_MAX) this.#sentMs.delete(this.#sentMs.keys().next().value!)
  }

  /** The first byte of an answer passed `elapsedMs` after its call. */
  answered({ isStream }: Pick<OpenCall, 'isStream'>, elapsedMs: number): void {
    const seen = isStream ? this.#streams : this.#wholes
    seen.push(elapsedMs)
    if (seen.length > SEEN_KEPT) seen.shift()
  }

  isStalled({ workerId, isStream, promptTokens, calledMs }: OpenCall, nowMs: number): boolean {
    const lastedMs = nowMs - calledMs
    const stallMsMin = this.#stallMsMin
    if (stallMsMin === 0 || lastedMs < stallMsMin || lastedMs < promptTokens * MS_PER_PROMPT_TOKEN)
      return false
    if ((this.#sentMs.get(workerId) ?? Number.NEGATIVE_INFINITY) > calledMs) return false
    const seen = isStream ? this.#streams : this.#wholes
    if (seen.length < SEEN_MIN || lastedMs < SLOWEST_FACTOR * Math.max(...seen)) return false
    for (const [other, sentMs] of this.#sentMs) if (other !== workerId && sentMs > calledMs) return true
    return false
  }

  takeFleet({ workers }: Pick<Fleet, 'workers'>, nowMs: number): void {
    const present = new Set<string>()
    let isAnyUp = false
    for (const { id, state, isDownByAnswer } of workers) {
      present.add(id)
      isAnyUp ||= state !== 'down' && state !== 'probing'
      if (state !== 'down' || isDownByAnswer === true) this.#absent.delete(id)
      else if (this.#absent.get(id)?.isDown !== true) this.#isAbsent(id, { sinceMs: nowMs, isDown: true })
    }
    for (const id of this.#present)
      if (!present.has(id) && !this.#absent.has(id)) this.#isAbsent(id, { sinceMs: nowMs, isDown: false })
    this.#present = present
    this.#upMs = isAnyUp ? Math.min(this.#upMs, nowMs) : Number.POSITIVE_INFINITY
  }

  /**
   * `heardMs`: when the worker was called, or last sent a byte of this answer. `isPouring`: it is a stream
   * that has begun; all else may be silent until its end.
   */
  isLost(workerId: string, heardMs: number, nowMs: number, isPouring = false): boolean {
    // Its last bytes came to one stream after the other: all of them are lost together.
    const lastMs = Math.max(heardMs, this.#sentMs.get(workerId) ?? Number.NEGATIVE_INFINITY)
    const silentMs = nowMs - lastMs
    if (this.#stallMsMin === 0 || silentMs < this.#stallMsMin) return false
    const absent = this.#absent.get(workerId)
    if (absent === undefined) return false
    if (!absent.isDown && !(isPouring && silentMs >= GONE_FACTOR * this.#stallMsMin)) return false
    if (nowMs - Math.max(absent.sinceMs, this.#upMs) >= this.#stallMsMin) return true
    const recentMs = Math.max(lastMs, nowMs - RECENT_MS)
    for (const [other, sentMs] of this.#sentMs) if (other !== workerId && sentMs > recentMs) return true
    return false
  }

  #isAbsent(workerId: string, absent: Absent): void {
    this.#absent.delete(workerId)
    this.#absent.set(workerId, absent)
    if (this.#absent.size > PROGRESS_WORKERS_MAX) this.#absent.delete(this.#absent.keys().next().value!)
  }

  /** Workers that have sent something within this time. */
  alive(sinceMs: number): readonly string[] {
    const found: string[] = []
    for (const [workerId, sentMs] of this.#sentMs) if (sentMs >= sinceMs) found.push(workerId)
    return found
  }
}

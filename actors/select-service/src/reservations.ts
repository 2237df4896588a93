/**
 * Reservations: requests that count as load of a rank, by the ids that their callers gave them.
 *
 *   begin ─▶ booking ─▶ booked ─▶ prefilled ─▶ ended
 *
 * Each is a decision of the router, which books it and is told its end. Whether one is booked, the tracker
 * knows: it may have expired there, or ended with its worker, with an earlier life of the tracker, or at
 * another replica. What is held here besides follows within a few seconds.
 *
 * Invariants
 *   I1  An id is held once, from `begin` to its end; then it may be used again.
 *   I2  Each is settled once, and never while another replica has one of its id: its end would end that, too.
 *
 * Bounds  `openMax`. A caller that dies holds its reservation until the tracker ends it.
 */

import type { ActorRef } from '@homing/actor'
import type { Rank } from '@homing/actors/index-service'
import type { RouterMessage } from '@homing/actors/router'
import type { BookedPlace, TrackerMessage } from '@homing/actors/tracker'
import { type Clock, type ErrorRecord, type Log, toErrorRecord } from '@homing/base'
import { ServiceConflictError, ServiceFullError, ServiceNotFoundError } from '@homing/http'
import { callerDelivery } from '@homing/placement'

export interface ReservationsParts {
  readonly clock: Clock
  readonly log: Log
  readonly tracker: ActorRef<TrackerMessage>
  readonly router: ActorRef<RouterMessage>
  readonly openMax: number
  /** Past it the tracker ends one without a sign of life, in milliseconds. */
  readonly idleMsMax: number
  /** Longest wait for the tracker, in milliseconds. */
  readonly askMsMax: number
}

interface Reservation {
  /** Undefined: it is being booked. */
  rank: Rank | undefined
  /** It was freed while it was being booked, and ends when it is. */
  isFreed: boolean
  bookedMs: number
  /** After it was booked; undefined: not yet. */
  firstTokenMs: number | undefined
  /** Of its answer, as its caller counts. */
  outputBlocks: number
}

/** Reservations that the tracker is asked about at one time. */
const ASKED_AT_ONCE = 1024

export class Reservations {
  readonly #parts: ReservationsParts
  readonly #held = new Map<string, Reservation>()
  /** Where the next look goes on. */
  #next = this.#held.entries()

  constructor(parts: ReservationsParts) {
    this.#parts = parts
  }

  /** The id is taken from now on. Throws ServiceConflictError and ServiceFullError. */
  async begin(action: string, id: string): Promise<void> {
    const { clock, openMax } = this.#parts
    const before = this.#held.get(id)
    if (before?.rank !== undefined) this.#dropIfOver(id, before, await this.#where(id))
    if (this.#held.has(id))
      throw new ServiceConflictError(
        action,
        `${shown(id)} is reserved already; free it first, or use another id`,
      )
    if (this.#held.size >= openMax)
      throw new ServiceFullError(action, `${openMax} requests are reserved (--max-active-requests)`)
    this.#held.set(id, {
      rank: undefined,
      isFreed: false,
      bookedMs: clock.nowMs(),
      firstTokenMs: undefined,
      outputBlocks: 0,
    })
  }

  /**
   * It counts at this rank. Throws ServiceConflictError where it was freed meanwhile. Returns what ends it,
   * as long as it is this one.
   */
  booked(action: string, id: string, rank: Rank): () => void {
    // It is held since `begin`: nothing takes it away while it is being booked.
    const found = this.#held.get(id)!
    found.rank = rank
    found.bookedMs = this.#parts.clock.nowMs()
    if (!found.isFreed && !rank.isGone)
      return () => {
        if (this.#held.get(id) === found) this.#end(id, found)
      }
    this.#end(id, found)
    throw new ServiceConflictError(
      action,
      `${rank.isGone ? 'the worker was removed' : `${shown(id)} was freed`} meanwhile`,
    )
  }

  /** It could not be booked, or that is not known: either way it is not held. */
  failed(id: string, error: ErrorRecord): void {
    this.#held.delete(id)
    this.#settle(id, undefined, this.#parts.clock.nowMs(), error)
  }

  /** Another replica has one of this id. */
  isElsewhere(id: string): void {
    const isFreed = this.#held.get(id)?.isFreed === true
    this.#held.delete(id)
    if (isFreed) this.#tell({ type: 'free', decisionId: id })
  }

  /** Repeated, it says that the request is alive. Throws ServiceNotFoundError. */
  prefillComplete(action: string, id: string): Promise<void> {
    const { clock, router } = this.#parts
    return this.#find(action, id, found => {
      if (found?.firstTokenMs !== undefined) {
        this.#tell({ type: 'touch', decisionId: id })
        return
      }
      this.#tell({ type: 'prefillComplete', decisionId: id })
      if (found === undefined) return
      const firstTokenMs = clock.nowMs() - found.bookedMs
      found.firstTokenMs = firstTokenMs
      router.tell({ type: 'firstToken', id, firstTokenMs })
    })
  }

  /** Throws ServiceNotFoundError, and ServiceConflictError where it is another replica's. */
  outputBlock(action: string, id: string, weight: number): Promise<void> {
    return this.#find(action, id, found => {
      if (found === undefined)
        throw new ServiceConflictError(
          action,
          `${shown(id)} is reserved at another replica, which alone counts its blocks`,
        )
      const blocks = found.outputBlocks + 1
      this.#tell({ type: 'outputBlocks', decisionId: id, blocks, weight })
      found.outputBlocks = blocks
    })
  }

  /** Throws ServiceNotFoundError. */
  async free(action: string, id: string): Promise<void> {
    const booking = this.#held.get(id)
    if (booking !== undefined && booking.rank === undefined) {
      booking.isFreed = true
      return
    }
    await this.#find(action, id, found => {
      if (found !== undefined) this.#end(id, found)
      else this.#tell({ type: 'free', decisionId: id })
    })
  }

  /** These ranks are gone, and what is reserved there with them. */
  forget(ranks: readonly Rank[]): void {
    if (ranks.length === 0) return
    for (const [id, found] of this.#held)
      if (found.rank !== undefined && ranks.includes(found.rank)) this.#end(id, found)
  }

  /** Drops those that the tracker does not have any more; some of them at a time. */
  async look(): Promise<void> {
    const { tracker, log, askMsMax } = this.#parts
    const looked: (readonly [string, Reservation])[] = []
    for (let left = Math.min(ASKED_AT_ONCE, this.#held.size); left > 0; left--) {
      let next = this.#next.next()
      if (next.done === true) {
        this.#next = this.#held.entries()
        next = this.#next.next()
      }
      if (next.done === true) break
      if (next.value[1].rank !== undefined) looked.push(next.value)
    }
    if (looked.length === 0) return
    try {
      const decisionIds = looked.map(([id]) => id)
      const places = await tracker.ask({ type: 'whereBooked', decisionIds }, { timeout: askMsMax })
      for (const [i, [id, found]] of looked.entries()) this.#dropIfOver(id, found, places[i])
    } catch (error) {
      log.warn({ error: toErrorRecord(error) }, 'the tracker does not say what is reserved')
    }
  }

  /**
   * Calls `then` with what is held of it and booked here; undefined: it is booked at another replica. What
   * ended while the tracker was asked is not found, whatever has its id by now. Throws ServiceNotFoundError.
   */
  async #find(action: string, id: string, then: (found: Reservation | undefined) => void): Promise<void> {
    const held = this.#held.get(id)
    const place = held !== undefined && held.rank === undefined ? undefined : await this.#where(id)
    // Nothing may wait between this look and `then`: another call with this id would find it, too.
    const isSame = this.#held.get(id) === held
    if (isSame && held?.rank !== undefined) this.#dropIfOver(id, held, place)
    if (isSame && place === 'elsewhere') return then(undefined)
    if (isSame && place === 'here' && held !== undefined) return then(held)
    const { idleMsMax } = this.#parts
    throw new ServiceNotFoundError(
      action,
      `${shown(id)} is not reserved: never, not any more, or it had no sign of life for ${idleMsMax / 1000} s`,
    )
  }

  async #where(id: string): Promise<BookedPlace> {
    const { tracker, askMsMax } = this.#parts
    const [place] = await tracker.ask({ type: 'whereBooked', decisionIds: [id] }, { timeout: askMsMax })
    return place
  }

  /** What the tracker has no more, as it said of what was held then. */
  #dropIfOver(id: string, held: Reservation, place: BookedPlace): void {
    if (place === 'here' || this.#held.get(id) !== held) return
    if (place === undefined) this.#end(id, held)
    else this.#held.delete(id)
  }

  /** The only place where one that is held ends. */
  #end(id: string, { firstTokenMs, bookedMs }: Reservation): void {
    this.#held.delete(id)
    this.#settle(id, firstTokenMs, bookedMs)
  }

  /** `firstTokenMs`: undefined if there was none: its caller may not have sent it. */
  #settle(id: string, firstTokenMs: number | undefined, bookedMs: number, error?: ErrorRecord): void {
    const { clock, router } = this.#parts
    const { delivery, wasTaken } = callerDelivery(firstTokenMs, clock.nowMs() - bookedMs, error)
    // It frees the booking, too.
    router.tell({ type: 'settled', id, delivery, wasTaken })
  }

  /** Throws ServiceFullError where the mailbox has no room: what was said must not be lost. */
  #tell(message: TrackerMessage): void {
    if (this.#parts.tracker.tell(message) !== 'ok')
      throw new ServiceFullError('take the request', 'the tracker has too much to do; say it again')
  }
}

function shown(id: string): string {
  return JSON.stringify(id)
}

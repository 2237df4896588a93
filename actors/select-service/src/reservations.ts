/**
 * Reservations: requests that count as load of a rank, by the ids that their callers gave them.
 *
 *   begin ─▶ booking ─▶ booked ─▶ prefilled ─▶ ended
 *               └──────────┴──────────┴──────▶ expired: no sign of life for `idleMsMax`
 *
 * Those of `/select_and_reserve` are decisions of the router, which books them and is told their ends;
 * explicit ones are booked with the tracker alone.
 *
 * Invariants
 *   I1  An id is held once, from `begin` to its end; then it may be used again.
 *   I2  Each is settled once.
 *
 * Bounds  `openMax`. A caller that dies holds its reservation for `idleMsMax`.
 */

import type { ActorRef } from '@homing/actor'
import type { Rank } from '@homing/actors/index-service'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { Clock, ErrorRecord, Log } from '@homing/base'
import { ServiceConflictError, ServiceFullError, ServiceNotFoundError } from '@homing/http'
import type { Delivery } from '@homing/placement'

export interface ReservationsParts {
  readonly clock: Clock
  readonly log: Log
  readonly tracker: ActorRef<TrackerMessage>
  readonly router: ActorRef<RouterMessage>
  readonly openMax: number
  /** In milliseconds. */
  readonly idleMsMax: number
}

/** `decided`: the router has chosen and booked it. */
export type ReservationKind = 'decided' | 'explicit'

interface Reservation {
  readonly kind: ReservationKind
  /** Undefined: it is being booked. */
  rank: Rank | undefined
  /** It was freed while it was being booked, and ends when it is. */
  isFreed: boolean
  bookedMs: number
  lastSignMs: number
  /** After it was booked; undefined: not yet. */
  firstTokenMs: number | undefined
  /** Of its answer, as its caller counts. */
  outputBlocks: number
}

export class Reservations {
  readonly #parts: ReservationsParts
  /** By id; the one whose last sign of life is oldest comes first. */
  readonly #held = new Map<string, Reservation>()
  #expired = 0

  constructor(parts: ReservationsParts) {
    this.#parts = parts
  }

  get counts(): { readonly held: number; readonly expired: number } {
    return { held: this.#held.size, expired: this.#expired }
  }

  /** The id is taken from now on. Throws ServiceConflictError and ServiceFullError. */
  begin(action: string, id: string, kind: ReservationKind): void {
    const { clock, openMax } = this.#parts
    if (this.#held.has(id))
      throw new ServiceConflictError(
        action,
        `${shown(id)} is reserved already; free it first, or use another id`,
      )
    if (this.#held.size >= openMax)
      throw new ServiceFullError(action, `${openMax} requests are reserved (--max-active-requests)`)
    const nowMs = clock.nowMs()
    this.#held.set(id, {
      kind,
      rank: undefined,
      isFreed: false,
      bookedMs: nowMs,
      lastSignMs: nowMs,
      firstTokenMs: undefined,
      outputBlocks: 0,
    })
  }

  /** It counts at this rank. Throws ServiceConflictError where it was freed meanwhile. */
  booked(action: string, id: string, rank: Rank): void {
    // It is held since `begin`: nothing takes it away while it is being booked.
    const found = this.#held.get(id)!
    found.rank = rank
    if (found.isFreed || rank.isGone) {
      this.#end(id, found)
      const why = rank.isGone ? 'the worker was removed' : `${shown(id)} was freed`
      throw new ServiceConflictError(action, `${why} meanwhile`)
    }
    found.bookedMs = this.#parts.clock.nowMs()
    this.#alive(id, found)
  }

  /** It could not be booked, or that is not known: either way it is not held. */
  failed(id: string, kind: ReservationKind, error: ErrorRecord): void {
    this.#held.delete(id)
    this.#settle(id, kind, undefined, this.#parts.clock.nowMs(), error)
  }

  /** Repeated, it says that the request is alive. Throws ServiceNotFoundError. */
  prefillComplete(action: string, id: string): void {
    const { clock, tracker, router } = this.#parts
    const found = this.#booked(action, id)
    this.#alive(id, found)
    if (found.firstTokenMs !== undefined) {
      this.#tell(tracker, { type: 'touch', decisionId: id })
      return
    }
    const firstTokenMs = clock.nowMs() - found.bookedMs
    this.#tell(tracker, { type: 'prefillComplete', decisionId: id })
    found.firstTokenMs = firstTokenMs
    if (found.kind === 'decided') router.tell({ type: 'firstToken', id, firstTokenMs })
  }

  /** Throws ServiceNotFoundError. */
  outputBlock(action: string, id: string, weight: number): void {
    const found = this.#booked(action, id)
    this.#alive(id, found)
    const blocks = found.outputBlocks + 1
    this.#tell(this.#parts.tracker, { type: 'outputBlocks', decisionId: id, blocks, weight })
    found.outputBlocks = blocks
  }

  /** Throws ServiceNotFoundError. */
  free(action: string, id: string): void {
    const found = this.#held.get(id)
    if (found === undefined) throw this.#unknown(action, id)
    if (found.rank === undefined) found.isFreed = true
    else this.#end(id, found)
  }

  /** These ranks are gone, and what is reserved there with them. */
  forget(ranks: readonly Rank[]): void {
    if (ranks.length === 0) return
    for (const [id, found] of this.#held)
      if (found.rank !== undefined && ranks.includes(found.rank)) this.#end(id, found)
  }

  /** Ends what has had no sign of life. */
  look(): void {
    const { clock, log, idleMsMax } = this.#parts
    for (const [id, found] of this.#held) {
      if (clock.nowMs() - found.lastSignMs < idleMsMax) return
      if (found.rank === undefined) continue
      this.#expired++
      log.warn({ id, idleMsMax }, 'reservation freed: no sign of life')
      this.#end(id, found)
    }
  }

  #booked(action: string, id: string): Reservation {
    const found = this.#held.get(id)
    if (found?.rank === undefined) throw this.#unknown(action, id)
    return found
  }

  #unknown(action: string, id: string): ServiceNotFoundError {
    const { idleMsMax } = this.#parts
    return new ServiceNotFoundError(
      action,
      `${shown(id)} is not reserved: never, not any more, or it had no sign of life for ${idleMsMax / 1000} s`,
    )
  }

  #alive(id: string, found: Reservation): void {
    found.lastSignMs = this.#parts.clock.nowMs()
    this.#held.delete(id)
    this.#held.set(id, found)
  }

  /** The only place where one that is held ends. */
  #end(id: string, { kind, firstTokenMs, bookedMs }: Reservation): void {
    this.#held.delete(id)
    this.#settle(id, kind, firstTokenMs, bookedMs)
  }

  /** `firstTokenMs`: undefined if there was none: its caller may not have sent it. */
  #settle(
    id: string,
    kind: ReservationKind,
    firstTokenMs: number | undefined,
    bookedMs: number,
    error?: ErrorRecord,
  ): void {
    const { clock, tracker, router } = this.#parts
    if (kind === 'explicit') {
      tracker.tell({ type: 'free', decisionId: id })
      return
    }
    const wasTaken = firstTokenMs !== undefined
    const delivery: Delivery = {
      outcome: error !== undefined ? 'error' : wasTaken ? 'ok' : 'aborted',
      status: undefined,
      promptTokens: undefined,
      completionTokens: undefined,
      cachedTokens: undefined,
      waitedMs: 0,
      timeToFirstByteMs: firstTokenMs,
      durationMs: clock.nowMs() - bookedMs,
      streamEvents: undefined,
      error,
    }
    // It frees the booking, too.
    router.tell({ type: 'settled', id, delivery, wasTaken })
  }

  /** Throws ServiceFullError where the mailbox has no room: what was said must not be lost. */
  #tell(tracker: ActorRef<TrackerMessage>, message: TrackerMessage): void {
    if (tracker.tell(message) !== 'ok')
      throw new ServiceFullError('take the request', 'the tracker has too much to do; say it again')
  }
}

function shown(id: string): string {
  return JSON.stringify(id)
}

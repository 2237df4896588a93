/**
 * Reservations: requests that programs send themselves, booked under the programs' own ids.
 *
 *   bestWorker(id) ─▶ choosing ─▶ booked ─▶ prefilled ─▶ free
 *                         └──────────┴───────────┴─────▶ expired: no sign of life for `idleMsMax`
 *
 * Each is a placement like that of an exchange: the queue asks the router, which books it with the tracker.
 * It never waits for room: a program decides itself what it does when all workers are busy.
 *
 * Invariants
 *   I1  An id has one reservation at most, from the question to its end; then it may be used again.
 *   I2  Each placement is settled once: when it is freed, when it expires, when it was refused, or at the end
 *       of the gateway. If the gateway's thread dies, router and tracker free it by the gateway's life.
 *
 * Bounds  `openMax` reservations, ids of ID_CHARACTERS_MAX characters. A program that dies or forgets to free
 *         holds its booking for `idleMsMax`.
 */

import type { ActorRef } from '@homing/actor'
import type { ChosenWorker, ProgramPrompt } from '@homing/actors/console'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import { type Clock, type ErrorRecord, fromErrorRecord, type Log, toErrorRecord } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import {
  callerDelivery,
  type PotentialKeyLoad,
  type RoutingRequest,
  WorkerGoneError,
} from '@homing/placement'
import {
  BadReservationIdError,
  ReservationCancelledError,
  ReservationExistsError,
  ReservationUnknownError,
  TooManyReservationsError,
} from './errors.ts'
import type { GatewayMetrics } from './gateway-metrics.ts'
import type { Placement, Placements } from './placement.ts'

export interface ReservationsParts {
  readonly clock: Clock
  readonly log: Log
  readonly placements: Placements
  readonly router: ActorRef<RouterMessage>
  readonly tracker: ActorRef<TrackerMessage>
  readonly fleet: () => Fleet
  /** Gets what it gets of a request that the router sends, but for what engines count. */
  readonly metrics: Pick<GatewayMetrics, 'requests' | 'decided'>
  /** Reads a prompt; `id`: that of the request, if its program gives one. */
  readonly read: (prompt: ProgramPrompt, id: string | undefined) => Promise<RoutingRequest>
  /** Longest wait for the router, in milliseconds. */
  readonly askMsMax: number
  readonly openMax: number
  /** A reservation without a sign of life ends after this time, in milliseconds. */
  readonly idleMsMax: number
}

interface Reservation {
  /** Undefined: its prompt is being read. */
  placement: Placement | undefined
  readonly arrivedMs: number
  /** Where it is booked; undefined: not yet. */
  place: { readonly model: string; readonly worker: string } | undefined
  bookedMs: number
  /** After it was booked; undefined: not yet. */
  firstTokenMs: number | undefined
  lastSignMs: number
}

const ID_CHARACTERS_MAX = 256

export class Reservations {
  readonly #parts: ReservationsParts
  /** By id; the one whose last sign of life is oldest comes first. */
  readonly #open = new Map<string, Reservation>()
  #expired = 0

  constructor(parts: ReservationsParts) {
    this.#parts = parts
  }

  get counts(): { readonly open: number; readonly expired: number } {
    return { open: this.#open.size, expired: this.#expired }
  }

  /** Never rejects. */
  async bestWorker(prompt: ProgramPrompt, id: string | undefined): Promise<ChosenWorker | ErrorRecord> {
    try {
      return id === undefined ? await this.#look(prompt) : await this.#reserve(prompt, id)
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }

  /** Never rejects. */
  async potentialLoads(prompt: ProgramPrompt): Promise<readonly PotentialKeyLoad[] | ErrorRecord> {
    const { router, read, askMsMax } = this.#parts
    try {
      const request = await read(prompt, undefined)
      return await router.ask({ type: 'potentialLoads', request }, { timeout: askMsMax })
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }

  /** The first call ends the prefill; each is a sign of life. */
  prefilled(id: string): ErrorRecord | undefined {
    const fault = faultOfId('end the prefill of', id)
    if (fault !== undefined) return toErrorRecord(fault)
    const found = this.#open.get(id)
    const { clock, tracker, metrics, idleMsMax } = this.#parts
    if (found?.placement === undefined || found.place === undefined)
      return toErrorRecord(new ReservationUnknownError('end the prefill of', id, idleMsMax))
    const { placement, place } = found
    this.#alive(id, found)
    if (found.firstTokenMs !== undefined) {
      tracker.tell({ type: 'touch', decisionId: placement.id })
      return undefined
    }
    const nowMs = clock.nowMs()
    found.firstTokenMs = nowMs - found.bookedMs
    metrics.requests.firstToken(place.model, nowMs - found.arrivedMs, place.worker)
    tracker.tell({ type: 'prefillComplete', decisionId: placement.id })
    placement.prefilled()
    placement.firstToken(found.firstTokenMs)
    return undefined
  }

  free(id: string): ErrorRecord | undefined {
    const fault = faultOfId('free', id)
    if (fault !== undefined) return toErrorRecord(fault)
    const found = this.#open.get(id)
    if (found === undefined)
      return toErrorRecord(new ReservationUnknownError('free', id, this.#parts.idleMsMax))
    this.#end(id, found)
    return undefined
  }

  /** Ends what has had no sign of life. */
  look(): void {
    const { clock, log, idleMsMax } = this.#parts
    for (const [id, found] of this.#open) {
      if (clock.nowMs() - found.lastSignMs < idleMsMax) return
      this.#expired++
      log.warn({ id, idleMsMax }, 'booking of a program freed: no sign of life')
      this.#end(id, found)
    }
  }

  endAll(): void {
    for (const [id, found] of this.#open) this.#end(id, found)
  }

  async #look(prompt: ProgramPrompt): Promise<ChosenWorker> {
    const { router, read, askMsMax } = this.#parts
    const request = await read(prompt, undefined)
    const answer = await router.ask({ type: 'explain', request }, { timeout: askMsMax })
    if ('code' in answer) throw fromErrorRecord(answer)
    return this.#best(answer)
  }

  async #reserve(prompt: ProgramPrompt, id: string): Promise<ChosenWorker> {
    const { clock, placements, metrics, read, openMax } = this.#parts
    const fault = faultOfId('book', id)
    if (fault !== undefined) throw fault
    if (this.#open.has(id)) throw new ReservationExistsError(id)
    if (this.#open.size >= openMax) throw new TooManyReservationsError(openMax)
    const nowMs = clock.nowMs()
    const own: Reservation = {
      placement: undefined,
      arrivedMs: nowMs,
      place: undefined,
      bookedMs: nowMs,
      firstTokenMs: undefined,
      lastSignMs: nowMs,
    }
    this.#open.set(id, own)
    try {
      const request = await read(prompt, id)
      if (this.#open.get(id) !== own) throw new ReservationCancelledError(id)
      const askedMs = clock.nowMs()
      metrics.requests.stage('tokenize', askedMs - nowMs)
      // Its program says when the first token comes, as a stream does.
      own.placement = placements.ask({ ...request, isStream: true }, undefined, 0)
      const answer = await own.placement.answer
      if (this.#open.get(id) !== own) throw new ReservationCancelledError(id)
      if ('code' in answer) throw fromErrorRecord(answer)
      own.place = { model: request.model, worker: answer.worker }
      own.bookedMs = clock.nowMs()
      metrics.requests.decided(request, answer, true)
      metrics.requests.stage('place', own.bookedMs - askedMs)
      metrics.decided(request, answer)
      this.#alive(id, own)
      return this.#best(answer)
    } catch (thrown) {
      if (this.#open.get(id) === own) this.#end(id, own, toErrorRecord(thrown))
      throw thrown
    }
  }

  #best({
    worker,
    overlapBlocks,
  }: {
    readonly worker: string
    readonly overlapBlocks: number
  }): ChosenWorker {
    for (const { instanceId, origin, keys } of this.#parts.fleet().workers)
      for (const { key, dpRank } of keys)
        if (key === worker) return { worker, instanceId, dpRank, origin, overlapBlocks }
    // The router has chosen by another fleet than this gateway was told last.
    throw new WorkerGoneError(worker)
  }

  #alive(id: string, found: Reservation): void {
    found.lastSignMs = this.#parts.clock.nowMs()
    this.#open.delete(id)
    this.#open.set(id, found)
  }

  /** The only place where a reservation ends. */
  #end(id: string, { placement, firstTokenMs, bookedMs }: Reservation, error?: ErrorRecord): void {
    this.#open.delete(id)
    const durationMs = this.#parts.clock.nowMs() - bookedMs
    const { delivery, wasTaken } = callerDelivery(firstTokenMs, durationMs, error)
    placement?.settle(delivery, wasTaken, false)
  }
}

/** Programs in JavaScript may give anything. */
function faultOfId(act: string, id: unknown): BadReservationIdError | undefined {
  const isFit = typeof id === 'string' && id.length > 0 && id.length <= ID_CHARACTERS_MAX
  return isFit ? undefined : new BadReservationIdError(act, id, ID_CHARACTERS_MAX)
}

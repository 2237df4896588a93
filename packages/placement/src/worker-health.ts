/**
 * Worker health: which workers fail the requests that they get, and when they are tried again.
 *
 *   up ──3 failures in a row, or 6 of the last 20──▶ ejected ──back-off is over──▶ half open
 *   half open ──the trial request is served──▶ up
 *   half open ──it fails──▶ ejected, for twice as long (BACKOFF_MS_MIN … BACKOFF_MS_MAX)
 *
 * The directory knows whether a worker answers; this knows whether what it answers is of use. A worker that
 * fails quickly always looks idle, so no policy may see it: it is no candidate while it is ejected. While it
 * is half open, the next request that may go anywhere is its trial. If all candidates are ejected, those that
 * failed least of late are tried all the same: a request is never refused because everything is bad.
 *
 * A worker that does not have a model after all is left out for that model only, until the directory has read
 * its list again or MODEL_MS has passed.
 *
 * Failures that are the client's fault, and those that the same request met at two workers, are not reported
 * here. State that is older than the last ejection says nothing about it: reports carry the time of their
 * decision. All times are of one clock, in milliseconds.
 *
 * Bounds   one entry for each worker of the fleet; LACKED_MODELS_MAX models for each.
 */

import type { Fleet } from '@homing/fleet'

export interface WorkerFault {
  /**
   * `failed`: an error status, a broken or a silent call. `cut`: the answer broke off after its first byte.
   * `lacksModel`: it says that it does not serve the model.
   */
  readonly kind: 'failed' | 'cut' | 'lacksModel'
  readonly reason: string
}

export interface HealthStatus {
  readonly worker: string
  readonly state: 'up' | 'ejected' | 'half open'
  /** Why it was ejected; undefined: it is up. */
  readonly reason: string | undefined
  /** Until its next trial, in milliseconds; 0 if it is due or the worker is up. */
  readonly trialInMs: number
  readonly ejections: number
  /** Failures and outcomes among the last ones. */
  readonly failed: number
  readonly outcomes: number
}

export const ROW_FAILURES_MAX = 3
export const OUTCOMES_KEPT = 20
export const KEPT_FAILURES_MAX = 6
export const BACKOFF_MS_MIN = 1000
export const BACKOFF_MS_MAX = 30_000
/** A trial that has not ended by then does not keep others from being made. */
const REQUEST_TRIAL_MS_MAX = 60_000
/** A worker that has been up for this long after an ejection begins with the shortest back-off again. */
const FORGIVEN_MS = 60_000
const MODEL_MS = 5000
const LACKED_MODELS_MAX = 64

interface Entry {
  readonly joinedMs: number
  /** The last outcomes, oldest first; true: it failed. */
  outcomes: boolean[]
  inRow: number
  /** Undefined: it is up. */
  ejected: { readonly sinceMs: number; readonly untilMs: number; readonly fault: WorkerFault } | undefined
  backoffMs: number
  upSinceMs: number
  ejections: number
  trial: { readonly id: string; readonly sinceMs: number } | undefined
  /** Models that it said it lacks: until when it is left out for them. */
  readonly lacks: Map<string, number>
}

export class WorkerHealth {
  readonly #entries = new Map<string, Entry>()

  /** Forgets workers that have left; one that came back is a new one. */
  keepOnly({ workers }: Fleet): void {
    const joined = new Map(workers.map(({ id, joinedMs }) => [id, joinedMs]))
    for (const [id, { joinedMs }] of this.#entries) if (joined.get(id) !== joinedMs) this.#entries.delete(id)
  }

  /** The directory has read the models of this worker again. */
  modelsRead(workerId: string): void {
    this.#entries.get(workerId)?.lacks.clear()
  }

  /** A request decided at `decidedMs` was served. True: the worker was ejected and is up again. */
  served(workerId: string, decidedMs: number, nowMs: number): boolean {
    const entry = this.#entries.get(workerId)
    if (entry === undefined) return false
    add(entry, false)
    return this.#restore(entry, decidedMs, nowMs)
  }

  /**
   * The first token of a request came. It ends a trial, but for a worker that was ejected because its answers
   * broke off: there only a whole answer does. True: the worker is up again.
   */
  progressed(workerId: string, decidedMs: number, nowMs: number): boolean {
    const entry = this.#entries.get(workerId)
    if (entry?.ejected === undefined || entry.ejected.fault.kind === 'cut') return false
    return this.#restore(entry, decidedMs, nowMs)
  }

  /**
   * A request decided at `decidedMs` failed. True: the worker is ejected by that, or for longer. `joinedMs`
   * is that of the worker's record.
   */
  failed(
    workerId: string,
    joinedMs: number,
    model: string,
    fault: WorkerFault,
    decidedMs: number,
    nowMs: number,
  ): boolean {
    const entry = this.#entry(workerId, joinedMs)
    if (fault.kind === 'lacksModel') {
      entry.lacks.delete(model)
      if (entry.lacks.size >= LACKED_MODELS_MAX) entry.lacks.delete(entry.lacks.keys().next().value!)
      entry.lacks.set(model, nowMs + MODEL_MS)
      return false
    }
    add(entry, true)
    const { ejected } = entry
    if (ejected !== undefined) {
      // Only what was decided as a trial says that it still fails.
      if (decidedMs < ejected.untilMs) return false
      entry.backoffMs = Math.min(BACKOFF_MS_MAX, entry.backoffMs * 2)
    } else {
      const isBad =
        entry.inRow >= ROW_FAILURES_MAX ||
        entry.outcomes.filter(hasFailed => hasFailed).length >= KEPT_FAILURES_MAX
      if (!isBad) return false
      const wasUpMs = nowMs - entry.upSinceMs
      entry.backoffMs =
        entry.ejections === 0 || wasUpMs >= FORGIVEN_MS
          ? BACKOFF_MS_MIN
          : Math.min(BACKOFF_MS_MAX, entry.backoffMs * 2)
    }
    entry.ejected = { sinceMs: nowMs, untilMs: nowMs + entry.backoffMs, fault }
    entry.ejections++
    entry.trial = undefined
    return true
  }

  /** A decision has ended, whatever its outcome: if it was a trial, another one may follow. */
  ended(workerId: string, decisionId: string): void {
    const entry = this.#entries.get(workerId)
    if (entry?.trial?.id === decisionId) entry.trial = undefined
  }

  /** A decision for this worker was made and booked: if its trial is due, this is it. */
  decided(workerId: string, decisionId: string, nowMs: number): void {
    const entry = this.#entries.get(workerId)
    if (entry !== undefined && isDue(entry, nowMs)) entry.trial = { id: decisionId, sinceMs: nowMs }
  }

  /** Why a worker gets no request of this model; undefined: it may. */
  reasonAgainst(workerId: string, model: string, nowMs: number): string | undefined {
    const entry = this.#entries.get(workerId)
    if (entry === undefined) return undefined
    const { ejected, lacks } = entry
    if (ejected !== undefined) return `ejected: ${ejected.fault.reason}`
    const untilMs = lacks.get(model)
    if (untilMs === undefined) return undefined
    if (nowMs < untilMs) return `does not serve ${model}: it said so a moment ago`
    lacks.delete(model)
    return undefined
  }

  /** Whether the next request that may go anywhere is to be the trial of this worker. */
  isTrialDue(workerId: string, nowMs: number): boolean {
    const entry = this.#entries.get(workerId)
    return entry !== undefined && isDue(entry, nowMs)
  }

  /** Part of the last outcomes that failed, 0 … 1: the order in which ejected workers are tried. */
  failedShare(workerId: string): number {
    const outcomes = this.#entries.get(workerId)?.outcomes ?? []
    return outcomes.length === 0 ? 0 : outcomes.filter(hasFailed => hasFailed).length / outcomes.length
  }

  /** Workers that have failed a request since they joined. */
  report(nowMs: number): readonly HealthStatus[] {
    return Array.from(this.#entries, ([worker, entry]) => ({
      worker,
      state: entry.ejected === undefined ? 'up' : nowMs >= entry.ejected.untilMs ? 'half open' : 'ejected',
      reason: entry.ejected?.fault.reason,
      trialInMs: Math.max(0, (entry.ejected?.untilMs ?? nowMs) - nowMs),
      ejections: entry.ejections,
      failed: entry.outcomes.filter(hasFailed => hasFailed).length,
      outcomes: entry.outcomes.length,
    }))
  }

  #entry(workerId: string, joinedMs: number): Entry {
    let entry = this.#entries.get(workerId)
    if (entry === undefined || entry.joinedMs !== joinedMs) {
      entry = {
        joinedMs,
        outcomes: [],
        inRow: 0,
        ejected: undefined,
        backoffMs: BACKOFF_MS_MIN,
        upSinceMs: Number.NEGATIVE_INFINITY,
        ejections: 0,
        trial: undefined,
        lacks: new Map(),
      }
      this.#entries.set(workerId, entry)
    }
    return entry
  }

  /** What was decided before the ejection does not end it. */
  #restore(entry: Entry, decidedMs: number, nowMs: number): boolean {
    if (entry.ejected === undefined || decidedMs < entry.ejected.sinceMs) return false
    entry.ejected = undefined
    entry.trial = undefined
    entry.upSinceMs = nowMs
    entry.outcomes = []
    entry.inRow = 0
    return true
  }
}

function add(entry: Entry, hasFailed: boolean): void {
  entry.inRow = hasFailed ? entry.inRow + 1 : 0
  entry.outcomes.push(hasFailed)
  if (entry.outcomes.length > OUTCOMES_KEPT) entry.outcomes.shift()
}

function isDue({ ejected, trial }: Entry, nowMs: number): boolean {
  if (ejected === undefined || nowMs < ejected.untilMs) return false
  return trial === undefined || nowMs - trial.sinceMs >= REQUEST_TRIAL_MS_MAX
}

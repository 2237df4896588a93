/**
 * Worker health: which workers fail the requests that they get, and when they are tried again.
 *
 *   up ──3 failures in a row, or 6 of the last 20──▶ ejected ──back-off is over──▶ trial
 *   trial ──the next request is served──▶ up
 *   trial ──it fails──▶ ejected, for twice as long (BACKOFF_MS_MIN … BACKOFF_MS_MAX)
 *
 * The directory knows whether a worker answers; this knows whether what it answers is of use. A worker that
 * fails quickly always looks idle, so no policy may see it: it is no candidate while it is ejected. While it
 * is on trial, the next request that may go anywhere tries it. If all candidates are ejected, those that
 * failed least of late are tried all the same: a request is never refused because everything is bad.
 *
 * A worker with several models that fails one of them (an adapter that does not load, say) is ejected for
 * that model only; when it fails a second one, it is ejected as a whole. A trial that it serves with another
 * model than the last that failed leaves it ejected for that one.
 *
 * A worker that does not have a model after all is left out for that model only, until the directory has read
 * its list again or MODEL_MS has passed.
 *
 * Failures that are the client's fault, and those that the same request met at two workers, are not reported
 * here. State that is older than the last ejection says nothing about it: reports carry the time of their
 * decision. All times are of one clock, in milliseconds.
 *
 * Bounds   one entry for each worker of the fleet; MODELS_KEPT_MAX models for each.
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
  readonly state: 'up' | 'ejected' | 'trial'
  /** Why it was ejected; undefined: it is up. */
  readonly reason: string | undefined
  /** Until its next trial, in milliseconds; 0 if it is due or the worker is up. */
  readonly trialInMs: number
  /** For all models or for one. */
  readonly ejections: number
  /** Failures and outcomes among the last ones. */
  readonly failed: number
  readonly outcomes: number
  /** Models for which it is left out while it serves others, with the reason. */
  readonly models: readonly { readonly model: string; readonly reason: string }[]
}

const ROW_FAILURES_MAX = 3
const OUTCOMES_KEPT = 20
const KEPT_FAILURES_MAX = 6
const BACKOFF_MS_MIN = 1000
/** A trial that fails costs a client nothing but time, unless the answer broke off after it had begun. */
const BACKOFF_MS_MAX = { failed: 10_000, cut: 30_000 }
/** A trial that has not ended by then does not keep others from being made. */
const REQUEST_TRIAL_MS_MAX = 60_000
/** A worker that has been up for this long after an ejection begins with the shortest back-off again. */
const FORGIVEN_MS = 60_000
const MODEL_MS = 5000
const MODELS_KEPT_MAX = 64

/** Of the whole worker, or for one of its models. */
interface Ejection {
  readonly model: string
  readonly fault: WorkerFault
  sinceMs: number
  untilMs: number
  backoffMs: number
  trial: { readonly id: string; readonly sinceMs: number } | undefined
}

interface Outcome {
  readonly model: string
  readonly hasFailed: boolean
}

interface Entry {
  readonly joinedMs: number
  /** The last outcomes, oldest first. */
  outcomes: Outcome[]
  inRow: number
  /** Undefined: it is up. */
  ejected: Ejection | undefined
  /** While the worker is up: models for which it is ejected. */
  readonly ejectedModels: Map<string, Ejection>
  /** Of the last ejection of the worker. */
  backoffMs: number
  upSinceMs: number
  ejections: number
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
  served(workerId: string, model: string, decidedMs: number, nowMs: number): boolean {
    const entry = this.#entries.get(workerId)
    if (entry === undefined) return false
    add(entry, model, false)
    return restore(entry, model, decidedMs, nowMs)
  }

  /**
   * The first token of a request came. It ends a trial, but for a worker that was ejected because its answers
   * broke off: there only a whole answer does. True: the worker is up again.
   */
  progressed(workerId: string, model: string, decidedMs: number, nowMs: number): boolean {
    const entry = this.#entries.get(workerId)
    const ejection = entry && ejectionOf(entry, model)
    if (entry === undefined || ejection === undefined || ejection.fault.kind === 'cut') return false
    return restore(entry, model, decidedMs, nowMs)
  }

  /**
   * A request decided at `decidedMs` failed. True: the worker is ejected by that, or for longer. `joinedMs`
   * is that of the worker's record; `hasOthers`: it lists other models, too.
   */
  failed(
    workerId: string,
    joinedMs: number,
    model: string,
    fault: WorkerFault,
    decidedMs: number,
    nowMs: number,
    hasOthers = false,
  ): boolean {
    const entry = this.#entry(workerId, joinedMs)
    if (fault.kind === 'lacksModel') {
      keepNewest(entry.lacks, model, nowMs + MODEL_MS)
      return false
    }
    add(entry, model, true)
    const ejection = ejectionOf(entry, model)
    if (ejection !== undefined) {
      // Only what was decided as a trial says that it still fails.
      if (decidedMs < ejection.untilMs) return false
      ejection.backoffMs = Math.min(BACKOFF_MS_MAX[fault.kind], ejection.backoffMs * 2)
      ejection.sinceMs = nowMs
      ejection.untilMs = nowMs + ejection.backoffMs
      ejection.trial = undefined
      entry.ejections++
      return true
    }
    if (!isBad(entry)) return false
    entry.ejections++
    if (hasOthers && failsOneModel(entry, model)) {
      keepNewest(entry.ejectedModels, model, newEjection(model, fault, nowMs, BACKOFF_MS_MIN))
      // It is up for the others, until the next failure of one of them.
      entry.outcomes = entry.outcomes.filter(outcome => outcome.model !== model)
      return true
    }
    const isForgiven = nowMs - entry.upSinceMs >= FORGIVEN_MS
    entry.backoffMs = isForgiven ? BACKOFF_MS_MIN : Math.min(BACKOFF_MS_MAX[fault.kind], entry.backoffMs * 2)
    entry.ejected = newEjection(model, fault, nowMs, entry.backoffMs)
    return true
  }

  /** A decision has ended, whatever its outcome: if it was a trial, another one may follow. */
  ended(workerId: string, decisionId: string): void {
    const entry = this.#entries.get(workerId)
    if (entry === undefined) return
    for (const ejection of ejectionsOf(entry))
      if (ejection.trial?.id === decisionId) ejection.trial = undefined
  }

  /** A decision for this worker was made and booked: if its trial is due, this is it. */
  decided(workerId: string, model: string, decisionId: string, nowMs: number): void {
    const entry = this.#entries.get(workerId)
    const ejection = entry && ejectionOf(entry, model)
    if (ejection !== undefined && isDue(ejection, nowMs)) ejection.trial = { id: decisionId, sinceMs: nowMs }
  }

  /** Why a worker gets no request of this model; undefined: it may. */
  reasonAgainst(workerId: string, model: string, nowMs: number): string | undefined {
    const entry = this.#entries.get(workerId)
    if (entry === undefined) return undefined
    const ejection = ejectionOf(entry, model)
    if (ejection !== undefined) {
      return ejection === entry.ejected
        ? `ejected: ${ejection.fault.reason}`
        : `ejected for ${model}: ${ejection.fault.reason}`
    }
    const untilMs = entry.lacks.get(model)
    if (untilMs === undefined) return undefined
    if (nowMs < untilMs) return `does not serve ${model}: it said so a moment ago`
    entry.lacks.delete(model)
    return undefined
  }

  /** Ids of the workers that are left out for this model. */
  unwell(model: string, nowMs: number): readonly string[] {
    return [...this.#entries.keys()].filter(id => this.reasonAgainst(id, model, nowMs) !== undefined)
  }

  /** Whether the next request of this model that may go anywhere is to be the trial of this worker. */
  isTrialDue(workerId: string, model: string, nowMs: number): boolean {
    const entry = this.#entries.get(workerId)
    const ejection = entry && ejectionOf(entry, model)
    return ejection !== undefined && isDue(ejection, nowMs)
  }

  /** Part of the last outcomes that failed, 0 … 1: the order in which ejected workers are tried. */
  failedShare(workerId: string): number {
    const outcomes = this.#entries.get(workerId)?.outcomes ?? []
    return outcomes.length === 0 ? 0 : failuresOf(outcomes) / outcomes.length
  }

  /** Workers that have failed a request since they joined. */
  report(nowMs: number): readonly HealthStatus[] {
    return Array.from(this.#entries, ([worker, { ejected, ejectedModels, ejections, outcomes }]) => ({
      worker,
      state: ejected === undefined ? 'up' : nowMs >= ejected.untilMs ? 'trial' : 'ejected',
      reason: ejected?.fault.reason,
      trialInMs: Math.max(0, (ejected?.untilMs ?? nowMs) - nowMs),
      ejections,
      failed: failuresOf(outcomes),
      outcomes: outcomes.length,
      models: Array.from(ejectedModels, ([model, { fault }]) => ({ model, reason: fault.reason })),
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
        ejectedModels: new Map(),
        backoffMs: BACKOFF_MS_MIN,
        upSinceMs: Number.NEGATIVE_INFINITY,
        ejections: 0,
        lacks: new Map(),
      }
      this.#entries.set(workerId, entry)
    }
    return entry
  }
}

function ejectionOf({ ejected, ejectedModels }: Entry, model: string): Ejection | undefined {
  return ejected ?? ejectedModels.get(model)
}

function ejectionsOf({ ejected, ejectedModels }: Entry): readonly Ejection[] {
  return ejected === undefined ? [...ejectedModels.values()] : [ejected, ...ejectedModels.values()]
}

function newEjection(model: string, fault: WorkerFault, nowMs: number, backoffMs: number): Ejection {
  return { model, fault, sinceMs: nowMs, untilMs: nowMs + backoffMs, backoffMs, trial: undefined }
}

/** What was decided before an ejection does not end it. */
function restore(entry: Entry, model: string, decidedMs: number, nowMs: number): boolean {
  const { ejected, ejectedModels } = entry
  const ejection = ejected ?? ejectedModels.get(model)
  if (ejection === undefined || decidedMs < ejection.sinceMs) return false
  if (ejected === undefined) {
    ejectedModels.delete(model)
    return true
  }
  entry.ejected = undefined
  entry.upSinceMs = nowMs
  entry.outcomes = []
  entry.inRow = 0
  // It serves this model; whether it serves the one that failed is not known.
  if (ejected.model !== model)
    keepNewest(
      ejectedModels,
      ejected.model,
      newEjection(ejected.model, ejected.fault, nowMs, ejected.backoffMs),
    )
  return true
}

function add(entry: Entry, model: string, hasFailed: boolean): void {
  entry.inRow = hasFailed ? entry.inRow + 1 : 0
  entry.outcomes.push({ model, hasFailed })
  if (entry.outcomes.length > OUTCOMES_KEPT) entry.outcomes.shift()
}

function isBad({ inRow, outcomes }: Entry): boolean {
  return inRow >= ROW_FAILURES_MAX || failuresOf(outcomes) >= KEPT_FAILURES_MAX
}

/** No other model failed of late. */
function failsOneModel({ outcomes, ejectedModels }: Entry, model: string): boolean {
  return ejectedModels.size === 0 && failuresOf(outcomes.filter(outcome => outcome.model !== model)) === 0
}

function failuresOf(outcomes: readonly Outcome[]): number {
  return outcomes.filter(({ hasFailed }) => hasFailed).length
}

function keepNewest<V>(byModel: Map<string, V>, model: string, value: V): void {
  byModel.delete(model)
  if (byModel.size >= MODELS_KEPT_MAX) byModel.delete(byModel.keys().next().value!)
  byModel.set(model, value)
}

function isDue({ untilMs, trial }: Ejection, nowMs: number): boolean {
  if (nowMs < untilMs) return false
  return trial === undefined || nowMs - trial.sinceMs >= REQUEST_TRIAL_MS_MAX
}

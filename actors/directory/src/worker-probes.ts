/**
 * Worker probes: probes every worker regularly and decides whether it is up.
 *
 *   probing ──reached──▶ up ──unreachable, or MISSES_MAX misses──▶ down ──reached──▶ up
 *      └──────one miss──────────────────────────────────────────▲
 *
 * A probe is one of two kinds: `full` asks for everything and is used until a worker is up and has said where
 * its events are, after a miss or a suspicion, and every FULL_PROBE_TURNS; the cheap one only asks whether it
 * answers. A slow answer is not death: each miss doubles the time that the next probe may take, and a worker
 * that sends bytes of answers meanwhile has not missed it. Broken calls are not death either: the worker is
 * probed at once, and only a miss of that probe takes it down (which worker fails its requests is the
 * router's to judge). A list of models that differs from the last one is read anew with a full probe. If this
 * machine lacks a resource (file descriptors, ports), or the worker's connection has as many calls as it
 * takes, this does not count as a miss of the worker. One that has fallen asleep or has woken is probed
 * fully.
 *
 * Owns   `state`, `stateReason`, `unansweredSinceMs` and `wasProbed` of every worker, and when it is probed
 *        next.
 * Order  a worker has one *turn* at a time: a probe under way, or a wait for the next. Every decision about
 *        it begins another turn, and results of an earlier turn are dropped. So a suspicion
 *        during a probe wins over its answer, which may have left the worker before the trouble.
 * Bounds PROBES_AT_ONCE_MAX probes under way, half of them of workers that are down; further ones wait for
 *        their end, in order. Thousands at one time would all be late, and their workers taken for silent.
 */

import type { ActorContext } from '@homing/actor'
import type { KeySource, ProbeOutcome } from '@homing/fleet'
import {
  checkHealth,
  chooseWay,
  openDoor,
  owesEventSources,
  probeWorker,
  type ReachedOutcome,
  type RequestPlane,
  routeTo,
} from '@homing/fleet'
import { transportCapability } from '@homing/transport'
import type { DoorHolders } from './door-holders.ts'
import type { DirectoryMessage } from './messages.ts'
import type { Worker } from './worker.ts'
import type { WorkerTable } from './worker-table.ts'

export interface WorkerProbesOptions {
  readonly context: ActorContext<DirectoryMessage>
  readonly workers: WorkerTable
  readonly probeIntervalMs: number
  readonly probeTimeoutMs: number
  /** Over which workers are called that take requests there; undefined: none is. */
  readonly requestPlane: RequestPlane | undefined
  /** Told of every key. */
  readonly doors: Pick<DoorHolders, 'opened' | 'closed'>
  /** Key of engines without their own; undefined: they have none. */
  readonly engineKey: KeySource | undefined
  /** A full probe reached the worker, which is up by now; `wasDown`: and was down until then. */
  readonly reached: (worker: Worker, outcome: ReachedOutcome, wasDown: boolean) => void
  /** State or reason of the worker may have changed. */
  readonly changed: (worker: Worker) => void
}

/** Misses in a row after which a worker that was up is down. */
const MISSES_MAX = 3
const SLOW_PROBE_MS_MAX = 10_000
export const PROBES_AT_ONCE_MAX = 64
/** Of the probes of a worker that is up, one in this many is a full probe. */
const FULL_PROBE_TURNS = 5
const PROBE_RETRY_MS_MIN = 200
const PROBE_RETRY_MS_MAX = 2000
/** A worker that cannot be reached within this time of the last suspicion is probed later than last time. */
const SUSPECT_MEMORY_MS = 10_000
/** A worker that has sent bytes within this time answers, even if it misses a probe by its time. */
const ALIVE_MS = 5000
/** Calls that break this soon after another broke it with one blow: an engine that ends cuts all it has. */
const SUSPECT_EPISODE_MS = 500

type HealthChecked = Extract<DirectoryMessage, { readonly type: 'healthChecked' }>

/** A probe that found no worker that takes requests. */
interface Missed {
  readonly reason: string
  readonly isSlow?: boolean | undefined
  readonly isAnswered?: boolean | undefined
}

interface Probing {
  /** Misses in a row. */
  misses: number
  /** Cheap probes since the last full one. */
  turnsSinceFull: number
  turn: number
  /** From going down to the next probe. */
  retryMs: number
  suspectedMs: number
  /** When it last sent bytes of an answer. */
  aliveMs: number
  /** Why its key could not be had at the last probe; undefined: it could, or it needs none. */
  keyFault: string | undefined
}

export class WorkerProbes {
  readonly #options: WorkerProbesOptions
  readonly #context: ActorContext<DirectoryMessage>
  readonly #probings = new Map<Worker, Probing>()
  /**
   * One after the other for all workers: a turn of one that left is not taken for one of the next of its id.
   */
  #turns = 0
  /** Turns of the probes under way, and whether their workers were down. */
  readonly #underWay = new Map<number, boolean>()
  #downUnderWay = 0
  /** To be probed when there are fewer under way; those that are down, and others. */
  readonly #waitingDown = new Set<Worker>()
  readonly #waiting = new Set<Worker>()
  /** A probe failed because this machine lacked a resource, and no probe has succeeded since. */
  #couldNotAsk = false

  constructor(options: WorkerProbesOptions) {
    this.#options = options
    this.#context = options.context
  }

  /** Probes a worker now and from now on. */
  begin(worker: Worker): void {
    const probing: Probing = {
      misses: 0,
      turnsSinceFull: 0,
      turn: ++this.#turns,
      retryMs: PROBE_RETRY_MS_MIN,
      suspectedMs: Number.NEGATIVE_INFINITY,
      aliveMs: Number.NEGATIVE_INFINITY,
      keyFault: undefined,
    }
    this.#probings.set(worker, probing)
    worker.unansweredSinceMs = this.#context.clock.wallMs()
    chooseWay(this.#context.use(transportCapability).http, worker.spec, this.#options.requestPlane)
    this.#probe(worker, probing)
  }

  /** The worker has left: results on their way are dropped. */
  end(worker: Worker): void {
    this.#probings.delete(worker)
    this.#waitsNot(worker)
    const { http } = this.#context.use(transportCapability)
    http.setAccess(worker.spec.origin, undefined)
    http.setRoute(worker.spec.origin, undefined)
    this.#options.doors.closed(worker.spec.origin)
  }

  probeDue(workerId: string, turn: number): void {
    const worker = this.#workerOfTurn(workerId, turn)
    if (worker !== undefined) this.#probe(worker, this.#probings.get(worker)!)
  }

  /** The answer of a full probe. */
  probed(workerId: string, turn: number, outcome: ProbeOutcome): void {
    this.#hasEnded(turn)
    const worker = this.#workerOfTurn(workerId, turn)
    if (worker === undefined) return
    const isFirst = !worker.wasProbed
    worker.wasProbed = true
    if (outcome.reached) this.#reached(worker, outcome)
    else if (outcome.isLocal === true) this.#notAsked(worker, outcome.reason)
    else this.#missed(worker, outcome)
    if (isFirst && !outcome.reached && outcome.isLocal !== true) {
      this.#context.log.warn(
        { worker: workerId, reason: outcome.reason },
        'worker does not answer; it is probed until it does',
      )
    }
    this.#options.changed(worker)
  }

  /** The answer of a cheap probe; no fault: it is healthy. */
  healthChecked({
    workerId,
    turn,
    fault,
    isLocal,
    isSlow,
    isAnswered,
    models,
    isAsleep,
  }: HealthChecked): void {
    this.#hasEnded(turn)
    const worker = this.#workerOfTurn(workerId, turn)
    if (worker === undefined) return
    if (fault !== undefined && isLocal) this.#notAsked(worker, fault)
    else if (fault !== undefined) this.#missed(worker, { reason: fault, isSlow, isAnswered })
    else {
      this.#couldNotAsk = false
      const probing = this.#probings.get(worker)!
      probing.misses = 0
      const isOther = isAsleep !== undefined && isAsleep !== worker.outcome?.sleep?.isAsleep
      if (isOther || (models !== undefined && !isSame(models, worker))) {
        this.#probeFully(worker, probing)
        return
      }
      this.#schedule(worker, this.#options.probeIntervalMs)
    }
    this.#options.changed(worker)
  }

  /** Somebody's call to the worker broke, or found no connection at all. */
  suspect(workerId: string, reason: string, isUnreachable: boolean): void {
    const worker = this.#options.workers.get(workerId)
    if (worker === undefined || worker.state !== 'up') return
    const probing = this.#probings.get(worker)!
    const nowMs = this.#context.clock.nowMs()
    const sinceMs = nowMs - probing.suspectedMs
    const isAgain = sinceMs < SUSPECT_MEMORY_MS
    if (!isUnreachable) {
      if (sinceMs < SUSPECT_EPISODE_MS) return
      probing.suspectedMs = nowMs
      probing.misses = MISSES_MAX - 1
      this.#probeFully(worker, probing)
      return
    }
    probing.retryMs = isAgain ? Math.min(PROBE_RETRY_MS_MAX, probing.retryMs * 2) : PROBE_RETRY_MS_MIN
    probing.suspectedMs = nowMs
    this.#goDown(worker, reason)
    this.#schedule(worker, probing.retryMs)
    this.#options.changed(worker)
  }

  /** These workers have sent bytes of answers. */
  alive(workerIds: readonly string[]): void {
    const nowMs = this.#context.clock.nowMs()
    for (const workerId of workerIds) {
      const worker = this.#options.workers.get(workerId)
      const probing = worker && this.#probings.get(worker)
      if (probing !== undefined) probing.aliveMs = nowMs
    }
  }

  /** The worker differs from what is known of it: it is probed fully, at most every SUSPECT_EPISODE_MS. */
  lookAgain(workerId: string): void {
    const worker = this.#options.workers.get(workerId)
    if (worker === undefined || worker.state !== 'up') return
    const probing = this.#probings.get(worker)!
    const nowMs = this.#context.clock.nowMs()
    if (nowMs - probing.suspectedMs < SUSPECT_EPISODE_MS) return
    probing.suspectedMs = nowMs
    this.#probeFully(worker, probing)
  }

  #probeFully(worker: Worker, probing: Probing): void {
    probing.turnsSinceFull = FULL_PROBE_TURNS
    probing.turn = ++this.#turns
    this.#probe(worker, probing)
  }

  /** Undefined: what came back is of an earlier turn. */
  #workerOfTurn(workerId: string, turn: number): Worker | undefined {
    const worker = this.#options.workers.get(workerId)
    return worker !== undefined && this.#probings.get(worker)?.turn === turn ? worker : undefined
  }

  /** A probe is over, whatever became of its worker. */
  #hasEnded(turn: number): void {
    const wasDown = this.#underWay.get(turn)
    // It may be of an earlier life of the directory.
    if (wasDown === undefined) return
    this.#underWay.delete(turn)
    if (wasDown) this.#downUnderWay--
    for (const next of [this.#waiting, this.#waitingDown].flatMap(([first]) => first ?? []))
      if (this.#hasRoomFor(next)) {
        this.#probe(next, this.#probings.get(next)!)
        return
      }
  }

  #hasRoomFor({ state }: Worker): boolean {
    if (this.#underWay.size >= PROBES_AT_ONCE_MAX) return false
    return state !== 'down' || this.#downUnderWay < PROBES_AT_ONCE_MAX / 2
  }

  #waitsNot(worker: Worker): void {
    this.#waiting.delete(worker)
    this.#waitingDown.delete(worker)
  }

  #probe(worker: Worker, probing: Probing): void {
    this.#waitsNot(worker)
    const isDown = worker.state === 'down'
    if (!this.#hasRoomFor(worker)) {
      const waiting = isDown ? this.#waitingDown : this.#waiting
      waiting.add(worker)
      return
    }
    const { id: workerId, origin } = worker.spec
    const { turn } = probing
    if (!this.#underWay.has(turn) && isDown) this.#downUnderWay++
    this.#underWay.set(turn, this.#underWay.get(turn) ?? isDown)
    const { http } = this.#context.use(transportCapability)
    const source = worker.spec.key ?? this.#options.engineKey
    const route = routeTo(worker.spec, this.#options.requestPlane)
    const fault = openDoor(http, origin, source, access =>
      this.#options.doors.opened(origin, source, access, route),
    )
    const hasKey = source !== undefined
    // The log is the operator's; views have a reason that tells nothing of the machine.
    if (fault !== undefined && fault.fault !== probing.keyFault)
      this.#context.log.warn(
        { worker: workerId, fault: fault.fault },
        'the API key of a worker cannot be had',
      )
    probing.keyFault = fault?.fault
    if (fault !== undefined) {
      const outcome = { reached: false, reason: fault.reason } as const
      this.#context.pipe(
        Promise.resolve(),
        () => ({ type: 'probed', workerId, turn, outcome }),
        () => ({ type: 'probed', workerId, turn, outcome }),
      )
      return
    }
    const timeoutMs = Math.min(SLOW_PROBE_MS_MAX, this.#options.probeTimeoutMs * 2 ** probing.misses)
    if (worker.state === 'up' && probing.turnsSinceFull < FULL_PROBE_TURNS) {
      probing.turnsSinceFull++
      this.#context.pipe(
        checkHealth(http, origin, timeoutMs, hasKey, worker.outcome?.sleep !== undefined),
        health => ({
          type: 'healthChecked',
          workerId,
          turn,
          fault: health.isHealthy ? undefined : health.reason,
          isLocal: !health.isHealthy && health.isLocal,
          isSlow: !health.isHealthy && health.isSlow,
          isAnswered: !health.isHealthy && health.isAnswered,
          models: health.isHealthy ? health.models : undefined,
          isAsleep: health.isHealthy ? health.isAsleep : undefined,
        }),
        error => ({
          type: 'healthChecked',
          workerId,
          turn,
          fault: String(error),
          isLocal: false,
          isSlow: false,
          models: undefined,
        }),
      )
      return
    }
    probing.turnsSinceFull = 0
    this.#context.pipe(
      probeWorker(http, origin, timeoutMs, hasKey),
      outcome => ({ type: 'probed', workerId, turn, outcome }),
      error => ({ type: 'probed', workerId, turn, outcome: { reached: false, reason: String(error) } }),
    )
  }

  /** This machine could not ask. That is no miss of the worker: its state stays, and it is asked again. */
  #notAsked(worker: Worker, reason: string): void {
    if (worker.state !== 'up') worker.stateReason = reason
    if (!this.#couldNotAsk) {
      this.#couldNotAsk = true
      this.#context.log.warn(
        { worker: worker.spec.id, reason },
        'workers cannot be probed now, which says nothing of them; their states stay',
      )
    }
    this.#probings.get(worker)!.turnsSinceFull = FULL_PROBE_TURNS
    this.#schedule(worker, PROBE_RETRY_MS_MAX)
  }

  #reached(worker: Worker, outcome: ReachedOutcome): void {
    this.#couldNotAsk = false
    this.#probings.get(worker)!.misses = 0
    const wasDown = worker.state === 'down'
    if (worker.state !== 'up') {
      if (worker.state === 'down') this.#context.log.info({ worker: worker.spec.id }, 'worker is up')
      worker.state = 'up'
      worker.stateReason = 'answers'
      worker.unansweredSinceMs = undefined
      worker.isDownByAnswer = false
    }
    this.#options.reached(worker, outcome, wasDown)
    if (worker.outcome !== undefined && owesEventSources(worker.spec, worker.outcome)) {
      this.#probings.get(worker)!.turnsSinceFull = FULL_PROBE_TURNS
    }
    this.#schedule(worker, this.#options.probeIntervalMs)
  }

  #missed(worker: Worker, { reason, isSlow = false, isAnswered = false }: Missed): void {
    const probing = this.#probings.get(worker)!
    if (isSlow && worker.state === 'up' && this.#context.clock.nowMs() - probing.aliveMs < ALIVE_MS) {
      probing.misses = Math.min(probing.misses + 1, MISSES_MAX - 1)
      this.#schedule(worker, this.#options.probeIntervalMs)
      return
    }
    probing.misses++
    if (worker.state === 'up' && probing.misses < MISSES_MAX) {
      probing.turnsSinceFull = FULL_PROBE_TURNS
      this.#schedule(worker, PROBE_RETRY_MS_MIN)
      return
    }
    if (worker.state !== 'down') probing.retryMs = PROBE_RETRY_MS_MIN
    else probing.retryMs = Math.min(PROBE_RETRY_MS_MAX, probing.retryMs * 2)
    probing.misses = Math.min(probing.misses, MISSES_MAX)
    this.#goDown(worker, reason, isAnswered)
    this.#schedule(worker, probing.retryMs)
  }

  #goDown(worker: Worker, reason: string, isAnswered = false): void {
    if (worker.state === 'up') this.#context.log.warn({ worker: worker.spec.id, reason }, 'worker is down')
    worker.state = 'down'
    worker.stateReason = reason
    worker.isDownByAnswer = isAnswered
    worker.unansweredSinceMs ??= this.#context.clock.wallMs()
  }

  /** Begins another turn, with a wait. */
  #schedule(worker: Worker, delayMs: number): void {
    const turn = ++this.#turns
    this.#waitsNot(worker)
    this.#probings.get(worker)!.turn = turn
    this.#context.schedule(delayMs, { type: 'probeDue', workerId: worker.spec.id, turn })
  }
}

/** Whether the worker's list of models has these names, as the last full probe found it. */
function isSame(models: readonly string[], { outcome }: Worker): boolean {
  const known = new Set(outcome?.models.map(({ name }) => name))
  return known.size === new Set(models).size && models.every(name => known.has(name))
}

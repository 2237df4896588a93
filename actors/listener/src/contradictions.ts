/**
 * Contradictions: counts how often the live socket contradicted itself or the replay, and decides what
 * follows.
 *
 * One contradiction means that the engine restarted: the history is rebuilt at once. Several contradictions
 * in a short time mean something else: a replay endpoint of another engine, or two publishers that number
 * their batches on one socket. Then every rebuild would bring the next contradiction, and `exact` in between
 * would be false. Another dp rank proves it at once, because no engine changes its rank.
 *
 *   none                  ──`contradictionsMax` within `contradictionsWithinMs`──▶  apart
 *   apart                 ──pause──▶                                                reconciling
 *   reconciling           ──live and replay agree──▶                                calming
 *   reconciling, calming  ──contradiction──▶                                        apart
 *   calming               ──pause──▶                                                none
 *
 * While apart, the replay is asked only whether it repeats what the live socket told. Only what the live
 * socket has told since then counts; if the live socket contradicts itself, nothing does.
 *
 * Invariants
 *   I1  The source is not `exact` from the contradiction that reaches the limit to the end of calming.
 *   I2  The pause doubles with every contradiction from there on, from `apartMsMin` to `apartMsMax`.
 */

import type { ListenerLimits } from './limits.ts'

/** `live`: the live socket contradicted itself. `replay`: the replay contradicted the live socket. */
export type ContradictionKind = 'live' | 'replay'

type State =
  | { readonly is: 'none' | 'reconciling' }
  | { readonly is: 'apart' | 'calming'; readonly untilMs: number }

export interface ContradictedEndpoints {
  /** For people, in reasons. */
  readonly eventsEndpoint: string
  readonly replayEndpoint: string | undefined
}

export class Contradictions {
  readonly #limits: ListenerLimits
  readonly #endpoints: ContradictedEndpoints
  readonly #nowMs: () => number
  /** The last contradictions, at most `contradictionsMax`. */
  #recent: { readonly kind: ContradictionKind; readonly atMs: number }[] = []
  #state: State = { is: 'none' }
  #kind: ContradictionKind = 'replay'
  #pauseMs = 0
  /** What tells two publishers apart: dp ranks, topics. */
  #marks = ''

  constructor(limits: ListenerLimits, endpoints: ContradictedEndpoints, nowMs: () => number) {
    this.#limits = limits
    this.#endpoints = endpoints
    this.#nowMs = nowMs
  }

  /** There are too many contradictions: see above. */
  get isApart(): boolean {
    return this.#state.is === 'apart'
  }

  /** The live socket and the replay agree again; the calm must last. */
  get isCalming(): boolean {
    return this.#state.is === 'calming'
  }

  /** What contradicts the live socket, while apart. */
  get kind(): ContradictionKind {
    return this.#kind
  }

  /** Why the source is not believed; undefined: contradictions are no reason. */
  get reason(): string | undefined {
    if (this.#state.is === 'none') return undefined
    const { eventsEndpoint, replayEndpoint } = this.#endpoints
    if (this.#kind === 'live') return `two publishers number their batches on ${eventsEndpoint}${this.#marks}`
    return `the replay at ${replayEndpoint} has another history than the events at ${eventsEndpoint}: is it another engine's port?`
  }

  /** When the pause or the calm is over; undefined: neither is under way. */
  get dueMs(): number | undefined {
    return 'untilMs' in this.#state ? Math.max(0, this.#state.untilMs - this.#nowMs()) : undefined
  }

  /** `isProof`: no restart explains it. */
  note(kind: ContradictionKind, isProof: boolean): void {
    const { contradictionsMax, contradictionsWithinMs, apartMsMin, apartMsMax } = this.#limits
    const nowMs = this.#nowMs()
    this.#recent = this.#recent.filter(({ atMs }) => nowMs - atMs < contradictionsWithinMs)
    this.#recent = [...this.#recent, { kind, atMs: nowMs }].slice(-contradictionsMax)
    if (!isProof && this.#state.is === 'none' && this.#recent.length < contradictionsMax) return
    // A restart causes one.
    const isOfLive = this.#recent.filter(one => one.kind === 'live').length > 1
    this.#kind = isProof ? kind : isOfLive ? 'live' : 'replay'
    this.#pauseMs = this.#pauseMs === 0 ? apartMsMin : Math.min(apartMsMax, 2 * this.#pauseMs)
    this.#state = { is: 'apart', untilMs: nowMs + this.#pauseMs }
  }

  /** Names the two publishers of one socket: two dp ranks, or two topics. */
  mark(what: string, one: number | string | undefined, other: number | string | undefined): void {
    if (one === undefined || other === undefined || one === other) return
    this.#marks = ` (${what} ${[one, other].toSorted().join(' and ')})`
  }

  /** The pause goes on: there was nothing to compare. */
  stayApart(): void {
    this.#state = { is: 'apart', untilMs: this.#nowMs() + this.#pauseMs }
  }

  /** The history is rebuilt once more. */
  reconcile(): void {
    if (this.#state.is !== 'none') this.#state = { is: 'reconciling' }
  }

  /** The live socket and the history agree. */
  agreed(): void {
    if (this.#state.is === 'reconciling')
      this.#state = { is: 'calming', untilMs: this.#nowMs() + this.#pauseMs }
  }

  /** Time has passed. */
  calm(): void {
    if (this.#state.is !== 'calming' || this.#nowMs() < this.#state.untilMs) return
    this.#recent = []
    this.#state = { is: 'none' }
    this.#pauseMs = 0
    this.#marks = ''
  }

  /**
   * The engine is known to have restarted. That explains the contradictions, unless there were too many
   * already.
   */
  excuse(): void {
    this.#recent = []
    this.reconcile()
  }
}

/**
 * Setbacks: counts how often the numbers of an engine went back. Once or twice within a minute means
 * restarts. More often means that two publishers number their batches on one socket, and their relayed events
 * together describe neither cache.
 *
 *   none ──SETBACKS_MAX within WITHIN_MS──▶ apart ──pause──▶ calming ──as long again without one──▶ none
 *                                             ▲                 │
 *                                             └────a setback────┘
 *
 * The pause doubles with each setback, up to SETBACK_PAUSE_MS_MAX.
 */

const SETBACKS_MAX = 3
const WITHIN_MS = 60_000
const SETBACK_PAUSE_MS_MIN = 1000
const SETBACK_PAUSE_MS_MAX = 30_000

export class Setbacks {
  readonly #nowMs: () => number
  /** Times of the last ones. */
  #recentMs: readonly number[] = []
  #state: 'none' | 'apart' | 'calming' = 'none'
  #untilMs = 0
  #pauseMs = 0

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  /** `apart`: nothing is to be relayed. `calming`: nothing of it is known from its beginning. */
  get state(): 'none' | 'apart' | 'calming' {
    const nowMs = this.#nowMs()
    if (this.#state === 'apart' && nowMs >= this.#untilMs) {
      this.#state = 'calming'
      this.#untilMs += this.#pauseMs
    }
    if (this.#state === 'calming' && nowMs >= this.#untilMs) {
      this.#state = 'none'
      this.#recentMs = []
      this.#pauseMs = 0
    }
    return this.#state
  }

  /** `isProof`: one is enough. True when it is one too many. */
  note(isProof: boolean): boolean {
    const nowMs = this.#nowMs()
    this.#recentMs = [...this.#recentMs, nowMs].filter(ms => nowMs - ms < WITHIN_MS).slice(-SETBACKS_MAX)
    if (!isProof && this.state === 'none' && this.#recentMs.length < SETBACKS_MAX) return false
    this.#pauseMs =
      this.#pauseMs === 0 ? SETBACK_PAUSE_MS_MIN : Math.min(SETBACK_PAUSE_MS_MAX, 2 * this.#pauseMs)
    this.#state = 'apart'
    this.#untilMs = nowMs + this.#pauseMs
    return true
  }
}

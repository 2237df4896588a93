/**
 * Worker progress: which workers send output, so that a worker that takes requests and never answers is
 * found by comparison with the others.
 *
 * A call is stalled when all of this holds: its worker has sent nothing to any request since the call began;
 * another worker has sent something meanwhile; and the call has lasted longer than `stallMsMin`, than
 * SLOWEST_FACTOR times the slowest first byte of the last SEEN_KEPT answers of its kind (streams, or whole
 * answers), and than MS_PER_PROMPT_TOKEN for each token of its prompt. Before SEEN_MIN answers of that kind
 * nothing is known, and nothing is stalled.
 *
 * Bounds   PROGRESS_WORKERS_MAX workers; the one that has sent nothing for longest is forgotten.
 */

const SLOWEST_FACTOR = 10
const MS_PER_PROMPT_TOKEN = 1
const SEEN_KEPT = 128
/** Chunks that follow each other faster are not noted. */
const SENT_EVERY_MS = 50
const SEEN_MIN = 16
const PROGRESS_WORKERS_MAX = 4096

export interface OpenCall {
  readonly workerId: string
  readonly isStream: boolean
  readonly promptTokens: number
  readonly calledMs: number
}

export class WorkerProgress {
  /** By worker: when it last sent something; the most recent last. */
  readonly #sentMs = new Map<string, number>()
  readonly #streams: number[] = []
  readonly #wholes: number[] = []
  readonly #stallMsMin: number

  /** `stallMsMin`: the least age of a stalled call, in milliseconds; 0: no call is ever stalled. */
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

  /** Workers that have sent something within this time. */
  alive(sinceMs: number): readonly string[] {
    const found: string[] = []
    for (const [workerId, sentMs] of this.#sentMs) if (sentMs >= sinceMs) found.push(workerId)
    return found
  }
}

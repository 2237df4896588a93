/**
 * Lost hand-overs: decode workers that fail one hand-over after another, and get none for a while. Each would
 * cost the prompt twice: at the prefill worker, and again at the worker that gets the request whole.
 *
 *   counted   a decode worker answers a hand-over with an error: LOST_MAX of them in a row, and it is avoided
 *   avoided   for AVOIDED_MS; the next that it loses has it avoided again
 *   forgotten with the first hand-over that it takes, or when it leaves the fleet
 *
 * A prefill worker may be the one to blame; then all decode workers lose hand-overs, and where all would be
 * avoided, none is.
 */

const LOST_MAX = 2
const AVOIDED_MS = 30_000

interface Record {
  lost: number
  untilMs: number
}

export class LostHandovers {
  /** By worker id; workers of the fleet only. */
  readonly #records = new Map<string, Record>()

  get isEmpty(): boolean {
    return this.#records.size === 0
  }

  /** Returns whether it is avoided from now on, and was not before. */
  lost(workerId: string, nowMs: number): boolean {
    const record = this.#records.get(workerId) ?? { lost: 0, untilMs: Number.NEGATIVE_INFINITY }
    this.#records.set(workerId, record)
    record.lost++
    if (record.lost < LOST_MAX || nowMs < record.untilMs) return false
    record.untilMs = nowMs + AVOIDED_MS
    return true
  }

  took(workerId: string): void {
    this.#records.delete(workerId)
  }

  keepOnly(workerIds: ReadonlySet<string>): void {
    for (const id of this.#records.keys()) if (!workerIds.has(id)) this.#records.delete(id)
  }

  /** Of those that could take a hand-over, those that are avoided; none if that would be all. */
  avoided(workerIds: readonly string[], nowMs: number): readonly string[] {
    const avoided = workerIds.filter(
      id => nowMs < (this.#records.get(id)?.untilMs ?? Number.NEGATIVE_INFINITY),
    )
    return avoided.length === workerIds.length ? [] : avoided
  }
}

/**
 * First-token times: how long streams of late took to begin, so that one that takes longer is seen to be
 * late.
 *
 *   expected = slope · tokens that the worker had to compute + the rest, of which the 95th percentile counts
 *
 * Of the last STREAMS_KEPT streams, all workers and models of this gateway together; fitted anew after every
 * FIT_EVERY of them. A worker that is left before its first token counts with the time that it had.
 */

const STREAMS_KEPT = 256
const STREAMS_MIN = 32
const FIT_EVERY = 16
const LATE_SHARE = 0.95

export class FirstTokenTimes {
  readonly #seen: { readonly tokens: number; readonly ms: number }[] = []
  #unfitted = 0
  #slopeMs = 0
  #restMs = 0

  /** The first token of a stream came `ms` after its call, for which `tokens` were to be computed. */
  came(tokens: number, ms: number): void {
    this.#seen.push({ tokens, ms })
    if (this.#seen.length > STREAMS_KEPT) this.#seen.shift()
    this.#unfitted++
  }

  /** Time after which a stream is late; undefined: too few were seen. */
  lateMs(tokens: number): number | undefined {
    if (this.#seen.length < STREAMS_MIN) return undefined
    if (this.#unfitted >= FIT_EVERY) this.#fit()
    return Math.max(0, this.#restMs + this.#slopeMs * tokens)
  }

  #fit(): void {
    this.#unfitted = 0
    const seen = this.#seen
    const meanTokens = seen.reduce((sum, { tokens }) => sum + tokens, 0) / seen.length
    const meanMs = seen.reduce((sum, { ms }) => sum + ms, 0) / seen.length
    let [both, square] = [0, 0]
    for (const { tokens, ms } of seen) {
      both += (tokens - meanTokens) * (ms - meanMs)
      square += (tokens - meanTokens) ** 2
    }
    this.#slopeMs = square > 0 ? Math.max(0, both / square) : 0
    const rests = seen.map(({ tokens, ms }) => ms - this.#slopeMs * tokens).sort((a, b) => a - b)
    this.#restMs = rests[Math.floor(LATE_SHARE * (rests.length - 1))]!
  }
}

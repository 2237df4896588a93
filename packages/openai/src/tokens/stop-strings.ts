/**
 * Stop strings: ends a text that comes in pieces before the first of some strings. What may be the beginning
 * of one is held back until that is known.
 *
 * Invariants
 *   I1  The text that passes does not depend on how it is cut into pieces.
 *   I2  At most as many characters are held back as the longest string has, less one.
 */

export interface StopResult {
  /** What may pass. */
  readonly text: string
  /** The string that ends the text; undefined: it goes on. */
  readonly stop: string | undefined
}

export class StopStrings {
  readonly #stops: readonly string[]
  readonly #isIncluded: boolean
  #held = ''

  /** `isIncluded`: the string itself passes, too. */
  constructor(stops: readonly string[], { isIncluded = false }: { readonly isIncluded?: boolean } = {}) {
    this.#stops = stops.filter(stop => stop !== '')
    this.#isIncluded = isIncluded
  }

  /** `mayStop` false: strings do not count in this piece, nor in what was held back. */
  push(piece: string, mayStop = true): StopResult {
    const text = this.#held + piece
    this.#held = ''
    if (!mayStop || this.#stops.length === 0) return { text, stop: undefined }
    const found = this.#first(text)
    if (found !== undefined) {
      const end = this.#isIncluded ? found.at + found.stop.length : found.at
      return { text: text.slice(0, end), stop: found.stop }
    }
    const held = this.#heldOf(text)
    this.#held = text.slice(text.length - held)
    return { text: text.slice(0, text.length - held), stop: undefined }
  }

  /** What was held back, at the end of the text. */
  rest(): string {
    const held = this.#held
    this.#held = ''
    return held
  }

  /** The string that is complete first; of several that end there, the longest. */
  #first(text: string): { readonly at: number; readonly stop: string } | undefined {
    let best: { readonly at: number; readonly stop: string } | undefined
    for (const stop of this.#stops) {
      const at = text.indexOf(stop)
      if (at < 0) continue
      const end = at + stop.length
      const bestEnd = best === undefined ? Number.POSITIVE_INFINITY : best.at + best.stop.length
      if (end < bestEnd || (end === bestEnd && at < best!.at)) best = { at, stop }
    }
    return best
  }

  /** How many characters at the end may begin a string. */
  #heldOf(text: string): number {
    let held = 0
    for (const stop of this.#stops)
      for (let length = Math.min(stop.length - 1, text.length); length > held; length--)
        if (text.endsWith(stop.slice(0, length))) held = length
    return held
  }
}

/**
 * The policy of a router that knows only texts, for comparison: that of SGLang's router (`cache_aware`), as
 * its users' documentation describes it, with its default thresholds.
 *
 * The policy remembers the texts that were sent to each worker. If load is out of balance, it takes the
 * worker with the fewest open requests. Otherwise it takes the worker that was sent the longest prefix of
 * this text, if the prefix is long enough; otherwise the worker that was sent the least.
 */

/** Part of a text that must have been sent before. */
const MATCH_MIN = 0.3
const BALANCE_ABSOLUTE = 64
const BALANCE_RELATIVE = 1.5

interface Sent {
  readonly texts: string[]
  /** Characters that were new when they came. */
  size: number
  open: number
}

export class TextPolicy {
  readonly #workers: readonly Sent[]

  constructor(workers: number) {
    this.#workers = Array.from({ length: workers }, () => ({ texts: [], size: 0, open: 0 }))
  }

  /** Number of the worker that gets this text; `ended` is to be called with it. */
  place(text: string): number {
    const loads = this.#workers.map(({ open }) => open)
    const [least, most] = [Math.min(...loads), Math.max(...loads)]
    const matches = this.#workers.map(({ texts }) => Math.max(0, ...texts.map(sent => common(sent, text))))
    const best = matches.indexOf(Math.max(...matches))
    const sizes = this.#workers.map(({ size }) => size)
    let chosen = best
    if (most - least > BALANCE_ABSOLUTE && most > least * BALANCE_RELATIVE) chosen = loads.indexOf(least)
    else if (matches[best]! <= MATCH_MIN * text.length) chosen = sizes.indexOf(Math.min(...sizes))
    const worker = this.#workers[chosen]!
    worker.texts.push(text)
    worker.size += text.length - matches[chosen]!
    worker.open++
    return chosen
  }

  ended(worker: number): void {
    this.#workers[worker]!.open--
  }
}

function common(a: string, b: string): number {
  const end = Math.min(a.length, b.length)
  let i = 0
  while (i < end && a.charCodeAt(i) === b.charCodeAt(i)) i++
  return i
}

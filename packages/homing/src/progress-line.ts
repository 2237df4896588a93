/**
 * Progress of a long command on standard error: a bar with the time left that rewrites its line on a
 * terminal, plain lines elsewhere, where each stays in a log: one at every tenth of the work, and one a
 * minute.
 */

import type { Clock, Timer } from '@homing/base'

export interface ProgressFacts {
  /** 0 … 1. */
  readonly share: number
  /** Undefined until something can be said. */
  readonly leftMs: number | undefined
  /** '21 of 50 cells, 12 of them kept'. */
  readonly words: string
}

export interface ProgressStream {
  write(text: string): unknown
  readonly isTTY?: boolean
  readonly columns?: number
}

const REDRAW_MS = 250
const PLAIN_LINE_MS = 60_000
const BAR_COLUMNS = 24
const PLAIN_STEP = 0.1

export class ProgressLine {
  readonly #stream: ProgressStream
  readonly #clock: Clock
  readonly #facts: () => ProgressFacts
  #timer: Timer | undefined
  #saidShare = 0
  #saidMs: number

  constructor(stream: ProgressStream, clock: Clock, facts: () => ProgressFacts) {
    this.#stream = stream
    this.#clock = clock
    this.#facts = facts
    this.#saidMs = clock.nowMs()
    this.#plan()
  }

  /** Leaves an empty line behind on a terminal; nothing elsewhere. Idempotent. */
  end(): void {
    const hasEnded = this.#timer === undefined
    this.#timer?.cancel()
    this.#timer = undefined
    if (!hasEnded && this.#stream.isTTY === true) this.#stream.write('\r\u001b[K')
  }

  #plan(): void {
    this.#timer = this.#clock.after(
      REDRAW_MS,
      () => {
        this.#tell()
        this.#plan()
      },
      { unref: true },
    )
  }

  #tell(): void {
    const facts = this.#facts()
    if (this.#stream.isTTY === true) {
      const filled = Math.round(facts.share * BAR_COLUMNS)
      const bar = `${'█'.repeat(filled)}${'░'.repeat(BAR_COLUMNS - filled)}`
      const line = `${bar} ${lineOf(facts)}`
      // A line that is wrapped cannot be taken back. Some terminals say that they have no columns.
      this.#stream.write(`\r${line.slice(0, Math.max(20, (this.#stream.columns || 80) - 1))}\u001b[K`)
      return
    }
    const nowMs = this.#clock.nowMs()
    if (facts.share - this.#saidShare < PLAIN_STEP && nowMs - this.#saidMs < PLAIN_LINE_MS) return
    this.#saidShare = facts.share
    this.#saidMs = nowMs
    this.#stream.write(`homing: ${lineOf(facts)}\n`)
  }
}

/** '1 h 5 min', '3 min 20 s', '12 s'. */
export function timeText(ms: number): string {
  const seconds = Math.ceil(ms / 1000)
  if (seconds < 60) return `${seconds} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 10) return `${minutes} min ${seconds % 60} s`
  if (minutes < 60) return `${minutes} min`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

function lineOf({ share, leftMs, words }: ProgressFacts): string {
  const left = leftMs === undefined ? '' : `, ${timeText(leftMs)} left`
  return `${Math.floor(share * 100)} %: ${words}${left}`
}

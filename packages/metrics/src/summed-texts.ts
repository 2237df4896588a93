/**
 * Summed texts: the metrics of several sources of the same kind, in Prometheus' text form, added up to one
 * text.
 *
 *   source a, life 1 ──┐
 *   source a, life 2 ──┼─▶ sum of each series ─▶ one text
 *   source b, life 1 ──┘
 *
 * Invariants
 *   I1  A counter never goes back: when a source begins a new life, what its last life had counted at its
 *       last text stays in the sum. Gauges of a life end with it.
 *   I2  A series of a past life is dropped with the oldest, past PAST_SERIES_MAX.
 *
 * Gauges are added, too, but for those of `largest`: of these the largest counts.
 */

/** What a source says of itself. */
export interface SourceText {
  /** Another one after each restart of the source. */
  readonly life: string
  readonly text: string
}

interface Family {
  /** The lines of help and type. */
  readonly head: string[]
  isGauge: boolean
  /** By name and labels, as they stand in the text. */
  readonly series: Map<string, number>
}

type Families = Map<string, Family>

interface Source {
  life: string
  families: Families
}

/** Of eight threads with 1,000 workers each, all of which have ended. */
const PAST_SERIES_MAX = 50_000

export class SummedTexts {
  readonly #largest: ReadonlySet<string>
  readonly #sources = new Map<string, Source>()
  /** Counters of lives that have ended, by series, with the name of their family. */
  readonly #past = new Map<string, { readonly family: string; readonly total: number }>()

  /** `largest`: names of gauges that are not added up. */
  constructor(largest: Iterable<string> = []) {
    this.#largest = new Set(largest)
  }

  /** The last text of a source. */
  take(name: string, { life, text }: SourceText): void {
    const known = this.#sources.get(name)
    if (known !== undefined && known.life !== life) this.#end(known)
    this.#sources.set(name, { life, families: parsed(text) })
  }

  render(): string {
    const sum: Families = new Map()
    for (const { families } of this.#sources.values()) {
      for (const [name, family] of families) {
        let whole = sum.get(name)
        if (whole === undefined) {
          whole = { head: family.head, isGauge: family.isGauge, series: new Map() }
          sum.set(name, whole)
        }
        const isLargest = this.#largest.has(name)
        for (const [key, value] of family.series) {
          const before = whole.series.get(key)
          const next = before === undefined ? value : isLargest ? Math.max(before, value) : before + value
          whole.series.set(key, next)
        }
      }
    }
    // What only an ended life has counted stays, too.
    for (const [key, { family }] of this.#past) {
      const series = sum.get(family)?.series
      if (series?.has(key) === false) series.set(key, 0)
    }
    const lines: string[] = []
    for (const { head, isGauge, series } of sum.values()) {
      lines.push(...head)
      for (const [key, value] of series) {
        lines.push(`${key} ${numberText(isGauge ? value : value + (this.#past.get(key)?.total ?? 0))}`)
      }
      lines.push('')
    }
    return lines.length === 0 ? '' : `${lines.join('\n')}\n`
  }

  #end({ families }: Source): void {
    for (const [family, { isGauge, series }] of families) {
      if (isGauge) continue
      for (const [key, value] of series) {
        const total = (this.#past.get(key)?.total ?? 0) + value
        this.#past.delete(key)
        this.#past.set(key, { family, total })
        if (this.#past.size > PAST_SERIES_MAX) this.#past.delete(this.#past.keys().next().value!)
      }
    }
  }
}

function parsed(text: string): Families {
  const families: Families = new Map()
  let family: Family | undefined
  for (const line of text.split('\n')) {
    if (line === '') continue
    const [mark, word, name = '', type] = line.split(' ', 4)
    if (mark === '#' && word === 'HELP') {
      family = { head: [line], isGauge: false, series: new Map() }
      families.set(name, family)
    } else if (mark === '#' && word === 'TYPE') {
      family?.head.push(line)
      if (family !== undefined) family.isGauge = type === 'gauge'
    } else if (mark !== '#') {
      const end = line.lastIndexOf(' ')
      family?.series.set(line.slice(0, end), numberOf(line.slice(end + 1)))
    }
  }
  return families
}

function numberOf(text: string): number {
  if (text === '+Inf' || text === 'Inf') return Number.POSITIVE_INFINITY
  return text === '-Inf' ? Number.NEGATIVE_INFINITY : text === 'Nan' ? Number.NaN : Number(text)
}

function numberText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  if (value === Number.NEGATIVE_INFINITY) return '-Inf'
  return Number.isNaN(value) ? 'Nan' : String(value)
}

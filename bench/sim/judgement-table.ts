/** The tables of the judgement: one for each kind of place, from whatever was run so far. */

import type { CellResult } from '@homing/simulate'
import type { CapacityPlace, JudgedPlace, LoadPlace } from './judgement-cells.ts'
import {
  type BySeed,
  bestOf,
  compare,
  FIGURES,
  type Figure,
  intervalOf,
  isMissed,
  ratioText,
  verdictText,
} from './judgement-verdicts.ts'

/** Speeds. */
export interface FoundCapacity {
  readonly ours: number
  /** Of the best fixed rule. */
  readonly best: number
  readonly column: string
  readonly linear: number
}

/** What was run so far. */
export interface Judged {
  /** By place and seed. */
  readonly capacities: ReadonlyMap<CapacityPlace, ReadonlyMap<number, FoundCapacity>>
  /** By place, load share and column. */
  readonly cells: ReadonlyMap<LoadPlace, ReadonlyMap<number, ReadonlyMap<string, BySeed>>>
}

/** Ratios beyond which a bound is missed, and ms. */
export const BOUNDS = { ratio: 1.01, itlRatio: 1.03, ttftMs: 60, safetyShare: 0.02, safetyMs: 2 } as const
/** Where prefixes are long, capacity over linear with weight 1. */
const LINEAR_GAIN = { bound: 1.1, traffic: ['synthetic', 'toolagent_like'] as readonly string[] }

export function renderJudgement(places: readonly JudgedPlace[], judged: Judged): string {
  const tables = [
    capacityTable(places, judged),
    loadsTable(places, judged),
    safetyTable(places, judged),
    termsTable(places, judged),
    knowledgeTable(places, judged),
  ]
  return tables.map(({ title, lines }) => `**${title}**\n\n${lines.join('\n')}`).join('\n\n')
}

interface Table {
  readonly title: string
  readonly lines: readonly string[]
}

function tableOf(title: string, heads: readonly string[], rows: readonly (readonly string[])[]): Table {
  const fails = rows.filter(row => row.some(cell => cell.startsWith('**fails'))).length
  const count = heads.includes('verdict') ? `: ${fails} of ${rows.length} cells fail` : ''
  return {
    title: `${title}${count}`,
    lines: [heads, heads.map(() => '---'), ...rows].map(row => `| ${row.join(' | ')} |`),
  }
}

function capacityTable(places: readonly JudgedPlace[], { capacities }: Judged): Table {
  const rows = places.flatMap(place => {
    const found = place.kind === 'capacity' ? capacities.get(place) : undefined
    if (place.kind !== 'capacity' || found === undefined || found.size === 0) return []
    const each = [...found.values()]
    const mean = (of: (one: (typeof each)[number]) => number): number =>
      each.reduce((sum, one) => sum + of(one), 0) / each.length
    const ratio = intervalOf(
      each.map(({ ours, best }) => Math.log(ours / best)),
      'ratio',
    )
    const missed = isMissed(ratio, 1 - place.slackShare, false)
      ? [`more than ${Math.round(100 * place.slackShare)} % below`]
      : []
    const gain = intervalOf(
      each.map(({ ours, linear }) => Math.log(ours / linear)),
      'ratio',
    )
    const wantsGain = place.fleet === 'F8' && LINEAR_GAIN.traffic.includes(place.traffic)
    if (wantsGain && isMissed(gain, LINEAR_GAIN.bound, false)) missed.push('less than 10 % over linear')
    const columns = [...new Set(each.map(({ column }) => column))].join(', ')
    return [
      [
        place.fleet,
        place.tier,
        place.traffic,
        figure(mean(one => one.ours)),
        `${figure(mean(one => one.best))} ${columns}`,
        ratioText({ ...ratio, best: '' }).trimEnd(),
        gain.value.toFixed(3),
        `${each.length}`,
        verdictText(missed, each.length),
      ],
    ]
  })
  return tableOf(
    'Capacity (speed), against the best fixed rule',
    ['fleet', 'tier', 'traffic', 'auto', 'best fixed rule', 'ratio', 'over linear', 'seeds', 'verdict'],
    rows,
  )
}

function loadsTable(places: readonly JudgedPlace[], { cells }: Judged): Table {
  const rows = loadRows(places, cells, 'loads', (place, share, columns, ours) => {
    const others = without(columns, 'auto')
    const e2eBest = bestOf(others, ours, FIGURES.e2e)
    const p99Best = bestOf(others, ours, FIGURES.ttftP99)
    const ttftBest = bestOf(others, ours, FIGURES.ttft)
    if (e2eBest === undefined || p99Best === undefined || ttftBest === undefined) return []
    const e2e = compare(ours, others.get(e2eBest)!, e2eBest, FIGURES.e2e, 'ratio')
    const p99 = compare(ours, others.get(p99Best)!, p99Best, FIGURES.ttftP99, 'ratio')
    const ttft = compare(ours, others.get(ttftBest)!, ttftBest, FIGURES.ttft, 'difference')
    const itl = compare(ours, others.get(e2eBest)!, e2eBest, FIGURES.itl, 'ratio')
    const missed = [
      ...(isMissed(e2e, BOUNDS.ratio) ? ['E2E'] : []),
      ...(isMissed(p99, BOUNDS.ratio) ? ['p99 TTFT'] : []),
      ...(isMissed(ttft, BOUNDS.ttftMs) ? ['mean TTFT'] : []),
      ...(isMissed(itl, BOUNDS.itlRatio) ? ['ITL'] : []),
    ]
    return [
      place.fleet,
      place.traffic,
      percent(share),
      ratioText(e2e),
      ratioText(p99),
      `${ttft.value >= 0 ? '+' : '−'}${Math.abs(ttft.value).toFixed(0)} ms ${ttft.best}`,
      ratioText(itl).split(' ').slice(0, -1).join(' '),
      `${ours.size}`,
      verdictText(missed, ours.size),
    ]
  })
  return tableOf(
    'Fixed loads, auto ÷ the rule that is best in the metric',
    ['fleet', 'traffic', 'load', 'mean E2E', 'p99 TTFT', 'mean TTFT', 'ITL', 'seeds', 'verdict'],
    rows,
  )
}

function safetyTable(places: readonly JudgedPlace[], { cells }: Judged): Table {
  const rows = loadRows(places, cells, 'safety', (place, share, columns, ours) => {
    const others = without(columns, 'auto')
    const isOver = share > 1
    const texts: string[] = []
    const missed: string[] = []
    const judge = (
      name: string,
      of: Figure,
      slack: (best: number) => number,
      text: (v: number) => string,
    ): void => {
      const best = bestOf(others, ours, of)
      if (best === undefined) return
      const theirs = others.get(best)!
      const difference = compare(ours, theirs, best, of, 'difference')
      const mean = (results: BySeed): number => {
        const values = [...results].filter(([seed]) => ours.has(seed)).map(([, result]) => of(result))
        return values.reduce((sum, value) => sum + value, 0) / values.length
      }
      texts.push(`${text(mean(ours))} · ${text(mean(theirs))} ${best}`)
      if (isMissed(difference, slack(mean(theirs)))) missed.push(name)
    }
    const slackMs = (best: number): number => Math.max(BOUNDS.safetyShare * best, BOUNDS.safetyMs)
    const ms = (value: number): string => `${value.toFixed(0)} ms`
    if (isOver) {
      judge(
        'goodput',
        FIGURES.missed,
        best => BOUNDS.safetyShare * (1 - best),
        value => `${((1 - value) * 100).toFixed(1)} %`,
      )
    } else judge('p50 TTFT', FIGURES.ttftP50, slackMs, ms)
    judge('p99 TTFT', FIGURES.ttftP99, slackMs, ms)
    if (texts.length < 2) return []
    return [
      place.fleet,
      place.traffic,
      percent(share),
      ...texts,
      `${ours.size}`,
      verdictText(missed, ours.size),
    ]
  })
  return tableOf(
    'Safety: auto · the better of round-robin and least-loaded',
    [
      'workers',
      'traffic',
      'load',
      'p50 TTFT, over capacity inside tier standard',
      'p99 TTFT',
      'seeds',
      'verdict',
    ],
    rows,
  )
}

function termsTable(places: readonly JudgedPlace[], { cells }: Judged): Table {
  const terms = places.find((place): place is LoadPlace => place.kind === 'terms')?.columns.slice(1) ?? []
  const rows = loadRows(places, cells, 'terms', (place, share, columns, ours) => [
    place.traffic,
    percent(share),
    ...terms.map(term => {
      const theirs = columns.get(term)
      if (theirs === undefined || [...ours.keys()].some(seed => !theirs.has(seed))) return '–'
      const [e2e, p99] = [FIGURES.e2e, FIGURES.ttftP99].map(
        of => compare(theirs, ours, term, of, 'ratio').value,
      )
      return `${e2e!.toFixed(2)} · ${p99!.toFixed(2)}`
    }),
    `${ours.size}`,
  ])
  const heads = terms.map(term => term.replace('auto:without-', ''))
  return tableOf(
    'Without a term ÷ with it: mean E2E · p99 TTFT',
    ['traffic', 'load', ...heads, 'seeds'],
    rows,
  )
}

function knowledgeTable(places: readonly JudgedPlace[], { cells }: Judged): Table {
  const ofKind = places.filter((place): place is LoadPlace => place.kind === 'knowledge')
  const labels = [...new Set(ofKind.map(({ label }) => label!))]
  const traffic = [...new Set(ofKind.map(place => place.traffic))]
  const rows = traffic.flatMap(name =>
    (ofKind[0]?.loadShares ?? []).flatMap(share => {
      let seeds = Number.POSITIVE_INFINITY
      const texts = labels.map(label => {
        const place = ofKind.find(each => each.traffic === name && each.label === label)!
        const results = [...(cells.get(place)?.get(share)?.get('auto')?.values() ?? [])]
        seeds = Math.min(seeds, results.length)
        if (results.length === 0) return '–'
        const mean = (of: (result: CellResult) => number): number =>
          results.reduce((sum, result) => sum + of(result), 0) / results.length
        return `${(100 * mean(({ hitRate }) => hitRate)).toFixed(1)} % · ${(mean(FIGURES.e2e) / 1000).toFixed(2)} · ${(mean(FIGURES.ttftP99) / 1000).toFixed(2)}`
      })
      return seeds === 0 ? [] : [[name, percent(share), ...texts, `${seeds}`]]
    }),
  )
  return tableOf(
    'auto with less and less knowledge, F8: hit rate · mean E2E in s · p99 TTFT in s',
    ['traffic', 'load', ...labels, 'seeds'],
    rows,
  )
}

/** A row for each place of the kind and each load that has results of auto; an empty row is left out. */
function loadRows(
  places: readonly JudgedPlace[],
  cells: Judged['cells'],
  kind: LoadPlace['kind'],
  row: (
    place: LoadPlace,
    share: number,
    columns: ReadonlyMap<string, BySeed>,
    ours: BySeed,
  ) => readonly string[],
): (readonly string[])[] {
  return places.flatMap(place => {
    if (place.kind !== kind) return []
    return (place as LoadPlace).loadShares.flatMap(share => {
      const columns = cells.get(place as LoadPlace)?.get(share)
      const seeds = wholeSeeds(columns, (place as LoadPlace).columns)
      if (columns === undefined || seeds.size === 0) return []
      const made = row(place as LoadPlace, share, columns, seeds)
      return made.length === 0 ? [] : [made]
    })
  })
}

/** Results of auto for the seeds that every column has. */
function wholeSeeds(columns: ReadonlyMap<string, BySeed> | undefined, wanted: readonly string[]): BySeed {
  const ours = columns?.get('auto') ?? new Map<number, CellResult>()
  return new Map(
    [...ours].filter(([seed]) => wanted.every(column => columns?.get(column)?.has(seed) === true)),
  )
}

function without<T>(columns: ReadonlyMap<string, T>, name: string): ReadonlyMap<string, T> {
  return new Map([...columns].filter(([column]) => column !== name))
}

function percent(share: number): string {
  return `${Math.round(share * 100)} %`
}

function figure(value: number): string {
  return `${Number(value.toPrecision(3))}`
}

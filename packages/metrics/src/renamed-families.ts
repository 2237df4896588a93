/**
 * Renamed families: what a text of metrics says, again under other names, for who has boards and alerts for
 * them. The text is read once for all of them; what it does not have is left out.
 *
 * Samples that have the same labels afterwards are added up.
 */

export interface RenamedFamily {
  /** The other name. */
  readonly name: string
  /** Ours. */
  readonly from: string
  readonly help: string
  /** Labels of the other name; undefined: this sample is none of its. Default: those that it has. */
  readonly labels?: (labels: SampleLabels) => SampleLabels | undefined
  /** Its unit in ours, as 1000 for milliseconds of seconds; default 1. */
  readonly factor?: number
}

export type SampleLabels = Readonly<Record<string, string>>

interface Sample {
  readonly labels: SampleLabels
  readonly value: number
}

interface Family {
  readonly type: string
  /** By '', '_bucket', '_sum', '_count'. */
  readonly parts: Map<string, Sample[]>
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g
const PARTS = ['_bucket', '_sum', '_count']

/** The families as text; one of which there is no sample yet has its head, and '' where `text` has none. */
export function renamedFamilies(text: string, renamed: readonly RenamedFamily[]): string {
  const families = readFamilies(text, new Set(renamed.map(({ from }) => from)))
  let written = ''
  for (const one of renamed) {
    const family = families.get(one.from)
    if (family !== undefined) written += renderFamily(one, family)
  }
  return written
}

function readFamilies(text: string, wanted: ReadonlySet<string>): ReadonlyMap<string, Family> {
  const families = new Map<string, Family>()
  for (const line of text.split('\n')) {
    if (line.startsWith('# TYPE ')) {
      const [, , name = '', type = ''] = line.split(' ')
      if (wanted.has(name)) families.set(name, { type, parts: new Map() })
      continue
    }
    if (line === '' || line.startsWith('#')) continue
    const name = line.slice(0, line.search(/[{ ]/))
    const suffix = PARTS.find(part => name.endsWith(part) && isHistogram(families, name, part)) ?? ''
    const family = families.get(name.slice(0, name.length - suffix.length))
    const match = family === undefined ? null : SAMPLE.exec(line)
    if (family === undefined || match === null) continue
    const labels: Record<string, string> = {}
    for (const [, key, value] of (match[2] ?? '').matchAll(LABEL)) labels[key!] = value!
    const samples = family.parts.get(suffix)
    const sample = { labels, value: Number(match[3]) }
    if (samples === undefined) family.parts.set(suffix, [sample])
    else samples.push(sample)
  }
  return families
}

function isHistogram(families: ReadonlyMap<string, Family>, name: string, part: string): boolean {
  return families.get(name.slice(0, -part.length))?.type === 'histogram'
}

function renderFamily({ name, help, labels: relabel, factor = 1 }: RenamedFamily, family: Family): string {
  const lines: string[] = []
  for (const [part, samples] of family.parts) {
    const sums = new Map<string, number>()
    for (const { labels, value } of samples) {
      const { le, ...others } = labels
      const kept = relabel === undefined ? others : relabel(others)
      if (kept === undefined) continue
      const all = le === undefined ? kept : { ...kept, le: scaledBound(le, factor) }
      const key = Object.entries(all)
        .map(([label, text]) => `${label}="${text}"`)
        .join(',')
      const scaled = part === '' || part === '_sum' ? value * factor : value
      sums.set(key, (sums.get(key) ?? 0) + scaled)
    }
    for (const [key, value] of sums) lines.push(`${name}${part}${key === '' ? '' : `{${key}}`} ${value}`)
  }
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${family.type}`, ...lines, ''].join('\n')
}

function scaledBound(le: string, factor: number): string {
  return le === '+Inf' ? le : String(Number((Number(le) * factor).toPrecision(12)))
}

/**
 * The output of `pnpm bench NAME --help`: the header of the bench, its parameters with their defaults, its
 * options.
 */

/** What the help says of a bench; a BenchDefinition has it all. */
export interface BenchOutline {
  readonly name: string
  readonly parts?: readonly string[]
  /** By name. */
  readonly peers?: Readonly<Record<string, unknown>>
  /** By name of the measure. */
  readonly checks?: Readonly<Record<string, number>>
}

/** What a parameter is when it is not given. */
export interface ParameterDefaults {
  readonly full: number | string
  readonly smoke: number | string
}

/** `header`: the header comment of the bench. */
export function benchHelp(
  definition: BenchOutline,
  header: string,
  parameters: ReadonlyMap<string, ParameterDefaults>,
): string {
  const { name, parts, peers, checks } = definition
  const options: (readonly [string, string])[] = [
    ['--smoke', 'tiny sizes and one run: shows that the bench works, and no more'],
    ['--runs N', 'runs, each in a process of its own (1 … 1000; 5, with --smoke 1)'],
    ['--pairs N', 'instead: ours, peers and ours again in turns, ratios with their 95 % interval'],
    ...(peers === undefined
      ? []
      : [['--vs PEER,…', `others that do the same work: ${Object.keys(peers).join(', ')}`] as const]),
    ...(checks === undefined
      ? []
      : [
          ['--check FILE', 'fails when a figure is much worse than in FILE, which out= has written'] as const,
        ]),
    ['--json', 'nothing for people: only the last line, which is one JSON object'],
    ['out=FILE', 'writes that object to FILE, with the values of every run'],
  ]
  const defaults = [...parameters].map(([key, { full, smoke }]) => [key, valueText(full), valueText(smoke)])
  const sections = [
    `Usage: pnpm bench ${name} [options] [parameter=value …]`,
    header,
    ...(parts === undefined ? [] : [`Parts, a process for each of every run: ${parts.join(', ')}`]),
    ['Options', ...inColumns(options)].join('\n'),
    ['Parameters', ...inColumns([['', 'default', 'with --smoke'], ...defaults])].join('\n'),
  ]
  return sections.join('\n\n')
}

function valueText(value: number | string): string {
  if (typeof value === 'string') return value === '' ? '(none)' : value
  // With the underscores that the command line takes.
  return value.toLocaleString('en-US', { maximumFractionDigits: 6 }).replaceAll(',', '_')
}

function inColumns(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map(row => row[column]!.length)))
  return rows.map(row => `  ${row.map((text, column) => text.padEnd(widths[column]!)).join('  ')}`.trimEnd())
}

/**
 * Harness of the benches: parameters from the command line, runs in fresh processes, medians, one JSON line.
 *
 *   pnpm bench NAME [--smoke] [--runs N | --pairs N] [--vs PEER,…] [--check FILE] [--json] [out=FILE]
 *       [key=value …] [--help]
 *
 * A bench declares its parameters at the top of its module, then calls `runBench` once. People read
 * standard error (nothing with --json); the last line of standard output is one JSON object. Every run is a
 * process of its own (5 by default, one in this process with --smoke), because optimised code and heap of one
 * run colour the next; a bench of several parts has a process for each part of a run. With --vs the peers run
 * in turn with ours on the same input, and `ratio` is the median of ours ÷ peer over paired runs, to the best
 * of the peers when there are several. `out=` writes the same object with the values of every run to a file.
 *
 * `--pairs N` sees a few hundredths where runs of one process differ by a tenth: V8 makes something else of
 * each. Ours, the peers (by default `before`, another checkout of this repository) and ours once more
 * (`again`, the control) run N times in new processes, in an order that changes from one time to the next.
 * Of each measure it tells the typical ratio to each of them with its 95 % interval (statistics.ts). The
 * interval of the control is around 1, or the measurement is biased; no difference smaller than that is seen.
 *
 * Targets are printed as met or missed and change nothing else: a bench fails on a wrong answer, never on
 * time. But for --check: it compares with the file of an earlier run, and fails when a figure is worse than
 * that by more than the bench allows. It takes the best run of each, since whatever else the machine does
 * only adds.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { fileURLToPath } from 'node:url'
import { readHeader } from './bench-header.ts'
import { benchHelp, type ParameterDefaults } from './bench-help.ts'
import { CHECKOUT_ENVIRONMENT } from './packages-of.ts'
import { median, typicalRatio } from './statistics.ts'

/** One measured value. */
export interface Measure {
  readonly value: number
  /** 'µs', 'block/s', 'B', … Of a unit that ends in '/s' more is better, of any other less. */
  readonly unit: string
  /** The same work with nothing but the means of the platform, measured in the same run; by name. */
  readonly raw?: Readonly<Record<string, number>>
}

/** What one run measured, by name. */
export type Measures = Readonly<Record<string, Measure>>

/** A run that could not be made here and now; the others count. */
export class Skip {
  readonly reason: string

  constructor(reason: string) {
    this.reason = reason
  }
}

/** One run of one part of a bench; the part is '' when the bench has only one. */
export type BenchRun = (part: string) => Measures | Skip | Promise<Measures | Skip>

/** Another that can do the same work. */
export interface Peer {
  readonly run: BenchRun
  /** The parts that it can do; all when left out. */
  readonly parts?: readonly string[]
  /** Its version; undefined: it is not installed, and skipped by name. */
  readonly version?: () => string | undefined
  /** How to have it, for where it is not installed. */
  readonly install?: string
  /** Path of another checkout: its packages and actors do the work in place of ours. */
  readonly packagesOf?: string
}

/** The least that a measure should reach (`floor`), and the figure worth publishing (`goal`). */
export interface Target {
  readonly floor: number
  readonly goal: number
  /** The target is a multiple of the raw figure of this name. */
  readonly timesRaw?: string
  /** The target is a multiple of what this peer reaches; nothing is said of it where the peer did not run. */
  readonly timesPeer?: string
}

export interface BenchDefinition {
  /** Name of the folder. */
  readonly name: string
  /** The question that the bench answers. */
  readonly question: string
  /** Others that can do the same work, for --vs. */
  readonly peers?: Readonly<Record<string, BenchRun | Peer>>
  /** Each part of a run gets a process of its own. */
  readonly parts?: readonly string[]
  /** By name of the measure. */
  readonly targets?: Readonly<Record<string, Target>>
  /** Measures that pin the behavior: the same in all runs and at all peers, or the bench fails. */
  readonly pins?: readonly string[]
  /** What --check looks at: by name of the measure, how many times worse it may be. */
  readonly checks?: Readonly<Record<string, number>>
}

interface Arguments {
  readonly help: boolean
  readonly smoke: boolean
  readonly json: boolean
  readonly runs: number | undefined
  readonly pairs: number | undefined
  readonly versus: readonly string[]
  readonly check: string | undefined
  readonly out: string | undefined
  readonly values: ReadonlyMap<string, string>
}

/** Tells a process of one run which peer does the work ('': ours), and then which part of it. */
const CHILD_ENVIRONMENT = 'HOMING_BENCH_RUN'
const OURS = ''
/** Names of peers with --pairs: another checkout, and ours once more. */
const BEFORE = 'before'
const AGAIN = 'again'
const RUNS_DEFAULT = 5
const RUNS_MAX = 1000
const PACKAGES_OF = new URL('packages-of.ts', import.meta.url).href
/** Of what was given, in an error. */
const SHOWN_CHARACTERS_MAX = 80

const parsed = parseArguments(process.argv.slice(2))
const parameters = new Map<string, number | string>()
const parameterDefaults = new Map<string, ParameterDefaults>()

/** True with --smoke: tiny sizes, to show that the bench works. */
export const isSmoke = parsed.smoke

/** The names behind --vs. */
export const versus: readonly string[] = parsed.versus

/** True with --pairs: each run is one side alone, and short. */
export const isPaired = parsed.pairs !== undefined

/** The value of `name=value`, else the default of the mode. Numbers stay numbers, texts texts. */
export function parameter(name: string, defaults: { readonly smoke: number; readonly full: number }): number
export function parameter(name: string, defaults: { readonly smoke: string; readonly full: string }): string
export function parameter<T extends number | string>(
  name: string,
  defaults: { readonly smoke: T; readonly full: T },
): number | string {
  const given = parsed.values.get(name)
  let value: number | string = parsed.smoke ? defaults.smoke : defaults.full
  if (given !== undefined) {
    if (typeof value === 'number') {
      value = Number(given.replaceAll('_', ''))
      if (given === '' || !Number.isFinite(value)) usage(`${name}=${given}: not a number`)
    } else {
      value = given
    }
  }
  parameters.set(name, value)
  parameterDefaults.set(name, defaults)
  return value
}

/** Runs the bench as the command line says and prints the report. Call it once, last. */
export async function runBench(definition: BenchDefinition, run: BenchRun): Promise<void> {
  for (const name of parsed.values.keys()) {
    if (!parameters.has(name)) usage(`unknown parameter ${name}; known: ${[...parameters.keys()].join(', ')}`)
  }
  const peers = new Map<string, Peer>()
  const named = isPaired && parsed.versus.length === 0 ? [BEFORE] : parsed.versus
  for (const name of named) {
    const peer = definition.peers?.[name]
    if (peer === undefined && isPaired && name === BEFORE && !parsed.help)
      usage('--pairs needs another side: against=PATH of another checkout, or --vs PEER')
    if (peer === undefined) {
      if (parsed.help) continue
      usage(
        `unknown peer ${name.slice(0, SHOWN_CHARACTERS_MAX)}; known: ${Object.keys(definition.peers ?? {}).join(', ') || 'none'}`,
      )
    }
    peers.set(name, typeof peer === 'function' ? { run: peer } : peer)
  }
  if (isPaired) peers.set(AGAIN, { run })
  if (parsed.help) {
    process.stdout.write(`${benchHelp(definition, readHeader(process.argv[1]!), parameterDefaults)}\n`)
    return
  }
  const runOf = (who: string): BenchRun => (who === OURS ? run : peers.get(who)!.run)

  const child = process.env[CHILD_ENVIRONMENT]
  if (child !== undefined) {
    const [who, part] = JSON.parse(child) as [string, string]
    await print(toRecord(await runOf(who)(part)))
    if (who !== OURS) process.exit()
    return
  }

  const baseline = parsed.check === undefined ? undefined : readBaseline(definition, parsed.check)
  say(`${definition.name}: ${definition.question}`)
  const versions: Record<string, string> = {}
  const absent: Record<string, string> = {}
  for (const [name, { version, install }] of [...peers]) {
    if (version === undefined) continue
    const found = version()
    if (found === undefined) {
      absent[name] = `it is not installed${install === undefined ? '' : ` (${install})`}`
      say(`  ${name} is skipped: ${absent[name]}`)
      peers.delete(name)
    } else {
      say(`  ${name} ${found}`)
      versions[name] = found
    }
  }
  const runs = parsed.pairs ?? parsed.runs ?? (parsed.smoke ? 1 : RUNS_DEFAULT)
  const columns = [OURS, ...peers.keys()].map(who => new Column(who))
  for (let i = 0; i < runs; i++) {
    for (const part of definition.parts ?? ['']) {
      for (const column of isPaired ? inTurn(columns, i) : columns) {
        const { who } = column
        const peer = peers.get(who)
        if (peer?.parts?.includes(part) === false) continue
        const isHere = parsed.smoke && !isPaired && peer?.packagesOf === undefined
        const record = isHere ? toRecord(await runOf(who)(part)) : runInFreshProcess(who, part, peer)
        column.add(i, part, record)
      }
    }
    const order = inTurn(columns, i).map(({ who }) => (who === OURS ? 'ours' : who))
    say(`  run ${i + 1} of ${runs} done${isPaired ? ` (${order.join(', ')})` : ''}`)
  }
  const result = report(definition, runs, columns, versions, absent)
  if (parsed.out !== undefined) writeFileSync(parsed.out, `${JSON.stringify(result, null, 1)}\n`)
  await print(result)
  const faults = [
    ...pinFaults(definition.pins ?? [], columns),
    ...(baseline === undefined ? [] : checkFaults(definition.checks ?? {}, baseline, columns[0]!)),
  ]
  for (const fault of faults) process.stderr.write(`${definition.name}: ${fault}\n`)
  if (faults.length > 0) process.exit(1)
  // A peer may leave threads behind that keep the process; ours must not.
  if (peers.size > 0) process.exit()
}

/** Writes a line of JSON; resolves when it is out. */
function print(value: object): Promise<void> {
  return new Promise(resolve => process.stdout.write(`${JSON.stringify(value)}\n`, () => resolve()))
}

/** A line for people. */
export function say(line: string): void {
  if (!parsed.json && !parsed.help) process.stderr.write(`${line}\n`)
}

/** The q-th percentile (0 … 100) of `samples`, which are sorted in place. 0 when there are none. */
export function percentile(samples: Float64Array, q: number): number {
  if (samples.length === 0) return 0
  samples.sort()
  return samples[Math.min(samples.length - 1, Math.floor((samples.length * q) / 100))]!
}

/** What one run of one part printed: its measures, or why it was skipped. */
interface RunRecord {
  readonly measures: Measures
  readonly skipped: string | undefined
}

function toRecord(outcome: Measures | Skip): RunRecord {
  return outcome instanceof Skip
    ? { measures: {}, skipped: outcome.reason }
    : { measures: outcome, skipped: undefined }
}

/** So that in time each has been before and behind each other one as often, and at each place. */
function inTurn<T>(all: readonly T[], turn: number): readonly T[] {
  const first = Math.floor(turn / 2) % all.length
  const order = [...all.slice(first), ...all.slice(0, first)]
  return turn % 2 === 0 ? order : order.toReversed()
}

function runInFreshProcess(who: string, part: string, peer: Peer | undefined): RunRecord {
  const packages = peer?.packagesOf === undefined ? [] : ['--import', PACKAGES_OF]
  const result = spawnSync(process.execPath, [...process.execArgv, ...packages, ...process.argv.slice(1)], {
    env: {
      ...process.env,
      [CHILD_ENVIRONMENT]: JSON.stringify([who, part]),
      ...(peer?.packagesOf === undefined ? {} : { [CHECKOUT_ENVIRONMENT]: peer.packagesOf }),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
    maxBuffer: 64 << 20,
  })
  const line = result.stdout?.trim().split('\n').at(-1)
  if (result.status !== 0 || line === undefined || line === '') {
    const what = [who, part].filter(word => word !== '').join(', ')
    process.stderr.write(
      `cannot finish the run${what === '' ? '' : ` (${what})`}: its process ended with ${result.status ?? result.signal}\n`,
    )
    process.exit(1)
  }
  return JSON.parse(line) as RunRecord
}

/** All that one of those who do the work measured. */
class Column {
  readonly who: string
  /** Of each measure its runs, with holes where a run was skipped. */
  readonly measures = new Map<string, (Measure | undefined)[]>()
  /** The runs of each part that were skipped, and why the last of them was. */
  readonly skipped = new Map<string, { count: number; reason: string }>()

  constructor(who: string) {
    this.who = who
  }

  add(run: number, part: string, { measures, skipped }: RunRecord): void {
    if (skipped !== undefined) {
      this.skipped.set(part, { count: (this.skipped.get(part)?.count ?? 0) + 1, reason: skipped })
    }
    for (const [name, measure] of Object.entries(measures)) {
      const runs = this.measures.get(name) ?? []
      runs[run] = measure
      this.measures.set(name, runs)
    }
  }
}

/** The measures of an earlier run, by name. */
type Baseline = Readonly<Record<string, { readonly values: readonly number[]; readonly unit: string }>>

function readBaseline(definition: BenchDefinition, path: string): Baseline {
  if (definition.checks === undefined)
    usage(`--check ${path}: the bench ${definition.name} has no rows for it`)
  let file: { readonly bench?: string; readonly results?: Baseline }
  try {
    file = JSON.parse(readFileSync(path, 'utf8'))
  } catch (error) {
    usage(`--check ${path}: cannot be read: ${(error as Error).message}`)
  }
  if (file.bench !== definition.name) usage(`--check ${path}: not a result of the bench ${definition.name}`)
  return file.results!
}

/** The measures that are worse than in the earlier run by more than is allowed. */
function checkFaults(
  checks: Readonly<Record<string, number>>,
  baseline: Baseline,
  ours: Column,
): readonly string[] {
  const faults: string[] = []
  let compared = 0
  for (const [name, worseMax] of Object.entries(checks)) {
    const values = valuesOf(ours.measures.get(name) ?? [])
    const before = baseline[name]
    if (values.length === 0 || before === undefined) continue
    compared++
    const isRate = isMoreBetter(before.unit)
    const [best, bestBefore] = [values, before.values].map(list => Math[isRate ? 'max' : 'min'](...list)) as [
      number,
      number,
    ]
    const worse = isRate ? bestBefore / best : best / bestBefore
    const words = `${short(best)} ${before.unit}, was ${short(bestBefore)}: ${short(worse)} times worse (up to ${worseMax} is allowed)`
    say(`  check ${name}: ${words}`)
    if (worse > worseMax) faults.push(`the row ${name} is slower: ${words}`)
  }
  if (compared === 0) faults.push('nothing to compare: the file of --check has none of the rows of this run')
  return faults
}

function pinFaults(pins: readonly string[], columns: readonly Column[]): readonly string[] {
  return pins.flatMap(name => {
    const found = new Set(columns.flatMap(({ measures }) => valuesOf(measures.get(name) ?? [])))
    return found.size <= 1 ? [] : [`the row ${name} is not the same everywhere: ${[...found].join(', ')}`]
  })
}

function valuesOf(measured: readonly (Measure | undefined)[]): readonly number[] {
  return measured.flatMap(measure => (measure === undefined ? [] : [measure.value]))
}

type Result = Record<string, unknown>

function report(
  definition: BenchDefinition,
  runs: number,
  columns: readonly Column[],
  versions: Readonly<Record<string, string>>,
  absent: Readonly<Record<string, string>>,
): object {
  const [ours, ...peers] = columns as [Column, ...Column[]]
  const results: Record<string, Result> = {}
  for (const [name, measured] of ours.measures) {
    results[name] = reportMeasure(name, measured, peers, definition.targets?.[name])
  }
  const alone: Record<string, Record<string, Result>> = {}
  for (const { who, measures } of peers) {
    for (const [name, measured] of measures) {
      if (ours.measures.has(name)) continue
      alone[who] = { ...alone[who], [name]: reportMeasure(`${who}: ${name}`, measured, [], undefined) }
    }
  }
  const skipped: Record<string, string> = { ...absent }
  for (const column of columns) {
    for (const [part, { count, reason }] of column.skipped) {
      const what = [column.who, part].filter(word => word !== '').join(' ')
      skipped[what] = `${count} of ${runs} runs: ${reason}`
      say(`  skipped ${what}, ${skipped[what]}`)
    }
  }
  return {
    bench: definition.name,
    node: process.version,
    cpu: `${cpus()[0]?.model ?? 'unknown'} × ${cpus().length}`,
    commit: commit(),
    params: { ...Object.fromEntries(parameters), smoke: parsed.smoke, runs, isPaired },
    ...(parsed.versus.length === 0 ? {} : { vs: parsed.versus.join(',') }),
    ...(Object.keys(versions).length === 0 ? {} : { versions }),
    results,
    ...(Object.keys(alone).length === 0 ? {} : { peers: alone }),
    ...(Object.keys(skipped).length === 0 ? {} : { skipped }),
  }
}

/**
 * Prints one measure over its runs, beside the raw figures, the targets and the peers; returns it for the
 * JSON.
 */
function reportMeasure(
  name: string,
  measured: readonly (Measure | undefined)[],
  peers: readonly Column[],
  target: Target | undefined,
): Result {
  const present = measured.filter(measure => measure !== undefined)
  const { unit } = present[0]!
  const values = present.map(({ value }) => value)
  const { median, min, max } = spread(values)
  const result: Result = { median, min, max, unit, values }
  const words: string[] = []

  const rawNames = Object.keys(present[0]!.raw ?? {})
  const rawRatio: Record<string, number> = {}
  for (const rawName of rawNames) {
    rawRatio[rawName] = spread(present.map(({ value, raw }) => value / raw![rawName]!)).median
    const raw = spread(present.map(({ raw }) => raw![rawName]!)).median
    result['raw'] = { ...(result['raw'] as object), [rawName]: raw }
    words.push(`${short(rawRatio[rawName])} × raw ${rawName} (${short(raw)})`)
  }
  if (rawNames.length > 0) result['rawRatio'] = rawRatio

  const ratios: Record<string, number> = {}
  for (const { who, measures } of peers) {
    const theirs = measures.get(name) ?? []
    const pairs = measured.flatMap((measure, run) =>
      measure === undefined || theirs[run] === undefined ? [] : [[measure.value, theirs[run].value] as const],
    )
    if (pairs.length === 0) continue
    const peer = spread(pairs.map(([, value]) => value)).median
    const measuredRatios = pairs.map(([value, other]) => value / other)
    const ratio = spread(measuredRatios)
    const isTypical = isPaired && measuredRatios.every(each => each > 0 && each < Number.POSITIVE_INFINITY)
    const typical = isTypical ? typicalRatio(measuredRatios) : undefined
    const interval = typical?.interval?.map(rounded)
    ratios[who] = typical === undefined ? ratio.median : rounded(typical.ratio)
    const entry = {
      median: peer,
      ratio: ratios[who],
      ratioMin: ratio.min,
      ratioMax: ratio.max,
      ...(interval === undefined ? {} : { interval }),
    }
    result['peers'] = {
      ...(result['peers'] as object),
      [who]: { ...entry, values: pairs.map(([, value]) => value) },
    }
    const [low, high] = interval ?? [ratio.min, ratio.max]
    const bounds = `${interval === undefined ? '' : '95 %: '}${short(low!)} … ${short(high!)}`
    words.push(`${short(ratios[who])} (${bounds}) × ${who} (${short(peer)})`)
    // The control is no peer to be measured by.
    if (isPaired && who === AGAIN) continue
    const best = result['ratio'] as number | undefined
    if (best === undefined || (isMoreBetter(unit) ? ratios[who] < best : ratios[who] > best)) {
      result['peer'] = peer
      result['ratio'] = ratios[who]
    }
  }

  const { timesRaw, timesPeer } = target ?? {}
  const reached =
    timesPeer !== undefined ? ratios[timesPeer] : timesRaw !== undefined ? rawRatio[timesRaw] : median
  if (target !== undefined && reached !== undefined) {
    const of = {
      ...(timesRaw === undefined ? {} : { timesRaw }),
      ...(timesPeer === undefined ? {} : { timesPeer }),
    }
    const times =
      timesPeer !== undefined ? ` × ${timesPeer}` : timesRaw !== undefined ? ` × raw ${timesRaw}` : ''
    for (const bar of ['floor', 'goal'] as const) {
      const isMet = isMoreBetter(unit) ? reached >= target[bar] : reached <= target[bar]
      const word = isMet ? 'met' : 'missed'
      result[bar] = { value: target[bar], ...of, is: word }
      words.push(`${bar} ${short(target[bar])}${times} ${word}`)
    }
  }
  say(`  ${name.padEnd(32)} ${median} ${unit}  (${min} … ${max})${words.map(word => `; ${word}`).join('')}`)
  return result
}

function isMoreBetter(unit: string): boolean {
  return unit.endsWith('/s')
}

function short(value: number): string {
  if (value >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`
  if (value >= 1e4) return `${Number((value / 1e3).toPrecision(3))} k`
  return String(Number(value.toPrecision(3)))
}

function spread(values: readonly number[]): { median: number; min: number; max: number } {
  return {
    median: rounded(median(values)),
    min: rounded(Math.min(...values)),
    max: rounded(Math.max(...values)),
  }
}

/** Five significant digits: more is noise. Counts stay exact, because sums of answers pin the behavior. */
function rounded(value: number): number {
  return Number.isInteger(value) ? value : Number(value.toPrecision(5))
}

function commit(): string {
  try {
    const directory = fileURLToPath(new URL('.', import.meta.url))
    const git = (...words: string[]) =>
      execFileSync('git', words, {
        cwd: directory,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      }).trim()
    return (
      git('rev-parse', '--short=12', 'HEAD') + (git('status', '--porcelain', '-uno') === '' ? '' : '+changes')
    )
  } catch {
    return 'unknown' // not a git checkout, or no git
  }
}

function parseArguments(words: readonly string[]): Arguments {
  let help = false
  let smoke = false
  let json = false
  let runs: number | undefined
  let pairs: number | undefined
  let versus: readonly string[] = []
  let check: string | undefined
  let out: string | undefined
  const values = new Map<string, string>()
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!
    const equals = word.indexOf('=')
    const option = word.startsWith('--') && equals > 0 ? word.slice(0, equals) : word
    const operand = () => (option === word ? words[++i] : word.slice(equals + 1))
    if (word === '--') continue
    if (word === '--help' || word === '-h') help = true
    else if (word === '--smoke') smoke = true
    else if (word === '--json') json = true
    else if (option === '--runs') {
      const text = operand()
      runs = Number(text)
      if (!Number.isInteger(runs) || runs < 1 || runs > RUNS_MAX) usage(`--runs ${text}: not 1 … ${RUNS_MAX}`)
    } else if (option === '--pairs') {
      const text = operand()
      pairs = Number(text)
      if (!Number.isInteger(pairs) || pairs < 1 || pairs > RUNS_MAX)
        usage(`--pairs ${text}: not 1 … ${RUNS_MAX}`)
    } else if (option === '--vs') {
      const names = operand()
      if (names === undefined) usage('--vs needs the name of a peer')
      versus = [...new Set(names.split(','))]
      if (versus.includes('')) usage(`--vs ${names.slice(0, SHOWN_CHARACTERS_MAX)}: a name is empty`)
    } else if (option === '--check') {
      check = operand()
      if (check === undefined) usage('--check needs a file that out= has written')
    } else if (word.startsWith('out=')) out = word.slice(equals + 1)
    else if (!word.startsWith('-') && equals > 0) values.set(word.slice(0, equals), word.slice(equals + 1))
    else
      usage(
        `unknown option ${word}; known: --help, --smoke, --runs N, --pairs N, --vs PEER,…, --check FILE, --json, key=value`,
      )
  }
  if (runs !== undefined && pairs !== undefined) usage('--runs and --pairs: only one of them')
  return { help, smoke, json, runs, pairs, versus, check, out, values }
}

/** Ends the process: the command line is wrong. */
export function usage(problem: string): never {
  process.stderr.write(`bench: ${problem}\n`)
  process.exit(2)
}

/**
 * Harness of the benches: parameters from the command line, runs in fresh processes, medians, one JSON line.
 *
 *   pnpm bench NAME [--smoke] [--runs N] [--vs PEER] [key=value …]
 *
 * A bench declares its parameters at the top of its module, then calls `runBench` once. People read
 * standard error; the last line of standard output is one JSON object. Every run is a process of its own
 * (5 by default, one in this process with --smoke), because optimised code and heap of one run colour the
 * next. With --vs the peer runs in turn with ours on the same input, and `ratio` is the median of ours ÷ peer
 * over paired runs.
 */

import { execFileSync, spawnSync } from 'node:child_process'
import { cpus } from 'node:os'
import { fileURLToPath } from 'node:url'

/** One measured value. */
export interface Measure {
  readonly value: number
  /** 'µs', 'block/s', 'B', … */
  readonly unit: string
}

/** What one run measured, by name. */
export type Measures = Readonly<Record<string, Measure>>

export interface BenchDefinition {
  /** Name of the folder. */
  readonly name: string
  /** The question that the bench answers. */
  readonly question: string
  /** Others that can do the same work, for --vs. */
  readonly peers?: Readonly<Record<string, () => Measures | Promise<Measures>>>
}

interface Arguments {
  readonly smoke: boolean
  readonly runs: number | undefined
  readonly versus: string | undefined
  readonly values: ReadonlyMap<string, string>
}

/** A run in a process of its own prints its measures behind this word. */
const CHILD_ENVIRONMENT = 'HOMING_BENCH_RUN'
const RUNS_DEFAULT = 5
const RUNS_MAX = 1000

const parsed = parseArguments(process.argv.slice(2))
const parameters = new Map<string, number | string>()

/** True with --smoke: tiny sizes, to show that the bench works. */
export const isSmoke = parsed.smoke

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
  return value
}

/** Runs the bench as the command line says and prints the report. Call it once, last. */
export async function runBench(
  definition: BenchDefinition,
  run: () => Measures | Promise<Measures>,
): Promise<void> {
  for (const name of parsed.values.keys()) {
    if (!parameters.has(name)) usage(`unknown parameter ${name}; known: ${[...parameters.keys()].join(', ')}`)
  }
  const peer = parsed.versus === undefined ? undefined : definition.peers?.[parsed.versus]
  if (parsed.versus !== undefined && peer === undefined) {
    const known = Object.keys(definition.peers ?? {}).join(', ') || 'none'
    usage(`unknown peer ${parsed.versus}; known: ${known}`)
  }

  const child = process.env[CHILD_ENVIRONMENT]
  if (child !== undefined) {
    const measures = await (child === 'peer' && peer !== undefined ? peer() : run())
    process.stdout.write(`${JSON.stringify(measures)}\n`)
    return
  }

  const runs = parsed.runs ?? (parsed.smoke ? 1 : RUNS_DEFAULT)
  process.stderr.write(`${definition.name}: ${definition.question}\n`)
  const ours: Measures[] = []
  const theirs: Measures[] = []
  for (let i = 0; i < runs; i++) {
    ours.push(parsed.smoke ? await run() : runInFreshProcess('ours'))
    if (peer !== undefined) theirs.push(parsed.smoke ? await peer() : runInFreshProcess('peer'))
    process.stderr.write(`  run ${i + 1} of ${runs} done\n`)
  }
  report(definition.name, ours, theirs)
}

/** The q-th percentile (0 … 100) of `samples`, which are sorted in place. 0 when there are none. */
export function percentile(samples: Float64Array, q: number): number {
  if (samples.length === 0) return 0
  samples.sort()
  return samples[Math.min(samples.length - 1, Math.floor((samples.length * q) / 100))]!
}

function runInFreshProcess(which: 'ours' | 'peer'): Measures {
  const result = spawnSync(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
    env: { ...process.env, [CHILD_ENVIRONMENT]: which },
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
    maxBuffer: 64 << 20,
  })
  const line = result.stdout?.trim().split('\n').at(-1)
  if (result.status !== 0 || line === undefined || line === '') {
    process.stderr.write(`cannot finish the run: its process ended with ${result.status ?? result.signal}\n`)
    process.exit(1)
  }
  return JSON.parse(line) as Measures
}

function report(name: string, ours: readonly Measures[], theirs: readonly Measures[]): void {
  const results: Record<string, Record<string, number | string>> = {}
  for (const key of Object.keys(ours[0] ?? {})) {
    const values = ours.map(measures => measures[key]!.value)
    const unit = ours[0]![key]!.unit
    const result: Record<string, number | string> = { ...spread(values), unit }
    const peerValues = theirs.map(measures => measures[key]?.value).filter(value => value !== undefined)
    if (peerValues.length === values.length && values.length > 0) {
      result['peer'] = spread(peerValues)['median']!
      result['ratio'] = spread(values.map((value, i) => value / peerValues[i]!))['median']!
    }
    results[key] = result
    const versus = result['ratio'] === undefined ? '' : `  ${result['ratio']} × ${parsed.versus}`
    const range = `${result['min']} … ${result['max']}`
    process.stderr.write(`  ${key.padEnd(32)} ${result['median']} ${unit}  (${range})${versus}\n`)
  }
  const line = {
    bench: name,
    node: process.version,
    cpu: `${cpus()[0]?.model ?? 'unknown'} × ${cpus().length}`,
    commit: commit(),
    params: { ...Object.fromEntries(parameters), smoke: parsed.smoke, runs: ours.length },
    ...(parsed.versus === undefined ? {} : { vs: parsed.versus }),
    results,
  }
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

function spread(values: readonly number[]): Record<string, number> {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  const median = sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
  return { median: rounded(median), min: rounded(sorted[0]!), max: rounded(sorted.at(-1)!) }
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
  let smoke = false
  let runs: number | undefined
  let versus: string | undefined
  const values = new Map<string, string>()
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!
    const equals = word.indexOf('=')
    const option = word.startsWith('--') && equals > 0 ? word.slice(0, equals) : word
    const operand = () => (option === word ? words[++i] : word.slice(equals + 1))
    if (word === '--') continue
    if (word === '--smoke') smoke = true
    else if (option === '--runs') {
      const text = operand()
      runs = Number(text)
      if (!Number.isInteger(runs) || runs < 1 || runs > RUNS_MAX) usage(`--runs ${text}: not 1 … ${RUNS_MAX}`)
    } else if (option === '--vs') {
      versus = operand()
      if (versus === undefined) usage('--vs needs the name of a peer')
    } else if (!word.startsWith('-') && equals > 0) values.set(word.slice(0, equals), word.slice(equals + 1))
    else usage(`unknown option ${word}; known: --smoke, --runs N, --vs PEER, key=value`)
  }
  return { smoke, runs, versus, values }
}

function usage(problem: string): never {
  process.stderr.write(`bench: ${problem}\n`)
  process.exit(2)
}

/**
 * What `homing load --against` says of two fleets: one that is better by its routing, and twenty times of two
 * that are equal. Four `homing engine` processes; three `homing router` processes on them, one in mode kv and
 * two in mode round-robin, and `homing load` itself as a process.
 *
 *   pnpm exec node bench/quality/load-verdicts.ts [--runs 20] [--blocks 4] [--requests 80] [--rate 4]
 *       [--keep FILE]
 *
 * Last line: one JSON object. Exit code 1: a run was invalid by the tool's own rule, the difference was not
 * found, or more than one of twenty equal comparisons showed one. Where runs are invalid, the load is late:
 * lower --rate. With `--keep` verdicts are kept in a file, one line each, and those that it has are not
 * measured again.
 */

import { spawn } from 'node:child_process'
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { MAIN, RouterClient, startProcess } from '../../test/system/fleet.ts'

const ENGINES = 4
/** Of equal comparisons, how many may show a difference. */
const FALSE_SHARE_MAX = 0.05

/** Enough of each prompt is seen before that the place where it goes matters. */
const TRAFFIC = [
  ...['--prefixes', '12', '--prefix-tokens', '2500', '--input-tokens', '400', '--output-tokens', '16'],
  ...['--sessions', '24', '--turns', '4'],
]

interface Compared {
  readonly figure: string
  readonly a: number
  readonly b: number
  readonly low: number | null
  readonly high: number | null
  readonly verdict: string
}

/** What one comparison said. */
export interface VerdictRun {
  readonly name: string
  readonly seed: number
  readonly isValid: boolean
  readonly faults: readonly string[]
  readonly comparison: readonly Compared[]
}

export interface VerdictFleet {
  /** Routers of mode kv, and two of mode round-robin. */
  readonly urls: Readonly<Record<'kv' | 'first' | 'second', string>>
  stop(): void
}

export async function startVerdictFleet(speed = 1): Promise<VerdictFleet> {
  const ports = ['--port', '0', '--events-port', '0', '--replay-port', '0', '--speed', String(speed)]
  const engines = await Promise.all(Array.from({ length: ENGINES }, () => startProcess('engine', ports)))
  const workers = engines.flatMap(({ url }) => ['--worker', url])
  const routerOf = (mode: string) =>
    startProcess('router', ['--port', '0', '--router-mode', mode, ...workers])
  const [kv, first, second] = [
    await routerOf('kv'),
    await routerOf('round-robin'),
    await routerOf('round-robin'),
  ]
  await new RouterClient(kv.url).trusted()
  return {
    urls: { kv: kv.url, first: first.url, second: second.url },
    stop() {
      for (const each of [kv, first, second, ...engines]) each.kill('SIGKILL')
    },
  }
}

/** `homing load A --against B --json -` to its end. Rejects where it ends with another code than 0 and 1. */
export async function compareFleets(
  name: string,
  [a, b]: readonly [string, string],
  seed: number,
  options: readonly string[],
): Promise<VerdictRun> {
  const argv = ['load', a, '--against', b, '--seed', String(seed), '--json', '-', ...TRAFFIC, ...options]
  const child = spawn(process.execPath, [MAIN, ...argv], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  for await (const piece of child.stdout.setEncoding('utf8')) text += piece
  const last = text.trimEnd().split('\n').at(-1)!
  if (!last.startsWith('{')) throw new Error(`homing load has no result: ${text}`)
  const { is_valid: isValid, faults, comparison } = JSON.parse(last)
  return { name, seed, isValid, faults, comparison }
}

export function showsDifference({ comparison }: VerdictRun): boolean {
  return comparison.some(({ verdict }) => verdict === 'better' || verdict === 'worse')
}

const isBetter = ({ comparison }: VerdictRun): boolean =>
  comparison.find(({ figure }) => figure === 'ttft_mean')?.verdict === 'better'

/** Why the verdicts show nothing, or are wrong. `done`: first the run of fleets that differ. */
export function faultsOfVerdicts(done: readonly VerdictRun[]): readonly string[] {
  const [different, ...equal] = done
  const invalid = done.filter(({ isValid }) => !isValid).length
  const shown = equal.filter(showsDifference).length
  return [
    ...(invalid > 0 ? [`${invalid} of ${done.length} runs are invalid: lower --rate`] : []),
    ...(different === undefined || !isBetter(different) ? ['the better fleet was not found'] : []),
    ...(shown > FALSE_SHARE_MAX * equal.length
      ? [`${shown} of ${equal.length} equal comparisons showed a difference`]
      : []),
  ]
}

type SideName = keyof VerdictFleet['urls']

interface PlannedRun {
  readonly name: string
  readonly sides: readonly [SideName, SideName]
  readonly seed: number
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      runs: { type: 'string', default: '20' },
      blocks: { type: 'string', default: '4' },
      requests: { type: 'string', default: '80' },
      rate: { type: 'string', default: '4' },
      keep: { type: 'string' },
    },
  })
  const runs = Number(values.runs)
  const kept: VerdictRun[] =
    values.keep === undefined || !existsSync(values.keep)
      ? []
      : readFileSync(values.keep, 'utf8')
          .split('\n')
          .filter(line => line !== '')
          .map(line => JSON.parse(line) as VerdictRun)
  const options = ['--blocks', values.blocks, '--requests', values.requests, '--rate', values.rate]
  const plan: readonly PlannedRun[] = [
    { name: 'different', sides: ['kv', 'first'], seed: 1 },
    ...Array.from(
      { length: runs },
      (_, i): PlannedRun => ({ name: 'equal', sides: ['first', 'second'], seed: i + 1 }),
    ),
  ]
  const done: VerdictRun[] = []
  const fleet = await startVerdictFleet()
  try {
    for (const { name, sides, seed } of plan) {
      const known = kept.find(each => each.name === name && each.seed === seed)
      const run =
        known ?? (await compareFleets(name, [fleet.urls[sides[0]], fleet.urls[sides[1]]], seed, options))
      if (known === undefined && values.keep !== undefined)
        appendFileSync(values.keep, `${JSON.stringify(run)}\n`)
      done.push(run)
      process.stderr.write(`${name}, seed ${seed}: ${wordsOf(run)}\n`)
    }
  } finally {
    fleet.stop()
  }
  const [different, ...equal] = done
  const shown = equal.filter(showsDifference).length
  const ttft = different!.comparison.find(({ figure }) => figure === 'ttft_mean')!
  const isFound = isBetter(different!)
  process.stdout.write(
    `${JSON.stringify({ different: ttft, isFound, equalRuns: equal.length, equalWithDifference: shown, invalid: done.filter(({ isValid }) => !isValid).length })}\n`,
  )
  const faults = faultsOfVerdicts(done)
  for (const fault of faults) process.stderr.write(`${fault}\n`)
  return faults.length === 0 ? 0 : 1
}

function wordsOf(run: VerdictRun): string {
  const named = run.comparison
    .filter(({ verdict }) => verdict === 'better' || verdict === 'worse')
    .map(({ figure, verdict }) => `${figure} ${verdict}`)
  return `${named.length === 0 ? 'no difference' : named.join(', ')}${run.isValid ? '' : ` (${run.faults.join('; ')})`}`
}

if (import.meta.main) process.exit(await main())

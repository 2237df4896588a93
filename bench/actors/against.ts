/**
 * Against: the rows of this bench in two checkouts, in turns: has anything become slower?
 *
 *   pnpm exec node bench/actors/against.ts OLD [NEW] [turns=5] [rows=a,b] [least=0.95]
 *       [--smoke] [key=value …]
 *
 * OLD and NEW are folders of checkouts with their packages installed; NEW is this one by default. In each
 * turn every row runs once in each of them, and the order of the two changes from turn to turn, so a slow
 * minute of the machine hits both. All other words go to the bench as they are: with --smoke no row waits for
 * free cores, and sizes are small unless given.
 *
 * Read it    *speed* is new ÷ old of rates, and old ÷ new of times, CPU and bytes: above 1 the new one is
 *            better. Median of the turns, range in brackets. *beside raw* is the same of the ratios to the
 *            raw means, which are measured in the same process as ours and so take out what differs between
 *            two processes.
 * Exit code  1 when the median of a measure is below `least` in both columns (in the first, where there is no
 *            raw).
 */

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { median } from '../statistics.ts'

interface Result {
  readonly median: number
  readonly unit: string
  readonly raw?: Readonly<Record<string, number>>
}
type Results = Readonly<Record<string, Result>>

const ROOT = join(import.meta.dirname, '../..')
const RUN_MS_MAX = 900_000
/** What has no speed. */
const NOT_COMPARED = ['machine', 'kills']

const folders: string[] = []
const passed: string[] = []
const own = { turns: '5', rows: 'all', least: '0.95' }
for (const word of process.argv.slice(2)) {
  const [name = '', value] = word.split('=')
  if (value !== undefined && name in own) own[name as keyof typeof own] = value
  else if (word.startsWith('--') || value !== undefined) passed.push(word)
  else folders.push(resolve(word))
}
const [old, current = ROOT] = folders
const turns = Number(own.turns)
const least = Number(own.least)
if (old === undefined || folders.length > 2)
  usage('name the folder of the old checkout, and perhaps that of the new one')
if (!(Number.isInteger(turns) && turns > 0 && least >= 0))
  usage('turns is an integer > 0, least a number ≥ 0')
for (const folder of [old, current]) {
  if (!existsSync(join(folder, 'bench/actors/main.ts'))) usage(`there is no bench/actors in ${folder}`)
}

const ofOld = rowsOf(old)
const known = rowsOf(current).filter(row => ofOld.includes(row))
const rows = own.rows === 'all' ? known.filter(row => !NOT_COMPARED.includes(row)) : own.rows.split(',')
for (const row of rows) {
  if (!known.includes(row)) usage(`not both have the row ${row}; known: ${known.join(', ')}`)
}

let isSlower = false
process.stdout.write('| measure | old | new | speed: new ÷ old | beside raw |\n|---|---|---|---|---|\n')
for (const row of rows) {
  const pairs: (readonly [Results, Results])[] = []
  for (let turn = 0; turn < turns; turn++) {
    const first = turn % 2 === 0 ? measure(old, row) : undefined
    const ofNew = measure(current, row)
    pairs.push([first ?? measure(old, row), ofNew])
  }
  for (const name of Object.keys(pairs[0]![0])) report(name, pairs)
}
process.exitCode = isSlower ? 1 : 0

/** One line for a measure that both have in every turn. */
function report(name: string, pairs: readonly (readonly [Results, Results])[]): void {
  const both = pairs.flatMap(([before, after]) => {
    const [was, is] = [before[name], after[name]]
    return was === undefined || is === undefined ? [] : [[was, is] as const]
  })
  if (both.length === 0) return
  const { unit, raw = {} } = both[0]![0]
  const speedOf = (before: number, after: number): number =>
    unit.endsWith('/s') ? after / before : before / after
  const speeds = both.map(([before, after]) => speedOf(before.median, after.median))
  if (!speeds.every(Number.isFinite)) return
  const rawName = Object.keys(raw)[0]
  const besideRaw = both.map(([before, after]) =>
    rawName === undefined
      ? Number.NaN
      : speedOf(before.median / before.raw![rawName]!, after.median / after.raw![rawName]!),
  )
  const hasRaw = besideRaw.every(Number.isFinite)
  if (median(speeds) < least && (!hasRaw || median(besideRaw) < least)) isSlower = true
  const figure = (side: 0 | 1): string =>
    `${median(both.map(pair => pair[side].median)).toPrecision(4)} ${unit}`
  const cells = [name, figure(0), figure(1), ratios(speeds), hasRaw ? `${ratios(besideRaw)} ${rawName}` : '']
  process.stdout.write(`| ${cells.join(' | ')} |\n`)
}

/** One run of a row, in a process of its own. A row that was skipped has no results. */
function measure(folder: string, row: string): Results {
  const words = ['--json', '--runs', '1', `rows=${row}`, ...passed]
  const { status, stdout, stderr } = bench(folder, words)
  if (status !== 0) usage(`the bench fails in ${folder}: ${stderr}`)
  return (JSON.parse(stdout.trimEnd().split('\n').at(-1)!) as { readonly results: Results }).results
}

/** A bench says what rows it has when it is asked for another. */
function rowsOf(folder: string): readonly string[] {
  const { stderr } = bench(folder, ['rows=?'])
  return /known: (.*)/.exec(stderr)?.[1]?.split(', ') ?? usage(`cannot list the rows in ${folder}: ${stderr}`)
}

function bench(folder: string, words: readonly string[]) {
  const main = join(folder, 'bench/actors/main.ts')
  return spawnSync(process.execPath, [main, ...words], { cwd: folder, encoding: 'utf8', timeout: RUN_MS_MAX })
}

function ratios(values: readonly number[]): string {
  const [min, max] = [Math.min(...values), Math.max(...values)]
  return `${median(values).toFixed(2)} (${min.toFixed(2)} … ${max.toFixed(2)})`
}

function usage(fault: string): never {
  process.stderr.write(`against: ${fault}\n`)
  process.exit(2)
}

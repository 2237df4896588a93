/**
 * `pnpm test [path …]`: runs every test file and closes with the line "N passed, N failed".
 *
 * A test file is a program that prints TAP (node-tap), so it is run as one: `node file`. Going through
 * the `tap` command instead would load its plugins into every process: 1.0 s against 0.2 s per file.
 *
 * Groups   light files share a process, a dozen of one folder each: a process with node-tap and our modules
 *          in it costs 0.3 to 1.5 s of CPU, which is more than they take. Not a file that its text shows to
 *          change the process (OWN_PROCESS). If a group dies, what it had not begun is run file by file.
 * Order    the longest first, by file-seconds.json, so that no core is idle at the end. `--write-seconds`
 *          with a whole run measures that table anew.
 * Width    as many files as there are cores. One more saves little: system tests start several processes, and
 *          what they wait for comes late then.
 * Bounds   each file has LIMIT_FACTOR times its recorded seconds, at least FILE_LIMIT_S; the whole run has
 *          TOTAL_LIMIT_S. A file past its bound is killed with everything it started, and counts as failed.
 * Counts   test cases, not assertions: see tap-reader.ts. A file that ends without its plan, or with an
 *          exit code other than 0 and no failed case, is a failed case.
 * Cache    Node keeps the modules that it has compiled, with their types stripped, in COMPILE_CACHE: a thread
 *          that imports the router then starts in half the time. A whole run begins with an empty cache.
 *
 * Cases    tests that draw their cases draw the same ones each time: a run says something of the change, not
 *          of the draw. `--draw` takes a seed by chance and prints it; HOMING_SEED=<that> draws them again.
 *
 * Paths may be files, folders, or parts of a path. Exit code 1 on any failure, 2 when no file fits.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join, relative, resolve } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { cutGroup } from './group-output.ts'
import { type FailedCase, readTap, type SkippedCase } from './tap-reader.ts'

const ROOT = join(import.meta.dirname, '..')
const PATTERNS = [
  'packages/*/test/**/*.test.ts',
  'actors/*/test/**/*.test.ts',
  'bench/**/*.test.ts',
  'test/**/*.test.ts',
]
const WIDTH = availableParallelism()
/**
 * A file that takes longer has a process of its own, and so has one that does what a neighbour could feel.
 */
const LIGHT_SECONDS_MAX = 4
const OWN_PROCESS =
  /process\.(exit|on|once|chdir|argv|memoryUsage)\b|process\.env\S* = |delete process\.env|globalThis|node:(inspector|v8|vm)|worker_threads|createActorSystem|startRouter|startTestRouter|startFleet|withFleet/
const GROUP_FILES_MAX = 12
const GROUP = join(import.meta.dirname, 'group.ts')
const FILE_LIMIT_S = 300
/** A machine that does other work as well needs several times as long. */
const LIMIT_FACTOR = 12
const TOTAL_LIMIT_S = 65 * 60
const DRAWN_CASES = join(import.meta.dirname, 'drawn-cases.ts')
const COMPILE_CACHE = join(ROOT, 'node_modules', '.cache', 'homing-compiled')
/** A whole run begins without: what has been compiled, and what has been packed (packed-before.ts). */
const KEPT = [COMPILE_CACHE, join(ROOT, 'node_modules', '.cache', 'homing-packed')]
const SECONDS_FILE = join(import.meta.dirname, 'file-seconds.json')
/** Seconds of every file that takes at least SECONDS_RECORDED_MIN on a machine with two cores. */
const recordedSeconds = JSON.parse(readFileSync(SECONDS_FILE, 'utf8')) as Readonly<Record<string, number>>
const SECONDS_RECORDED_MIN = 2
/** Our variables that a test may read; all others could change what it tests. */
const TEST_VARIABLES =
  /^HOMING_(REAL_\w+|TRACES|TRACE_\w+|PICTURES|SEED|SIM_\w+|FAULTS_\w+|LIARS_\w+|LIVES_\w+|STRESS_\w+|TEST_\w+|FUZZ_SECONDS|PARTITION_SECONDS|WORKERS_ROUNDS|PYTHON|VOCABULARIES)$/
/** Lines of standard error shown for a file that failed. */
const ERROR_LINES_MAX = 60

/** Of a file that is not in the table. */
const SECONDS_UNRECORDED = 0.5

/** Files that share a process. */
type Unit = readonly string[]

interface FileResult {
  readonly file: string
  readonly seconds: number
  readonly passed: number
  readonly failed: readonly FailedCase[]
  readonly skipped: readonly SkippedCase[]
  readonly errorOutput: string
}

const running = new Set<ChildProcess>()

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    draw: { type: 'boolean', default: false },
    'write-seconds': { type: 'boolean', default: false },
  },
})
process.exitCode = await main(positionals)

async function main(wanted: readonly string[]): Promise<number> {
  // The scripts of the root install what is missing; those of a package are run by people who know pnpm.
  if (!existsSync(join(ROOT, 'node_modules', 'tap'))) {
    console.error('cannot run tests: packages are missing; run `npx --yes pnpm@10 install` first')
    return 2
  }
  const files = testFiles(wanted)
  if (files.length === 0) {
    console.error(`cannot run tests: no test file fits ${wanted.join(' ')}`)
    return 2
  }
  if (values.draw) {
    process.env['HOMING_SEED'] = String(1 + Math.floor(Math.random() * (2 ** 31 - 1)))
    console.log(`HOMING_SEED=${process.env['HOMING_SEED']}`)
  }
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.once(name, () => {
      for (const child of running) killGroup(child)
      process.exit(130)
    })
  }

  if (wanted.length === 0) for (const folder of KEPT) rmSync(folder, { recursive: true, force: true })
  const endsAt = performance.now() + TOTAL_LIMIT_S * 1000
  const results: FileResult[] = []
  const waiting = [...unitsOf(files)]
  const runNext = async (): Promise<void> => {
    for (let unit = waiting.shift(); unit !== undefined; unit = waiting.shift()) {
      const limitS = Math.min(limitSecondsOf(unit), (endsAt - performance.now()) / 1000)
      const { done, left } = limitS <= 1 ? { done: unit.map(notRun), left: [] } : await runUnit(unit, limitS)
      waiting.unshift(...left.map(file => [file]))
      results.push(...done)
      for (const result of done) report(result)
    }
  }
  await Promise.all(Array.from({ length: WIDTH }, runNext))
  if (values['write-seconds'] && wanted.length === 0) writeSeconds(results)
  return close(results)
}

function limitSecondsOf(unit: Unit): number {
  return Math.max(FILE_LIMIT_S, LIMIT_FACTOR * secondsOf(unit))
}

function secondsOf(unit: Unit): number {
  return unit.reduce((sum, file) => sum + (recordedSeconds[file] ?? SECONDS_UNRECORDED), 0)
}

function writeSeconds(results: readonly FileResult[]): void {
  const long = results
    .filter(({ seconds }) => seconds >= SECONDS_RECORDED_MIN)
    .toSorted((a, b) => a.file.localeCompare(b.file))
    .map(({ file, seconds }) => [file, Math.round(seconds)] as const)
  writeFileSync(SECONDS_FILE, `${JSON.stringify(Object.fromEntries(long), undefined, 2)}\n`)
}

/** The longest first. */
function unitsOf(files: readonly string[]): readonly Unit[] {
  const light = new Set(
    files.filter(
      file =>
        (recordedSeconds[file] ?? 0) <= LIGHT_SECONDS_MAX &&
        !OWN_PROCESS.test(readFileSync(join(ROOT, file), 'utf8')),
    ),
  )
  const units: Unit[] = files.filter(file => !light.has(file)).map(file => [file])
  // Neighbours import the same modules.
  const byFolder = [...light].toSorted((a, b) => a.localeCompare(b))
  while (byFolder.length > 0) units.push(byFolder.splice(0, GROUP_FILES_MAX))
  return units.sort((a, b) => secondsOf(b) - secondsOf(a))
}

function testFiles(wanted: readonly string[]): readonly string[] {
  const all = globSync(PATTERNS, { cwd: ROOT, exclude: path => path.includes('node_modules') })
    .map(file => file.replaceAll('\\', '/'))
    .sort((a, b) => a.localeCompare(b))
  if (wanted.length === 0) return all
  return all.filter(file => wanted.some(path => fits(file, path)))
}

/** A path that exists is a file or a folder; anything else is a part of a path. */
function fits(file: string, path: string): boolean {
  const full = resolve(path)
  if (!existsSync(full)) return file.includes(path)
  const inside = relative(ROOT, full)
  return inside === '' || file === inside || file.startsWith(`${inside}/`)
}

/** Files that a group did not come to are `left`. */
async function runUnit(
  unit: Unit,
  limitS: number,
): Promise<{ readonly done: readonly FileResult[]; readonly left: Unit }> {
  const [first, ...others] = unit as [string, ...string[]]
  const ended = await runProcess(unit, limitS)
  if (others.length === 0) return { done: [resultOf(first, ended, ended.output, ended.seconds)], left: [] }
  const { files: outputs, strays } = cutGroup(ended.output, unit)
  const begun = unit.filter(file => outputs.has(file))
  // How the process ended is a matter of the last file that it came to.
  const last = begun.pop() ?? first
  const done = begun.map(file => {
    const { tap, seconds = 0 } = outputs.get(file)!
    return resultOf(file, { ...ended, isLate: false, how: 0 }, tap, seconds)
  })
  // With 1 it also says that a test failed, whichever.
  const isExplained = ended.how === 1 && done.some(({ failed }) => failed.length > 0)
  const { tap, seconds } = outputs.get(last) ?? { tap: '', seconds: undefined }
  const how = { ...ended, how: isExplained ? 0 : ended.how, isCut: seconds === undefined }
  const ofLast = resultOf(last, how, tap, seconds ?? ended.seconds)
  const failed = strays.map(title => ({
    path: [title],
    report: [`a module that one of ${unit.join(', ')} imports has imported 'tap' itself: give it the test`],
  }))
  done.push({ ...ofLast, failed: [...ofLast.failed, ...failed] })
  return { done, left: unit.filter(file => file !== last && !begun.includes(file)) }
}

interface Ended {
  readonly output: string
  readonly errorOutput: string
  readonly seconds: number
  /** It was killed at this limit. */
  readonly isLate: boolean
  readonly limitS: number
  /** Before the file that it was in had ended. */
  readonly isCut?: boolean
  readonly how: number | NodeJS.Signals | null
}

function runProcess(unit: Unit, limitS: number): Promise<Ended> {
  const startedAt = performance.now()
  return new Promise(resolve => {
    const drawsCases = unit.some(file => readFileSync(join(ROOT, file), 'utf8').includes("from 'fast-check'"))
    const options = drawsCases ? ['--import', DRAWN_CASES] : []
    const main = unit.length === 1 ? join(ROOT, unit[0]!) : GROUP
    const child = spawn(process.execPath, [...options, main], {
      cwd: ROOT,
      env: {
        ...cleanEnvironment(limitS),
        ...(unit.length === 1 ? {} : { TEST_GROUP: JSON.stringify(unit) }),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      // A group of its own, so that what the test started can be killed with it.
      detached: true,
    })
    running.add(child)
    const output: Buffer[] = []
    const errors: Buffer[] = []
    let isLate = false
    child.stdout.on('data', (bytes: Buffer) => output.push(bytes))
    child.stderr.on('data', (bytes: Buffer) => errors.push(bytes))
    const timer = setTimeout(() => {
      isLate = true
      killGroup(child)
    }, limitS * 1000)
    child.on('close', (exitCode, signal) => {
      clearTimeout(timer)
      running.delete(child)
      killGroup(child)
      resolve({
        output: Buffer.concat(output).toString('utf8'),
        errorOutput: Buffer.concat(errors).toString('utf8'),
        seconds: (performance.now() - startedAt) / 1000,
        isLate,
        limitS,
        how: exitCode ?? signal,
      })
    })
  })
}

function resultOf(file: string, ended: Ended, output: string, seconds: number): FileResult {
  const tap = readTap(output)
  const failed = [...tap.failed]
  if (ended.isLate) {
    failed.push({ path: [], report: [`killed after ${ended.limitS.toFixed(0)} s, its time limit`] })
  } else if (!tap.isComplete || ended.isCut === true) {
    failed.push({ path: [], report: [`ended before its plan (exit code ${ended.how})`] })
  } else if (ended.how !== 0 && failed.length === 0) {
    failed.push({ path: [], report: [`ended with exit code ${ended.how}`] })
  } else if (tap.passed + failed.length + tap.skipped.length === 0) {
    failed.push({ path: [], report: ['has no test'] })
  }
  return { file, seconds, passed: tap.passed, failed, skipped: tap.skipped, errorOutput: ended.errorOutput }
}

/** What a shell has set for its own routers must not change a test. */
function cleanEnvironment(limitS: number): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {}
  for (const [name, value] of Object.entries(process.env)) {
    if (!/^(HOMING|DYN|TAP)_/.test(name) || TEST_VARIABLES.test(name)) env[name] = value
  }
  env['NODE_COMPILE_CACHE'] = COMPILE_CACHE
  // Tests start hundreds of routers, and may wait for their first requests.
  env['HOMING_WARMUP_REQUESTS'] = '0'
  // A little less than our own limit: then node-tap says which test hangs.
  env['TAP_TIMEOUT'] = String(Math.max(1, Math.floor(limitS - 5)))
  return env
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    // The group has ended: nothing is left to kill.
  }
}

function notRun(file: string): FileResult {
  const failed = [{ path: [], report: [`not run: the whole run is limited to ${TOTAL_LIMIT_S} s`] }]
  return { file, seconds: 0, passed: 0, failed, skipped: [], errorOutput: '' }
}

function report(result: FileResult): void {
  const { file, seconds, passed, failed, skipped, errorOutput } = result
  const counts = [`${passed} passed`.padStart(11)]
  if (failed.length > 0) counts.push(`${failed.length} failed`)
  if (skipped.length > 0) counts.push(`${skipped.length} skipped`)
  console.log(
    `${failed.length > 0 ? 'FAIL' : 'ok  '} ${seconds.toFixed(2).padStart(7)} s ${counts.join(', ')}  ${file}`,
  )
  for (const { path, report } of failed) {
    console.log(`\n  ${[file, ...path].join(' > ')}`)
    for (const line of report) console.log(`    ${line}`)
    console.log('')
  }
  if (failed.length > 0 && errorOutput !== '') {
    const lines = errorOutput.trimEnd().split('\n')
    console.log(`  standard error of ${file}${lines.length > ERROR_LINES_MAX ? ', its end' : ''}:`)
    for (const line of lines.slice(-ERROR_LINES_MAX)) console.log(`    ${line}`)
    console.log('')
  }
}

function close(results: readonly FileResult[]): number {
  const sum = (count: (result: FileResult) => number): number =>
    results.reduce((total, result) => total + count(result), 0)
  const failedCount = sum(result => result.failed.length)
  const skippedCount = sum(result => result.skipped.length)

  console.log('')
  if (failedCount > 0) {
    console.log('failed:')
    for (const { file, failed } of results) {
      for (const { path } of failed) console.log(`  ${[file, ...path].join(' > ')}`)
    }
  }
  if (skippedCount > 0) {
    console.log(`${skippedCount} skipped:`)
    for (const { file, skipped } of results) {
      for (const { path, reason } of skipped) console.log(`  ${[file, ...path].join(' > ')}: ${reason}`)
    }
  }
  console.log(`${sum(result => result.passed)} passed, ${failedCount} failed`)
  return failedCount > 0 ? 1 : 0
}

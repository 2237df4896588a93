/**
 * `pnpm test [path …]`: runs every test file, two at a time, and closes with the line "N passed, N failed".
 *
 * A test file is a program that prints TAP (node-tap), so it is run as one: `node file`. Going through
 * the `tap` command instead would load its plugins into every process: 1.0 s against 0.2 s per file.
 *
 * Bounds   FILE_LIMIT_S per file (more for those in SLOW_FILES), TOTAL_LIMIT_S for the whole run; a file
 *          past its bound is killed with everything it started, and counts as failed.
 * Counts   test cases, not assertions: see tap-reader.ts. A file that ends without its plan, or with an
 *          exit code other than 0 and no failed case, is a failed case.
 *
 * Again    With HOMING_TEST_AGAIN=N, up to N files that failed are run once more, alone, when all others have
 *          ended. A file that passes then counts as passed and is listed as unsteady with what it said the
 *          first time: a busy machine must not hide what the other files say. More failures than N stand.
 *
 * Paths may be files, folders, or parts of a path. Exit code 1 on any failure, 2 when no file fits.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, globSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import process from 'node:process'
import { type FailedCase, readTap, type SkippedCase } from './tap-reader.ts'

const ROOT = join(import.meta.dirname, '..')
const PATTERNS = [
  'packages/*/test/**/*.test.ts',
  'actors/*/test/**/*.test.ts',
  'bench/**/*.test.ts',
  'test/**/*.test.ts',
]
const PARALLEL = 2
const FILE_LIMIT_S = 120
const TOTAL_LIMIT_S = 28 * 60
/** Files that build or install something, or try many seeds. */
const SLOW_FILES: Readonly<Record<string, number>> = {
  'packages/index/test/index-wasm.test.ts': 420,
  'packages/tokenization/test/reference/equality.test.ts': 240,
  'test/examples-project.test.ts': 420,
  'test/package.test.ts': 420,
  'test/real-engines/sessions.test.ts': 660,
  'test/simulation/router.test.ts': 300,
  'test/system/replicas.test.ts': 240,
  'test/site.test.ts': 280,
  'test/system/trace.test.ts': 240,
  'test/system/workers-memory.test.ts': 240,
}
/** Variables of ours that a test may read; all others could change what it tests. */
const TEST_VARIABLES =
  /^HOMING_(REAL_ENGINES|REAL_ENGINE_URLS|REAL_ENGINE_RESTART|REAL_REQUESTS|TRACES|PICTURES|SEED|SIM_SEED|SIM_SEEDS|FAULTS_RUNS|FAULTS_SEED|TEST_SEED|FUZZ_SECONDS|VOCABULARIES)$/
/** Lines of standard error shown for a file that failed. */
const ERROR_LINES_MAX = 60

interface FileResult {
  readonly file: string
  readonly seconds: number
  readonly passed: number
  readonly failed: readonly FailedCase[]
  readonly skipped: readonly SkippedCase[]
  readonly errorOutput: string
}

const running = new Set<ChildProcess>()

process.exitCode = await main(process.argv.slice(2))

async function main(wanted: readonly string[]): Promise<number> {
  const files = testFiles(wanted)
  if (files.length === 0) {
    console.error(`cannot run tests: no test file fits ${wanted.join(' ')}`)
    return 2
  }
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.once(name, () => {
      for (const child of running) killGroup(child)
      process.exit(130)
    })
  }

  const endsAt = performance.now() + TOTAL_LIMIT_S * 1000
  const results: FileResult[] = []
  const waiting = [...files]
  const runNext = async (): Promise<void> => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      const limitS = Math.min(SLOW_FILES[file] ?? FILE_LIMIT_S, (endsAt - performance.now()) / 1000)
      const result = limitS <= 1 ? notRun(file) : await runFile(file, limitS)
      results.push(result)
      report(result)
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, runNext))
  const unsteady = await runAgain(results, endsAt)
  return close(results, unsteady)
}

/** Runs failed files alone and puts what they say then in place of what they said before; returns those that pass. */
async function runAgain(results: FileResult[], endsAt: number): Promise<readonly string[]> {
  const filesMax = Number(process.env['HOMING_TEST_AGAIN'] ?? 0)
  const failed = results.filter(result => result.failed.length > 0)
  if (failed.length > filesMax) return []
  const unsteady: string[] = []
  for (const { file } of failed) {
    const limitS = Math.min(SLOW_FILES[file] ?? FILE_LIMIT_S, (endsAt - performance.now()) / 1000)
    if (limitS <= 1) break
    console.log(`again, alone: ${file}`)
    const result = await runFile(file, limitS)
    report(result)
    results[results.findIndex(other => other.file === file)] = result
    if (result.failed.length === 0) unsteady.push(file)
  }
  return unsteady
}

/** Slow files first, so that the run does not end with one thread idle. */
function testFiles(wanted: readonly string[]): readonly string[] {
  const all = globSync(PATTERNS, { cwd: ROOT, exclude: path => path.includes('node_modules') })
    .map(file => file.replaceAll('\\', '/'))
    .sort((a, b) => (SLOW_FILES[b] ?? 0) - (SLOW_FILES[a] ?? 0) || a.localeCompare(b))
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

function runFile(file: string, limitS: number): Promise<FileResult> {
  const startedAt = performance.now()
  return new Promise(resolve => {
    const child = spawn(process.execPath, [join(ROOT, file)], {
      cwd: ROOT,
      env: cleanEnvironment(limitS),
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
      const tap = readTap(Buffer.concat(output).toString('utf8'))
      const failed = [...tap.failed]
      if (isLate) {
        failed.push({ path: [], report: [`killed after ${limitS.toFixed(0)} s, its time limit`] })
      } else if (!tap.isComplete) {
        failed.push({ path: [], report: [`ended before its plan (exit code ${exitCode ?? signal})`] })
      } else if (exitCode !== 0 && failed.length === 0) {
        failed.push({ path: [], report: [`ended with exit code ${exitCode ?? signal}`] })
      } else if (tap.passed + failed.length + tap.skipped.length === 0) {
        failed.push({ path: [], report: ['has no test'] })
      }
      resolve({
        file,
        seconds: (performance.now() - startedAt) / 1000,
        passed: tap.passed,
        failed,
        skipped: tap.skipped,
        errorOutput: Buffer.concat(errors).toString('utf8'),
      })
    })
  })
}

/** What a shell has set for its own routers must not change a test. */
function cleanEnvironment(limitS: number): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = {}
  for (const [name, value] of Object.entries(process.env)) {
    if (!/^(HOMING|DYN|TAP)_/.test(name) || TEST_VARIABLES.test(name)) env[name] = value
  }
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

function close(results: readonly FileResult[], unsteady: readonly string[]): number {
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
  if (unsteady.length > 0) {
    console.log(`${unsteady.length} unsteady, passed only when run again alone:`)
    for (const file of unsteady) console.log(`  ${file}`)
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

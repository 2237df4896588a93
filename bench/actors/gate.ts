/**
 * Gate: lets a run of two threads begin only while two busy threads get CORES_MIN cores, and counts it only
 * when they get CORES_MIN_AFTER once it is over; else the run is made again. Waiting and runs that did not
 * count take up to WAIT_MS_MAX in all runs of a bench together. Once that is used up, a run begins at once or
 * is skipped.
 *
 * Every run is a process of its own, so what was waited so far is in a file of the first process.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { say } from '../harness.ts'
import { CORES_MIN, CORES_MIN_AFTER, effectiveCores } from './cores.ts'
import { pause } from './loads.ts'

const WAIT_MS_MAX = 120_000
const LOOK_EVERY_MS = 1000
/** A word to those who wait, so often. */
const WORD_EVERY_MS = 15_000
/** Times that a run is made until it counts. */
const RUNS_MAX = 3
/** Names the file to the processes of the runs. */
const ENVIRONMENT = 'HOMING_BENCH_WAITED'

/** False in the processes that it starts for the runs. */
export const isFirstProcess = process.env[ENVIRONMENT] === undefined
const path = process.env[ENVIRONMENT] ?? newFile()

/** What `run` returned while two cores were ours; otherwise how many there were. */
export async function gated<T>(
  name: string,
  run: () => Promise<T>,
): Promise<{ readonly value: T } | { readonly cores: number }> {
  let cores = 0
  for (let i = 0; i < RUNS_MAX; i++) {
    cores = await wait(name)
    if (cores < CORES_MIN) break
    const fromMs = performance.now()
    const value = await run()
    cores = await effectiveCores()
    if (cores >= CORES_MIN_AFTER) return { value }
    addWaited(performance.now() - fromMs)
    if (isSpent()) break
    say(
      `  ${name}: two busy threads get ${cores.toFixed(2)} cores after it, not ${CORES_MIN_AFTER}: once more`,
    )
  }
  return { cores }
}

/** Looks until there are enough cores or the time is used up; the cores that were found last. */
async function wait(name: string): Promise<number> {
  let cores = await effectiveCores()
  const fromMs = performance.now()
  let wordMs = Number.NEGATIVE_INFINITY
  while (cores < CORES_MIN && !isSpent()) {
    const nowMs = performance.now()
    if (nowMs - wordMs >= WORD_EVERY_MS) {
      const leftS = Math.round((WAIT_MS_MAX - waitedMs()) / 1000)
      say(
        `  ${name} waits for ${CORES_MIN} cores: two busy threads get ${cores.toFixed(2)} (up to ${leftS} s more)`,
      )
      wordMs = nowMs
    }
    await pause(LOOK_EVERY_MS)
    cores = await effectiveCores()
    addWaited(performance.now() - nowMs)
  }
  if (wordMs > 0) say(`  ${name} waited ${((performance.now() - fromMs) / 1000).toFixed(0)} s`)
  return cores
}

function isSpent(): boolean {
  return waitedMs() >= WAIT_MS_MAX
}

function waitedMs(): number {
  return Number(readFileSync(path, 'utf8'))
}

function addWaited(ms: number): void {
  writeFileSync(path, String(waitedMs() + ms))
}

/** In a folder that goes with this process. */
function newFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'homing-bench-'))
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
  const file = join(folder, 'waited')
  writeFileSync(file, '0')
  process.env[ENVIRONMENT] = file
  return file
}

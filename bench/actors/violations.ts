/** Violations that a row counts instead of failing at the first: figures with a floor of 0. */

import process from 'node:process'
import { isSmoke, say } from '../harness.ts'

const SHOWN_MAX = 5
const SEED_MAX = 1e9
const SMOKE_SEED = 1

/**
 * A new one in every run, which finds nothing in the seeds of the run before; always the same with --smoke.
 */
export function newSeed(): number {
  return isSmoke ? SMOKE_SEED : 1 + Math.floor(Math.random() * SEED_MAX)
}

/** A full run has to report all of its figures; a smoke run fails. */
export function reportViolations(violations: readonly string[]): void {
  for (const violation of violations.slice(0, SHOWN_MAX)) say(`  violated: ${violation}`)
  if (isSmoke && violations.length > 0) process.exitCode = 1
}

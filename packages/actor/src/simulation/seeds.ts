/** Runs a scenario over many seeds, each twice: equal seeds must give equal traces. */

import { checkedFields } from '../contract/settings.ts'
import { describe } from '../values/thrown.ts'
import { SeedFailedError } from './errors.ts'

/** What a scenario leaves behind. */
export interface SeedOutcome {
  readonly traceHash: string
  readonly steps: number
  /** What its checkers found. */
  readonly violations: readonly string[]
}

export interface SeedsOptions {
  /** The first seed and how many follow it. */
  readonly first: number
  readonly count: number
  /** Run each seed again and compare the traces; default true. */
  readonly isRepeated?: boolean
  /** The one command that runs this seed alone. */
  readonly command: (seed: number) => string
}

export interface SeedsReport {
  readonly seeds: number
  readonly steps: number
  readonly traces: ReadonlyMap<number, string>
}

const OPTION_FIELDS: readonly (keyof SeedsOptions)[] = ['first', 'count', 'isRepeated', 'command']
const VIOLATIONS_SHOWN = 5

/** Rejects with SeedFailedError at the first seed that fails, or whose second run differs. */
export async function runSeeds(
  options: SeedsOptions,
  scenario: (seed: number) => Promise<SeedOutcome>,
): Promise<SeedsReport> {
  checkedFields('the options of seeds', options, OPTION_FIELDS)
  const { first, count, isRepeated = true, command } = options
  const traces = new Map<number, string>()
  let steps = 0
  for (let seed = first; seed < first + count; seed++) {
    const outcome = await attempt(seed, command, scenario)
    steps += outcome.steps
    traces.set(seed, outcome.traceHash)
    if (!isRepeated) continue
    const again = await attempt(seed, command, scenario)
    steps += again.steps
    if (again.traceHash !== outcome.traceHash) {
      const why = `two runs differ: ${outcome.traceHash} (${outcome.steps} steps), ${again.traceHash} (${again.steps})`
      throw new SeedFailedError(seed, why, command(seed))
    }
  }
  return { seeds: count, steps, traces }
}

async function attempt(
  seed: number,
  command: SeedsOptions['command'],
  scenario: (seed: number) => Promise<SeedOutcome>,
): Promise<SeedOutcome> {
  let outcome: SeedOutcome
  try {
    outcome = await scenario(seed)
  } catch (thrown) {
    const failed = new SeedFailedError(seed, JSON.stringify(describe(thrown)), command(seed))
    failed.cause = thrown
    throw failed
  }
  const { violations } = outcome
  if (violations.length > 0) {
    const rest =
      violations.length > VIOLATIONS_SHOWN ? `; and ${violations.length - VIOLATIONS_SHOWN} more` : ''
    throw new SeedFailedError(seed, violations.slice(0, VIOLATIONS_SHOWN).join('; ') + rest, command(seed))
  }
  return outcome
}

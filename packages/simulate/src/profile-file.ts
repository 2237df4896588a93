/**
 * Profile of a GPU set-up of the user's own, from a JSON or YAML file: the constants of the step time, the
 * cache and the limits of a step. Every field but the name is required; all faults of a file are reported
 * together.
 */

import { readFileSync } from 'node:fs'
import { basename, extname } from 'node:path'
import { CodedError } from '@homing/base'
import { parse } from 'yaml'
import type { InlineProfile } from './cell-types.ts'

/** A file with a profile cannot be used. */
export class BadProfileError extends CodedError {
  readonly code = 'HOMING_SIMULATE_BAD_PROFILE'

  constructor(path: string, reason: string) {
    super(`cannot use the profile ${path}: ${reason}`, { path, reason })
  }
}

interface FieldRange {
  readonly min: number
  readonly max: number
  readonly isInteger: boolean
}

const TIME: FieldRange = { min: 0, max: 1e6, isInteger: false }

/** Every field that a file must have, with its range. */
export const PROFILE_FIELDS: Readonly<Record<Exclude<keyof InlineProfile, 'name'>, FieldRange>> = {
  overheadMs: TIME,
  weightsMs: TIME,
  msPerToken: TIME,
  msPerTokenContext: TIME,
  msPerDecodeContext: TIME,
  kvCapacityTokens: { min: 1, max: 1e12, isInteger: true },
  stepTokensMax: { min: 1, max: 1e9, isInteger: true },
  sequencesMax: { min: 1, max: 1e6, isInteger: true },
}

/** Reads and checks a file. Throws BadProfileError. */
export function readProfile(path: string): InlineProfile {
  let content: unknown
  try {
    content = parse(readFileSync(path, 'utf8'))
  } catch (thrown) {
    throw new BadProfileError(path, (thrown as Error).message.split('\n', 1)[0]!)
  }
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    throw new BadProfileError(path, 'it is not a list of names and values')
  }
  const given = content as Readonly<Record<string, unknown>>
  const faults = faultsOf(given)
  if (faults.length > 0) throw new BadProfileError(path, faults.join('; '))
  const name = given['name'] ?? basename(path, extname(path))
  return { ...given, name } as InlineProfile
}

function faultsOf(given: Readonly<Record<string, unknown>>): string[] {
  const faults: string[] = []
  for (const [field, { min, max, isInteger }] of Object.entries(PROFILE_FIELDS)) {
    const value = given[field]
    if (value === undefined) {
      faults.push(`${field} is missing`)
    } else if (typeof value !== 'number' || !(value >= min && value <= max)) {
      faults.push(`${field} is ${JSON.stringify(value)}, not a number within ${min} … ${max}`)
    } else if (isInteger && !Number.isInteger(value)) {
      faults.push(`${field} is ${value}, not a whole number`)
    }
  }
  if (given['name'] !== undefined && (typeof given['name'] !== 'string' || given['name'] === '')) {
    faults.push('name is not a text')
  }
  for (const field of Object.keys(given)) {
    if (field !== 'name' && !Object.hasOwn(PROFILE_FIELDS, field)) {
      faults.push(
        `${field} is no field of a profile; the fields are ${Object.keys(PROFILE_FIELDS).join(', ')}`,
      )
    }
  }
  // Without any time a step would end when it begins, and simulated time would stand still.
  if (faults.length === 0 && given['overheadMs'] === 0 && given['weightsMs'] === 0) {
    faults.push('overheadMs and weightsMs are both 0: a step must take some time')
  }
  return faults
}

/**
 * Client keys: who may send requests, as operators write it in YAML or JSON.
 *
 *   - name: team-a
 *     sha256: 9f86d0…                of the key
 *     models: [llama-70b]            without it: all
 *     concurrent_requests: 32        without a limit: none
 *     requests_per_minute: 600
 *     tokens_per_minute: 200000
 *
 * The error lists all faults, each with its entry and member; none repeats a value.
 */

import {
  CodedError,
  faultList,
  type KeyEntry,
  type KeyMembers,
  LIST_CHARACTERS_MAX,
  readKeyEntries,
} from '@homing/base'

/** One client, and what it may do. Its name is also that of its tenant. */
export interface ClientKey extends KeyEntry {
  /** Names of models; undefined: all. */
  readonly models: readonly string[] | undefined
  readonly concurrentRequests: number | undefined
  readonly requestsPerMinute: number | undefined
  readonly tokensPerMinute: number | undefined
}

/** A file of client keys cannot be used; `faults` has every fault found, each with its entry and member. */
export class BadClientKeysError extends CodedError {
  readonly code = 'HOMING_QUEUE_BAD_CLIENT_KEYS'
  readonly faults: readonly string[]

  constructor(path: string, faults: readonly string[]) {
    super(
      `cannot use the client keys of ${path}:${faultList(faults)}`,
      { path, faultCount: faults.length },
      { charactersMax: LIST_CHARACTERS_MAX },
    )
    this.faults = faults
  }
}

const CLIENTS_MAX = 4096
const CLIENT_MODELS_MAX = 256
const MODEL_CHARACTERS_MAX = 256
/** The largest value of each limit. */
const LIMITS = {
  concurrent_requests: 1_000_000,
  requests_per_minute: 1_000_000,
  tokens_per_minute: 1_000_000_000,
} as const

/** `path`: the name of the file in the error. Throws BadClientKeysError. */
export function parseClientKeys(text: string, path: string): readonly ClientKey[] {
  const { keys, faults } = readKeyEntries(text, {
    entriesMax: CLIENTS_MAX,
    noneMeans: 'without one no request would be answered',
    members: ['models', ...Object.keys(LIMITS)],
    read: limitsOf,
  })
  if (faults.length > 0) throw new BadClientKeysError(path, faults)
  return keys
}

function limitsOf(entry: KeyMembers, fault: (text: string) => void): Omit<ClientKey, keyof KeyEntry> {
  const { models } = entry
  if (models !== undefined && !isModels(models))
    fault(`models must be a list of 1 to ${CLIENT_MODELS_MAX} names of models; without it, all may be used`)
  return {
    models: models as readonly string[] | undefined,
    concurrentRequests: limitOf(entry, 'concurrent_requests', fault),
    requestsPerMinute: limitOf(entry, 'requests_per_minute', fault),
    tokensPerMinute: limitOf(entry, 'tokens_per_minute', fault),
  }
}

function limitOf(
  entry: KeyMembers,
  member: keyof typeof LIMITS,
  fault: (text: string) => void,
): number | undefined {
  const value = entry[member]
  if (value === undefined) return undefined
  const max = LIMITS[member]
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max) return value
  fault(`${member} must be a whole number from 1 to ${max}; without it, there is no limit`)
  return undefined
}

function isModels(value: unknown): boolean {
  if (!Array.isArray(value) || value.length === 0 || value.length > CLIENT_MODELS_MAX) return false
  return value.every(name => typeof name === 'string' && name !== '' && name.length <= MODEL_CHARACTERS_MAX)
}

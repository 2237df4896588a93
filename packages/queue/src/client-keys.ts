/**
 * Client keys: who may send requests, as operators write it in YAML or JSON.
 *
 *   - name: team-a
 *     sha256: 9f86d0…                of the key, in hexadecimal; or a list of these, while a key is replaced
 *     models: [llama-70b]            without it: all
 *     concurrent_requests: 32        without a limit: none
 *     requests_per_minute: 600
 *     tokens_per_minute: 200000
 *
 * The file has no keys, so who reads it gets no access. The error lists all faults, each with its entry and
 * member. No fault repeats a value: it may be a key in the wrong place.
 */

import { CodedError, LIST_CHARACTERS_MAX, readYaml } from '@homing/base'

/** One client, and what it may do. */
export interface ClientKey {
  /** Also the name of its tenant. */
  readonly name: string
  /** SHA-256 of its keys, in lower-case hexadecimal; one or more. */
  readonly digests: readonly string[]
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
    const list = faults.length === 1 ? ` ${faults[0]}` : faults.map(fault => `\n  ${fault}`).join('')
    super(
      `cannot use the client keys of ${path}:${list}`,
      { path, faultCount: faults.length },
      { charactersMax: LIST_CHARACTERS_MAX },
    )
    this.faults = faults
  }
}

/** Of the file as JSON; YAML_BYTES_MAX as YAML. */
export const CLIENT_KEYS_BYTES_MAX = 1024 * 1024
const CLIENTS_MAX = 4096
const DIGESTS_MAX = 4
const CLIENT_MODELS_MAX = 256
const MODEL_CHARACTERS_MAX = 256
const FAULTS_SHOWN = 20
/** The largest value of each limit. */
const LIMITS = {
  concurrent_requests: 1_000_000,
  requests_per_minute: 1_000_000,
  tokens_per_minute: 1_000_000_000,
} as const
const MEMBERS: readonly string[] = ['name', 'sha256', 'models', ...Object.keys(LIMITS)]
/** Of a client. */
export const CLIENT_NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/
const DIGEST = /^[0-9a-f]{64}$/i

type Members = Readonly<Record<string, unknown>>

/** `path`: the name of the file in the error. Throws BadClientKeysError. */
export function parseClientKeys(text: string, path: string): readonly ClientKey[] {
  const faults: string[] = []
  const entries = entriesOf(text, faults)
  const names = new Set<string>()
  const digests = new Set<string>()
  const keys: ClientKey[] = []
  for (const [at, entry] of entries.entries()) {
    if (faults.length >= FAULTS_SHOWN) break
    const before = faults.length
    const key = keyOf(entry, at + 1, faults)
    if (key === undefined || faults.length > before) continue
    if (names.has(key.name)) faults.push(`entry ${at + 1} (${key.name}): name is that of an earlier entry`)
    if (key.digests.some(digest => digests.has(digest)))
      faults.push(`entry ${at + 1} (${key.name}): sha256 is that of an earlier entry`)
    names.add(key.name)
    for (const digest of key.digests) digests.add(digest)
    keys.push(key)
  }
  if (faults.length > 0) throw new BadClientKeysError(path, faults)
  return keys
}

function entriesOf(text: string, faults: string[]): readonly unknown[] {
  let root: unknown
  try {
    root = readYaml(text)
  } catch (thrown) {
    faults.push((thrown as Error).message)
    return []
  }
  const stranger = isMap(root) ? Object.keys(root).find(name => name !== 'keys') : undefined
  if (stranger !== undefined) faults.push(`it has ${memberName(stranger)}: it may have a list, or keys alone`)
  const list = isMap(root) ? root['keys'] : root
  if (stranger !== undefined) return []
  if (!Array.isArray(list)) faults.push('it must be a list of entries with name and sha256')
  else if (list.length === 0) faults.push('it lists no key: without one no request would be answered')
  else if (list.length > CLIENTS_MAX) faults.push(`it lists ${list.length} keys; the most is ${CLIENTS_MAX}`)
  return faults.length > 0 ? [] : (list as readonly unknown[])
}

function keyOf(entry: unknown, number: number, faults: string[]): ClientKey | undefined {
  if (!isMap(entry)) {
    faults.push(`entry ${number}: it must have name and sha256`)
    return undefined
  }
  const { name, sha256, models } = entry
  const isNamed = typeof name === 'string' && CLIENT_NAME.test(name)
  const where = isNamed ? `entry ${number} (${name})` : `entry ${number}`
  const fault = (text: string): void => void faults.push(`${where}: ${text}`)
  if (!isNamed) fault('name must have 1 to 64 letters, digits, or . _ @ -, the first a letter or digit')
  const stranger = Object.keys(entry).find(member => !MEMBERS.includes(member))
  if (stranger !== undefined) fault(`${memberName(stranger)} is no member; there are ${MEMBERS.join(', ')}`)
  const given: readonly unknown[] = Array.isArray(sha256) ? sha256 : [sha256]
  const isDigests =
    given.length > 0 &&
    given.length <= DIGESTS_MAX &&
    given.every(digest => typeof digest === 'string' && DIGEST.test(digest))
  if (!isDigests)
    fault(
      `sha256 must be the SHA-256 of the key in 64 hexadecimal digits, in quotes, as homing key prints it, or a list of up to ${DIGESTS_MAX}`,
    )
  if (models !== undefined && !isModels(models))
    fault(`models must be a list of 1 to ${CLIENT_MODELS_MAX} names of models; without it, all may be used`)
  return {
    name: String(name),
    digests: isDigests ? given.map(digest => String(digest).toLowerCase()) : [],
    models: models as readonly string[] | undefined,
    concurrentRequests: limitOf(entry, 'concurrent_requests', fault),
    requestsPerMinute: limitOf(entry, 'requests_per_minute', fault),
    tokensPerMinute: limitOf(entry, 'tokens_per_minute', fault),
  }
}

function limitOf(
  entry: Members,
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

function isMap(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** As far as it looks like a member that was mistyped, not like a key. */
function memberName(name: string): string {
  return /^[a-z_]{1,24}$/.test(name) ? name : 'another name'
}

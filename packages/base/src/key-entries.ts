/**
 * Key entries: files that list who has a key, as operators write them in YAML or JSON.
 *
 *   - name: team-a
 *     sha256: 9f86d0…                of the key, in hexadecimal; or a list of these, while a key is replaced
 *     …                              members of the kind of file
 *
 * The file has no keys, so who reads it gets no access. All faults are found, each with its entry and member.
 * No fault repeats a value: it may be a key in the wrong place.
 */

import { readYaml } from './read-yaml.ts'

export interface KeyEntry {
  readonly name: string
  /** SHA-256 of its keys, in lower-case hexadecimal; one or more. */
  readonly digests: readonly string[]
}

/** Members of an entry, or of a file. */
export type KeyMembers = Readonly<Record<string, unknown>>

export interface KeyEntriesForm<T> {
  /** Most entries. */
  readonly entriesMax: number
  /** What follows from a file without entries. */
  readonly noneMeans: string
  /** Beside `name` and `sha256`. */
  readonly members: readonly string[]
  /** Reads those; `fault` is told each that cannot be used. */
  readonly read: (entry: KeyMembers, fault: (text: string) => void) => T
}

/** Of a file of keys as JSON; YAML_BYTES_MAX as YAML. */
export const KEYS_FILE_BYTES_MAX = 1024 * 1024
/** What an entry may be called. */
export const KEY_NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/
const DIGEST = /^[0-9a-f]{64}$/i
const DIGESTS_MAX = 4
const FAULTS_SHOWN = 20

/** The entries; where there are faults, fewer of them. */
export function readKeyEntries<T>(
  text: string,
  form: KeyEntriesForm<T>,
): { readonly keys: readonly (KeyEntry & T)[]; readonly faults: readonly string[] } {
  const faults: string[] = []
  const names = new Set<string>()
  const digests = new Set<string>()
  const keys: (KeyEntry & T)[] = []
  for (const [at, entry] of entriesOf(text, form, faults).entries()) {
    if (faults.length >= FAULTS_SHOWN) break
    const before = faults.length
    const key = keyOf(entry, at + 1, form, faults)
    if (key === undefined || faults.length > before) continue
    if (names.has(key.name)) faults.push(`entry ${at + 1} (${key.name}): name is that of an earlier entry`)
    if (key.digests.some(digest => digests.has(digest)))
      faults.push(`entry ${at + 1} (${key.name}): sha256 is that of an earlier entry`)
    names.add(key.name)
    for (const digest of key.digests) digests.add(digest)
    keys.push(key)
  }
  return { keys, faults }
}

/** For the message of an error: behind a colon. */
export function faultList(faults: readonly string[]): string {
  return faults.length === 1 ? ` ${faults[0]}` : faults.map(fault => `\n  ${fault}`).join('')
}

function entriesOf<T>(
  text: string,
  { entriesMax, noneMeans }: KeyEntriesForm<T>,
  faults: string[],
): readonly unknown[] {
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
  else if (list.length === 0) faults.push(`it lists no key: ${noneMeans}`)
  else if (list.length > entriesMax) faults.push(`it lists ${list.length} keys; the most is ${entriesMax}`)
  return faults.length > 0 ? [] : (list as readonly unknown[])
}

function keyOf<T>(
  entry: unknown,
  number: number,
  form: KeyEntriesForm<T>,
  faults: string[],
): (KeyEntry & T) | undefined {
  if (!isMap(entry)) {
    faults.push(`entry ${number}: it must have name and sha256`)
    return undefined
  }
  const { name, sha256 } = entry
  const isNamed = typeof name === 'string' && KEY_NAME.test(name)
  const where = isNamed ? `entry ${number} (${name})` : `entry ${number}`
  const fault = (text: string): void => void faults.push(`${where}: ${text}`)
  if (!isNamed) fault('name must have 1 to 64 letters, digits, or . _ @ -, the first a letter or digit')
  const members = ['name', 'sha256', ...form.members]
  const stranger = Object.keys(entry).find(member => !members.includes(member))
  if (stranger !== undefined) fault(`${memberName(stranger)} is no member; there are ${members.join(', ')}`)
  const given: readonly unknown[] = Array.isArray(sha256) ? sha256 : [sha256]
  const isDigests =
    given.length > 0 &&
    given.length <= DIGESTS_MAX &&
    given.every(digest => typeof digest === 'string' && DIGEST.test(digest))
  if (!isDigests)
    fault(
      `sha256 must be the SHA-256 of the key in 64 hexadecimal digits, in quotes, as homing key prints it, or a list of up to ${DIGESTS_MAX}`,
    )
  return {
    name: String(name),
    digests: isDigests ? given.map(digest => String(digest).toLowerCase()) : [],
    ...form.read(entry, fault),
  }
}

function isMap(value: unknown): value is KeyMembers {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** As far as it looks like a member that was mistyped, not like a key. */
function memberName(name: string): string {
  return /^[a-z_]{1,24}$/.test(name) ? name : 'another name'
}

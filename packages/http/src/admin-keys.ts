/**
 * Admin keys: who may use the routes of operators, as the file of --admin-keys-file says.
 *
 *   - name: grafana
 *     sha256: 9f86d0…
 *     role: reader                   sees everything, changes nothing
 *   - name: ops
 *     sha256: 1b4f0e…
 *     role: operator                 changes workers and thresholds, asks and books as programs do
 *
 * The error lists all faults; none repeats a value.
 */

import { createHash } from 'node:crypto'
import { CodedError, faultList, type KeyEntry, LIST_CHARACTERS_MAX, readKeyEntries } from '@homing/base'
import type { HttpHeaders } from '@homing/transport'

/** Each may do all that those before it may. */
export const ADMIN_ROLES = ['reader', 'operator'] as const
export type AdminRole = (typeof ADMIN_ROLES)[number]

export interface AdminKey extends KeyEntry {
  readonly role: AdminRole
}

/** A file of admin keys cannot be used; `faults` has every fault found, each with its entry and member. */
export class BadAdminKeysError extends CodedError {
  readonly code = 'HOMING_HTTP_BAD_ADMIN_KEYS'
  readonly faults: readonly string[]

  constructor(path: string, faults: readonly string[]) {
    super(
      `cannot use the admin keys of ${path}:${faultList(faults)}`,
      { path, faultCount: faults.length },
      { charactersMax: LIST_CHARACTERS_MAX },
    )
    this.faults = faults
  }
}

const ADMIN_ENTRIES_MAX = 1024
/** Longer ones are not looked at. */
const KEY_CHARACTERS_MAX = 4096

/** `path`: the name of the file in the error. Throws BadAdminKeysError. */
export function parseAdminKeys(text: string, path: string): readonly AdminKey[] {
  const { keys, faults } = readKeyEntries(text, {
    entriesMax: ADMIN_ENTRIES_MAX,
    noneMeans: 'without one no operator would get in',
    members: ['role'],
    read({ role }, fault) {
      if (!(ADMIN_ROLES as readonly unknown[]).includes(role))
        fault(`role must be one of ${ADMIN_ROLES.join(', ')}`)
      return { role: role as AdminRole }
    },
  })
  if (faults.length > 0) throw new BadAdminKeysError(path, faults)
  return keys
}

/** The entries by what is looked up: digests, of which a caller cannot choose any. */
export class AdminKeys {
  readonly #byDigest: ReadonlyMap<string, AdminKey>

  constructor(keys: readonly AdminKey[]) {
    this.#byDigest = new Map(keys.flatMap(key => key.digests.map(digest => [digest, key] as const)))
  }

  /** Undefined: no entry has this key. */
  find(shown: string): AdminKey | undefined {
    if (shown.length > KEY_CHARACTERS_MAX) return undefined
    return this.#byDigest.get(createHash('sha256').update(shown).digest('hex'))
  }
}

/** The key of `authorization: Bearer KEY`; undefined: none is shown. */
export function bearerOf({ authorization }: HttpHeaders): string | undefined {
  return typeof authorization === 'string' ? /^bearer +(\S+) *$/i.exec(authorization)?.[1] : undefined
}

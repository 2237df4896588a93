/**
 * Engine keys: reads the API key of each engine and gives it to the transport, which puts it into every
 * request to that engine.
 *
 * So no message, argument or view contains the key: a caller of an engine only names its origin. Files are
 * read again before each probe, so a changed key takes effect without a restart.
 */

import { readFileSync, realpathSync, statSync } from 'node:fs'
import { secretVariable } from '@homing/config'
import type { HttpAccess, HttpTransport } from '@homing/transport'
import { isBelow } from './key-limits.ts'
import type { KeySource } from './worker-spec.ts'

const KEY_BYTES_MAX = 16 * 1024

/**
 * The key, or why there is none. Neither reason has a part of the key, or what the worker named as its place:
 * people put the key itself there. `fault` is for the operator alone; `reason` is one text whatever is wrong,
 * so that views do not tell which files and variables a machine has.
 */
export type FoundKey =
  | { readonly key: string }
  | { readonly fault: string; readonly reason: typeof NO_KEY_REASON }

export const NO_KEY_REASON =
  'the API key of this worker cannot be had: look at its key_file or key_env, or at --engine-api-key-file; the log says more'

export function readKey(source: KeySource): FoundKey {
  const found = 'env' in source ? readVariable(source.env) : readFile(source)
  return 'key' in found ? found : { fault: found.fault, reason: NO_KEY_REASON }
}

type Read = { readonly key: string } | { readonly fault: string }

function readVariable(name: string): Read {
  const value = secretVariable(name)
  return value === undefined ? { fault: 'its environment variable is not set' } : checked(value, 'it')
}

function readFile({ file, within }: { readonly file: string; readonly within?: string }): Read {
  try {
    const path = within === undefined ? file : realpathSync(file)
    if (within !== undefined && !isBelow(path, realpathSync(within)))
      return { fault: 'its file is a link that leads out of --worker-key-dir' }
    const stat = statSync(path)
    // Opening a FIFO would wait for its writer.
    if (!stat.isFile() && !stat.isDirectory()) return { fault: 'it is no regular file' }
    const { size } = stat
    if (size > KEY_BYTES_MAX) return { fault: `its file has ${size} bytes, which is no key` }
    return checked(readFileSync(path, 'utf8'), 'its file')
  } catch (thrown) {
    return { fault: `its file cannot be read: ${(thrown as NodeJS.ErrnoException).code ?? 'unknown error'}` }
  }
}

function checked(text: string, name: string): Read {
  const key = text.trim()
  if (key === '') return { fault: `${name} is empty` }
  if (/[\r\n]/.test(key)) return { fault: `${name} has several lines; it must hold the key alone` }
  if (!/^[\x21-\x7e]+$/.test(key)) {
    return { fault: `${name} holds characters that no header takes; a key is printable ASCII without spaces` }
  }
  return { key }
}

/** Why a key cannot be had: `fault` for the operator, `reason` for any reader. */
export interface NoKey {
  readonly fault: string
  readonly reason: string
}

/**
 * Has every request to `origin` carry the key of `source`. Returns why it cannot be had; undefined: it can,
 * or none is wanted. `opened`: gets what was set.
 */
export function openDoor(
  http: Pick<HttpTransport, 'setAccess'>,
  origin: string,
  source: KeySource | undefined,
  opened: (access: HttpAccess | undefined) => void = () => {},
): NoKey | undefined {
  const found = source === undefined ? undefined : readKey(source)
  // If the key cannot be read, a client's key must not be sent in its place.
  const access = found === undefined ? undefined : { key: 'key' in found ? found.key : undefined }
  http.setAccess(origin, access)
  opened(access)
  return found !== undefined && 'fault' in found ? found : undefined
}

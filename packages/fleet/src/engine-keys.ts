/**
 * Engine keys: reads the API key of each engine and gives it to the transport, which puts it into every
 * request to that engine.
 *
 * So no message, argument or view contains the key: a caller of an engine only names its origin. Files are
 * read again before each probe, so a changed key takes effect without a restart.
 */

import { readFileSync, statSync } from 'node:fs'
import { secretVariable } from '@homing/config'
import type { HttpTransport } from '@homing/transport'
import type { KeySource } from './worker-spec.ts'

const KEY_BYTES_MAX = 16 * 1024

/** The key, or why there is none. The reason never contains a part of the key. */
export type FoundKey = { readonly key: string } | { readonly fault: string }

export function readKey(source: KeySource): FoundKey {
  const name = 'env' in source ? `the environment variable ${source.env}` : `the key file ${source.file}`
  if ('env' in source) {
    const value = secretVariable(source.env)
    return value === undefined ? { fault: `${name} is not set` } : checked(value, name)
  }
  try {
    const { size } = statSync(source.file)
    if (size > KEY_BYTES_MAX) return { fault: `${name} has ${size} bytes, which is no key` }
    return checked(readFileSync(source.file, 'utf8'), name)
  } catch (thrown) {
    return { fault: `${name} cannot be read: ${(thrown as NodeJS.ErrnoException).code ?? 'unknown error'}` }
  }
}

function checked(text: string, name: string): FoundKey {
  const key = text.trim()
  if (key === '') return { fault: `${name} is empty` }
  if (/[\r\n]/.test(key)) return { fault: `${name} has several lines; it must hold the key alone` }
  if (!/^[\x21-\x7e]+$/.test(key)) {
    return { fault: `${name} holds characters that no header takes; a key is printable ASCII without spaces` }
  }
  return { key }
}

/**
 * Has every request to `origin` carry the key of `source`. Returns why it cannot be had; undefined: it can,
 * or none is wanted.
 */
export function openDoor(
  http: Pick<HttpTransport, 'setAccess'>,
  origin: string,
  source: KeySource | undefined,
): string | undefined {
  const found = source === undefined ? undefined : readKey(source)
  // If the key cannot be read, a client's key must not be sent in its place.
  const access = found === undefined ? undefined : { key: 'key' in found ? found.key : undefined }
  http.setAccess(origin, access)
  return found !== undefined && 'fault' in found ? found.fault : undefined
}

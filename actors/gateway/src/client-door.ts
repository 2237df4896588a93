/**
 * Client door: lets in the requests that show a key of --client-keys-file, within the limits of that key.
 *
 * The key is read from `authorization: Bearer`, else `x-api-key`, else `api-key`, before a byte of the body
 * is. Only its SHA-256 is compared.
 * Owns   the accounts of the clients on this thread, and the file, which is looked at every second.
 */

import { createHash } from 'node:crypto'
import { type Clock, KEYS_FILE_BYTES_MAX, type Log } from '@homing/base'
import { bearerOf, FollowedFiles } from '@homing/http'
import { type ClientKey, type ClientLimit, ClientLimits, parseClientKeys } from '@homing/queue'
import type { HttpExchange, HttpHeaders } from '@homing/transport'
import type { AccessNote } from './access-note.ts'
import { ClientLimitError, KeyMissingError, KeyUnknownError } from './errors.ts'
import { KeyedExchange } from './keyed-exchange.ts'

/** A file that was read and parsed before the gateway began. */
export interface ClientKeysArgs {
  readonly file: string
  readonly keys: readonly ClientKey[]
}

export type KeyRefusal = 'missing' | 'unknown' | ClientLimit | 'model'

export interface ClientDoorParts {
  readonly args: ClientKeysArgs
  /** Gateways that share the limits. */
  readonly threads: number
  readonly clock: Clock
  /** Undefined: another gateway tells of changes in the file. */
  readonly log: Pick<Log, 'info' | 'warn'> | undefined
  readonly refused: (reason: KeyRefusal) => void
}

/** Longer ones are not looked at. */
const KEY_CHARACTERS_MAX = 4096

export class ClientDoor {
  readonly file: FollowedFiles<readonly ClientKey[]>
  readonly #limits: ClientLimits
  readonly #clock: Clock
  readonly #refused: (reason: KeyRefusal) => void

  constructor({ args, threads, clock, log, refused }: ClientDoorParts) {
    this.#limits = new ClientLimits(args.keys, threads)
    this.#clock = clock
    this.#refused = refused
    this.file = new FollowedFiles({
      files: [{ option: '--client-keys-file', path: args.file }],
      bytesMax: KEYS_FILE_BYTES_MAX,
      parse: ([text]) => parseClientKeys(text!, args.file),
      value: args.keys,
      changed: keys => this.#limits.setKeys(keys),
      log,
    })
  }

  /** Requests of clients that are open. */
  get open(): number {
    return this.#limits.open
  }

  /** Throws KeyMissingError, KeyUnknownError or ClientLimitError. */
  admit(http: HttpExchange, note: Pick<AccessNote, 'client'> | undefined): KeyedExchange {
    const shown = keyIn(http.headers)
    if (shown === undefined) {
      this.#refused('missing')
      throw new KeyMissingError()
    }
    const key = shown.length > KEY_CHARACTERS_MAX ? undefined : this.#limits.find(digestOf(shown))
    if (key === undefined) {
      this.#refused('unknown')
      throw new KeyUnknownError()
    }
    note?.client(key.name)
    const entered = this.#limits.enter(key, this.#clock.nowMs())
    if ('reason' in entered) {
      this.#refused(entered.reason)
      throw new ClientLimitError(key.name, entered)
    }
    return new KeyedExchange(http, entered)
  }
}

function keyIn(headers: HttpHeaders): string | undefined {
  return bearerOf(headers) ?? text(headers['x-api-key']) ?? text(headers['api-key'])
}

function text(value: HttpHeaders[string]): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined
}

function digestOf(key: string): string {
  return createHash('sha256').update(key).digest('hex')
}

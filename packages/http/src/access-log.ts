/**
 * Access log: one JSON line per request, appended to a file that may be moved away and opened again.
 *
 * Lines wait in memory while the file is slow, up to WAITING_BYTES_MAX; further ones are dropped and counted.
 */

import { createWriteStream, openSync, type WriteStream } from 'node:fs'
import type { Log } from '@homing/log'
import { AccessLogError } from './errors.ts'

export interface AccessLine {
  readonly ts: string
  readonly trace_id: string
  readonly method: string
  readonly path: string
  readonly model: string
  readonly status: number
  readonly duration_ms: number
}

const WAITING_BYTES_MAX = 4 * 1024 * 1024

export class AccessLog {
  readonly #path: string
  readonly #log: Log
  #file: WriteStream
  #dropped = 0

  /** Throws AccessLogError. */
  constructor(path: string, log: Log) {
    this.#path = path
    this.#log = log
    this.#file = this.#open()
  }

  /** Lines that were not written. */
  get dropped(): number {
    return this.#dropped
  }

  write(line: AccessLine): void {
    if (this.#file.destroyed || this.#file.writableLength > WAITING_BYTES_MAX) this.#dropped++
    else this.#file.write(`${JSON.stringify(line)}\n`)
  }

  /** Goes on in a new file of the same name, as after the old one was moved away. Throws AccessLogError; then goes on as before. */
  reopen(): void {
    const before = this.#file
    this.#file = this.#open()
    before.end()
  }

  /** Resolves when all lines are written, or cannot be. */
  close(): Promise<void> {
    const file = this.#file
    if (file.destroyed) return Promise.resolve()
    return new Promise(resolve => {
      file.once('close', resolve)
      file.end()
    })
  }

  #open(): WriteStream {
    let fd: number
    try {
      fd = openSync(this.#path, 'a')
    } catch (thrown) {
      throw new AccessLogError(this.#path, thrown)
    }
    const file = createWriteStream(this.#path, { fd })
    file.on('error', error => {
      this.#log.error({ path: this.#path, reason: error.message }, 'access log cannot be written')
    })
    return file
  }
}

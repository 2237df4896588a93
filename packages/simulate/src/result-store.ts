/**
 * Result store: results of cells on disk, each in a file named by the hash of what it depends on.
 *
 *   FOLDER/3f/3f09…c1.json     {"format": 1, "run": …}
 *
 * Bounds   past `bytesMax`, the files that have been unused longest are removed.
 *
 * A file is written under another name and renamed, so several processes may share a folder. A file that
 * cannot be read counts as missing and is written again. A folder that cannot be written is reported once;
 * the cells then run again each time.
 */

import { createHash } from 'node:crypto'
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import type { Clock } from '@homing/base'

const FORMAT = 1

export interface ResultStoreOptions {
  readonly folder: string
  /** Bytes of all files together. */
  readonly bytesMax: number
  readonly clock: Clock
  /** Called once, with a sentence, when the folder cannot be used. */
  readonly onTrouble: (sentence: string) => void
}

interface StoredFile {
  readonly path: string
  readonly size: number
  readonly usedMs: number
}

/** The key of a result: the hash of everything that it depends on, independent of the order of fields. */
export function resultKey(inputs: object): string {
  return createHash('sha256').update(canonicalJson(inputs)).digest('hex')
}

export class ResultStore<T> {
  readonly #options: ResultStoreOptions
  #bytes: number | undefined
  #isBroken = false

  constructor(options: ResultStoreOptions) {
    this.#options = options
  }

  /** The result of that key, or undefined. */
  get(key: string): T | undefined {
    const path = this.#path(key)
    let text: string
    try {
      text = readFileSync(path, 'utf8')
      const now = this.#options.clock.wallMs() / 1000
      utimesSync(path, now, now)
    } catch (thrown) {
      if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') this.#giveUp(thrown)
      return undefined
    }
    try {
      const stored = JSON.parse(text) as { readonly format?: number; readonly run?: T }
      return stored.format === FORMAT ? stored.run : undefined
    } catch {
      // Cut short by a full disk or a crash: it is made again.
      return undefined
    }
  }

  put(key: string, run: T): void {
    if (this.#isBroken) return
    const path = this.#path(key)
    const text = `${JSON.stringify({ format: FORMAT, run })}\n`
    try {
      mkdirSync(dirname(path), { recursive: true })
      writeFileSync(`${path}.${process.pid}`, text)
      renameSync(`${path}.${process.pid}`, path)
      this.#bytes =
        (this.#bytes ?? this.#files().reduce((sum, { size }) => sum + size, -text.length)) + text.length
      if (this.#bytes > this.#options.bytesMax) this.#shrink()
    } catch (thrown) {
      this.#giveUp(thrown)
    }
  }

  #path(key: string): string {
    return join(this.#options.folder, key.slice(0, 2), `${key}.json`)
  }

  /** Down to nine tenths, so that not every further result has to. */
  #shrink(): void {
    const files = this.#files().sort((a, b) => a.usedMs - b.usedMs)
    let bytes = files.reduce((sum, { size }) => sum + size, 0)
    for (const { path, size } of files) {
      if (bytes <= this.#options.bytesMax * 0.9) break
      rmSync(path, { force: true })
      bytes -= size
    }
    this.#bytes = bytes
  }

  #files(): StoredFile[] {
    return readdirSync(this.#options.folder, { recursive: true, encoding: 'utf8' })
      .filter(name => /^[0-9a-f]{2}[\\/][0-9a-f]{64}\.json/.test(name))
      .flatMap(name => {
        const path = join(this.#options.folder, name)
        const stat = statSync(path, { throwIfNoEntry: false })
        return stat === undefined ? [] : [{ path, size: stat.size, usedMs: stat.mtimeMs }]
      })
  }

  #giveUp(thrown: unknown): void {
    if (this.#isBroken) return
    this.#isBroken = true
    this.#options.onTrouble(
      `cannot keep results in ${this.#options.folder}: ${(thrown as Error).message}; going on without`,
    )
  }
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const entries = Object.entries(value)
    .filter(([, field]) => field !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([name, field]) => `${JSON.stringify(name)}:${canonicalJson(field)}`).join(',')}}`
}

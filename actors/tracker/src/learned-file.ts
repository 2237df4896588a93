/**
 * Learned file: where what was learned is kept over restarts of the router, if the operator names a file. It
 * is written every SAVE_MS and at a graceful stop, as a whole. A fault of the disk is logged once, and again
 * when it is over.
 */

import { constants } from 'node:fs'
import { access, open, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Capability } from '@homing/actor'
import { type Log, replaceFile, toErrorRecord } from '@homing/base'
import { LearnedFileError, UnusableLearnedFileError } from './errors.ts'
import { decodeLearned, encodeLearned, type LearnedImage, learnedBytesMax } from './learned-image.ts'

/** What a minute teaches is learned again in as long. */
export const SAVE_MS = 60_000

/** Where the file is; tests keep it in memory. */
export interface LearnedStore {
  /**
   * At most `bytesMax` + 1 bytes. Undefined: there is none. Rejects where one is there and cannot be read.
   */
  read(path: string, bytesMax: number): Promise<Uint8Array | undefined>
  write(path: string, pieces: readonly Uint8Array[]): Promise<void>
}

export const learnedStore: Capability<LearnedStore> = {
  name: 'learned file',
  create: ({ random }) => ({
    read: readAtMost,
    write: (path, pieces) => replaceFile(path, pieces, random),
  }),
}

export interface LearnedFileStatus {
  readonly saves: number
  readonly failedSaves: number
}

export class LearnedFile {
  readonly #log: Log
  readonly #store: LearnedStore
  readonly #path: string
  readonly #workersMax: number
  /** Writes go one after the other. */
  #disk: Promise<unknown> = Promise.resolve()
  #saves = 0
  #failedSaves = 0
  #isFailing = false

  constructor(log: Log, store: LearnedStore, path: string, workersMax: number) {
    this.#log = log
    this.#store = store
    this.#path = path
    this.#workersMax = workersMax
  }

  get status(): LearnedFileStatus {
    return { saves: this.#saves, failedSaves: this.#failedSaves }
  }

  /** Undefined: there is no file, or it cannot be used; then a warning says why. */
  async read(): Promise<LearnedImage | undefined> {
    const path = this.#path
    try {
      const bytesMax = learnedBytesMax(this.#workersMax)
      const bytes = await this.#store.read(path, bytesMax)
      if (bytes === undefined) return undefined
      if (bytes.length > bytesMax)
        throw new UnusableLearnedFileError('altered', `it has more than ${bytesMax} bytes`)
      return decodeLearned(bytes, this.#workersMax)
    } catch (error) {
      this.#log.warn(
        { path, error: toErrorRecord(error) },
        'learned values are not used; workers begin with priors',
      )
      return undefined
    }
  }

  /** Resolves when it is written, or could not be: false. */
  save(image: LearnedImage): Promise<boolean> {
    const saved = this.#disk.then(() => this.#write(image))
    this.#disk = saved
    return saved
  }

  async #write(image: LearnedImage): Promise<boolean> {
    const path = this.#path
    try {
      await this.#store.write(path, encodeLearned(image))
    } catch (error) {
      this.#failedSaves++
      if (!this.#isFailing)
        this.#log.warn({ path, error: toErrorRecord(error) }, 'learned values cannot be saved')
      this.#isFailing = true
      return false
    }
    this.#saves++
    if (this.#isFailing) this.#log.info({ path }, 'learned values are saved again')
    this.#isFailing = false
    return true
  }
}

/** Rejects with LearnedFileError if no file can be written there. */
export async function prepareLearnedFile(path: string): Promise<void> {
  try {
    const found = await stat(path).catch(unlessMissing)
    if (found !== undefined && !found.isFile()) throw new Error('it is there, and is no file')
    await access(dirname(path), constants.W_OK)
  } catch (error) {
    throw new LearnedFileError(path, error instanceof Error ? error.message : String(error))
  }
}

async function readAtMost(path: string, bytesMax: number): Promise<Uint8Array | undefined> {
  const file = await open(path).catch(unlessMissing)
  if (file === undefined) return undefined
  try {
    const bytes = Buffer.alloc(Math.min(bytesMax, (await file.stat()).size) + 1)
    let length = 0
    for (;;) {
      const { bytesRead } = await file.read(bytes, length, bytes.length - length, length)
      length += bytesRead
      if (bytesRead === 0) return bytes.subarray(0, length)
    }
  } finally {
    await file.close()
  }
}

function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT') return undefined
  throw error
}

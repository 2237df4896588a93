/**
 * Log writer: puts lines into a file, one write at a time, and begins a new file when that one is full.
 *
 *   add ─▶ waiting lines ─▶ one batch ─▶ FILE ──full──▶ FILE.1 ─▶ FILE.2 ─▶ … ─▶ removed
 *              │ full                      │ fails
 *              ▼                           ▼
 *            dropped                     broken ──retry──▶ opened again
 *
 * Lines that come while a write is under way are the next batch, so a fast disk sees single lines and a slow one few writes.
 *
 * Invariants
 *   I1  A file begins with a header, and has whole lines only: what a failed write has left is cut off.
 *   I2  A file is longer than `fileBytesMax` by its header and one line at most; there are `filesMax` files at most.
 *   I3  At most WAITING_BYTES_MAX wait. A line that finds no room is dropped and counted; the next one that finds room comes
 *       behind a line that says how many are missing.
 *   I4  While it is broken nothing is lost that had found room: those lines are written when the file can be written again.
 */

import { lossLine } from '@homing/trace'
import type { LogFile, LogFiles } from './log-files.ts'

export interface LogWriterOptions {
  readonly files: LogFiles
  readonly path: string
  readonly fileBytesMax: number
  /** The one that is written included; ≥ 1. */
  readonly filesMax: number
  /** The first line of a file that is begun now. */
  readonly header: () => string
  /** It cannot be written; said once until it can be again. */
  readonly broke: (reason: string) => void
  /** It can be written again. */
  readonly mended: () => void
}

/** Lines that wait for the file, in bytes. */
export const WAITING_BYTES_MAX = 8 * 2 ** 20

export interface LogWriterStatus {
  /** Requests that are in the file. */
  readonly written: number
  /** Requests that are in no file. */
  readonly dropped: number
  readonly bytes: number
  readonly waitingBytes: number
  /** Why it cannot be written; undefined: it can. */
  readonly fault: string | undefined
}

interface WaitingLine {
  readonly bytes: Uint8Array
  readonly isRequest: boolean
}

const utf8 = new TextEncoder()

export class LogWriter {
  readonly #options: LogWriterOptions
  readonly #waiting: WaitingLine[] = []
  #waitingBytes = 0
  #file: LogFile | undefined
  /** Of whole lines in the file. */
  #fileBytes = 0
  /** This file has a header of this life. */
  #hasHeader = false
  #fault: string | undefined
  #running: Promise<void> | undefined
  #isClosed = false
  #written = 0
  #bytes = 0
  #dropped = 0
  /** Dropped, and not yet said in the file. */
  #unsaid = 0

  constructor(options: LogWriterOptions) {
    this.#options = options
  }

  /** A line found room before. */
  get isUsed(): boolean {
    return this.#waiting.length > 0 || this.#bytes > 0
  }

  get status(): LogWriterStatus {
    return {
      written: this.#written,
      dropped: this.#dropped,
      bytes: this.#bytes,
      waitingBytes: this.#waitingBytes,
      fault: this.#fault,
    }
  }

  /** These requests were lost before they came here. */
  lost(requests: number): void {
    this.#dropped += requests
    this.#unsaid += requests
  }

  /** Takes the line of a request, behind what `before` says if that is given. False: it is dropped. */
  add(line: string, before = ''): boolean {
    const bytes = utf8.encode(line)
    if (this.#isClosed || this.#waitingBytes + bytes.length > WAITING_BYTES_MAX) {
      this.lost(1)
      return false
    }
    if (this.#unsaid > 0) {
      this.#wait(utf8.encode(lossLine(this.#unsaid)), false)
      this.#unsaid = 0
    }
    if (before !== '') this.#wait(utf8.encode(before), false)
    this.#wait(bytes, true)
    this.#run()
    return true
  }

  /** Tries again, if it is broken; looks whether the file was moved away, if it is not. */
  look(): void {
    if (this.#isClosed || this.#running !== undefined) return
    if (this.#fault !== undefined) this.#start(this.#mend())
    else if (this.#file !== undefined) this.#start(this.#lookAt(this.#file))
  }

  /** Resolves when nothing waits, with true, or when what waits cannot be written. */
  async flush(): Promise<boolean> {
    while (this.#running !== undefined) await this.#running
    return this.#waiting.length === 0
  }

  /** Writes what waits, and gives the file back. Idempotent. */
  async close(): Promise<void> {
    if (this.#fault !== undefined) this.look()
    await this.flush()
    this.#isClosed = true
    await this.#release()
  }

  #wait(bytes: Uint8Array, isRequest: boolean): void {
    this.#waiting.push({ bytes, isRequest })
    this.#waitingBytes += bytes.length
  }

  #run(): void {
    if (this.#running === undefined && this.#fault === undefined && !this.#isClosed)
      this.#start(this.#writeWaiting())
  }

  #start(work: Promise<void>): void {
    const ended = (): void => {
      this.#running = undefined
      if (this.#waiting.length > 0) this.#run()
    }
    this.#running = work.then(ended, (thrown: unknown) => {
      const isNew = this.#fault === undefined
      this.#fault = thrown instanceof Error ? thrown.message : String(thrown)
      if (isNew) this.#options.broke(this.#fault)
      ended()
    })
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length > 0) {
      const file = await this.#openFile()
      const batch = this.#batch()
      await this.#append(file, Buffer.concat(batch.map(({ bytes }) => bytes)))
      this.#waiting.splice(0, batch.length)
      for (const { bytes, isRequest } of batch) {
        this.#waitingBytes -= bytes.length
        this.#count(bytes)
        if (isRequest) this.#written++
      }
    }
  }

  /** As many lines as the file has room for; one at least. */
  #batch(): readonly WaitingLine[] {
    let bytes = this.#fileBytes
    let count = 0
    for (const line of this.#waiting) {
      bytes += line.bytes.length
      if (count > 0 && bytes > this.#options.fileBytesMax) break
      count++
    }
    return this.#waiting.slice(0, count)
  }

  /** The file, with room and a header. */
  async #openFile(): Promise<LogFile> {
    let file = await this.#open()
    if (this.#fileBytes >= this.#options.fileBytesMax) {
      await this.#rotate()
      file = await this.#open()
    }
    if (this.#hasHeader) return file
    const header = utf8.encode(this.#options.header())
    await this.#append(file, header)
    this.#hasHeader = true
    this.#count(header)
    return file
  }

  async #open(): Promise<LogFile> {
    if (this.#file !== undefined) return this.#file
    const file = await this.#options.files.open(this.#options.path)
    // Somebody else has written to it, or its end could not be cut.
    if (file.bytes !== this.#fileBytes) this.#hasHeader = false
    this.#fileBytes = file.bytes
    this.#file = file
    return file
  }

  /** Whole, or not at all. Where even the cut fails, whole lines of it may come again. */
  async #append(file: LogFile, bytes: Uint8Array): Promise<void> {
    try {
      await file.append(bytes)
    } catch (thrown) {
      await file.cut(this.#fileBytes).catch(() => {})
      await this.#release().catch(() => {})
      throw thrown
    }
  }

  #count({ length }: Uint8Array): void {
    this.#fileBytes += length
    this.#bytes += length
  }

  async #rotate(): Promise<void> {
    const { files, path, filesMax } = this.#options
    await this.#release()
    for (let number = filesMax - 2; number > 0; number--)
      await files.rename(`${path}.${number}`, `${path}.${number + 1}`)
    if (filesMax > 1) await files.rename(path, `${path}.1`)
    else await files.remove(path)
    this.#fileBytes = 0
    this.#hasHeader = false
  }

  async #release(): Promise<void> {
    const file = this.#file
    this.#file = undefined
    await file?.close()
  }

  async #mend(): Promise<void> {
    await this.#open()
    await this.#writeWaiting()
    this.#fault = undefined
    this.#options.mended()
  }

  async #lookAt(file: LogFile): Promise<void> {
    if (await file.isAt(this.#options.path)) return
    await this.#release()
    this.#hasHeader = false
    this.#fileBytes = 0
  }
}

/**
 * Line writer: puts lines into a file, one write at a time, and begins a new file when that one is full.
 *
 *   add ─▶ waiting lines ─▶ one batch ─▶ FILE ──full──▶ FILE.1 ─▶ FILE.2 ─▶ … ─▶ removed
 *              │ full                      │ fails
 *              ▼                           ▼
 *            dropped                     broken ──look──▶ tried again
 *
 * Lines that arrive during a write form the next batch: a fast disk gets single lines, a slow disk gets few
 * large writes. `look` also checks whether the file was moved away or removed, and then begins a new one.
 *
 * Invariants
 *   I1  Callers never wait. At most `waitingBytesMax` of lines wait; a line without room is dropped and
 *       counted.
 *   I2  A file begins with the header, if there is one, and has whole lines. The rest of a failed write is
 *       cut off; where it cannot be cut, the next write continues the line. If a part of a line went into a
 *       file that was moved away, the whole line is written again into the next file.
 *   I3  A file is longer than `fileBytesMax` by its header and one line at most. At most `filesMax` files
 *       exist.
 *   I4  Written, dropped and waiting lines together are all lines that were added. While the writer is
 *       broken, waiting lines are kept; they are written when the file can be written again.
 */

import type { LineFile, LineFiles } from './line-files.ts'

export interface LineWriterOptions {
  readonly files: LineFiles
  readonly path: string
  /** Lines that wait for the file, in bytes. */
  readonly waitingBytesMax: number
  /** Default: no bound. */
  readonly fileBytesMax?: number
  /** The one that is written included; ≥ 1. Default: 1. */
  readonly filesMax?: number
  /** The first line of a file that is begun now. Default: none. */
  readonly header?: () => string
  /** Lines wait until `release`. Default: false. */
  readonly isHeld?: boolean
  /** It cannot be written; said once until it can be again. */
  readonly broke: (reason: string) => void
  /** It can be written again. */
  readonly mended: () => void
}

export interface LineWriterStatus {
  /** Lines that are in the file. */
  readonly written: number
  /** Lines that are in no file, and are not going to be. */
  readonly dropped: number
  readonly bytes: number
  readonly waitingBytes: number
  /** Why it cannot be written; undefined: it can. */
  readonly fault: string | undefined
}

const BATCH_LINES_MAX = 1000
const utf8 = new TextEncoder()

export class LineWriter {
  readonly #options: LineWriterOptions
  readonly #waiting: Uint8Array[] = []
  #waitingBytes = 0
  /** Of the first line that waits; these are in the file already. */
  #begunBytes = 0
  #file: LineFile | undefined
  /** Of whole lines in the file. */
  #fileBytes = 0
  #isHeaderDue = true
  #fault: string | undefined
  #running: Promise<void> | undefined
  #isHeld: boolean
  #isClosed = false
  #written = 0
  #bytes = 0
  #dropped = 0

  constructor(options: LineWriterOptions) {
    this.#options = options
    this.#isHeld = options.isHeld ?? false
  }

  /** A line found room before. */
  get isUsed(): boolean {
    return this.#waiting.length > 0 || this.#bytes > 0
  }

  get status(): LineWriterStatus {
    return {
      written: this.#written,
      dropped: this.#dropped,
      bytes: this.#bytes,
      waitingBytes: this.#waitingBytes,
      fault: this.#fault,
    }
  }

  /**
   * Takes a line with its line feed; `text` may begin with others, which are not counted. False: it is
   * dropped.
   */
  add(text: string): boolean {
    const bytes = utf8.encode(text)
    if (this.#isClosed || this.#waitingBytes + bytes.length > this.#options.waitingBytesMax) {
      this.lost(1)
      return false
    }
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
    if (this.#fault === undefined) this.#run()
    return true
  }

  /** These lines were lost before they came here. */
  lost(lines: number): void {
    this.#dropped += lines
  }

  /** Lets lines pass from now on. Idempotent. */
  release(): void {
    if (!this.#isHeld) return
    this.#isHeld = false
    this.#run()
  }

  /** Tries again, if it is broken; looks whether the file was moved away, if it is not. */
  look(): void {
    if (this.#isClosed || this.#running !== undefined) return
    if (this.#fault !== undefined) this.#start(this.#mend())
    else if (this.#file !== undefined) this.#start(this.#renew())
  }

  /**
   * Goes on in a new file if the old one was moved away. Rejects as `files.open` does; then it goes on as
   * before.
   */
  async reopen(): Promise<void> {
    while (this.#running !== undefined) await this.#running
    const opened = this.#renew()
    this.#start(opened.catch(() => {}))
    await opened
  }

  /** Resolves when nothing waits, with true, or when what waits cannot be written. */
  async flush(): Promise<boolean> {
    while (this.#running !== undefined) await this.#running
    return this.#waiting.length === 0
  }

  /** Writes what waits, once more if it is broken, and gives the file back. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#isHeld = false
    await this.flush()
    if (this.#waiting.length > 0) this.#start(this.#mend())
    await this.flush()
    await this.#release()
  }

  #run(): void {
    if (this.#running === undefined && this.#waiting.length > 0 && !this.#isHeld)
      this.#start(this.#writeWaiting())
  }

  /** One thing at a time; what came meanwhile is next. */
  #start(work: Promise<void>): void {
    const ended = (): void => {
      this.#running = undefined
      if (this.#fault === undefined) this.#run()
    }
    this.#running = work.then(ended, (thrown: unknown) => {
      const isNew = this.#fault === undefined
      this.#fault = thrown instanceof Error ? thrown.message : String(thrown)
      if (isNew) this.#options.broke(this.#fault)
      ended()
    })
  }

  async #mend(): Promise<void> {
    await this.#renew()
    if (!this.#isHeld) await this.#writeWaiting()
    if (this.#fault === undefined) return
    this.#fault = undefined
    this.#options.mended()
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length > 0) {
      const file = await this.#openFile()
      try {
        this.#wrote(await file.append(Buffer.concat(this.#batch())))
      } catch (thrown) {
        await this.#cutOff(file)
        throw thrown
      }
    }
  }

  /** As many lines as the file has room for; one at least. */
  #batch(): readonly Uint8Array[] {
    const { fileBytesMax = Number.POSITIVE_INFINITY } = this.#options
    let bytes = this.#fileBytes
    let count = 0
    for (const line of this.#waiting) {
      bytes += line.length
      if (count === BATCH_LINES_MAX || (count > 0 && bytes > fileBytesMax)) break
      count++
    }
    const lines = this.#waiting.slice(0, count)
    lines[0] = lines[0]!.subarray(this.#begunBytes)
    return lines
  }

  #wrote(bytes: number): void {
    let left = bytes + this.#begunBytes
    let count = 0
    for (const { length } of this.#waiting) {
      if (length > left) break
      left -= length
      count++
      this.#waitingBytes -= length
      this.#count(length)
    }
    this.#waiting.splice(0, count)
    this.#written += count
    this.#begunBytes = left
  }

  #count(bytes: number): void {
    this.#fileBytes += bytes
    this.#bytes += bytes
  }

  /** The file, with room and a header. */
  async #openFile(): Promise<LineFile> {
    if (this.#file === undefined) await this.#open()
    const { fileBytesMax = Number.POSITIVE_INFINITY, header } = this.#options
    if (this.#fileBytes >= fileBytesMax && this.#begunBytes === 0) await this.#rotate()
    const file = this.#file!
    if (header !== undefined && this.#isHeaderDue) await this.#writeHeader(file, utf8.encode(header()))
    return file
  }

  async #writeHeader(file: LineFile, header: Uint8Array): Promise<void> {
    try {
      for (let at = 0; at < header.length; ) at += await file.append(header.subarray(at))
    } catch (thrown) {
      await this.#cutOff(file)
      throw thrown
    }
    this.#isHeaderDue = false
    this.#count(header.length)
  }

  /** What a failed write has left. Where even that fails, opening the file again has to do it. */
  async #cutOff(file: LineFile): Promise<void> {
    if (file.cut === undefined) return
    this.#begunBytes = 0
    await file.cut(this.#fileBytes).catch(() => {})
    await this.#release().catch(() => {})
  }

  /** Sees to it that the file that is open is the one under the path. */
  async #renew(): Promise<void> {
    if (this.#file === undefined || !(await this.#file.isAt(this.#options.path))) await this.#open()
  }

  async #open(): Promise<void> {
    const { files, path } = this.#options
    const next = await files.open(path)
    // Another file, or another program has written to it, or its end could not be cut.
    if (this.#file !== undefined || next.bytes !== this.#fileBytes) this.#isHeaderDue = true
    await this.#release()
    this.#file = next
    this.#fileBytes = next.bytes
    this.#begunBytes = 0
  }

  async #rotate(): Promise<void> {
    const { files, path, filesMax = 1 } = this.#options
    await this.#release()
    for (let number = filesMax - 2; number > 0; number--)
      await files.rename(`${path}.${number}`, `${path}.${number + 1}`)
    if (filesMax > 1) await files.rename(path, `${path}.1`)
    else await files.remove(path)
    this.#isHeaderDue = true
    await this.#open()
  }

  async #release(): Promise<void> {
    const file = this.#file
    this.#file = undefined
    await file?.close()
  }
}

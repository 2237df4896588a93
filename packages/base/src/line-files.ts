/**
 * Line files: where a line writer puts its lines: a file of the disk, or a stream of this process.
 *
 * `sonic-boom`, the writer under pino, appends to files: it continues after a short write. It gets one batch
 * at a time. After a failed write it would keep the rest of a batch and write it later, even where that must
 * not follow: into another file, after a header, or after a cut.
 */

import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import process from 'node:process'
import type { Writable } from 'node:stream'
import sonicBoom, { type SonicBoom } from 'sonic-boom'

export interface LineFile {
  /** When it was opened. */
  readonly bytes: number
  /** How many of the bytes were written behind all that is there, in order. Rejects when none could be. */
  append(bytes: Uint8Array): Promise<number>
  /**
   * Keeps the first `bytes` bytes. Undefined: what a failed write has left stays, and the next one goes on
   * there.
   */
  readonly cut: ((bytes: number) => Promise<void>) | undefined
  /** False: the file was moved away, or removed. */
  isAt(path: string): Promise<boolean>
  close(): Promise<void>
}

/** Where lines are kept; tests keep them in memory. */
export interface LineFiles {
  /** Makes it where it is missing; what is appended begins a line. Rejects where no lines may be written. */
  open(path: string): Promise<LineFile>
  /** Replaces what is there; one that is missing is left out. */
  rename(from: string, to: string): Promise<void>
  remove(path: string): Promise<void>
}

const LINE_FEED = 0x0a
/** The end of a file is read in pieces of this size until one has a line end. */
const TAIL_BYTES = 64 * 1024

export interface DiskLineFileOptions {
  /** Permissions of a new file. */
  readonly mode: number
  /** No other program writes to it, so its end may be cut off. */
  readonly isOwn: boolean
  /** Ends the refusal of what is no regular file. */
  readonly hint?: string
}

/** A file that is open for appending only: others may cut it to nothing meanwhile (`copytruncate`). */
export class DiskLineFile implements LineFile {
  readonly cut: LineFile['cut']
  readonly #handle: FileHandle
  readonly #appender: Appender
  #bytes = 0

  private constructor(handle: FileHandle, isOwn: boolean) {
    this.#handle = handle
    this.#appender = new Appender(handle.fd)
    this.cut = isOwn ? bytes => this.#cut(bytes) : undefined
  }

  /**
   * `prepare` reads it and mends its end. Rejects, with no file open, as that does, and where there is no
   * file.
   */
  static async open(
    path: string,
    { mode, isOwn, hint = '' }: DiskLineFileOptions,
    prepare: (file: DiskLineFile) => Promise<void>,
  ): Promise<DiskLineFile> {
    const found = await stat(path).catch(unlessMissing)
    // A pipe would wait for its reader.
    if (found !== undefined && !found.isFile())
      throw new Error(
        found.isDirectory() ? 'it is a directory; name a file in it' : `it is no regular file${hint}`,
      )
    const file = new DiskLineFile(await open(path, 'a+', mode), isOwn)
    try {
      file.#bytes = (await file.#handle.stat()).size
      await prepare(file)
      return file
    } catch (thrown) {
      await file.close()
      throw thrown
    }
  }

  get bytes(): number {
    return this.#bytes
  }

  append(bytes: Uint8Array): Promise<number> {
    return this.#appender.append(bytes)
  }

  async isAt(path: string): Promise<boolean> {
    // Where even that is refused, opening the path says why.
    const [there, here] = await Promise.all([stat(path).catch(() => undefined), this.#handle.stat()])
    return there !== undefined && there.ino === here.ino && there.dev === here.dev
  }

  async close(): Promise<void> {
    await this.#handle.close()
  }

  /** The first bytes, as many as there are. */
  async head(bytes: number): Promise<Uint8Array> {
    const head = Buffer.alloc(bytes)
    const { bytesRead } = await this.#handle.read(head, 0, bytes, 0)
    return head.subarray(0, bytesRead)
  }

  /** Bytes up to the last line end. */
  async wholeLineBytes(): Promise<number> {
    const piece = Buffer.alloc(TAIL_BYTES)
    for (let end = this.bytes; end > 0; end -= Math.min(end, TAIL_BYTES)) {
      const start = Math.max(0, end - TAIL_BYTES)
      const { bytesRead } = await this.#handle.read(piece, 0, end - start, start)
      const at = piece.subarray(0, bytesRead).lastIndexOf(LINE_FEED)
      if (at >= 0) return start + at + 1
    }
    return 0
  }

  async #cut(bytes: number): Promise<void> {
    await this.#handle.truncate(bytes)
    this.#bytes = bytes
  }
}

/**
 * Standard output or error of this process: never opened anew, never closed. Node's own stream writes to it:
 * where a pipe is full, that waits until the reader has made room, and `sonic-boom` would sleep for 100 ms
 * each time, which drops lines that a reader would have taken.
 */
export class StreamLineFile implements LineFile {
  readonly bytes = 0
  readonly cut = undefined
  readonly #stream: Writable

  constructor(fd: 1 | 2) {
    this.#stream = fd === 1 ? process.stdout : process.stderr
    // The callback of a write tells of a reader that has gone; without a listener, that would end the
    // process.
    if (this.#stream.listenerCount('error') === 0) this.#stream.on('error', () => {})
  }

  append(bytes: Uint8Array): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#stream.write(bytes, error => {
        if (error === null || error === undefined) resolve(bytes.length)
        else reject(error)
      })
    })
  }

  async isAt(): Promise<boolean> {
    return true
  }

  async close(): Promise<void> {}
}

/** `LineFiles` of the disk, but for what opening a file means. */
export const diskMoves: Omit<LineFiles, 'open'> = {
  async rename(from, to) {
    await rename(from, to).catch(unlessMissing)
  },
  async remove(path) {
    await rm(path, { force: true })
  },
}

/** Appends to what is open at `fd`, which stays its owner's. One batch at a time. */
export class Appender {
  readonly #fd: number
  #boom: SonicBoom

  constructor(fd: number) {
    this.#fd = fd
    this.#boom = boomOf(fd)
  }

  append(bytes: Uint8Array): Promise<number> {
    const boom = this.#boom
    let written = 0
    return new Promise((resolve, reject) => {
      boom.on('write', (count: number) => {
        written += count
      })
      boom.once('drain', () => {
        boom.removeAllListeners('write').removeAllListeners('error')
        resolve(written)
      })
      boom.once('error', (thrown: Error) => {
        // It keeps the rest of the bytes, which the caller may not want there.
        this.#boom = boomOf(this.#fd)
        if (written > 0) resolve(written)
        else reject(thrown)
      })
      // Its types know of texts only.
      boom.write(bytes as unknown as string)
    })
  }
}

function boomOf(fd: number): SonicBoom {
  return new sonicBoom.SonicBoom({ fd, sync: false, contentMode: 'buffer' })
}

function unlessMissing(thrown: NodeJS.ErrnoException): undefined {
  if (thrown.code === 'ENOENT') return undefined
  throw thrown
}

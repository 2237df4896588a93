/**
 * Line sinks: where the lines of an access log go: a file that may be moved away, or standard output.
 *
 * A file is opened for appending, so that it may also be cut to nothing while it is written (`copytruncate`). A process that was
 * killed leaves half a line at most; it is ended when the file is opened again, so that what follows begins a line.
 */

import { type FileHandle, open, stat } from 'node:fs/promises'
import process from 'node:process'
import type { Writable } from 'node:stream'
import { AccessLogError } from './errors.ts'

export interface LineSink {
  /** How many of the bytes were written, in order. Rejects when none could be. One at a time. */
  append(bytes: Uint8Array): Promise<number>
  /** True: what is appended from now on goes to another file than before. Rejects when that cannot be opened. */
  look(): Promise<boolean>
  /** Goes on in a file of the same name. Rejects with AccessLogError; then it goes on as before. */
  reopen(): Promise<void>
  close(): Promise<void>
}

/** Names that stand for a stream of this process. */
const STREAMS: Readonly<Record<string, () => Writable>> = {
  '-': () => process.stdout,
  '/dev/stdout': () => process.stdout,
  '/dev/stderr': () => process.stderr,
}
const LINE_FEED = 0x0a
/** Paths, models and names of tenants are in it; those who collect logs often run as the group. */
const MODE = 0o640

export function sinkOf(path: string): LineSink {
  const stream = STREAMS[path]
  return stream === undefined ? new FileSink(path) : new StreamSink(stream())
}

/** Rejects with AccessLogError when nothing can be written there. */
export async function prepareAccessLog(path: string): Promise<void> {
  if (STREAMS[path] === undefined) await (await openLines(path)).close()
}

class FileSink implements LineSink {
  readonly #path: string
  #file: FileHandle | undefined

  constructor(path: string) {
    this.#path = path
  }

  async append(bytes: Uint8Array): Promise<number> {
    this.#file ??= await openLines(this.#path)
    const { bytesWritten } = await this.#file.write(bytes)
    return bytesWritten
  }

  async look(): Promise<boolean> {
    if (this.#file === undefined) return false
    const [there, here] = await Promise.all([stat(this.#path).catch(() => undefined), this.#file.stat()])
    if (there !== undefined && there.ino === here.ino && there.dev === here.dev) return false
    await this.reopen()
    return true
  }

  async reopen(): Promise<void> {
    const next = await openLines(this.#path)
    await this.close()
    this.#file = next
  }

  async close(): Promise<void> {
    const file = this.#file
    this.#file = undefined
    await file?.close()
  }
}

/** Of the process: never opened anew, never closed. */
class StreamSink implements LineSink {
  readonly #stream: Writable

  constructor(stream: Writable) {
    this.#stream = stream
  }

  append(bytes: Uint8Array): Promise<number> {
    return new Promise((resolve, reject) => {
      // Whoever reads it may be gone; the callback tells, and the stream must not end the process.
      if (this.#stream.listenerCount('error') === 0) this.#stream.on('error', () => {})
      this.#stream.write(bytes, error => (error == null ? resolve(bytes.length) : reject(error)))
    })
  }

  async look(): Promise<boolean> {
    return false
  }

  async reopen(): Promise<void> {}

  async close(): Promise<void> {}
}

/** Rejects with AccessLogError. */
async function openLines(path: string): Promise<FileHandle> {
  try {
    const found = await stat(path).catch(unlessMissing)
    // A pipe would wait for its reader.
    if (found !== undefined && !found.isFile())
      throw new Error(
        found.isDirectory()
          ? 'it is a directory; name a file in it'
          : 'it is no regular file; - is standard output',
      )
    const file = await open(path, 'a+', MODE)
    try {
      await endHalfLine(file)
      return file
    } catch (thrown) {
      await file.close()
      throw thrown
    }
  } catch (thrown) {
    throw new AccessLogError(path, thrown)
  }
}

async function endHalfLine(file: FileHandle): Promise<void> {
  const { size } = await file.stat()
  if (size === 0) return
  const last = Buffer.alloc(1)
  await file.read(last, 0, 1, size - 1)
  if (last[0] !== LINE_FEED) await file.write(Uint8Array.of(LINE_FEED))
}

function unlessMissing(thrown: NodeJS.ErrnoException): undefined {
  if (thrown.code === 'ENOENT') return undefined
  throw thrown
}

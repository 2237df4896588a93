/**
 * Log files: the door to the files of a decision log.
 *
 * A process that was killed leaves half a line at most. It is cut off when the file is opened again, so that what is appended
 * begins a line. A file is only touched that is empty or begins as a decision log does.
 */

import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises'
import type { Capability } from '@homing/actor'
import { beginsAsDecisionLog } from '@homing/trace'
import { DecisionLogFileError } from './errors.ts'

export interface LogFile {
  /** When it was opened. */
  readonly bytes: number
  /** Behind all that is there. When it rejects, a part may have been written. */
  append(bytes: Uint8Array): Promise<void>
  /** Keeps the first `bytes` bytes. */
  cut(bytes: number): Promise<void>
  /** False: the file was moved away, or removed. */
  isAt(path: string): Promise<boolean>
  close(): Promise<void>
}

/** Where a decision log is kept; tests keep it in memory. */
export interface LogFiles {
  /** Makes it where it is missing. Rejects where it is no decision log. */
  open(path: string): Promise<LogFile>
  /** Replaces what is there; one that is missing is left out. */
  rename(from: string, to: string): Promise<void>
  remove(path: string): Promise<void>
}

export const logFiles: Capability<LogFiles> = {
  name: 'decision log files',
  create: () => new DiskFiles(),
}

/** Rejects with DecisionLogFileError when nothing can be written there. */
export async function prepareDecisionLog(path: string): Promise<void> {
  try {
    await (await new DiskFiles().open(path)).close()
  } catch (thrown) {
    throw new DecisionLogFileError(path, thrown instanceof Error ? thrown.message : String(thrown))
  }
}

/** The end of a file is read in pieces of this size until one has a line end. */
const PIECE_BYTES = 64 * 1024
/** They tell a decision log. */
const HEAD_BYTES = 32
const LINE_FEED = 0x0a
/** Models, workers and the pattern of the traffic are in it. */
const MODE = 0o600

class DiskFiles implements LogFiles {
  async open(path: string): Promise<LogFile> {
    const found = await stat(path).catch(unlessMissing)
    // A pipe would wait for its reader.
    if (found !== undefined && !found.isFile())
      throw new Error(found.isDirectory() ? 'it is a directory; name a file in it' : 'it is no regular file')
    const handle = await open(path, 'a+', MODE)
    try {
      const { size } = await handle.stat()
      if (!(await beginsAsLog(handle)))
        throw new Error('there is a file that is no decision log; name another, or move it away')
      const bytes = await wholeLines(handle, size)
      if (bytes < size) await handle.truncate(bytes)
      return new DiskFile(handle, bytes)
    } catch (thrown) {
      await handle.close()
      throw thrown
    }
  }

  async rename(from: string, to: string): Promise<void> {
    await rename(from, to).catch(unlessMissing)
  }

  async remove(path: string): Promise<void> {
    await rm(path, { force: true })
  }
}

class DiskFile implements LogFile {
  readonly bytes: number
  readonly #handle: FileHandle

  constructor(handle: FileHandle, bytes: number) {
    this.#handle = handle
    this.bytes = bytes
  }

  async append(bytes: Uint8Array): Promise<void> {
    await this.#handle.appendFile(bytes)
  }

  async cut(bytes: number): Promise<void> {
    await this.#handle.truncate(bytes)
  }

  async isAt(path: string): Promise<boolean> {
    const [there, here] = await Promise.all([stat(path).catch(unlessMissing), this.#handle.stat()])
    return there !== undefined && there.ino === here.ino && there.dev === here.dev
  }

  async close(): Promise<void> {
    await this.#handle.close()
  }
}

/** Bytes up to the last line end. */
async function wholeLines(handle: FileHandle, size: number): Promise<number> {
  const piece = Buffer.alloc(PIECE_BYTES)
  for (let end = size; end > 0; end -= Math.min(end, PIECE_BYTES)) {
    const start = Math.max(0, end - PIECE_BYTES)
    const { bytesRead } = await handle.read(piece, 0, end - start, start)
    const at = piece.subarray(0, bytesRead).lastIndexOf(LINE_FEED)
    if (at >= 0) return start + at + 1
  }
  return 0
}

async function beginsAsLog(handle: FileHandle): Promise<boolean> {
  const head = Buffer.alloc(HEAD_BYTES)
  const { bytesRead } = await handle.read(head, 0, HEAD_BYTES, 0)
  return beginsAsDecisionLog(head.toString('latin1', 0, bytesRead))
}

function unlessMissing(thrown: NodeJS.ErrnoException): undefined {
  if (thrown.code === 'ENOENT') return undefined
  throw thrown
}

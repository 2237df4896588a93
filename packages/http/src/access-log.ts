/**
 * Access log: one JSON line per request, into a file that may be moved away, or to standard output.
 *
 * A line writer of packages/base keeps at most ACCESS_LINES_BYTES_MAX of lines and writes them; requests
 * never wait for it. Every FILE_LOOK_MS it checks whether its file was moved away, and retries a failed
 * write.
 *
 * Invariants
 *   I1  Written, dropped and waiting lines together are all lines that were added.
 *   I2  The file has whole lines, although other programs may truncate it or append to it. After a full disk
 *       the next write continues the half line. After a killed process the next start ends the half line
 *       when it opens the file.
 */

import {
  type Clock,
  DiskLineFile,
  diskMoves,
  type LineFiles,
  LineWriter,
  type Log,
  StreamLineFile,
  shownJson,
  type Timer,
} from '@homing/base'
import { AccessLogError } from './errors.ts'

/** Members that are undefined are left out. */
export type AccessLine = Readonly<Record<string, string | number | boolean | undefined>>

export interface AccessLogOptions {
  /** `-`: standard output. */
  readonly path: string
  readonly log: Log
  readonly clock: Clock
  /** Default: those of the disk, and the streams of this process. */
  readonly files?: LineFiles
  /** Lines wait until `release`. Default: false. */
  readonly isHeld?: boolean
}

/** Lines that wait, in bytes. */
const ACCESS_LINES_BYTES_MAX = 4 * 1024 * 1024
const FILE_LOOK_MS = 1000
/** A reader that does not read must not keep a process from ending. */
const LOG_CLOSE_MS_MAX = 2000
/** Names that stand for a stream of this process. */
const STREAMS: Readonly<Record<string, 1 | 2>> = { '-': 1, '/dev/stdout': 1, '/dev/stderr': 2 }
/** Paths, models and names of tenants are in it; those who collect logs often run as the group. */
const MODE = 0o640

export class AccessLog {
  readonly #path: string
  readonly #log: Log
  readonly #clock: Clock
  readonly #writer: LineWriter
  #look: Timer | undefined
  #isClosed = false

  constructor({ path, log, clock, files = accessLogFiles, isHeld = false }: AccessLogOptions) {
    this.#path = path
    this.#log = log
    this.#clock = clock
    this.#writer = new LineWriter({
      files,
      path,
      waitingBytesMax: ACCESS_LINES_BYTES_MAX,
      isHeld,
      broke: reason => this.#broke(reason),
      mended: () => log.info({ path, droppedLines: this.dropped }, 'access log is written again'),
    })
    this.#lookLater()
  }

  get written(): number {
    return this.#writer.status.written
  }

  /** Lines that are in no file, and are not going to be. */
  get dropped(): number {
    return this.#writer.status.dropped
  }

  /** Why it cannot be written; undefined: it can. */
  get fault(): string | undefined {
    return this.#writer.status.fault
  }

  write(line: AccessLine): void {
    this.#writer.add(`${shownJson(JSON.stringify(line))}\n`)
  }

  /** Lets lines pass from now on. Idempotent. */
  release(): void {
    this.#writer.release()
  }

  /** Goes on in a new file of the same name. Rejects with AccessLogError; then it goes on as before. */
  async reopen(): Promise<void> {
    await this.#writer.reopen()
  }

  /** Resolves when all lines are written, or cannot be, or after LOG_CLOSE_MS_MAX. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#look?.cancel()
    const late = Promise.withResolvers<void>()
    const timer = this.#clock.after(LOG_CLOSE_MS_MAX, late.resolve, { unref: true })
    const closed = this.#writer.close().catch((thrown: unknown) => this.#broke(String(thrown)))
    await Promise.race([closed, late.promise])
    timer.cancel()
  }

  #broke(reason: string): void {
    this.#log.error({ path: this.#path, reason }, 'access log cannot be written')
  }

  #lookLater(): void {
    const look = (): void => {
      this.#lookLater()
      this.#writer.look()
    }
    this.#look = this.#clock.after(FILE_LOOK_MS, look, { unref: true })
  }
}

const accessLogFiles: LineFiles = {
  ...diskMoves,
  /** Rejects with AccessLogError. */
  async open(path) {
    const stream = STREAMS[path]
    if (stream !== undefined) return new StreamLineFile(stream)
    try {
      const options = { mode: MODE, isOwn: false, hint: '; - is standard output' }
      return await DiskLineFile.open(path, options, endHalfLine)
    } catch (thrown) {
      throw new AccessLogError(path, thrown)
    }
  },
}

/** Rejects with AccessLogError when nothing can be written there. */
export async function prepareAccessLog(path: string): Promise<void> {
  await (await accessLogFiles.open(path)).close()
}

async function endHalfLine(file: DiskLineFile): Promise<void> {
  if ((await file.wholeLineBytes()) < file.bytes) await file.append(Buffer.from('\n'))
}

/**
 * Followed files: files that belong together and make one value, such as a certificate and its key. Their
 * owner looks at them every second; what has changed and can be used counts from then on.
 *
 * They are polled, not watched: that works on network file systems, and when files or links are replaced. A
 * text counts after two looks in a row have found it, so a half-written file does not count. What cannot be
 * used is logged once and changes nothing, also for an owner that begins anew: what counted last counts then.
 */

import { stat } from 'node:fs/promises'
import { type Clock, type Log, readBoundedFile } from '@homing/base'

export interface FollowedFile {
  /** The setting that names it. */
  readonly option: string
  readonly path: string
}

export interface FollowedFilesOptions<T> {
  readonly files: readonly FollowedFile[]
  readonly bytesMax: number
  /** `texts[i]` of `files[i]`. Throws an error whose message says what is wrong, and shows no secret. */
  readonly parse: (texts: readonly string[]) => T
  /** What counts until the files say something else, if nothing of them has counted on this thread yet. */
  readonly value: T
  readonly changed: (value: T) => void
  /** Undefined: another owner of the same files has told already. */
  readonly log: Pick<Log, 'info' | 'warn'> | undefined
}

/** Rejects with an error whose message names the setting and the file. */
export function readFollowedFiles(
  files: readonly FollowedFile[],
  bytesMax: number,
): Promise<readonly string[]> {
  return Promise.all(
    files.map(({ option, path }) =>
      readBoundedFile(path, bytesMax).catch((thrown: Error) => {
        throw new Error(`${option} ${JSON.stringify(path)} cannot be read: ${thrown.message}`)
      }),
    ),
  )
}

/** What counted last on this thread, by settings and paths, which are as many as the command names. */
const counted = new Map<string, unknown>()
/** File systems may hang. */
const BEGIN_MS_MAX = 5000

export class FollowedFiles<T> {
  readonly #options: FollowedFilesOptions<T>
  readonly #names: string
  /** In `counted`. */
  readonly #key: string
  #value: T
  /** Texts of the last look; undefined: they could not be read. */
  #texts: string | undefined
  /** The last texts that were judged. */
  #judged: string | undefined
  #fault: string | undefined
  #isLooking = false
  /** Of the files at the last look, what differs after every change. */
  #marks: string | undefined
  /** Looks that found something new to judge: what counted, and what could not be used. */
  readonly counts = { loaded: 0, refused: 0 }

  constructor(options: FollowedFilesOptions<T>) {
    this.#options = options
    this.#value = options.value
    this.#names = options.files.map(({ path }) => path).join(', ')
    this.#key = options.files.map(({ option, path }) => `${option} ${path}`).join('\n')
  }

  get value(): T {
    return this.#value
  }

  /** Why the files as they are do not count; undefined: they do. */
  get fault(): string | undefined {
    return this.#fault
  }

  /**
   * What they say now counts at once if it can be used, else what counted last: for an owner that begins.
   * Takes BEGIN_MS_MAX at most. Never rejects.
   */
  async begin(clock: Clock): Promise<void> {
    const last = counted.get(this.#key) as T | undefined
    if (last !== undefined) this.#count(last)
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = clock.after(BEGIN_MS_MAX, resolve)
    await Promise.race([this.look().then(() => this.look()), promise])
    timer.cancel()
  }

  /** Does nothing while an earlier look is under way. Never rejects. */
  async look(): Promise<void> {
    if (this.#isLooking) return
    this.#isLooking = true
    const { files, bytesMax } = this.#options
    try {
      const marks = await marksOf(files)
      if (
        marks !== undefined &&
        marks === this.#marks &&
        this.#judged !== undefined &&
        this.#judged === this.#texts
      )
        return
      const texts = await readFollowedFiles(files, bytesMax)
      this.#marks = marks
      this.#looked(texts)
    } catch (thrown) {
      this.#texts = undefined
      // The same texts are judged anew when they can be read again.
      this.#judged = undefined
      this.#failed((thrown as Error).message)
    } finally {
      this.#isLooking = false
    }
  }

  #looked(texts: readonly string[]): void {
    const all = JSON.stringify(texts)
    const isSteady = all === this.#texts
    this.#texts = all
    if (!isSteady || all === this.#judged) return
    const isFirst = this.#judged === undefined && this.#fault === undefined
    this.#judged = all
    let value: T
    try {
      value = this.#options.parse(texts)
    } catch (thrown) {
      this.#failed((thrown as Error).message)
      return
    }
    this.#fault = undefined
    this.#count(value)
    counted.set(this.#key, value)
    if (isFirst) return
    this.counts.loaded++
    this.#options.log?.info({ files: this.#names }, 'changed files count from now on')
  }

  #count(value: T): void {
    this.#value = value
    this.#options.changed(value)
  }

  #failed(fault: string): void {
    if (fault === this.#fault) return
    this.#fault = fault
    this.counts.refused++
    this.#options.log?.warn({ fault }, 'changed files cannot be used; what they said before goes on to count')
  }
}

/** Of files that can be looked at; others have no marks, so that each look reads them and says why not. */
async function marksOf(files: readonly FollowedFile[]): Promise<string | undefined> {
  const stats = await Promise.all(
    files.map(({ path }) => stat(path, { bigint: true }).catch(() => undefined)),
  )
  if (stats.includes(undefined)) return undefined
  return stats.map(each => `${each!.dev} ${each!.ino} ${each!.size} ${each!.mtimeNs} ${each!.ctimeNs}`).join()
}

/**
 * Checkpoint files: one per source, in a directory that the user names, each replaced as a whole.
 */

import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Capability, ThreadFacilities } from '@homing/actor'
import { replaceFile } from '@homing/base'
import { decodeCheckpoint } from './checkpoint.ts'
import { CheckpointDirectoryError, UnusableCheckpointError } from './errors.ts'

/** Where checkpoints are kept; tests keep them in memory. */
export interface CheckpointStore {
  /** Undefined: there is none. Rejects where one is there and cannot be read. */
  read(directory: string, source: string): Promise<Uint8Array | undefined>
  /** Replaces the one before, unless it is not wanted any more when it is whole. */
  write(
    directory: string,
    source: string,
    pieces: readonly Uint8Array[],
    isWanted: () => boolean,
  ): Promise<void>
  /** It is still of use. */
  touch(directory: string, source: string): Promise<void>
  remove(directory: string, source: string): Promise<void>
}

/**
 * A source that is not configured, and whose checkpoint was not looked after for so long, is taken to be
 * gone, and its file with it.
 */
const FORGOTTEN_MS = 7 * 24 * 3_600_000
/**
 * The names of files that are ours: `<words>-<digest>.checkpoint`, and `….<letters>.part` until they are
 * whole.
 */
const OURS = /-[0-9a-f]{16}\.checkpoint(\.[0-9a-f]{12}\.part)?$/

class CheckpointFiles implements CheckpointStore {
  readonly #random: ThreadFacilities['random']
  readonly #clock: ThreadFacilities['clock']

  constructor({ random, clock }: ThreadFacilities) {
    this.#random = random
    this.#clock = clock
  }

  async read(directory: string, source: string): Promise<Uint8Array | undefined> {
    return unlessMissing(readFile(pathOf(directory, source)))
  }

  async write(
    directory: string,
    source: string,
    pieces: readonly Uint8Array[],
    isWanted: () => boolean,
  ): Promise<void> {
    await makeDirectory(directory)
    await replaceFile(pathOf(directory, source), pieces, this.#random, isWanted)
  }

  async touch(directory: string, source: string): Promise<void> {
    const now = this.#clock.wallMs() / 1000
    await unlessMissing(utimes(pathOf(directory, source), now, now))
  }

  async remove(directory: string, source: string): Promise<void> {
    await rm(pathOf(directory, source), { force: true })
  }
}

export const checkpointFiles: Capability<CheckpointStore> = {
  name: 'checkpoint files',
  create: facilities => new CheckpointFiles(facilities),
}

/**
 * Makes the directory where it is missing, and removes files of sources that are long gone: of workers whose
 * ids are not among the `configured` ones. Rejects with CheckpointDirectoryError when it cannot be written
 * to.
 */
export async function prepareCheckpointDirectory(
  directory: string,
  nowMs: number,
  configured: readonly string[],
): Promise<void> {
  try {
    await makeDirectory(directory)
    await tryToWrite(directory)
    await forgetOldFiles(directory, nowMs, new Set(configured))
  } catch (error) {
    throw new CheckpointDirectoryError(directory, error instanceof Error ? error.message : String(error))
  }
}

/**
 * `mkdir` with `recursive` makes the parent again for as long as the path is missing, which in /proc is for
 * ever, on a thread that cannot be stopped. Here each folder is tried twice at most.
 */
async function makeDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') return
    const parent = dirname(directory)
    if (code !== 'ENOENT' || parent === directory) throw error
    await makeDirectory(parent)
    await mkdir(directory).catch(again => {
      // Another process may have been quicker.
      if ((again as NodeJS.ErrnoException).code !== 'EEXIST') throw again
    })
  }
}

/** Rights say little, to root above all: a file is written as a checkpoint is, and removed. */
async function tryToWrite(directory: string): Promise<void> {
  const trial = join(
    directory,
    `trial-0000000000000000.checkpoint.${process.pid.toString(16).padStart(12, '0')}.part`,
  )
  try {
    await writeFile(trial, 'homing')
  } finally {
    await rm(trial, { force: true })
  }
}

async function forgetOldFiles(
  directory: string,
  nowMs: number,
  configured: ReadonlySet<string>,
): Promise<void> {
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    if (!entry.isFile() || !OURS.test(entry.name)) continue
    const path = join(directory, entry.name)
    // Missing: another process was quicker.
    const found = await unlessMissing(stat(path))
    const isOld = found !== undefined && nowMs - found.mtimeMs > FORGOTTEN_MS
    if (isOld && !(await isOfAny(path, configured))) await rm(path, { force: true })
  }
}

/** Whether it can be used, and is of one of these workers. */
async function isOfAny(path: string, workerIds: ReadonlySet<string>): Promise<boolean> {
  const bytes = path.endsWith('.part') ? undefined : await unlessMissing(readFile(path))
  if (bytes === undefined) return false
  try {
    const { key } = decodeCheckpoint(bytes)
    return workerIds.has(key.slice(0, key.lastIndexOf('/')))
  } catch (error) {
    if (error instanceof UnusableCheckpointError) return false
    throw error
  }
}

async function unlessMissing<T>(looked: Promise<T>): Promise<T | undefined> {
  try {
    return await looked
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

/** 'tcp_10.0.0.5_5557_0-1a2b3c4d5e6f7081.checkpoint': to be recognised by people, and no two alike. */
function pathOf(directory: string, source: string): string {
  const digest = createHash('sha256').update(source).digest('hex').slice(0, 16)
  const words = source.replace(/[^\w.-]+/g, '_').slice(0, 80)
  return join(directory, `${words}-${digest}.checkpoint`)
}

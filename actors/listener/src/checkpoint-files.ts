/**
 * Checkpoint files: one per source, in a directory that the user names. A file is written beside and renamed when it is
 * whole, so that whoever reads finds an old one or a new one, never half of one.
 */

import { createHash } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Capability } from '@homing/actor'
import { CheckpointDirectoryError } from './errors.ts'

/** Where checkpoints are kept; tests keep them in memory. */
export interface CheckpointStore {
  /** Undefined: there is none. Rejects where one is there and cannot be read. */
  read(directory: string, source: string): Promise<Uint8Array | undefined>
  /** Replaces the one before. */
  write(directory: string, source: string, pieces: readonly Uint8Array[]): Promise<void>
}

/** A source whose checkpoint was not written for so long is taken to be gone, and its file with it. */
const FORGOTTEN_MS = 7 * 24 * 3_600_000
const SUFFIX = '.checkpoint'
const PART_SUFFIX = '.part'

class CheckpointFiles implements CheckpointStore {
  async read(directory: string, source: string): Promise<Uint8Array | undefined> {
    try {
      return await readFile(join(directory, fileNameOf(source)))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    }
  }

  async write(directory: string, source: string, pieces: readonly Uint8Array[]): Promise<void> {
    const path = join(directory, fileNameOf(source))
    // Two processes may share a directory.
    const part = `${path}.${process.pid}${PART_SUFFIX}`
    await mkdir(directory, { recursive: true })
    try {
      const file = await open(part, 'w', 0o600)
      try {
        for (const piece of pieces) await file.writeFile(piece)
        await file.sync()
      } finally {
        await file.close()
      }
      await rename(part, path)
    } catch (error) {
      await rm(part, { force: true })
      throw error
    }
  }
}

export const checkpointFiles: Capability<CheckpointStore> = {
  name: 'checkpoint files',
  create: () => new CheckpointFiles(),
}

/**
 * Makes the directory where it is missing, and removes files of sources that are long gone. Rejects with
 * CheckpointDirectoryError when it cannot be written to.
 */
export async function prepareCheckpointDirectory(directory: string, nowMs: number): Promise<void> {
  try {
    await mkdir(directory, { recursive: true })
    const probe = join(directory, `.${process.pid}${PART_SUFFIX}`)
    await (await open(probe, 'w', 0o600)).close()
    await rm(probe, { force: true })
    await forgetOldFiles(directory, nowMs)
  } catch (error) {
    throw new CheckpointDirectoryError(directory, error instanceof Error ? error.message : String(error))
  }
}

async function forgetOldFiles(directory: string, nowMs: number): Promise<void> {
  for (const name of await readdir(directory)) {
    if (!name.endsWith(SUFFIX) && !name.endsWith(PART_SUFFIX)) continue
    const path = join(directory, name)
    const modifiedMs = await stat(path).then(
      ({ mtimeMs }) => mtimeMs,
      // Another process was quicker.
      () => nowMs,
    )
    if (nowMs - modifiedMs > FORGOTTEN_MS) await rm(path, { force: true })
  }
}

/** 'tcp_10.0.0.5_5557_0-1a2b3c4d5e6f7081.checkpoint': to be recognised by people, and no two alike. */
function fileNameOf(source: string): string {
  const digest = createHash('sha256').update(source).digest('hex').slice(0, 16)
  const words = source.replace(/[^\w.-]+/g, '_').slice(0, 80)
  return `${words}-${digest}${SUFFIX}`
}

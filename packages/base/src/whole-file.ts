/**
 * Whole file: replaced so that a reader finds the old content or the new one, never half of one. It is
 * written under another name, `….<12 hexadecimal digits>.part`, and renamed when it is complete.
 */

import { open, rename, rm } from 'node:fs/promises'
import type { Random } from './clock.ts'

/** Only the user of the process may read it. `isWanted` is asked when it is complete; default: it is. */
export async function replaceFile(
  path: string,
  pieces: readonly Uint8Array[],
  random: Pick<Random, 'bytes'>,
  isWanted: () => boolean = () => true,
): Promise<void> {
  // Several processes may write to a directory, in containers of equal process ids.
  const part = `${path}.${Buffer.from(random.bytes(6)).toString('hex')}.part`
  try {
    const file = await open(part, 'wx', 0o600)
    try {
      for (const piece of pieces) await file.writeFile(piece)
      await file.sync()
    } finally {
      await file.close()
    }
    if (isWanted()) await rename(part, path)
    else await rm(part, { force: true })
  } catch (error) {
    await rm(part, { force: true })
    throw error
  }
}

/** Bounded file: the text of a file that another program may write, replace or get wrong at any time. */

import { constants } from 'node:fs'
import { open } from 'node:fs/promises'

/** Rejects with why it cannot be read: the system's reason, no regular file, or more than `bytesMax`. */
export async function readBoundedFile(path: string, bytesMax: number): Promise<string> {
  // Not blocking: opening a FIFO without a writer would hang.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stat = await file.stat()
    if (!stat.isFile()) throw new Error('it is not a regular file')
    if (stat.size > bytesMax) throw new Error(`it has ${stat.size} bytes; the most is ${bytesMax}`)
    return await file.readFile('utf8')
  } finally {
    await file.close()
  }
}

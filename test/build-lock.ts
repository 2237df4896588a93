/**
 * One build of a tree at a time: each replaces every dist/ and then packs it, and tests build side by side.
 */

import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'

const LOOK_MS = 100
/** More than what another may do meanwhile: a build, or an environment of Python and its packages. */
const WAIT_MS_MAX = 600_000

/** Runs `work` while no other process has `folder`, as `takeLock` does. */
export function withLock<T>(folder: string, work: () => T): T {
  const release = takeLock(folder)
  try {
    return work()
  } finally {
    release()
  }
}

/**
 * Waits until no other process has `folder`, and takes it; what it returns gives it up. A lock whose process
 * has ended is taken over. Throws after WAIT_MS_MAX.
 */
export function takeLock(folder: string): () => void {
  const owner = join(folder, 'pid')
  mkdirSync(dirname(folder), { recursive: true })
  const endsAt = performance.now() + WAIT_MS_MAX
  while (!tryLock(folder, owner)) {
    if (performance.now() >= endsAt)
      throw new Error(`waited in vain for ${folder}: remove it if no build runs`)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_MS)
  }
  return () => rmSync(folder, { recursive: true, force: true })
}

function tryLock(folder: string, owner: string): boolean {
  try {
    mkdirSync(folder)
    writeFileSync(owner, String(process.pid))
    return true
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'EEXIST') throw thrown
    if (hasEnded(owner)) rmSync(folder, { recursive: true, force: true })
    return false
  }
}

/** False also while its owner has not written its number yet. */
function hasEnded(owner: string): boolean {
  try {
    process.kill(Number(readFileSync(owner, 'utf8')), 0)
    return false
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'ESRCH'
  }
}

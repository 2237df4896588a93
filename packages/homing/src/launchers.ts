/**
 * Launchers: the processes between this one and the user who typed the command: npx, pnpm, and the shells
 * that they start.
 *
 *   npm exec ── sh ── pnpm ── sh ── node's shim (sh) ── this process
 *
 * Killing one of them leaves those below it running, so the direct parent says nothing about the others.
 * Read from /proc; where there is none, only the direct parent is known.
 */

import { readFileSync } from 'node:fs'
import { basename } from 'node:path'

const LAUNCHERS_MAX = 16
const LAUNCHER = /^(npm|npx|pnpm|pnpx|yarn|corepack)(-cli)?(\.[cm]?js)?$/

/**
 * The parents of this process up to the outermost launcher, nearest first; the direct parent where there is
 * none.
 */
export function launcherPids(): readonly number[] {
  const pids: number[] = []
  let kept = 1
  for (let pid = process.ppid; pid > 1 && pids.length < LAUNCHERS_MAX; pid = parentOf(pid) ?? 0) {
    pids.push(pid)
    if (isLauncher(pid)) kept = pids.length
  }
  return pids.slice(0, kept)
}

/**
 * True while the first of `pids` is the parent of this process, and each other one that of the one before it,
 * as far as can be read: a process without a file left to open does not lose its launchers by that.
 */
export function isChainWhole(pids: readonly number[]): boolean {
  return pids.every((pid, i) => {
    const parent = i === 0 ? process.ppid : parentOf(pids[i - 1]!)
    return parent === undefined || parent === pid
  })
}

/** 0 where there is no such process, or no /proc; undefined where it cannot be read. */
function parentOf(pid: number): number | undefined {
  try {
    // The name, in parentheses, may hold anything; behind it stand the state and the parent.
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[1])
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return code === 'ENOENT' || code === 'ESRCH' ? 0 : undefined
  }
}

/**
 * By the program and what stands next to it (a script, behind a shim or an option), not by text inside of an
 * argument: a shell that was told to start npx in the background may end while that goes on.
 */
function isLauncher(pid: number): boolean {
  let command: string
  try {
    command = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return false
  }
  const [program = '', ...rest] = command.split('\0')
  // npm writes a title over its command: 'npm exec homing router'.
  const words = [program.split(' ')[0]!, ...rest.slice(0, 2)]
  return words.some(word => LAUNCHER.test(basename(word)))
}

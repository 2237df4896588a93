/** A Node that is too old for the package, where the machine has one. */

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import process from 'node:process'
import { nodeFault } from '../src/values/node-version.ts'

/** What such a Node says. */
export const TOO_OLD =
  /Error: cannot run @homing\/actor on Node v\d+\.\d+\.\d+: it needs Node 22\.19 or later/

/** The first such Node of the path; undefined when it has none. */
export function oldNode(): string | undefined {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, 'node')
    if (!existsSync(path)) continue
    const { stdout } = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: 60_000 })
    if (nodeFault(stdout.trim()) !== undefined) return path
  }
  return undefined
}

/** A Node that is too old for the package: one of the machine, or the one that npm has as a package. */

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import process from 'node:process'
import { withLock } from '../../../test/build-lock.ts'
import { nodeFault } from '../src/values/node-version.ts'

const CACHE = join(import.meta.dirname, '../../../node_modules/.cache/homing-old-node')
const VERSION = '18.20.8'
const INSTALL_MS_MAX = 150_000

/** For `skip`, where `oldNode` finds none. */
export const NO_OLD_NODE = 'no old Node on this machine, and no registry gives one for it'

/** What such a Node says. */
export const TOO_OLD =
  /Error: cannot run @homing\/actor on Node v\d+\.\d+\.\d+: it needs Node 20\.19 or later/

/** The first such Node of the path, or that of npm; undefined: there is neither. */
export function oldNode(): string | undefined {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, 'node')
    if (!existsSync(path)) continue
    const { stdout } = spawnSync(path, ['--version'], { encoding: 'utf8', timeout: 60_000 })
    if (nodeFault(stdout.trim()) !== undefined) return path
  }
  return withLock(`${CACHE}.lock`, packaged)
}

function packaged(): string | undefined {
  const name = `node-${process.platform}-${process.arch}`
  const path = join(CACHE, 'node_modules', name, 'bin/node')
  if (!existsSync(path)) {
    const words = ['install', '--no-audit', '--no-fund', '--no-save', '--prefix', CACHE, `${name}@${VERSION}`]
    spawnSync('npm', words, { timeout: INSTALL_MS_MAX })
  }
  return existsSync(path) ? path : undefined
}

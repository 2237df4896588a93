/** Build information: the version and, in a git checkout, the commit. */

import { existsSync, readFileSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'

export interface BuildInfo {
  /** As in package.json, which all packages of Homing share. */
  readonly version: string
  /** First 12 digits; undefined where this is no checkout. What was changed since is not seen. */
  readonly commit: string | undefined
}

const COMMIT_DIGITS = 12

export function buildInfo(): BuildInfo {
  // It lies beside src/ and beside dist/ alike.
  const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8')
  const { version } = JSON.parse(text) as { readonly version: string }
  return { version, commit: commitOfCheckout() }
}

/** Read from the files of git, which need not be installed. */
function commitOfCheckout(): string | undefined {
  // Node runs no TypeScript below node_modules: a package that is installed has .js here, and a .git above it
  // is another's.
  if (!import.meta.filename.endsWith('.ts')) return undefined
  const root = resolve(import.meta.dirname, '../../..')
  try {
    const entry = join(root, '.git')
    // In a worktree it is a file that names the folder.
    const folder = statSync(entry).isDirectory()
      ? entry
      : resolve(root, readLine(entry).slice('gitdir: '.length))
    const head = readLine(join(folder, 'HEAD'))
    return (head.startsWith('ref: ') ? commitOfRef(folder, head.slice('ref: '.length)) : head)?.slice(
      0,
      COMMIT_DIGITS,
    )
  } catch {
    return undefined // no checkout, or one of a form that is not known
  }
}

function commitOfRef(folder: string, ref: string): string | undefined {
  const common = join(folder, 'commondir')
  const shared = existsSync(common) ? resolve(folder, readLine(common)) : folder
  const loose = join(shared, ref)
  if (existsSync(loose)) return readLine(loose)
  const packed = readFileSync(join(shared, 'packed-refs'), 'utf8').split('\n')
  return packed.find(line => line.endsWith(` ${ref}`))
}

function readLine(path: string): string {
  return readFileSync(path, 'utf8').trim()
}

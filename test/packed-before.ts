/**
 * Tarballs kept from one `build --pack` to the next: three tests of one run ask for those of the same tree,
 * and each build costs 25 s of CPU.
 *
 * They are kept under a digest of everything that a build reads: paths and bytes of the workspaces without
 * what is installed and built there, the pages, the programs of the build, the lockfile. Another byte in any
 * of these is another digest. One digest is kept.
 */

import { createHash } from 'node:crypto'
import { cpSync, globSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'

const READ = ['*', '.npmrc', 'packages/**/*', 'actors/**/*', 'docs/*', 'test/*']
const NOT_READ = new Set(['node_modules', 'dist', '.tap', 'coverage'])

export class PackedBefore {
  readonly #root: string
  readonly #store: string
  readonly #kept: string

  constructor(root: string) {
    this.#root = root
    this.#store = join(root, 'node_modules', '.cache', 'homing-packed')
    this.#kept = join(this.#store, this.#digest())
  }

  /**
   * Copies the tarballs of this tree into `folder`, if they are kept; undefined: they are not, else their
   * count.
   */
  tryCopy(folder: string): number | undefined {
    const names = tarballsIn(this.#kept)
    if (names.length === 0) return undefined
    mkdirSync(folder, { recursive: true })
    for (const name of names) cpSync(join(this.#kept, name), join(folder, name))
    return names.length
  }

  /** Keeps the tarballs of `folder` with these names, in place of all others. */
  keep(folder: string, names: readonly string[]): void {
    rmSync(this.#store, { recursive: true, force: true })
    const whole = `${this.#kept}-partly`
    mkdirSync(whole, { recursive: true })
    for (const name of names) cpSync(join(folder, name), join(whole, name))
    renameSync(whole, this.#kept)
  }

  #digest(): string {
    const digest = createHash('sha256')
    const files = globSync(READ, {
      cwd: this.#root,
      withFileTypes: true,
      exclude: one => NOT_READ.has(one.name),
    })
      .filter(one => one.isFile())
      .map(one => join(one.parentPath, one.name))
      .toSorted()
    for (const file of files) {
      const bytes = readFileSync(file)
      digest.update(`${file.slice(this.#root.length)}\n${bytes.length}\n`).update(bytes)
    }
    return digest.digest('hex')
  }
}

function tarballsIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw thrown
  }
}

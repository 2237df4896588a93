/**
 * Code version: a hash of the code that computes the result of a cell. A kept result is used only while this
 * code is unchanged.
 *
 * It covers the file that a thread loads to run a cell and everything that this file imports, here and in our
 * other packages, found by following the import lines. A file in a folder `policies/` counts only for the
 * policy of its name. So a change in one policy gives a new version to its columns alone; a change anywhere
 * else gives a new version to all columns.
 *
 * Cost: some hundred small files are read once per process.
 */

import { createHash } from 'node:crypto'
import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { basename, dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * Imports and re-exports as they stand in TypeScript and JavaScript: whether of types alone, the list of
 * names, the specifier.
 */
const IMPORTS = /(?:^|[;\s])(?:import|export)\s(type\s)?([^'"`;]*?\sfrom\s+)?['"]([^'"]+)['"]/g

export interface SourceText {
  /** Real path. */
  readonly path: string
  readonly text: string
}

/**
 * `entry` (a URL) and everything that it imports by relative paths and from our packages, sorted by path. A
 * re-export of an index.ts counts only if its name is imported; types do not count.
 */
export function sourcesBehind(entry: string): readonly SourceText[] {
  const found = new Map<string, string>()
  const open = [realpathSync(fileURLToPath(entry))]
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    if (found.has(path)) continue
    const text = readFileSync(path, 'utf8')
    found.set(path, text)
    for (const { names, specifier } of importsIn(text)) open.push(...targetsOf(specifier, names, path))
  }
  return [...found].map(([path, text]) => ({ path, text })).sort((a, b) => (a.path < b.path ? -1 : 1))
}

/** The version of the code for columns that use `policy`. */
export function codeVersion(sources: readonly SourceText[], policy: string): string {
  const hash = createHash('sha256')
  hash.update(process.versions.v8)
  for (const { path, text } of sources) {
    const isPolicy = basename(dirname(path)) === 'policies'
    if (isPolicy && basename(path, extname(path)) !== policy) continue
    // The texts alone: the same code elsewhere on the disk gives the same results.
    hash.update(createHash('sha256').update(text).digest())
  }
  return hash.digest('hex')
}

interface FoundImport {
  /** As the other file calls them; undefined: everything. */
  readonly names: readonly string[] | undefined
  readonly specifier: string
}

function importsIn(text: string): FoundImport[] {
  return [...text.matchAll(IMPORTS)].flatMap(([, type, clause, specifier]): FoundImport[] => {
    if (type !== undefined) return []
    const list = /\{([^}]*)\}/.exec(clause ?? '')?.[1]
    if (list === undefined) return [{ names: undefined, specifier: specifier! }]
    const items = list.split(',').map(item => item.trim())
    const names = items
      .filter(item => item !== '' && !item.startsWith('type '))
      .map(item => item.split(/\s+as\s+/, 1)[0]!)
    return names.length === 0 ? [] : [{ names, specifier: specifier! }]
  })
}

function targetsOf(specifier: string, names: readonly string[] | undefined, from: string): string[] {
  const path = specifier.startsWith('.')
    ? existingPath(join(dirname(from), specifier))
    : packageEntry(specifier, dirname(from))
  if (path === undefined) return []
  if (!/^index\.[jt]s$/.test(basename(path))) return [path]
  const exported = importsIn(readFileSync(path, 'utf8'))
  const wanted = exported.filter(each => each.names?.some(name => names?.includes(name)) === true)
  const isWhole = names?.every(name => wanted.some(each => each.names?.includes(name))) === true
  return isWhole ? wanted.flatMap(each => targetsOf(each.specifier, each.names, path)) : [path]
}

/**
 * The file of one of our packages, in a checkout with sources; installed code imports ours by relative paths.
 * The search starts at the importing file, because another file may lack the dependency.
 */
function packageEntry(specifier: string, from: string): string | undefined {
  const [, name, subpath = ''] = /^(@homing\/[^/]+)(\/.*)?$/.exec(specifier) ?? []
  if (name === undefined) return undefined
  for (let folder = from; ; folder = dirname(folder)) {
    const home = `${folder}/node_modules/${name}`
    if (existsSync(`${home}/package.json`)) {
      const { exports } = JSON.parse(readFileSync(`${home}/package.json`, 'utf8')) as Manifest
      const entry = exports?.[`.${subpath}`]
      return entry === undefined ? undefined : existingPath(join(home, entry))
    }
    if (dirname(folder) === folder) return undefined
  }
}

function existingPath(path: string): string | undefined {
  return existsSync(path) ? realpathSync(path) : undefined
}

interface Manifest {
  readonly exports?: Readonly<Record<string, string>>
}

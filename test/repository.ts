/**
 * Repository: the files of this repository as the rules read them, each with and without its comments, and
 * what they import.
 */

import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

export interface SourceFile {
  /** Path from the root, with '/'. */
  readonly path: string
  readonly text: string
  /** The text without comments; line numbers are kept. */
  readonly code: string
}

export interface Repository {
  readonly root: string
  /** 'packages/base', 'actors/router', … */
  readonly folders: readonly string[]
  /** TypeScript files of packages, actors, test and bench. */
  readonly files: readonly SourceFile[]
  /** Every package.json, with the path of its folder ('' is the root). */
  readonly manifests: ReadonlyMap<string, Manifest>
}

export interface Manifest {
  readonly name?: string
  readonly version?: string
  readonly description?: string
  readonly private?: boolean
  readonly license?: string
  readonly exports?: Readonly<Record<string, string>>
  readonly scripts?: Readonly<Record<string, string>>
  readonly dependencies?: Readonly<Record<string, string>>
  readonly devDependencies?: Readonly<Record<string, string>>
  readonly publishConfig?: { readonly peerDependencies?: Readonly<Record<string, string>> }
}

const SKIPPED_FOLDERS = new Set(['node_modules', 'dist', '.tap', '.git', 'fixtures', 'coverage'])

/** Reads the repository at `root`. */
export function readRepository(root: string): Repository {
  const folders = ['packages', 'actors'].flatMap(group =>
    readdirSync(join(root, group), { withFileTypes: true })
      .filter(entry => entry.isDirectory() && !SKIPPED_FOLDERS.has(entry.name))
      .map(entry => `${group}/${entry.name}`),
  )
  const files = ['packages', 'actors', 'test', 'bench']
    .flatMap(folder => typescriptFiles(root, folder))
    .map(path => readSource(root, path))
  const manifests = new Map<string, Manifest>()
  for (const folder of ['', ...folders, 'actors', 'test', 'bench', 'docs/site']) {
    const path = join(root, folder, 'package.json')
    if (existsSync(path)) manifests.set(folder, JSON.parse(readFileSync(path, 'utf8')))
  }
  return { root, folders, files, manifests }
}

export function readSource(root: string, path: string): SourceFile {
  const text = readFileSync(join(root, path), 'utf8')
  return { path, text, code: withoutComments(text) }
}

/** Blanks comments, keeping line breaks; strings and regular expressions on the same line are respected. */
export function withoutComments(text: string): string {
  const tokens =
    /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*|\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*(?=\s*[.,);\]\n])/g
  return text.replace(tokens, token =>
    token.startsWith('//') || token.startsWith('/*') ? token.replace(/[^\n]/g, ' ') : token,
  )
}

interface Import {
  readonly specifier: string
  readonly isType: boolean
}

/** Static imports, re-exports and dynamic imports of literal specifiers. */
export function importsOf(code: string): readonly Import[] {
  const found: Import[] = []
  const statements = /^\s*(?:import|export)\s+(type\s+)?(?:[^'"`;]*?\sfrom\s+)?'([^']+)'/gm
  for (const [, type, specifier] of code.matchAll(statements)) {
    found.push({ specifier: specifier!, isType: type !== undefined })
  }
  // `import('x')` as a value and as a type look the same; the latter stands behind ':', '<', '|' or '='.
  for (const [, before, specifier] of code.matchAll(/(\S?)\s*\bimport\('([^']+)'\)/g)) {
    found.push({ specifier: specifier!, isType: [':', '<', '|', '&', '?'].includes(before!) })
  }
  return found
}

export function matchingLines(
  files: readonly SourceFile[],
  read: (file: SourceFile) => string,
  pattern: RegExp,
): readonly { readonly at: string; readonly match: string; readonly line: string }[] {
  return files.flatMap(file =>
    read(file)
      .split('\n')
      .flatMap((line, index) => {
        const match = pattern.exec(line)
        return match === null ? [] : [{ at: `${file.path}:${index + 1}`, match: match[0], line }]
      }),
  )
}

export function sources(files: readonly SourceFile[]): readonly SourceFile[] {
  return files.filter(file => /^(packages|actors)\/[^/]+\/src\//.test(file.path))
}

export function isTest(path: string): boolean {
  return path.endsWith('.test.ts')
}

export function folderOf(path: string): string {
  return /^packages\/[^/]+|^[^/]+/.exec(path)![0]
}

export function packageOf(specifier: string): string | undefined {
  if (specifier.startsWith('.') || specifier.startsWith('node:') || specifier.startsWith('#'))
    return undefined
  const parts = specifier.split('/')
  return specifier.startsWith('@') ? parts.slice(0, 2).join('/') : parts[0]
}

export function markdownFiles(root: string, folder: string): readonly string[] {
  return filesUnder(root, folder, '.md')
}

export function typescriptFiles(root: string, folder: string): readonly string[] {
  return filesUnder(root, folder, '.ts')
}

/** Skips folders that other programs write: a walk through their links would never end. */
function filesUnder(root: string, folder: string, ending: string): readonly string[] {
  return readdirSync(join(root, folder)).flatMap(name => {
    const path = `${folder}/${name}`
    if (SKIPPED_FOLDERS.has(name)) return []
    if (statSync(join(root, path)).isDirectory()) return filesUnder(root, path, ending)
    return name.endsWith(ending) ? [path] : []
  })
}

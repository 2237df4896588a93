/**
 * Bundle: a published package that needs private workspaces takes all workspace code that it needs into its
 * dist/.
 *
 *   packages/x/src/y.ts       →  dist/packages/x/src/y.js, y.d.ts
 *   actors/x/src/y.ts         →  dist/actors/x/src/y.js, y.d.ts
 *   packages/x/browser/…      →  dist/packages/x/browser/…         listed in the manifest's `files`, and read
 *   packages/x/package.json   →  dist/packages/x/package.json      name, version and type
 *   '@homing/x'               →  '../../x/src/index.js'            imports, re-exports, import.meta.resolve
 *
 * The tree keeps its form because threads load actors by the URL of their module, and code finds its files
 * beside it. For the same reason nothing is merged into one file.
 */

import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { sourceFolders, type Workspace } from './workspaces.ts'

/** Folders in `files` that no code reads: build results, and programs to copy. */
const NOT_READ = new Set(['dist', 'examples'])
const SPECIFIERS = /(\bfrom\s*|\bimport\s*\(?\s*|\bimport\.meta\.resolve\(\s*)(['"])(@homing\/[^'"]+)\2/g

/** Fills `dist` from `emitted`, where the compiler put all workspaces. Returns faults, one line each. */
export function writeBundle(
  root: string,
  emitted: string,
  dist: string,
  members: readonly Workspace[],
): readonly string[] {
  for (const member of members) {
    for (const folder of sourceFolders(root, member))
      cpSync(join(emitted, folder), join(dist, folder), { recursive: true })
    const { folder, manifest } = member
    mkdirSync(join(dist, folder), { recursive: true })
    for (const name of (manifest.files ?? []).filter(name => !NOT_READ.has(name)))
      cpSync(join(root, folder, name), join(dist, folder, name), { recursive: true })
    const { name, version } = manifest
    writeFileSync(join(dist, folder, 'package.json'), JSON.stringify({ name, version, type: 'module' }))
  }
  return filesIn(dist)
    .filter(path => /\.(js|d\.ts)$/.test(path))
    .flatMap(path => rewriteSpecifiers(dist, path, members))
}

/** The third-party packages of all members. Two versions of one are a fault. */
export function bundledDependencies(members: readonly Workspace[]): {
  readonly dependencies: Readonly<Record<string, string>>
  readonly faults: readonly string[]
} {
  const names = new Set(members.map(({ manifest }) => manifest.name))
  const dependencies = new Map<string, string>()
  const faults: string[] = []
  for (const { folder, manifest } of members) {
    for (const [name, version] of Object.entries(manifest.dependencies ?? {})) {
      if (names.has(name)) continue
      const other = dependencies.get(name) ?? version
      if (other !== version) faults.push(`${folder}/package.json: ${name} ${version}, elsewhere ${other}`)
      dependencies.set(name, version)
    }
  }
  return { dependencies: Object.fromEntries([...dependencies].sort()), faults }
}

function rewriteSpecifiers(dist: string, path: string, members: readonly Workspace[]): readonly string[] {
  const faults: string[] = []
  const text = readFileSync(join(dist, path), 'utf8')
  const rewritten = text.replace(SPECIFIERS, (all, before: string, quote: string, specifier: string) => {
    const target = targetOf(specifier, members)
    if (target === undefined || !existsSync(join(dist, target))) {
      faults.push(`cannot build ${path}: ${specifier} is not in the bundle`)
      return all
    }
    const steps = relative(dirname(path), target).replaceAll('\\', '/')
    return `${before}${quote}${steps.startsWith('.') ? steps : `./${steps}`}${quote}`
  })
  if (rewritten !== text) writeFileSync(join(dist, path), rewritten)
  return faults
}

/** The file in the bundle that an import of a workspace leads to. */
function targetOf(specifier: string, members: readonly Workspace[]): string | undefined {
  const [, name, subpath = ''] = /^(@[^/]+\/[^/]+)(\/.*)?$/.exec(specifier) ?? []
  const member = members.find(({ manifest }) => manifest.name === name)
  const source = member?.manifest.exports?.[`.${subpath}`]
  return source === undefined ? undefined : join(member!.folder, source.replace(/\.ts$/, '.js'))
}

function filesIn(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
}

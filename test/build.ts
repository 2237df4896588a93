/**
 * `pnpm build [--pack FOLDER]`: JavaScript and declarations of every package that is published, in its dist/.
 *
 *   packages/x/src/y.ts   →  packages/x/dist/y.js, y.d.ts       (relative imports end in .js)
 *   package.json          →  `publishConfig` points exports and bin at dist/ in what `pnpm pack` makes
 *
 * One compiler run emits all packages into a scratch folder; a package's dist/ is replaced only when the whole
 * run had no error. Files that are read at run time lie outside of src/ (fixtures/), one level above the code
 * that reads them both in src/ and in dist/, and are packed as they are.
 *
 * Builds of one tree wait for each other.
 *
 * With `--pack FOLDER` the packages are packed into FOLDER, one .tgz each, as they would be published. A package that stands
 * alone takes its pages along: they are put into its tarball (DOCS), and links that would lead out of it become text.
 */

import { spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import { withLock } from './build-lock.ts'

const ROOT = join(import.meta.dirname, '..')
const SCRATCH = join(ROOT, 'node_modules', '.cache', `homing-build-${process.pid}`)
const LIMIT_MS = 300_000
/** Pages of docs/ that go into the tarball of a package. */
const DOCS: Readonly<Record<string, readonly string[]>> = {
  'packages/actor': ['actors.md', 'actor-runtime.md'],
}

interface Manifest {
  readonly name: string
  readonly version: string
  readonly private?: boolean
  readonly exports: Readonly<Record<string, string>>
  readonly publishConfig?: { readonly exports?: Readonly<Record<string, unknown>> }
}

const { values } = parseArgs({ options: { pack: { type: 'string' } } })
process.exitCode = withLock(join(ROOT, 'node_modules', '.cache', 'homing-build-lock'), () =>
  build(values.pack),
)

function build(packFolder: string | undefined): number {
  const folders = publicFolders()
  const faults = folders.flatMap(manifestFaults)
  if (faults.length > 0) {
    for (const fault of faults) console.error(fault)
    return 1
  }

  rmSync(SCRATCH, { recursive: true, force: true })
  mkdirSync(SCRATCH, { recursive: true })
  const startedAt = performance.now()
  if (!run('tsc', ['-p', writeCompilerOptions(folders)])) return 1
  for (const folder of folders) {
    const dist = join(ROOT, folder, 'dist')
    rmSync(dist, { recursive: true, force: true })
    cpSync(join(SCRATCH, 'out', folder, 'src'), dist, { recursive: true })
    rewriteDeclarations(dist)
  }
  rmSync(SCRATCH, { recursive: true, force: true })
  console.log(`built ${folders.length} packages in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
  return packFolder === undefined || pack(folders, resolve(packFolder)) ? 0 : 1
}

function publicFolders(): readonly string[] {
  return ['packages', 'actors'].flatMap(group =>
    readdirSync(join(ROOT, group))
      .map(name => `${group}/${name}`)
      .filter(folder => existsSync(join(ROOT, folder, 'package.json')))
      .filter(folder => readManifest(folder).private !== true),
  )
}

/** What is published must offer what the workspace offers, built. */
function manifestFaults(folder: string): readonly string[] {
  const { exports, publishConfig } = readManifest(folder)
  return Object.entries(exports).flatMap(([entry, source]) => {
    const built = source.replace(/^\.\/src\/(.*)\.ts$/, './dist/$1')
    const wanted = JSON.stringify({ types: `${built}.d.ts`, default: `${built}.js` })
    const published = JSON.stringify(publishConfig?.exports?.[entry])
    return published === wanted
      ? []
      : [`cannot build ${folder}: publishConfig.exports[${JSON.stringify(entry)}] must be ${wanted}`]
  })
}

function writeCompilerOptions(folders: readonly string[]): string {
  const path = join(SCRATCH, 'tsconfig.json')
  const options = {
    extends: relative(SCRATCH, join(ROOT, 'tsconfig.json')),
    compilerOptions: {
      noEmit: false,
      declaration: true,
      // With the sources in them: what is published has no src/.
      sourceMap: true,
      inlineSources: true,
      rewriteRelativeImportExtensions: true,
      rootDir: ROOT,
      outDir: join(SCRATCH, 'out'),
      typeRoots: [join(ROOT, 'node_modules', '@types')],
    },
    include: folders.map(folder => join(ROOT, folder, 'src')),
  }
  writeFileSync(path, JSON.stringify(options))
  return path
}

/** The compiler rewrites imports in JavaScript only; a declaration that imports './x.ts' needs that file. */
function rewriteDeclarations(dist: string): void {
  for (const name of readdirSync(dist, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.d.ts')) continue
    const path = join(dist, name)
    const text = readFileSync(path, 'utf8')
    writeFileSync(path, text.replace(/(\bfrom |\bimport\()(['"])(\.\.?\/[^'"]+)\.ts\2/g, '$1$2$3.js$2'))
  }
}

function pack(folders: readonly string[], target: string): boolean {
  mkdirSync(target, { recursive: true })
  const filters = folders.flatMap(folder => ['--filter', `./${folder}`])
  const args = [...filters, '--recursive', 'pack', '--pack-destination', target]
  // Run by pnpm, its own program is known; run by hand, npx brings one.
  const pnpm = process.env['npm_execpath']
  const isPacked = pnpm?.includes('pnpm')
    ? run(process.execPath, [pnpm, ...args])
    : run('npx', ['--yes', 'pnpm@10', ...args])
  return isPacked && Object.keys(DOCS).every(folder => addDocs(folder, target))
}

/** Puts pages into a tarball, makes its examples a project, and has no link in it lead outside. */
function addDocs(folder: string, target: string): boolean {
  const { name, version } = readManifest(folder)
  const tarball = join(target, `${name.replace('@', '').replace('/', '-')}-${version}.tgz`)
  mkdirSync(SCRATCH, { recursive: true })
  if (!run('tar', ['-xzf', tarball, '-C', SCRATCH])) return false
  const unpacked = join(SCRATCH, 'package')
  mkdirSync(join(unpacked, 'docs'), { recursive: true })
  for (const page of DOCS[folder]!) cpSync(join(ROOT, 'docs', page), join(unpacked, 'docs', page))
  const pages = readdirSync(unpacked, { recursive: true, encoding: 'utf8' }).filter(path =>
    path.endsWith('.md'),
  )
  for (const page of pages) {
    const text = readFileSync(join(unpacked, page), 'utf8').replaceAll('](../../docs/', '](docs/')
    writeFileSync(join(unpacked, page), withoutLinksOut(text, join(unpacked, dirname(page))))
  }
  // Not its name here: the examples would find another package than the one that they are in.
  renameSync(join(unpacked, 'examples/project.json'), join(unpacked, 'examples/package.json'))
  const isPacked = run('tar', ['-czf', tarball, '-C', SCRATCH, 'package'])
  rmSync(SCRATCH, { recursive: true, force: true })
  return isPacked
}

/** Links to files that are not there become their text. */
function withoutLinksOut(text: string, folder: string): string {
  return text.replace(
    /\[([^\]]+)\]\((?!https?:)([^)#\s]+)(#[^)]*)?\)/g,
    (link, words: string, path: string) => (existsSync(join(folder, path)) ? link : words),
  )
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8')) as Manifest
}

function run(command: string, args: readonly string[]): boolean {
  const local = join(ROOT, 'node_modules', '.bin', command)
  const { status, error, stdout, stderr } = spawnSync(existsSync(local) ? local : command, args, {
    cwd: ROOT,
    timeout: LIMIT_MS,
    encoding: 'utf8',
  })
  if (status === 0) return true
  console.error(`cannot build: ${command} failed${error === undefined ? '' : `: ${error.message}`}`)
  console.error(`${stdout}${stderr}`.trimEnd())
  return false
}

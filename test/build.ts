/**
 * `pnpm build [--pack FOLDER]`: JavaScript and declarations of every package that is published, in its dist/.
 *
 *   packages/x/src/y.ts   →  packages/x/dist/y.js, y.d.ts       (relative imports end in .js)
 *   package.json          →  `publishConfig` points exports and bin at dist/ in what `pnpm pack` makes
 *
 * A package that needs private workspaces has all workspace code that it needs in its dist/ (see bundle.ts),
 * merged into few files (merge-modules.ts), and no package of this repository among its dependencies once it
 * is packed. `homing` is such a package.
 *
 * One compiler run emits all packages into a scratch folder; a package's dist/ is replaced only when the
 * whole run had no error. Files that are read at run time lie outside of src/ (fixtures/), one level above
 * the code that reads them both in src/ and in dist/, and are packed as they are.
 *
 * Builds of one tree wait for each other. One that packs a tree which was packed before, and has not changed
 * in any byte that a build reads, copies those tarballs (packed-before.ts).
 *
 * With `--pack FOLDER` the packages are packed into FOLDER, one .tgz each, as they would be published. A
 * package that stands alone takes its pages along: they are put into its tarball (DOCS), and links that would
 * lead out of it become text.
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
import { takeLock } from './build-lock.ts'
import { bundledDependencies, writeBundle } from './bundle.ts'
import { mergeModules } from './merge-modules.ts'
import { PackedBefore } from './packed-before.ts'
import { readWorkspaces, sourceFolders, type Workspace, withNeeded } from './workspaces.ts'

const ROOT = join(import.meta.dirname, '..')
const SCRATCH = join(ROOT, 'node_modules', '.cache', `homing-build-${process.pid}`)
const LIMIT_MS = 300_000
/** Pages of docs/ that go into the tarball of a package. */
const DOCS: Readonly<Record<string, readonly string[]>> = {
  'packages/actor': ['actors.md', 'actor-runtime.md'],
}

interface Published extends Workspace {
  /**
   * The package first, then the workspaces whose code its dist/ contains too; undefined: only its own code.
   */
  readonly bundle: readonly Workspace[] | undefined
}

const { values } = parseArgs({ options: { pack: { type: 'string' } } })
const releaseLock = takeLock(join(ROOT, 'node_modules', '.cache', 'homing-build-lock'))
try {
  process.exitCode = await build(values.pack)
} finally {
  releaseLock()
}

async function build(packFolder: string | undefined): Promise<number> {
  const packages = publishedPackages()
  const faults = packages.flatMap(manifestFaults)
  if (faults.length > 0) return fail(faults)
  const before = packFolder === undefined ? undefined : new PackedBefore(ROOT)
  const count = before?.tryCopy(resolve(packFolder!))
  if (count !== undefined) {
    console.log(`packed ${count} packages as before: nothing of them has changed`)
    return 0
  }

  rmSync(SCRATCH, { recursive: true, force: true })
  mkdirSync(SCRATCH, { recursive: true })
  const startedAt = performance.now()
  const compiled = new Set(packages.flatMap(one => one.bundle ?? [one]))
  const sources = [...compiled].flatMap(workspace => sourceFolders(ROOT, workspace))
  if (!run('tsc', ['-p', writeCompilerOptions('tsconfig.json', sources, { declaration: true })])) return 1
  // Again without comments: declarations keep theirs for editors, and a thread that runs the code keeps its
  // text in memory, in two bytes a character if one of them is not of Latin 1.
  if (!run('tsc', ['-p', writeCompilerOptions('bare.json', sources, { removeComments: true })])) return 1
  const emitted = join(SCRATCH, 'out')
  rewriteDeclarations(emitted)
  for (const { folder, bundle } of packages) {
    const dist = join(ROOT, folder, 'dist')
    rmSync(dist, { recursive: true, force: true })
    if (bundle === undefined) cpSync(join(emitted, folder, 'src'), dist, { recursive: true })
    else faults.push(...writeBundle(ROOT, emitted, dist, bundle))
  }
  for (const one of packages) {
    if (one.bundle !== undefined && faults.length === 0)
      faults.push(...(await mergeModules(join(ROOT, one.folder, 'dist'), publishedModules(one))))
  }
  rmSync(SCRATCH, { recursive: true, force: true })
  if (faults.length > 0) return fail(faults)
  console.log(`built ${packages.length} packages in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
  if (packFolder === undefined) return 0
  if (!pack(packages, resolve(packFolder))) return 1
  before!.keep(resolve(packFolder), packages.map(tarballOf))
  return 0
}

function fail(faults: readonly string[]): number {
  for (const fault of faults) console.error(fault)
  return 1
}

function publishedPackages(): readonly Published[] {
  const all = readWorkspaces(ROOT)
  return all
    .filter(({ manifest }) => manifest.private !== true)
    .map(workspace => {
      const needed = withNeeded(workspace, all)
      const isBundled = needed.some(({ manifest }) => manifest.private === true)
      return { ...workspace, bundle: isBundled ? needed : undefined }
    })
}

/** The files in dist/ that the published manifest names. */
function publishedModules({ manifest: { publishConfig } }: Published): readonly string[] {
  const { bin = {}, exports = {} } = publishConfig ?? {}
  const named = [...Object.values(bin), ...Object.values(exports).map(({ default: module }) => module)]
  return [...new Set(named.map(path => path.replace('./dist/', '')))]
}

/** The published package must offer the workspace's exports, built. */
function manifestFaults({ folder, manifest, bundle }: Published): readonly string[] {
  const { bin = {}, exports = {}, publishConfig } = manifest
  const home = bundle === undefined ? './dist' : `./dist/${folder}/src`
  const built = (source: string): string => source.replace(/^\.\/src\/(.*)\.ts$/, `${home}/$1`)
  const faultOf = (key: string, published: unknown, wanted: unknown): readonly string[] =>
    JSON.stringify(published) === JSON.stringify(wanted)
      ? []
      : [`cannot build ${folder}: publishConfig.${key} must be ${JSON.stringify(wanted)}`]
  return [
    ...Object.entries(exports).flatMap(([entry, source]) =>
      faultOf(`exports[${JSON.stringify(entry)}]`, publishConfig?.exports?.[entry], {
        types: `${built(source)}.d.ts`,
        default: `${built(source)}.js`,
      }),
    ),
    ...Object.entries(bin).flatMap(([name, source]) =>
      faultOf(`bin.${name}`, publishConfig?.bin?.[name], `${built(source)}.js`),
    ),
    ...bundledDependencies(bundle ?? []).faults,
  ]
}

function writeCompilerOptions(name: string, sources: readonly string[], further: object): string {
  const path = join(SCRATCH, name)
  const options = {
    extends: relative(SCRATCH, join(ROOT, 'tsconfig.json')),
    compilerOptions: {
      noEmit: false,
      // Source maps contain the sources: a published package has no src/.
      sourceMap: true,
      inlineSources: true,
      rewriteRelativeImportExtensions: true,
      rootDir: ROOT,
      outDir: join(SCRATCH, 'out'),
      typeRoots: [join(ROOT, 'node_modules', '@types')],
      ...further,
    },
    include: sources.map(folder => join(ROOT, folder)),
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

function pack(packages: readonly Published[], target: string): boolean {
  mkdirSync(target, { recursive: true })
  const filters = packages.flatMap(({ folder }) => ['--filter', `./${folder}`])
  const args = [...filters, '--recursive', 'pack', '--pack-destination', target]
  // Run by pnpm, its own program is known; run by hand, npx brings one.
  const pnpm = process.env['npm_execpath']
  const isPacked = pnpm?.includes('pnpm')
    ? run(process.execPath, [pnpm, ...args])
    : run('npx', ['--yes', 'pnpm@10', ...args])
  return isPacked && packages.every(one => finish(one, target))
}

function tarballOf({ manifest }: Pick<Published, 'manifest'>): string {
  return `${manifest.name.replace('@', '').replace('/', '-')}-${manifest.version}.tgz`
}

/** Changes in a tarball what `pnpm pack` cannot. */
function finish({ folder, manifest, bundle }: Published, target: string): boolean {
  const pages = DOCS[folder]
  if (pages === undefined && bundle === undefined) return true
  const tarball = join(target, tarballOf({ manifest }))
  mkdirSync(SCRATCH, { recursive: true })
  if (!run('tar', ['-xzf', tarball, '-C', SCRATCH])) return false
  const unpacked = join(SCRATCH, 'package')
  if (pages !== undefined) addDocs(pages, unpacked)
  if (bundle !== undefined) setDependencies(bundle, unpacked)
  const isPacked = run('tar', ['-czf', tarball, '-C', SCRATCH, 'package'])
  rmSync(SCRATCH, { recursive: true, force: true })
  return isPacked
}

/** Adds pages, makes the examples a project, and has no link lead outside. */
function addDocs(names: readonly string[], unpacked: string): void {
  mkdirSync(join(unpacked, 'docs'), { recursive: true })
  for (const name of names) cpSync(join(ROOT, 'docs', name), join(unpacked, 'docs', name))
  const pages = readdirSync(unpacked, { recursive: true, encoding: 'utf8' }).filter(path =>
    path.endsWith('.md'),
  )
  for (const page of pages) {
    const text = readFileSync(join(unpacked, page), 'utf8').replaceAll('](../../docs/', '](docs/')
    writeFileSync(join(unpacked, page), withoutLinksOut(text, join(unpacked, dirname(page))))
  }
  // Not its name here: the examples would find another package than the one that they are in.
  renameSync(join(unpacked, 'examples/project.json'), join(unpacked, 'examples/package.json'))
}

/** dist/ contains the code of the workspaces; only their external dependencies remain to be installed. */
function setDependencies(bundle: readonly Workspace[], unpacked: string): void {
  const path = join(unpacked, 'package.json')
  const { devDependencies: _, ...manifest } = JSON.parse(readFileSync(path, 'utf8')) as Record<
    string,
    unknown
  >
  const { dependencies } = bundledDependencies(bundle)
  // Optional ones; among the manifest's own, pnpm would install them here.
  const { peerDependencies, peerDependenciesMeta } =
    bundle.find(({ manifest: { name } }) => name === manifest['name'])?.manifest.publishConfig ?? {}
  const published = { ...manifest, dependencies, peerDependencies, peerDependenciesMeta }
  writeFileSync(path, `${JSON.stringify(published, undefined, 2)}\n`)
}

/** Links to files that are not there become their text. */
function withoutLinksOut(text: string, folder: string): string {
  return text.replace(
    /\[([^\]]+)\]\((?!https?:)([^)#\s]+)(#[^)]*)?\)/g,
    (link, words: string, path: string) => (existsSync(join(folder, path)) ? link : words),
  )
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

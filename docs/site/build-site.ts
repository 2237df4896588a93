/**
 * `pnpm docs:site`: API pages from docstrings, then the site into docs/site/dist. A link that leads nowhere fails it.
 *
 * `--serve` shows it on http://localhost:4173.
 */

import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { Application, type TypeDocOptions } from 'typedoc'
import { build, serve } from 'vitepress'
import { anchorOf } from './anchor-of.ts'
import { API_PACKAGES, type ApiPackage } from './api-packages.ts'

const SITE = dirname(fileURLToPath(import.meta.url))
const ROOT = resolve(SITE, '../..')
const API = join(SITE, 'api')

/** Files of the repository that pages link to, and that are no pages, go with the site. */
function copyLinked(dist: string): void {
  for (const path of linkedFiles()) {
    const to = join(dist, 'files', path)
    mkdirSync(dirname(to), { recursive: true })
    cpSync(join(ROOT, path), to)
  }
}

/** Paths in the repository. */
function linkedFiles(): string[] {
  const docs = join(ROOT, 'docs')
  const pages = ['.', 'decisions', 'records'].flatMap(folder =>
    readdirSync(join(docs, folder))
      .filter(name => name.endsWith('.md'))
      .map(name => join(docs, folder, name)),
  )
  return pages.flatMap(page =>
    [...readFileSync(page, 'utf8').matchAll(/\]\((?!\w+:)([^)#]+)[^)]*\)/g)]
      .map(([, path]) => resolve(dirname(page), path!))
      .filter(path => existsSync(path) && statSync(path).isFile())
      .filter(path => !path.endsWith('.md') || relative(docs, path).startsWith('..'))
      .map(path => relative(ROOT, path)),
  )
}

async function writeApi({ folder, entryPoints, title }: ApiPackage): Promise<void> {
  const options: TypeDocOptions & Record<string, unknown> = {
    name: title,
    entryPoints: entryPoints.map(path => join(ROOT, path)),
    tsconfig: join(SITE, 'tsconfig.api.json'),
    plugin: ['typedoc-plugin-markdown'],
    readme: 'none',
    out: join(API, folder),
    entryFileName: 'index',
    hidePageHeader: true,
    hideBreadcrumbs: true,
    disableSources: true,
    excludePrivate: true,
    excludeInternal: true,
    skipErrorChecking: true,
    githubPages: false,
    logLevel: 'Error',
    // One page for each package.
    router: 'module',
    validation: false,
  }
  const app = await Application.bootstrapWithPlugins(options)
  const project = await app.convert()
  if (project === undefined) throw new Error(`cannot read the docstrings of ${title}`)
  await app.generateOutputs(project)
  mendAnchors(join(API, folder))
  if (app.logger.hasErrors()) throw new Error(`cannot write the API pages of ${title}`)
}

/** The generator counts a name twice that a package exports from two entry points, and gives its heading once. */
function mendAnchors(folder: string): void {
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.md')) continue
    const path = join(folder, name)
    const text = readFileSync(path, 'utf8')
    const anchors = new Set([...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => anchorOf(heading!)))
    const mended = text.replaceAll(/\]\(#([\w-]+)-1\)/g, (link, anchor: string) =>
      !anchors.has(`${anchor}-1`) && anchors.has(anchor) ? `](#${anchor})` : link,
    )
    writeFileSync(path, mended)
  }
}

process.stderr.write('API pages …\n')
rmSync(API, { recursive: true, force: true })
for (const one of API_PACKAGES) await writeApi(one)
process.stderr.write('site …\n')
await build(SITE)
const dist = join(SITE, 'dist')
copyLinked(dist)
process.stderr.write(`docs/site/dist is ready\n`)
if (process.argv.includes('--serve')) await serve({ root: SITE, port: 4173 })

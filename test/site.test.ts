/** The site of docs/: it is built, has all pages, and each link in it leads somewhere, anchors included. */

import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import process from 'node:process'
import t from 'tap'

const ROOT = resolve(import.meta.dirname, '..')
const DIST = join(ROOT, 'docs/site/dist')
/** Beyond what a busy machine takes: the bound of the file ends what hangs. */
const BUILD_MS_MAX = 900_000

const pages = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.html'))
    .map(name => join(folder, name))

t.test('`pnpm docs:site` builds every page, with a search', { timeout: BUILD_MS_MAX }, async t => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['docs/site/build-site.ts'], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: BUILD_MS_MAX,
  })
  t.equal(status, 0, `${stdout}${stderr}`)
  for (const name of readdirSync(join(ROOT, 'docs')).filter(each => each.endsWith('.md')))
    t.ok(existsSync(join(DIST, name.replace(/\.md$/, '.html'))), name)
  for (const name of [
    'index.html',
    'api/actor/index.html',
    'api/publisher/index.html',
    'files/deploy/compose.yaml',
  ])
    t.ok(existsSync(join(DIST, name)), name)
  const scripts = readdirSync(join(DIST, 'assets/chunks'))
  t.ok(
    scripts.some(name => name.includes('localSearchIndex')),
    'there is a search index',
  )
})

t.test('every link leads to a page or a file, and every anchor to a heading', async t => {
  const anchors = new Map<string, Set<string>>()
  const anchorsOf = (page: string): Set<string> => {
    const known = anchors.get(page)
    if (known !== undefined) return known
    const ids = new Set([...readFileSync(page, 'utf8').matchAll(/ id="([^"]+)"/g)].map(([, id]) => id!))
    anchors.set(page, ids)
    return ids
  }
  let links = 0
  for (const page of pages(DIST)) {
    if (page.includes(join(DIST, 'files'))) continue
    const html = readFileSync(page, 'utf8')
    for (const [, href] of html.matchAll(/<a [^>]*href="([^"]+)"/g)) {
      if (/^[a-z]+:/.test(href!)) continue
      links++
      const [path, anchor] = href!.replaceAll('&amp;', '&').split('#') as [string, string?]
      const where = `${relative(DIST, page)}: ${href}`
      const target =
        path === '' ? page : path.startsWith('/') ? join(DIST, path) : resolve(dirname(page), path)
      const file = [target, `${target}.html`, join(target, 'index.html')].find(
        each => existsSync(each) && statSync(each).isFile(),
      )
      if (file === undefined) t.fail(where)
      else if (anchor !== undefined && anchor !== '' && file.endsWith('.html')) {
        if (!anchorsOf(file).has(decodeURIComponent(anchor))) t.fail(`no such anchor, ${where}`)
      }
    }
  }
  t.ok(links > 1000, `${links} links`)
})

/** The files of the page as a browser gets them. */

import { createHash } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import { PageFiles } from '@homing/page'
import t from 'tap'

const BYTES_MAX = 150_000

const files = await PageFiles.read()
const text = (path: string): string => new TextDecoder().decode(files.get(path)!.bytes)
const html = new TextDecoder().decode(files.html.bytes)
const scripts = files.paths.filter(path => /\.(ts|mjs)$/.test(path))

t.test(`all of it is less than ${BYTES_MAX} bytes, compressed`, async t => {
  const all = [files.html, ...files.paths.map(path => files.get(path)!)]
  const bytes = all.reduce((sum, { gzip }) => sum + gzip.length, 0)
  t.ok(bytes < BYTES_MAX, `${bytes} bytes`)
  t.comment(`${all.length} files, ${bytes} bytes compressed`)
})

t.test('what is compressed is the file itself', async t => {
  for (const path of files.paths) {
    const { bytes, gzip } = files.get(path)!
    t.same(gunzipSync(gzip), Buffer.from(bytes), path)
  }
})

t.test('every import leads to a file of the page or a name of its import map', async t => {
  const map = JSON.parse(/<script type="importmap">(.*)<\/script>/.exec(html)![1]!) as {
    readonly imports: Readonly<Record<string, string>>
  }
  for (const path of Object.values(map.imports)) t.ok(files.get(path.replace('./page/', '')), path)
  for (const path of scripts) {
    for (const [, name] of text(path).matchAll(/(?:^|[\s;}])(?:from|import)\s*["']([^"']+)["']/g)) {
      if (name!.startsWith('./')) t.ok(files.get(name!.slice(2)), `${path} imports ${name}`)
      else t.ok(map.imports[name!], `${path} imports ${name}`)
    }
  }
})

t.test('no file names another host, and none an absolute path', async t => {
  for (const path of [...files.paths, 'page.html']) {
    const content = path === 'page.html' ? html : text(path)
    // Names of XML, which are never requested, and an example to type.
    const urls = [...content.matchAll(/https?:\/\/[\w.]+/g)].map(([url]) => url)
    t.strictSame(
      urls.filter(url => url !== 'http://www.w3.org' && url !== 'http://HOST'),
      [],
      path,
    )
    t.notMatch(content, /(?:src|href)="\//, path)
  }
})

t.test('its policy allows its own origin alone, and the import map by its hash', async t => {
  const map = /<script type="importmap">(.*)<\/script>/.exec(html)![1]!
  const hash = createHash('sha256').update(map).digest('base64')
  t.match(files.policy, `script-src 'self' 'sha256-${hash}'`)
  t.match(files.policy, "default-src 'none'")
  t.match(files.policy, "connect-src 'self'")
  t.notMatch(files.policy, /unsafe|\*|https?:/)
  t.notMatch(html, / style=| on\w+=/)
})

t.test('types are gone, and an etag is that of the text', async t => {
  t.notMatch(text('live.ts'), /interface LiveState|: string/)
  t.match(text('live.ts'), /class Live /)
  const again = await PageFiles.read()
  for (const path of files.paths) t.equal(again.get(path)!.etag, files.get(path)!.etag, path)
  t.equal(new Set(files.paths.map(path => files.get(path)!.etag)).size, files.paths.length)
})

t.test('there is nothing else', async t => {
  for (const path of ['page.html', '../package.json', 'tsconfig.json', '', 'vendor/'])
    t.equal(files.get(path), undefined, path)
})

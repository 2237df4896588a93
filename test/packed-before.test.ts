/** Tarballs are copied for the tree that they were made of, and for no other. */

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { PackedBefore } from './packed-before.ts'

const FILES = [
  'package.json',
  'pnpm-lock.yaml',
  'packages/a/src/a.ts',
  'actors/b/src/deep/b.ts',
  'docs/c.md',
  'test/build.ts',
]

t.test('kept tarballs are those of the same bytes, whatever is installed or built beside them', t => {
  const root = t.testdir()
  const write = (file: string, text: string): void => {
    mkdirSync(join(root, dirname(file)), { recursive: true })
    writeFileSync(join(root, file), text)
  }
  for (const file of FILES) write(file, file)
  write('made/a.tgz', 'tarball')
  t.equal(new PackedBefore(root).tryCopy(join(root, 'out')), undefined, 'nothing is kept')
  rmSync(join(root, 'out'), { recursive: true, force: true })
  new PackedBefore(root).keep(join(root, 'made'), ['a.tgz'])
  write('packages/a/dist/a.js', 'built')
  write('packages/a/node_modules/x/index.js', 'installed')
  t.equal(new PackedBefore(root).tryCopy(join(root, 'out')), 1)
  t.equal(readFileSync(join(root, 'out/a.tgz'), 'utf8'), 'tarball')
  for (const file of FILES) {
    write(file, `${file}, changed`)
    t.equal(new PackedBefore(root).tryCopy(join(root, 'none')), undefined, file)
    write(file, file)
  }
  write('packages/a/src/new.ts', '')
  t.equal(new PackedBefore(root).tryCopy(join(root, 'none')), undefined, 'a new file')
  new PackedBefore(root).keep(join(root, 'made'), ['a.tgz'])
  t.strictSame(readdirSync(join(root, 'node_modules/.cache/homing-packed')).length, 1, 'one digest is kept')
  t.end()
})

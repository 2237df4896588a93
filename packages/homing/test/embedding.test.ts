/** The program of docs/embedding.md does what the page says. */

import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'

const PAGE = new URL('../../../docs/embedding.md', import.meta.url)

t.test('the program of docs/embedding.md prints what stands there, and ends by itself', async t => {
  const page = readFileSync(PAGE, 'utf8')
  const [, program, output] = /```ts\n\/\/ program\.ts\n(.*?)```\n\n```\n(.*?)```/s.exec(page)!
  // Within this package, so that its name is found.
  const fixtures = fileURLToPath(new URL('./fixtures', import.meta.url))
  mkdirSync(fixtures, { recursive: true })
  const folder = mkdtempSync(join(fixtures, 'page-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'program.ts')
  writeFileSync(file, program!)
  const { NODE_OPTIONS: _, ...env } = process.env
  // A variable of the command line that would keep it from starting, if it were read.
  const options = { timeout: 300_000, env: { ...env, HOMING_PORT: 'none' } }
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [file], options)
  t.equal(stdout, output)
  t.equal(stderr, '')
})

t.test('the codes that docs/embedding.md names are those of docs/errors.md', async t => {
  const errors = readFileSync(new URL('errors.md', PAGE), 'utf8')
  const codes = readFileSync(PAGE, 'utf8').match(/HOMING_[A-Z]+_[A-Z_]+/g) ?? []
  t.ok(codes.length >= 3)
  for (const code of codes) t.ok(errors.includes(`\`${code}\``), code)
})

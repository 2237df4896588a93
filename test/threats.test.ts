/**
 * The threats in docs/security.md: every test that a row names exists under this name, and every door of the
 * table of doors has a row, by itself or by its group.
 */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '..')
const page = readFileSync(join(ROOT, 'docs/security.md'), 'utf8')

function section(name: string): readonly string[] {
  const text = page.slice(page.indexOf(`\n## ${name}\n`)).split('\n## ')[1]!
  return text.split('\n').filter(line => /^\| (?!who \||door \|)/.test(line))
}

const cellsOf = (row: string): readonly string[] =>
  row.split(' | ').map(cell => cell.replace(/^\| | \|$/g, ''))
const isHead = (row: string): boolean => row.startsWith('| **')
const threats = section('Threats').filter(row => !isHead(row))

/** What of the tests that these rows name is not there. */
function missingTests(rows: readonly string[]): readonly string[] {
  const missing: string[] = []
  for (const row of rows) {
    const cell = cellsOf(row).at(-1)!
    const files = cell.split(/; (?=`)/)
    for (const file of files) {
      const path = /^`([^`]+)`/.exec(file)?.[1]
      const names = [...file.matchAll(/“([^”]+)”/g)].map(([, name]) => name!)
      if (path === undefined || names.length === 0) missing.push(`no test: ${file}`)
      else if (!existsSync(join(ROOT, path))) missing.push(path)
      else {
        const source = readFileSync(join(ROOT, path), 'utf8')
        for (const name of names)
          if (!["'", '"', '`'].some(quote => source.includes(`test(${quote}${name}${quote}`)))
            missing.push(`${path}: ${name}`)
      }
    }
  }
  return missing
}

/** Doors, by the table of doors, of which no threat says anything. */
function doorsWithoutThreat(rows: readonly string[]): readonly string[] {
  const about = new Set(rows.flatMap(row => cellsOf(row)[2]!.split('; ')))
  const without: string[] = []
  let group = ''
  for (const row of section('Every door')) {
    if (isHead(row)) group = /\*\*([^*]+)\*\*/.exec(row)![1]!
    else
      for (const [door] of cellsOf(row)[0]!.matchAll(/`[^`]+`/g))
        if (!about.has(group) && !about.has(door!)) without.push(`${group}: ${door}`)
  }
  return without
}

t.test('every row has five cells, and names tests that are there', async t => {
  t.ok(threats.length >= 30)
  for (const row of threats) t.equal(cellsOf(row).length, 5, row.slice(0, 80))
  t.strictSame(missingTests(threats), [])
})

t.test('every door has a row, and every row a door', async t => {
  t.strictSame(doorsWithoutThreat(threats), [])
  const groups = section('Every door').filter(isHead).join()
  for (const row of threats)
    for (const door of cellsOf(row)[2]!.split('; '))
      t.ok(groups.includes(`**${door}**`) || door.includes('`'), door)
})

t.test('what is missing is found', async t => {
  const { path, name } = { path: 'test/threats.test.ts', name: 'what is missing is found' }
  const row = (cell: string) => `| a | b | Engines | d | ${cell} |`
  t.strictSame(missingTests([row(`\`${path}\` “${name}”`)]), [])
  t.strictSame(missingTests([row(`\`${path}\` “another”`)]), [`${path}: another`])
  t.strictSame(missingTests([row(`\`test/none.test.ts\` “${name}”`)]), ['test/none.test.ts'])
  t.strictSame(missingTests([row(`\`${path}\``)]), [`no test: \`${path}\``])
  t.ok(doorsWithoutThreat([]).includes('Router, operators: `GET /dump`'))
})

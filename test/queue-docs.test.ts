/**
 * docs/queue.md names what there is: options, headers, refusals; and its measurement says of itself what its
 * figures say.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { routerCommand, type SettingDescriptor } from '@homing/config'
import { apiErrorOf } from '@homing/http'
import t from 'tap'
import { marksOf } from '../bench/page-table.ts'
import { CASES, chunkMs } from '../bench/quality/socket-fairness.ts'

const ROOT = join(import.meta.dirname, '..')
const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const PAGE = textOf('docs/queue.md')
const SETTINGS: readonly SettingDescriptor[] = routerCommand.settings
/** Options of the scripts that the page mentions. */
const OPTIONS_OF_SCRIPTS = ['rounds', 'write', 'smoke']
/** Refusals that clients cannot cause, or that no client is left to read. */
const NOT_TOLD = ['HOMING_QUEUE_DUPLICATE', 'HOMING_QUEUE_CANCELLED']

/** The rows of the only table of a section, without its head, as their cells. */
function rowsOf(heading: string): readonly (readonly string[])[] {
  const [, text] = PAGE.split(`\n## ${heading}\n`)
  if (text === undefined) throw new Error(`docs/queue.md has no section "${heading}"`)
  const lines = text
    .split(/^## /m)[0]!
    .split('\n')
    .filter(line => line.startsWith('|'))
  return lines.slice(2).map(line => line.split('|').slice(1, -1))
}

const quoted = (cell: string): readonly string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!)

t.test('every option on the page is one of the router', async t => {
  const known = new Set(SETTINGS.flatMap(({ name, aliases = [] }) => [name, ...aliases]))
  const named = [...PAGE.matchAll(/(?<![\w-])--([a-z][a-z-]+)/g)].map(([, name]) => name!)
  t.ok(named.length > 20, `${named.length} options are named`)
  const unknown = named.filter(name => !known.has(name) && !OPTIONS_OF_SCRIPTS.includes(name))
  t.strictSame(unknown, [])
})

t.test('every setting of the queue is on the page, and no header that nobody reads', async t => {
  const missing = SETTINGS.filter(({ group }) => group === 'Queue').filter(
    ({ name }) => !PAGE.includes(`--${name}`),
  )
  t.strictSame(
    missing.map(({ name }) => name),
    [],
  )
  const readers = [
    'actors/gateway/src/waiting-hints.ts',
    'actors/gateway/src/request-reader.ts',
    'packages/openai/src/request.ts',
  ].map(textOf)
  const headers = [...PAGE.matchAll(/`(x-[a-z-]+)(?:: true)?`/g)].map(([, name]) => name!)
  t.ok(headers.length > 5, `${headers.length} headers are named`)
  t.strictSame(
    headers.filter(name => !readers.some(text => text.includes(`'${name}'`))),
    [],
  )
})

t.test('the table of refusals has the codes that clients get', async t => {
  const declared = [...textOf('actors/queue/src/errors.ts').matchAll(/\bcode = '(HOMING_\w+)'/g)]
  const codes = declared.map(([, code]) => code!).filter(code => !NOT_TOLD.includes(code))
  const told = [...codes, 'HOMING_ROUTER_ALL_BUSY'].map(
    code => apiErrorOf({ code, message: '', details: {} }).code,
  )
  t.strictSame(
    rowsOf('When a request is refused')
      .flatMap(([code]) => quoted(code!))
      .sort(),
    told.sort(),
  )
})

t.test('the table of busy thresholds has every one that can be set, by both its names', async t => {
  const settings = SETTINGS.filter(({ name }) => /^active-.*-threshold(-frac)?$/.test(name))
  t.strictSame(
    rowsOf('Busy thresholds').map(([names]) => quoted(names!)),
    settings.map(({ name }) => [`--${name}`, name.replaceAll('-', '_')]),
  )
})

t.test('the chat beside a flood: ratios, bound and verdicts are those of its own figures', async t => {
  const { begin, end } = marksOf('fairness')
  t.ok(PAGE.indexOf(begin) >= 0 && PAGE.indexOf(begin) < PAGE.indexOf(end))
  const rows = rowsOf('A chat beside a flood')
  t.equal(rows.length, CASES.length)
  const p99 = rows.map(row => Number.parseFloat(row[2]!))
  const bound = 1.2 * p99[0]! + chunkMs(60_000)
  for (const [i, row] of rows.entries()) {
    const [label, , , , ratio, verdict] = row
    // The page rounds the times to whole milliseconds.
    const expected = p99[i]! / p99[0]!
    t.ok(Math.abs(Number(ratio) - expected) <= 0.05 + 0.02 * expected, `${label}: ${ratio} is ${expected}`)
    if (i === 0) continue
    const [, says, isKept] = /≤ (\d+) ms: (yes|\*\*no\*\*)/.exec(verdict!) ?? []
    t.ok(Math.abs(Number(says) - bound) <= 2, `${label}: ${says} ms is ${bound}`)
    t.equal(isKept, p99[i]! <= bound ? 'yes' : '**no**', label!)
  }
  t.match(rows[2]![5]!, /yes/, 'with the queue the bound is kept')
})

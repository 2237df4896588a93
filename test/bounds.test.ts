/**
 * The table of bounds in docs/sizing.md: what it names is in the sources with that value, and every setting
 * that is a limit has a row.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { indexerCommand, routerCommand, selectCommand, sidecarCommand, slotsCommand } from '@homing/config'
import t from 'tap'

const ROOT = join(import.meta.dirname, '..')
const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

const page = read('docs/sizing.md')
const section = page.slice(page.indexOf('## Bounds')).split('\n## ')[0]!
const rows = section
  .split('\n')
  .filter(line => line.startsWith('| ') && !/^\| (what|\*\*)/.test(line))
  .map(line => line.split('|').slice(1, -1))

interface Setting {
  readonly key: string
  readonly name: string
  readonly kind: string
  readonly default?: unknown
}

const COMMANDS: ReadonlyMap<string, readonly Setting[]> = new Map(
  [routerCommand, sidecarCommand, indexerCommand, slotsCommand, selectCommand].map(({ name, settings }) => [
    name,
    Object.values(settings),
  ]),
)

const UNITS = new Map([
  ['', 1],
  ['KiB', 2 ** 10],
  ['MiB', 2 ** 20],
  ['GiB', 2 ** 30],
  ['s', 1000],
  ['ms', 1],
])
const VALUE = '(\\d[\\d,]*(?:\\.\\d+)?)(?: (KiB|MiB|GiB|ms|s)\\b)?'

function numberOf(digits: string, unit = ''): number {
  return Number(digits.replaceAll(',', '')) * UNITS.get(unit)!
}

t.test('every row has six columns', async t => {
  t.ok(rows.length > 50)
  t.strictSame(
    rows.filter(row => row.length !== 6).map(row => row[0]),
    [],
  )
})

t.test('each setting has the default that the table names, and each limit a row', async t => {
  const named = new Set<string>()
  for (const row of rows) {
    for (const [, command = 'router', name, digits, unit] of row[3]!.matchAll(
      new RegExp(`(?:(sidecar|indexer|slots|select) )?\`--([a-z-]+)\` ${VALUE}`, 'g'),
    )) {
      const setting = COMMANDS.get(command)?.find(other => other.name === name)
      t.equal(setting?.default, numberOf(digits!, unit), `${command} --${name}`)
      named.add(`${command} --${name}`)
    }
  }
  for (const [command, settings] of COMMANDS) {
    for (const { key, name, kind } of settings) {
      if (kind !== 'integer' && kind !== 'size') continue
      if (/(^|-)max(-|$)/.test(name) || key.endsWith('Max')) {
        t.ok(named.has(`${command} --${name}`), `${command} --${name} has a row in docs/sizing.md`)
      }
    }
  }
})

t.test('each constant has the value that the table names', async t => {
  let count = 0
  for (const row of rows) {
    const cells = row.join(' | ')
    for (const [, name, digits, unit, path] of cells.matchAll(
      new RegExp(`\`(\\w+)\` ${VALUE} \\(\`([^\`]+)\`\\)`, 'g'),
    )) {
      const [, written] =
        new RegExp(`\\b${name}(?:: \\w+)?\\s*[=:]\\s*(\\d[\\d_ *<.]*)`).exec(read(path!)) ?? []
      t.equal(product(written ?? ''), numberOf(digits!, unit), `${name} of ${path}`)
      count++
    }
  }
  t.ok(count > 25)
})

t.test('each metric that the table names is documented', async t => {
  const metrics = read('docs/metrics.md')
  for (const row of rows) {
    for (const [name] of (row[4] ?? '').matchAll(/homing_\w+/g)) t.ok(metrics.includes(name), name)
  }
})

/** '64 * 2 ** 20', '1 << 17' and '16_384' as numbers. */
function product(written: string): number {
  const [base, shift] = written.replaceAll('_', '').split('<<')
  const factors = base!.replaceAll('**', '^').split('*')
  let value = 1
  for (const factor of factors) {
    const [of, power = '1'] = factor.split('^')
    value *= Number(of) ** Number(power)
  }
  return shift === undefined ? value : value * 2 ** Number(shift)
}

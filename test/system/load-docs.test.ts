/** docs/load.md, typed as printed; and its options are those that there are. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { loadCommand, routerCommand, type SettingDescriptor } from '@homing/config'
import t from 'tap'
import { hasCurl, runTypedPage } from './typed-page.ts'

const PAGE = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'load.md'), 'utf8')
/** Of engines, routers and scripts. */
const OTHERS = ['port', 'events-port', 'replay-port', 'enable-prompt-tokens-details']
const skip = hasCurl ? false : 'curl is not installed'

t.test('every command of docs/load.md does what the page says', { skip }, async t => {
  // Most of the time of a load is that of engines, and no figure of theirs is looked at.
  process.env['HOMING_ENGINE_SPEED'] = '5'
  t.teardown(() => delete process.env['HOMING_ENGINE_SPEED'])
  await runTypedPage(t, {
    page: 'load.md',
    ports: /\b(800[0-3]|8100|555[7-9]|655[7-9])\b/g,
    stepsMin: 10,
    isQuestion: command => command.startsWith('curl '),
    folder: t.testdir({}),
  })
})

t.test('every option on the page exists', async t => {
  const settings: readonly SettingDescriptor[] = [...loadCommand.settings, ...routerCommand.settings]
  const known = new Set([...settings.flatMap(({ name, aliases = [] }) => [name, ...aliases]), ...OTHERS])
  const named = [...PAGE.matchAll(/(?<![\w-])--([a-z][a-z-]+)/g)].map(([, name]) => name!)
  t.ok(named.length > 40, `${named.length} options are named`)
  t.strictSame(
    named.filter(name => !known.has(name) && name !== 'yes'),
    [],
  )
})

t.test('other names of options on the page are those that are taken', async t => {
  const rows = PAGE.split('\n## Names in other tools\n')[1]!
    .split('\n')
    .filter(line => line.startsWith('| `--'))
  const settings: readonly SettingDescriptor[] = loadCommand.settings
  for (const row of rows) {
    const [, own = '', taken = ''] = row.split('|')
    const namesIn = (cell: string): readonly string[] =>
      [...cell.matchAll(/`--([a-z-]+)`/g)].map(([, name]) => name!)
    const aliases = namesIn(own).flatMap(name => settings.find(each => each.name === name)?.aliases ?? [])
    t.strictSame(
      namesIn(taken).filter(name => !aliases.includes(name)),
      [],
      row,
    )
  }
})

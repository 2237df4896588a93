/**
 * The table of doors in docs/security.md: every route, subject, and setting by which something comes in has
 * a row, and every test that a row names exists.
 */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OPERATOR_ROUTES } from '@homing/actors/console'
import {
  doctorCommand,
  indexerCommand,
  loadCommand,
  routerCommand,
  selectCommand,
  sidecarCommand,
  simulateCommand,
  slotsCommand,
} from '@homing/config'
import t from 'tap'
import { OWN_ROUTES } from '../actors/gateway/src/own-routes.ts'
import { SERVICE_ROUTES } from '../actors/index-service/src/service-routes.ts'
import { SELECT_ROUTES } from '../actors/select-service/src/select-routes.ts'
import { SLOT_ROUTES } from '../actors/slot-service/src/slot-routes.ts'

const ROOT = join(import.meta.dirname, '..')
const page = readFileSync(join(ROOT, 'docs/security.md'), 'utf8')
const section = page.slice(page.indexOf('## Every door')).split('\n## ')[0]!

/** Settings that name a file, a socket, a server, a host, a key or a program. */
const DOOR_NAME = /^(host|port|nats|workers?|events|peers|tokenizer|chat-template|trace|profile|config)$/
const DOOR_END =
  /-(file|dir|port|endpoint|peer|group|namespace|name|prefix|module|config|log|origin|route|cert|key)$/
/** They name a part of something that has a row, or go to the outside only. */
const NO_DOORS = new Set([
  'router-mode',
  'nats-subject',
  'routing-group',
  'metrics-dynamo-names',
  'model-name',
])

function doorsIn(text: string): ReadonlySet<string> {
  const names = new Set<string>()
  for (const line of text.split('\n').filter(row => row.startsWith('| ')))
    for (const [, name] of line.split('|')[1]!.matchAll(/`([^`]+)`/g)) names.add(name!)
  return names
}

/** Doors of the product without a row in this section. */
function missingIn(text: string): readonly string[] {
  const known = doorsIn(text)
  const routes = [...OWN_ROUTES, ...OPERATOR_ROUTES].map(({ method, path }) => `${method} ${path}`)
  const ofIndexer = SERVICE_ROUTES.map(({ method, path }) => `indexer ${method} ${path}`)
  const ofSlots = SLOT_ROUTES.map(({ method, path }) => `slots ${method} ${path}`)
  const ofSelect = SELECT_ROUTES.map(({ method, path }) => `select ${method} ${path}`)
  const subjects = ['homing.kv.*', 'homing.workers.*', 'homing.requests.*', 'homing.replicas.*']
  const settings = [
    doctorCommand,
    indexerCommand,
    loadCommand,
    routerCommand,
    selectCommand,
    sidecarCommand,
    simulateCommand,
    slotsCommand,
  ]
    .flatMap(command => Object.values(command.settings) as readonly { readonly name: string }[])
    .map(({ name }) => name)
    .filter(name => (DOOR_NAME.test(name) || DOOR_END.test(name)) && !NO_DOORS.has(name))
    .map(name => `--${name}`)
  return [...new Set([...routes, ...ofIndexer, ...ofSlots, ...ofSelect, ...subjects, ...settings])].filter(
    door => !known.has(door),
  )
}

t.test('every door has a row', async t => {
  t.strictSame(missingIn(section), [])
})

t.test('a door without a row is found', async t => {
  t.strictSame(missingIn(section.replaceAll('`GET /dump`', '')), ['GET /dump'])
  t.strictSame(missingIn(section.replaceAll('`--workers-file`', '')), ['--workers-file'])
  t.strictSame(missingIn(section.replaceAll('`homing.kv.*`', '')), ['homing.kv.*'])
})

t.test('every test that a row names is there, and every row names one', async t => {
  for (const line of section
    .split('\n')
    .filter(row => row.startsWith('| ') && !/^\| (door|\*\*)/.test(row))) {
    const tests = [...line.split('|')[5]!.matchAll(/`([^`]+)`/g)].map(([, path]) => path!)
    t.ok(tests.length > 0, line.slice(0, 80))
    for (const path of tests) t.ok(existsSync(join(ROOT, path)), path)
  }
})

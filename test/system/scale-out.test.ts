/**
 * docs/scale-out.md, typed as printed, and that deploy/compose.yaml is a Compose file that starts what the
 * page does.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSettings, routerCommand } from '@homing/config'
import { subjectOf } from '@homing/fleet'
import { NO_NATS_SERVER } from '@homing/transport/testing'
import { Ajv } from 'ajv'
import t from 'tap'
import { parse } from 'yaml'
import { engineCommand } from '../../packages/homing/src/engine-command.ts'
import { hasCurl, runTypedPage } from './typed-page.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const skip = NO_NATS_SERVER !== false ? NO_NATS_SERVER : hasCurl ? false : 'curl is not installed'

t.test('every command of docs/scale-out.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'scale-out.md',
    ports: /(?<!\d)(80[01][0-2]|4222)(?!\d)/g,
    stepsMin: 13,
    isQuestion: command => !/^pkill|completions/.test(command),
  })
})

interface Service {
  readonly build?: { readonly context: string; readonly dockerfile: string }
  readonly entrypoint?: readonly string[]
  readonly command?: readonly string[]
  readonly depends_on?: readonly string[]
  readonly ports?: readonly string[]
  readonly configs?: readonly { readonly source: string }[]
}

interface ComposeFile {
  readonly services: Readonly<Record<string, Service>>
  readonly configs: Readonly<Record<string, { readonly content: string }>>
}

const compose = parse(readFileSync(join(ROOT, 'deploy/compose.yaml'), 'utf8'), { merge: true }) as ComposeFile
const { services, configs } = compose

/** What of a document is not as the Compose specification wants it; empty: nothing. */
function faultsOf(document: object): readonly unknown[] {
  const { $schema: _, ...schema } = JSON.parse(
    readFileSync(join(import.meta.dirname, 'compose-spec/compose-spec.json'), 'utf8'),
  )
  const validate = new Ajv({ strict: false, validateFormats: false }).compile(schema)
  return validate(document) ? [] : validate.errors!
}

t.test('deploy/compose.yaml is a Compose file', async t => {
  t.strictSame(faultsOf(compose), [])
  const engine = services['engine-1']!
  for (const wrong of [
    { ...compose, service: {} },
    { ...compose, services: { ...services, 'engine-1': { ...engine, comand: [] } } },
    { ...compose, services: { ...services, 'engine-1': { ...engine, depends_on: [7] } } },
    { ...compose, configs: { haproxy: { contents: '' } } },
  ])
    t.ok(faultsOf(wrong).length > 0, 'another is none')
  for (const [name, service] of Object.entries(services)) {
    for (const other of service.depends_on ?? []) t.ok(other in services, `${name} depends on ${other}`)
    for (const { source } of service.configs ?? []) t.ok(source in configs, source)
  }
})

/** Options that a command names, sorted. */
function optionsOf(argv: readonly string[]): readonly string[] {
  return argv
    .filter(word => word.startsWith('--'))
    .map(word => word.replace(/=.*/, ''))
    .sort()
}

/** As the page first types it with a port. */
function pageOptions(command: string): readonly string[] {
  const page = readFileSync(join(ROOT, 'docs/scale-out.md'), 'utf8')
  const line = page.split('\n').find(text => text.startsWith(`homing ${command} --port `))
  return optionsOf(line!.split(' '))
}

t.test('its commands are those of the page, as the image and the settings want them', async t => {
  t.strictSame(Object.keys(services), ['nats', 'engine-1', 'engine-2', 'router-1', 'router-2', 'balancer'])
  const containerfile = readFileSync(join(ROOT, 'Containerfile'), 'utf8')
  const entrypoint = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(containerfile)![1]!) as string[]
  const portOfHealth = /fetch\('http:\/\/127\.0\.0\.1:(\d+)\/health'\)/.exec(containerfile)![1]
  /** Options of a service's process. */
  const argvOf = (name: string, command: string): readonly string[] => {
    const service = services[name]!
    t.equal(service.build?.dockerfile, 'Containerfile', name)
    const [node, main, first, ...argv] = [...(service.entrypoint ?? entrypoint), ...service.command!]
    t.strictSame([node, main, first], [...entrypoint.slice(0, 2), command], name)
    return argv
  }
  const subjects: string[] = []
  for (const name of ['engine-1', 'engine-2']) {
    const argv = argvOf(name, 'engine')
    const { settings, warnings } = parseSettings(engineCommand, argv, {})
    t.strictSame(warnings, [])
    t.strictSame(
      optionsOf(argv).filter(option => !['--host', '--nats-subject'].includes(option)),
      pageOptions('engine'),
    )
    t.match(settings, { host: '0.0.0.0', nats: ['nats:4222'], port: Number(portOfHealth) })
    subjects.push(settings.natsSubject)
  }
  for (const name of ['router-1', 'router-2']) {
    const argv = argvOf(name, 'router')
    const { settings, warnings } = parseSettings(routerCommand, argv, {})
    t.strictSame(warnings, [])
    t.strictSame(
      optionsOf(argv).filter(option => option !== '--host'),
      pageOptions('router'),
    )
    t.match(settings, { host: '0.0.0.0', eventPlane: 'nats', replicaSync: true, port: Number(portOfHealth) })
    for (const worker of settings.workers) t.ok(new URL(worker).hostname in services, worker)
    t.strictSame(
      settings.workers.map(worker => subjectOf(new URL(worker).host)),
      subjects,
      'it hears engines where they publish',
    )
    t.match(configs['haproxy']!.content, `server ${name} ${name}:${settings.port} check`)
  }
})

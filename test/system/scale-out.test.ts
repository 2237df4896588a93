/** docs/scale-out.md, typed as printed, and that deploy/compose.yaml starts what the page does. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseSettings, routerCommand } from '@homing/config'
import { NO_NATS_SERVER } from '@homing/transport/testing'
import t from 'tap'
import { parse } from 'yaml'
import { hasCurl, runTypedPage } from './typed-page.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const skip = NO_NATS_SERVER !== false ? NO_NATS_SERVER : hasCurl ? false : 'curl is not installed'

t.test('every command of docs/scale-out.md does what the page says', { skip }, async t => {
  await runTypedPage(t, {
    page: 'scale-out.md',
    ports: /(?<!\d)(80[01][0-2]|4222)(?!\d)/g,
    stepsMin: 13,
    isQuestion: command => !/^pkill| -d /.test(command),
  })
})

interface Service {
  readonly image?: string
  readonly build?: { readonly context: string; readonly dockerfile: string }
  readonly command?: readonly string[]
  readonly depends_on?: readonly string[]
  readonly ports?: readonly string[]
  readonly restart?: string
  readonly stop_grace_period?: string
  readonly configs?: readonly { readonly source: string; readonly target: string }[]
}

const KNOWN = new Set([
  'image',
  'build',
  'command',
  'depends_on',
  'ports',
  'restart',
  'stop_grace_period',
  'configs',
])

t.test(
  'deploy/compose.yaml has two routers, a broker, two engines and a balancer, with options that are valid',
  async t => {
    const { services, configs } = parse(readFileSync(join(ROOT, 'deploy/compose.yaml'), 'utf8'), {
      merge: true,
    }) as { services: Record<string, Service>; configs: Record<string, { content: string }> }
    t.strictSame(Object.keys(services), ['nats', 'engine-1', 'engine-2', 'router-1', 'router-2', 'balancer'])
    for (const [name, service] of Object.entries(services)) {
      for (const key of Object.keys(service)) t.ok(KNOWN.has(key), `${name}.${key}`)
      t.ok(
        (service.image === undefined) !== (service.build === undefined),
        `${name} has an image or is built`,
      )
      for (const other of service.depends_on ?? []) t.ok(other in services, `${name} depends on ${other}`)
      for (const { source } of service.configs ?? []) t.ok(source in configs, source)
      if (service.build !== undefined) t.ok(readFileSync(join(ROOT, service.build.dockerfile), 'utf8'))
    }
    for (const name of ['router-1', 'router-2']) {
      const [command, ...argv] = services[name]!.command!
      t.equal(command, 'router')
      const { settings, warnings } = parseSettings(routerCommand, argv, {})
      t.strictSame(warnings, [])
      t.match(settings, { eventPlane: 'nats', replicaSync: true, workers: { length: 2 } })
      for (const worker of settings.workers) t.ok(new URL(worker).hostname in services, worker)
      t.match(configs['haproxy']!.content, `server ${name} ${name}:${settings.port} check`)
    }
  },
)

/** A key in the wrong place is repeated by no error: every way to write one, at each door that reads text. */

import { join } from 'node:path'
import { faultOfPeer } from '@homing/actors/index-service'
import {
  type Command,
  indexerCommand,
  parseSettings,
  routerCommand,
  selectCommand,
  sidecarCommand,
  slotsCommand,
} from '@homing/config'
import { parseWorkerSpec, parseWorkersFile } from '@homing/fleet'
import { BadParameterError, queryOf } from '@homing/http'
import { encodeRegistration, readRegistration } from '@homing/publisher'
import t, { type Test } from 'tap'
import { readQuestion } from '../actors/select-service/src/questions.ts'
import { readWorker } from '../actors/select-service/src/requests.ts'
import { faultsOfPeers, faultsOfRanks } from '../packages/homing/src/indexer-workers.ts'
import { faultsOfUrls, faultsOfWorkers } from '../packages/homing/src/worker-specs.ts'
import { MARKER, SECRET_WAYS, TRACE } from './secret-ways.ts'

/** All that was thrown or answered, as text. */
function said(act: () => unknown): string {
  try {
    return JSON.stringify(act() ?? '')
  } catch (thrown) {
    const { message, details, stack } = thrown as Error & { readonly details?: unknown }
    return `${message} ${JSON.stringify(details)} ${stack}`
  }
}

function assertSilent(t: Test, door: string, act: (way: string) => unknown): void {
  for (const way of SECRET_WAYS) {
    const text = said(() => act(way))
    if (TRACE.test(text)) t.fail(`${door} repeats ${way}: ${text.slice(0, 500)}`)
  }
  t.pass(door)
}

const LISTS = ['worker', 'nats', 'peer', 'cors-origin', 'host-name', 'relay-route', 'model-alias'] as const

t.test('there are enough ways, and each has the marker', async t => {
  t.ok(SECRET_WAYS.length >= 20)
  for (const way of SECRET_WAYS) t.match(way, TRACE)
})

t.test('readers of workers, files, peers and registrations', async t => {
  assertSilent(t, 'a worker', way => void parseWorkerSpec(way, 0))
  assertSilent(t, 'workers', way => faultsOfWorkers([way, 'http://127.0.0.1:1', way]))
  assertSilent(t, 'URLs of the doctor', way => faultsOfUrls([way]))
  for (const [form, write] of [
    ['lines', (way: string) => `http://a:1\n${way}\n`],
    ['a list', (way: string) => `- http://a:1\n- ${way}\n`],
    ['a quoted list', (way: string) => `- http://a:1\n- ${JSON.stringify(way)}\n`],
    ['a map', (way: string) => `workers: [http://a:1]\n${way}: 1\n`],
    ['a nested map', (way: string) => `workers:\n  - {url: "http://a:1", key: ${JSON.stringify(way)}}\n`],
    ['broken YAML', (way: string) => `workers: [http://a:1, "${way}\n`],
  ] as const)
    assertSilent(t, `a workers file, ${form}`, way => void parseWorkersFile(write(way), '/etc/workers'))
  assertSilent(t, 'ranks of an indexer', way => [...faultsOfRanks([way]), ...faultsOfRanks([`7=${way}`])])
  assertSilent(t, 'peers', way => [...faultsOfPeers([way]), faultOfPeer(way)])
  assertSilent(t, 'a registration that is sent', way => void encodeRegistration(way))
  assertSilent(t, 'a registration that came', way => {
    const read = readRegistration(Buffer.from(JSON.stringify({ version: 1, url: way })))
    return 'fault' in read ? read : void parseWorkerSpec(read.url, 0)
  })
  assertSilent(t, 'the version of a registration', way =>
    readRegistration(Buffer.from(JSON.stringify({ version: way, url: 'http://a:1' }))),
  )
  assertSilent(t, 'the model type of a registration', way =>
    readRegistration(Buffer.from(JSON.stringify({ version: 1, url: 'http://a:1', model_type: way }))),
  )
  const bytes = (body: object) => Buffer.from(JSON.stringify(body))
  for (const field of ['worker_id', 'lifecycle', 'taints', 'kv_events_endpoints', 'block_size'])
    for (const wrap of [(way: string) => way, (way: string) => [way], (way: string) => ({ [way]: way })])
      assertSilent(
        t,
        `${field} of a worker`,
        way => void readWorker(bytes({ worker_id: 7, [field]: wrap(way) })),
      )
  const sources = (way: string) => ({ kv_events_endpoints: { 0: way }, replay_endpoint: way })
  assertSilent(t, 'sockets of a worker', way => void readWorker(bytes({ worker_id: 7, ...sources(way) })))
  for (const field of [
    'router_config_override',
    'pinned_worker',
    'allowed_worker_ids',
    'token_ids',
    'mm_routing_info',
  ])
    for (const wrap of [(way: string) => way, (way: string) => [way], (way: string) => ({ [way]: way })])
      assertSilent(t, `${field} of a question`, way => {
        readQuestion('select a worker', bytes({ token_ids: [1], [field]: wrap(way) }))
      })
  assertSilent(t, 'a preference of a question', way => {
    const constraints = { preferred_taints: { [way]: way } }
    readQuestion('select a worker', bytes({ token_ids: [1], routing_constraints: constraints }))
  })
  assertSilent(t, 'a query', way => queryOf({ path: '/workers', query: `${way}=1&api_key=${way}` }))
  assertSilent(t, 'a parameter', way => new BadParameterError(way, way, 'use another'))
})

t.test('command lines, variables and configuration files', async t => {
  const folder = t.testdir({})
  const { writeFileSync } = await import('node:fs')
  const file = join(folder, 'homing.yaml')
  for (const command of [
    routerCommand,
    indexerCommand,
    sidecarCommand,
    slotsCommand,
    selectCommand,
  ] as readonly Command[]) {
    const parse = (argv: readonly string[], env: Record<string, string> = {}) => {
      const { warnings } = parseSettings(command, argv, env)
      return warnings
    }
    const names = command.settings.map(({ name }) => name)
    assertSilent(t, `${command.name}: a word`, way => parse([way]))
    assertSilent(t, `${command.name}: an unknown option`, way => parse([`--${way}`]))
    assertSilent(t, `${command.name}: its value`, way => parse([`--api-key=${way}`, '--api-token', way]))
    for (const name of ['port', 'log-level', 'body-timeout', 'max-body-bytes', 'detach', ...LISTS])
      if (names.includes(name)) {
        assertSilent(t, `${command.name} --${name}`, way => parse([`--${name}=${way}`]))
        assertSilent(t, `${command.name} ${name} in a file`, way => {
          writeFileSync(file, `${name}: ${JSON.stringify(way)}\n`)
          return parse(['--config', file])
        })
      }
    for (const [name, form] of [
      ['an unknown name', (way: string) => `${JSON.stringify(way)}: 1\n`],
      ['broken YAML', (way: string) => `port: [${way}\n`],
      ['a text', (way: string) => JSON.stringify(way)],
    ] as const)
      assertSilent(t, `${command.name} file with ${name}`, way => {
        writeFileSync(file, form(way))
        return parse(['--config', file])
      })
    assertSilent(t, `${command.name}: variables`, way =>
      parse([], { HOMING_PORT: way, HOMING_WORKERS: way, HOMING_NATS: way, HOMING_INDEXER_PORT: way }),
    )
    assertSilent(t, `${command.name}: variables of others`, way =>
      parse([], { DYN_HTTP_PORT: way, NATS_SERVER: way, DYN_ROUTER_MODE: way, DYN_REQUEST_PLANE: way }),
    )
  }
  t.match(MARKER, TRACE)
})

/**
 * Board and alerts of deploy/ with the real Prometheus: it scrapes a router under load, and every query has
 * data.
 */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort, NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { BOARD_PATH, ROWS, renderBoard } from '../grafana-board.ts'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { send, startFleet, until } from './fleet.ts'

/** How long an engine is down each time. */
const DOWN_MS = 500
const DEPLOY = join(import.meta.dirname, '../../deploy/prometheus')
const ALERTS = join(DEPLOY, 'alerts.yaml')
const NO_PROMETHEUS =
  spawnSync('promtool', ['--version']).status === 0 && spawnSync('prometheus', ['--version']).status === 0
    ? false
    : 'promtool (Debian: prometheus) is not installed'

t.test('the board is what its panels say (write it with `pnpm run docs`)', async t => {
  t.equal(readFileSync(BOARD_PATH, 'utf8'), renderBoard())
})

t.test('promtool finds nothing in alerts and configuration', { skip: NO_PROMETHEUS }, async t => {
  for (const command of [
    ['check', 'rules', '--lint=all', '--lint-fatal', ALERTS],
    ['check', 'config', join(DEPLOY, 'prometheus.yaml')],
    ['test', 'rules', join(import.meta.dirname, '../alerts.test.yaml')],
  ]) {
    const { status, stdout, stderr } = spawnSync('promtool', command, { encoding: 'utf8' })
    t.equal(status, 0, `promtool ${command.join(' ')}: ${stdout}${stderr}`)
  }
})

t.test('every query of board and alerts has data', { skip: NO_PROMETHEUS || NO_NATS_SERVER }, async t => {
  const nats = await NatsServer.start()
  t.teardown(() => nats.stop())
  const fleet = await startFleet({
    engines: [{}, {}, {}],
    router: [
      '--retries',
      '0',
      '--nats',
      nats.address,
      '--worker-namespace',
      'test',
      '--router-guard-share',
      '0.05',
      // Without it there are no metrics of other routers.
      '--router-replica-sync',
    ],
  })
  t.teardown(() => fleet.stop())
  const prometheus = await startPrometheus(t, new URL(fleet.url).host)
  let isOver = false
  t.teardown(() => {
    isOver = true
  })
  const load = (async () => {
    for (let i = 0; !isOver; i++) {
      await Promise.all([traffic(fleet, 3 * i), traffic(fleet, 3 * i + 1), traffic(fleet, 3 * i + 2)])
    }
  })()
  const wanted = [...boardQueries(), ...alertQueries()]
  const missing = new Set(wanted)
  const [, , failing] = fleet.engines
  const faults = (async () => {
    while (!isOver) {
      await failing!.restart(DOWN_MS)
      await until('the engine is up again, and has requests', async () => {
        const { state, worker_keys } = await fleet.worker(failing!.url)
        return isOver || (state === 'up' && worker_keys[0]!.load.requests > 0) ? true : undefined
      })
    }
  })()
  await until(
    'every query has data',
    async () => {
      for (const query of missing) if (await hasData(prometheus, query)) missing.delete(query)
      return missing.size === 0 ? true : undefined
    },
    { seen: () => [...missing] },
  )
  const rules = (await send(prometheus, '/api/v1/rules')).json as {
    data: { groups: { rules: { health: string; lastError?: string; name: string }[] }[] }
  }
  for (const { health, lastError, name } of rules.data.groups.flatMap(group => group.rules))
    t.equal(health, 'ok', `${name}: ${lastError ?? ''}`)
  t.comment(`${wanted.length} queries`)
  isOver = true
  await load
  await faults
})

async function traffic(fleet: { readonly url: string }, i: number): Promise<void> {
  const control = new AbortController()
  const prompt = `system prompt ${'words '.repeat(60)} conversation ${i % 5} turn ${i}`
  const body = {
    model: i % 17 === 3 ? 'none of ours' : MODEL,
    prompt,
    max_tokens: 8,
    stream: i % 3 !== 0,
    stream_options: i % 3 !== 0 ? { include_usage: true } : undefined,
  }
  // One in ten leaves before its answer.
  if (i % 10 === 5) setTimeout(() => control.abort(), 1)
  await send(fleet.url, '/v1/completions', { body, signal: control.signal }).catch(() => undefined)
}

function boardQueries(): string[] {
  return ROWS.flatMap(({ panels }) => panels)
    .flatMap(({ queries }) => queries)
    .map(({ expr }) => expr.replaceAll('$job', '.*').replaceAll('$__rate_interval', '5s'))
}

/** Without the comparison: what an alert looks at is there, whether or not it fires. */
function alertQueries(): string[] {
  const { groups } = parse(readFileSync(ALERTS, 'utf8')) as { groups: { rules: { expr: string }[] }[] }
  return groups
    .flatMap(({ rules }) => rules)
    .map(({ expr }) => expr.replace(/ (==|<|>) [\d.]+$/, '').replaceAll(/\[\d+m\]/g, '[5s]'))
}

async function hasData(prometheus: string, query: string): Promise<boolean> {
  const answer = await send(prometheus, `/api/v1/query?query=${encodeURIComponent(query)}`)
  const { status, data, error } = answer.json as {
    status: string
    error?: string
    data?: { result: { value: [number, string] }[] }
  }
  if (status !== 'success') throw new Error(`${query}: ${error}`)
  return data!.result.some(({ value }) => value[1] !== 'NaN')
}

/** Answers its URL once it is ready. */
async function startPrometheus(t: Test, target: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'homing-prometheus-'))
  const configuration = readFileSync(join(DEPLOY, 'prometheus.yaml'), 'utf8')
    .replaceAll('15s', '200ms')
    .replace('127.0.0.1:8000', target)
    .replace('[alerts.yaml]', `[${ALERTS}]`)
  writeFileSync(join(folder, 'prometheus.yaml'), configuration)
  const address = `127.0.0.1:${await freePort()}`
  const child: ChildProcess = spawn(
    'prometheus',
    [
      `--config.file=${folder}/prometheus.yaml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=${address}`,
      '--log.level=warn',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  )
  let said = ''
  child.stderr?.on('data', (data: Buffer) => {
    said = (said + data.toString()).slice(-2000)
  })
  t.teardown(async () => {
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
    rmSync(folder, { recursive: true, force: true })
  })
  const url = `http://${address}`
  await until(
    'Prometheus is ready',
    async () => {
      if (child.exitCode !== null) throw new Error(`prometheus ended: ${said}`)
      const answer = await send(url, '/-/ready').catch(() => undefined)
      return answer?.status === 200 ? true : undefined
    },
    { seen: () => said },
  )
  return url
}

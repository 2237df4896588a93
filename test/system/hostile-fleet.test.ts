/**
 * A fleet among strangers: an evil engine, an evil client, an evil web page and an evil peer at the broker
 * attack at once, in an order drawn by a seed, and every request of honest clients is served meanwhile, the
 * memory of the router stays within its budget, and no secret reaches a stranger, a log or a view.
 *
 * HOMING_HOSTILE_SECONDS sets how long (default 6), HOMING_SEED the order, HOMING_HOSTILE_DEEDS a
 * pattern of the deeds to which the strangers keep ('client\\.bomb'). Latencies are told, not asserted.
 */

import { type ChildProcess, fork } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { NatsServer, NO_NATS_SERVER } from '@homing/transport/testing'
import t from 'tap'
import { RouterClient, send, startProcess, type TestProcess, TINY_TOKENIZER } from './fleet.ts'
import type { Attack, Findings, Task } from './hostile/strangers.ts'

const SECONDS = Number(process.env['HOMING_HOSTILE_SECONDS'] ?? 6)
const DEEDS = process.env['HOMING_HOSTILE_DEEDS']
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const MODEL = 'homing-sim'
const EVERY_MS = 50
const COLD_SECONDS = Math.min(5, SECONDS / 4)
const SECRET_VARIABLE = 'HOSTILE_TEST_SECRET'
/** What the router may grow by under attack: the sum of the bounds in docs/sizing.md for these settings. */
const GROWTH_MB_MAX = 600

interface Tally {
  readonly sent: number
  readonly failures: readonly string[]
  readonly latenciesMs: readonly number[]
}

/**
 * Honest clients of two tenants, an open loop: a conversation each, which grows. Latencies are those after
 * `coldSeconds`: before, what serves is compiled.
 */
async function honest(url: string, seconds: number, coldSeconds = 0): Promise<Tally> {
  const failures: string[] = []
  const latenciesMs: number[] = []
  const open: Promise<void>[] = []
  const startMs = performance.now()
  const texts = Array.from({ length: 8 }, (_, i) => `conversation ${i} `.repeat(10))
  const one = async (i: number): Promise<void> => {
    const at = i % texts.length
    texts[at] = texts[at]!.length > 20_000 ? `conversation ${at} ` : `${texts[at]} and turn ${i}`
    const body = { model: MODEL, prompt: texts[at], max_tokens: 4, stream: i % 3 === 0 }
    const headers = { 'x-homing-tenant': i % 2 === 0 ? 'chat' : 'batch' }
    const fromMs = performance.now()
    try {
      const answer = await send(url, '/v1/completions', { body, headers })
      const isWhole = body.stream
        ? answer.text.endsWith('data: [DONE]\n\n')
        : answer.text.includes('"choices"')
      if (answer.status !== 200 || !isWhole) failures.push(`${answer.status} ${answer.text.slice(0, 300)}`)
      else if (fromMs - startMs >= coldSeconds * 1000) latenciesMs.push(performance.now() - fromMs)
    } catch (error) {
      failures.push((error as Error).message)
    }
  }
  let sent = 0
  await new Promise<void>(resolve => {
    const timer = setInterval(() => {
      if (performance.now() - startMs > seconds * 1000) {
        clearInterval(timer)
        return resolve()
      }
      open.push(one(sent++))
    }, EVERY_MS)
  })
  await Promise.all(open)
  return { sent, failures, latenciesMs }
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}

function memoryMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
}

async function word<T>(child: ChildProcess): Promise<T> {
  return (await once(child, 'message'))[0] as T
}

const skip = NO_NATS_SERVER || (process.platform === 'linux' ? false : 'memory is read from /proc')

t.test('strangers of all kinds at once', { skip }, async t => {
  t.comment(`seed ${SEED}, ${SECONDS} s`)
  const folder = mkdtempSync(join(tmpdir(), 'homing-hostile-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const secret = (name: string): { readonly text: string; readonly path: string } => {
    const text = `${name}-${randomBytes(12).toString('hex')}`
    const path = join(folder, name)
    writeFileSync(path, text)
    return { text, path }
  }
  const adminKey = secret('admin')
  const engineKey = secret('engine')
  const other = secret('other')
  const login = secret('login')
  writeFileSync(login.path, `router:${login.text}`)
  const variable = `variable-${randomBytes(12).toString('hex')}`
  process.env[SECRET_VARIABLE] = variable
  t.teardown(() => delete process.env[SECRET_VARIABLE])
  const secrets = [adminKey.text, engineKey.text, other.text, login.text, variable]

  const nats = await NatsServer.start({
    configuration: [
      'authorization {',
      `  users: [{user: router, password: "${login.text}"}, {user: peer, password: "peer"}]`,
      '}',
    ],
  })
  t.teardown(() => nats.stop())
  const engines = await Promise.all(
    [0, 1].map(() =>
      startProcess('engine', [
        ...['--port', '0', '--events-port', '0', '--replay-port', '0', '--speed', '0'],
        ...['--api-key-file', engineKey.path, '--tokenizer', TINY_TOKENIZER],
      ]),
    ),
  )
  const strangers = fork(fileURLToPath(new URL('hostile/strangers.ts', import.meta.url)), {
    stdio: 'inherit',
  })
  t.teardown(() => strangers.kill('SIGKILL'))
  t.teardown(() => {
    for (const engine of engines) engine.kill('SIGKILL')
  })
  const task: Task = { seed: SEED, honestModel: MODEL, evilModel: 'evil', deeds: DEEDS }
  strangers.send(task)
  const evil = await word<{ readonly url: string }>(strangers)
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'info'],
    ...engines.flatMap(({ url }) => ['--worker', `${url}?key_file=${engineKey.path}`]),
    ...['--worker', evil.url, '--tokenizer', TINY_TOKENIZER],
    ...['--nats', nats.address, '--nats-credentials-file', login.path],
    ...['--worker-namespace', 'fleet', '--router-replica-sync', '--router-replica-group', 'fleet'],
    ...[
      '--admin-key-file',
      adminKey.path,
      '--router-tenant-weight',
      'chat=1',
      '--router-tenant-weight',
      'batch=1',
    ],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  const client = new RouterClient(router.url)
  await serving(router, engines)
  await honest(router.url, 1)

  const quiet = await honest(router.url, SECONDS / 2)
  const quietMb = memoryMb(router.pid)
  const { hostname: host, port } = new URL(router.url)
  const attack: Attack = {
    router: { host, port: Number(port) },
    broker: nats.address,
    login: { user: 'peer', pass: 'peer' },
    namespace: 'fleet',
    group: 'fleet',
    secretFile: other.path,
    secretVariable: SECRET_VARIABLE,
    honestWorker: new URL(engines[0]!.url).host,
    everyMs: 40,
  }
  strangers.send(attack)
  let peakMb = quietMb
  const watch = setInterval(() => {
    peakMb = Math.max(peakMb, memoryMb(router.pid))
  }, 100)
  t.teardown(() => clearInterval(watch))
  const attacked = await honest(router.url, SECONDS + COLD_SECONDS, COLD_SECONDS)
  const views = await Promise.all(
    ['/workers', '/metrics', '/decisions', '/actors', '/queue', '/replicas'].map(path => client.send(path)),
  )
  clearInterval(watch)
  strangers.send(secrets)
  const findings = await word<Findings>(strangers)

  t.comment(`deeds: ${JSON.stringify(findings.deeds)}`)
  for (const [name, { sent, latenciesMs }] of Object.entries({ quiet, attacked })) {
    const [median, tail] = [0.5, 0.99].map(share => quantile(latenciesMs, share).toFixed(1))
    t.comment(`${name}: ${sent} sent, p50 ${median} ms, p99 ${tail} ms`)
  }
  t.comment(`resident: ${quietMb.toFixed(0)} MB quiet, ${peakMb.toFixed(0)} MB at most`)
  t.strictSame(quiet.failures, [], 'quiet: all served')
  t.strictSame(attacked.failures, [], 'attacked: all served')
  t.strictSame(findings.changes, [], 'no page changed the router')
  t.strictSame(findings.heard, [], 'no stranger heard a secret')
  const told = [...router.outputLines, ...router.errorLines, ...views.map(({ text }) => text)].join('\n')
  t.strictSame(
    secrets.filter(text => told.includes(text)),
    [],
    'no secret in a log or a view',
  )
  t.ok(peakMb - quietMb <= GROWTH_MB_MAX, `memory grew by ${(peakMb - quietMb).toFixed(0)} MB`)
  t.equal((await client.send('/health')).status, 200)
  router.kill('SIGTERM')
  t.equal(await router.ended, 0, router.errorLines.slice(-10).join('\n'))
})

/** Resolves when every honest engine has answered a request through the router. */
async function serving(router: TestProcess, engines: readonly TestProcess[]): Promise<void> {
  const served = new Set<string>()
  for (let i = 0; served.size < engines.length && i < 2000; i++) {
    const answer = await send(router.url, '/v1/completions', {
      body: { model: MODEL, prompt: `warm ${i}`, max_tokens: 1 },
    })
    const worker = answer.headers['x-homing-worker-id']
    if (answer.status === 200 && worker !== undefined) served.add(worker)
  }
}

/** `homing router` as a process: its first line, its end, and the processes that start it. */

import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { networkInterfaces, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { MAIN, RunningCommand } from './command.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
const DEMO = [
  'router',
  '--port',
  '0',
  '--host',
  '127.0.0.1',
  '--demo-engines',
  '1',
  '--router-event-threads',
  '1',
]
/** Ready in half the time, where no request is sent: nothing answers at its worker. */
const IDLE = ['router', '--port', '0', '--router-event-threads', '1', '--worker', 'http://127.0.0.1:1']
const QUIET = ['--log-level', 'error']
const QUIET_ROUTER = ['router', '--port', '0', '--router-event-threads', '1', ...QUIET]
/** More than the watch on the launchers takes to notice. */
const LAUNCHER_NOTICED_MS = 1200

/** A stream that is under way: its first bytes are there. */
async function openStream(url: string, maxTokens: number) {
  const answer = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ prompt: 'pigeons', max_tokens: maxTokens, ignore_eos: true, stream: true }),
    signal: AbortSignal.timeout(240_000),
  })
  assert.equal(answer.status, 200)
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
  const first = await reader.read()
  const rest = async (): Promise<string> => {
    let text = first.value ?? ''
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value
    return text
  }
  return { rest }
}

t.test('the ready line comes first, a taken port is refused, SIGTERM lets open requests end', async t => {
  const router = new RunningCommand(t, [...DEMO, ...QUIET, '--demo-speed', '4'])
  const { url, port, pid } = await router.ready()
  t.equal(pid, router.child.pid)
  t.equal(router.stdout.indexOf('router ready on '), 0)
  await router.says(/demo fleet of 1 simulated engines[\s\S]*curl -si http[\s\S]*\/decisions\?limit=1/)

  const health = await fetch(`${url}/health`, { method: 'HEAD' })
  t.equal(health.status, 200)
  t.equal(await health.text(), '', 'HEAD has no body')

  const second = new RunningCommand(t, [...DEMO, ...QUIET, '--port', String(port)])
  // The pipes close when every thread that holds them has ended: those of its demo fleet too.
  const refused = await second.exit()
  t.strictSame([refused.code, refused.stdout], [1, ''])
  t.match(
    refused.stderr,
    new RegExp(
      `^homing: cannot listen on http://127\\.0\\.0\\.1:${port}: [^\\n]*EADDRINUSE[^\\n]*; choose another with --port [^\\n]*\\n$`,
    ),
  )

  const adminPort = ['--port', '0', '--admin-port', String(port)]
  const third = await new RunningCommand(t, [...DEMO, ...QUIET, ...adminPort]).exit()
  t.strictSame([third.code, third.stdout], [1, ''])
  t.match(
    third.stderr,
    /^homing: cannot listen on http:[^\n]*EADDRINUSE[^\n]*; choose another with --admin-port [^\n]*\n$/,
  )

  const stream = await openStream(url, 200)
  router.child.kill('SIGTERM')
  const text = await stream.rest()
  t.match(text, /\ndata: \[DONE\]\n\n$/)
  t.equal(text.split('\ndata: ').length, 201)
  const { code, stderr } = await router.exit()
  t.strictSame([code, stderr], [0, ''])
})

t.test(
  'after --shutdown-timeout what is still open is cut and counted; the settings are in a file',
  async t => {
    const directory = await mkdtemp(join(tmpdir(), 'homing-config-'))
    t.teardown(() => rm(directory, { recursive: true }))
    const file = join(directory, 'router.yaml')
    const lines = [
      'port: 0',
      'host: 127.0.0.1',
      'demo-engines: 1',
      'shutdown-timeout: 100ms',
      'log-level: info',
    ]
    await writeFile(file, `${lines.join('\n')}\n`)
    const router = new RunningCommand(t, ['router', '--config', file])
    const { url } = await router.ready()
    const stream = await openStream(url, 5000)
    router.child.kill('SIGINT')
    // A client that does not know of the error still sees that there is no [DONE].
    t.match(await stream.rest(), /\ndata: \{"error":\{.*"code":"shutting_down"\}\}\n\n$/)
    const { code, stderr } = await router.exit()
    t.equal(code, 0)
    t.match(stderr, /"reason":"signal SIGINT","graceMs":100,"msg":"stopping"/)
    t.match(stderr, /"cutRequests":1,"slowActors":"","msg":"stopped"/)
  },
)

t.test('with --admin-port the line behind the ready line names it, and what to try uses it', async t => {
  const router = new RunningCommand(t, [...DEMO, ...QUIET, '--admin-port', '0', '--metrics-port', '0'])
  const { url } = await router.ready()
  const [, adminUrl] = await router.says(/^routes for operators on (http:\S+)\n/m)
  t.equal(router.stdout.split('\n')[1], `routes for operators on ${adminUrl}`)
  const [, metricsUrl] = await router.says(/^metrics and health on (http:\S+)\n/m)
  t.equal(router.stdout.split('\n')[2], `metrics and health on ${metricsUrl}`)
  await router.says(new RegExp(`curl -s ${adminUrl}/workers\\n[^]*${adminUrl}/decisions`))
  const statusOf = async (at: string): Promise<number> => (await fetch(at)).status
  t.strictSame([await statusOf(`${url}/workers`), await statusOf(`${adminUrl}/workers`)], [404, 200])
  t.equal(await statusOf(metricsUrl!), 200)
  router.child.kill('SIGTERM')
  t.equal((await router.exit()).code, 0)
})

t.test('a second signal ends it at once', async t => {
  const router = new RunningCommand(t, [...DEMO, ...QUIET])
  const { url } = await router.ready()
  await openStream(url, 5000)
  router.child.kill('SIGTERM')
  // Its listener is closed once it drains: then it has seen the first signal.
  while (
    await fetch(`${url}/health`).then(
      ({ ok }) => ok,
      () => false,
    )
  );
  // What follows at once is taken for the first one told twice: so it is sent until it counts.
  while (router.child.exitCode === null) {
    router.child.kill('SIGTERM')
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  const { code, stderr } = await router.exit()
  t.equal(code, 143)
  t.notMatch(stderr, /"msg":"stopped"/)
})

/**
 * Starts homing as pnpm does: by a shell, which a signal to the launcher never reaches:
 *
 *   pnpm.cjs ── sh ── the router
 */
async function startWithLauncher(t: Test, argv: readonly string[]): Promise<RunningCommand> {
  const directory = await mkdtemp(join(tmpdir(), 'homing-launcher-'))
  t.teardown(() => rm(directory, { recursive: true }))
  const script = join(directory, 'pnpm.cjs')
  await writeFile(
    script,
    `const { spawn } = require('node:child_process')
     spawn('sh', ['-c', '"$0" "$@"; exit $?', process.execPath, ...process.argv.slice(2)], { stdio: 'inherit' })`,
  )
  return new RunningCommand(t, [MAIN, ...argv], { nodeArguments: [script] })
}

t.test('a launcher that is killed takes the router with it', async t => {
  const launcher = await startWithLauncher(t, [...IDLE, ...QUIET])
  const { url } = await launcher.ready()
  launcher.child.kill('SIGKILL')
  // Its pipes close when the router has ended too.
  await launcher.exit()
  await t.rejects(fetch(`${url}/health`))
})

t.test('a launcher that is killed leaves a detached router running', async t => {
  let hasEnded = false
  const launcher = await startWithLauncher(t, [...IDLE, ...QUIET, '--detach'])
  const { url, pid } = await launcher.ready()
  t.teardown(() => {
    if (!hasEnded) process.kill(pid, 'SIGKILL')
  })
  launcher.child.kill('SIGKILL')
  // That nothing happens can only be seen by looking for long enough.
  const endsAt = performance.now() + LAUNCHER_NOTICED_MS
  while (performance.now() < endsAt) {
    t.equal((await fetch(`${url}/health`)).status, 200)
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  process.kill(pid, 'SIGTERM')
  await launcher.exit()
  hasEnded = true
  await t.rejects(fetch(`${url}/health`))
})

const IPV6 = Object.values(networkInterfaces()).some(list => list?.some(({ address }) => address === '::1'))

t.test(
  'an IPv6 address is taken with and without brackets',
  { skip: IPV6 ? false : 'no ::1 here' },
  async t => {
    const ports = ['--port', '0', '--events-port', '0', '--replay-port', '0']
    const engine = new RunningCommand(t, ['engine', ...ports, '--host', '[::1]'])
    const { url } = await engine.ready()
    t.match(url, /^http:\/\/\[::1\]:\d+$/)
    for (const host of ['[::1]', '::1']) {
      const router = new RunningCommand(t, [...QUIET_ROUTER, '--host', host, '--worker', url])
      const ready = await router.ready()
      t.match(ready.url, /^http:\/\/\[::1\]:\d+$/)
      t.equal((await fetch(`${ready.url}/ready`)).status, 200)
      while (!(await (await fetch(`${ready.url}/workers`)).text()).includes('"trust": "exact"'));
      router.child.kill('SIGTERM')
      t.equal((await router.exit()).code, 0)
    }
  },
)

t.test('with workers named, a line for each says what it is and what is missing', async t => {
  const ports = ['--port', '0', '--events-port', '0', '--replay-port', '0']
  const engine = new RunningCommand(t, [
    'engine',
    ...ports,
    '--tokenizer',
    TINY,
    '--model',
    'tiny',
    '--block-size',
    '32',
  ])
  const silent = new RunningCommand(t, ['engine', ...ports, '--no-events', '--data-parallel-size', '2'])
  const [known, unknown] = await Promise.all([engine.ready(), silent.ready()])
  const [, events] = await engine.says(/events (tcp:\S+),/)
  const workers = [known.url, unknown.url, 'http://127.0.0.1:1'].flatMap(url => ['--worker', url])
  const start = async (): Promise<RunningCommand> => {
    const started = new RunningCommand(t, [
      'router',
      '--port',
      '0',
      '--tokenizer',
      TINY,
      ...workers,
      ...QUIET,
    ])
    await started.ready()
    await started.says(/worker 127\.0\.0\.1:1: .*\n/)
    return started
  }
  let router = await start()
  // It waits for trust, but not for long: a machine that stalls then has another line.
  while (!/^worker .* trust exact$/m.test(router.stdout)) {
    router.child.kill('SIGKILL')
    await router.exit()
    router = await start()
  }
  const lines = router.stdout.trimEnd().split('\n').slice(1)
  t.equal(
    lines[0],
    `worker 127.0.0.1:${known.port}: vllm 0.32.0, model tiny, blocks of 32 tokens, 1 rank, events ${events}, trust exact`,
  )
  t.equal(
    lines[1],
    `worker 127.0.0.1:${unknown.port}: vllm 0.32.0, model homing-sim, blocks of 16 tokens, 2 ranks, no events, trust approximate`,
  )
  t.match(
    lines[2],
    /^ {2}no KV events: start the engine with --kv-events-config .*, or name their ports: http:/,
  )
  t.match(lines[3], /^worker 127\.0\.0\.1:1: down: .*ECONNREFUSED.*; it is probed until it answers$/)
  // A worker whose trust changes meanwhile gets another line.
  const rest = lines.slice(4).join('\n')
  t.match(
    rest,
    /^tokenizer .*fixtures\/tiny: own encoder\s*placement: policy auto: .*\s*(worker 127\.0\.0\.1:\d+: .*\s*)*$/,
  )
  router.child.kill('SIGTERM')
  engine.child.kill('SIGTERM')
  await fetch(`${unknown.url}/admin/kill`, { method: 'POST' })
  for (const { code } of await Promise.all([router.exit(), engine.exit()])) t.equal(code, 0)
  const { code, stderr } = await silent.exit()
  t.equal(code, 1, 'it did not end because its owner wanted so')
  t.match(stderr, /^homing: the engine was killed \(POST \/admin\/kill\)\n$/)
})

t.test('it starts as another router was started, and says what is not there', async t => {
  const line =
    '--event-plane zmq --discovery-backend mem --request-plane tcp --migration-limit 3 --model-name llama'
  const env = {
    DYN_REQUEST_PLANE: 'tcp',
    DYN_ROUTER_MODE: 'what',
    DYN_ROUTER_POLICY_CONFIG: '/not/there.yaml',
  }
  const router = new RunningCommand(t, [...IDLE, ...line.split(' ')], { env })
  await router.ready()
  for (const told of [
    '--model-name is ignored: ',
    'DYN_ROUTER_MODE: \\"what\\" is not one of ',
    'DYN_ROUTER_POLICY_CONFIG is ignored: ',
  ]) {
    t.ok(router.stderr.includes(`"${told}`), told)
  }
  router.child.kill('SIGTERM')
  t.equal((await router.exit()).code, 0)
})

/** Open files: how many requests they allow, and what happens if they run out anyway. */

import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { type Log, silentLog } from '@homing/base'
import t, { type Test } from 'tap'
import { connectionsWithinFiles, openFilesMax, requestsWithinFiles } from '../src/open-files.ts'
import { MAIN, RunningCommand } from './command.ts'

const NEEDS = { openRequestsMax: 1000, perRequest: 2, workers: 10 }
const SKIP =
  process.platform !== 'linux'
    ? 'only Linux has prlimit(1) and /proc'
    : spawnSync('prlimit', ['--version']).status === 0
      ? false
      : 'there is no prlimit(1)'

function recording() {
  const told: Readonly<Record<string, unknown>>[] = []
  const log: Log = { ...silentLog, warn: fields => void told.push(fields) }
  return { log, told }
}

t.test('where there are files enough nothing changes and nothing is said', async t => {
  const { log, told } = recording()
  for (const files of [undefined, 100_000, 2656]) t.equal(requestsWithinFiles(NEEDS, log, files), 1000)
  t.strictSame(told, [])
})

t.test('with fewer, fewer requests are taken, and the log says what to type', async t => {
  const { log, told } = recording()
  t.equal(requestsWithinFiles(NEEDS, log, 2655), 999)
  t.equal(requestsWithinFiles(NEEDS, log, 2000), 672)
  t.equal(requestsWithinFiles(NEEDS, log, 20), 1, 'never none')
  t.match(told[1], {
    openFilesMax: 2000,
    openRequestsMax: 672,
    insteadOf: 1000,
    advice: 'ulimit -n 2656, or --max-open-requests 672',
  })
})

t.test(
  'half of the files that are not reserved are for requests, however many workers there are',
  async t => {
    const { log } = recording()
    for (const workers of [10, 100, 1000]) t.equal(requestsWithinFiles({ ...NEEDS, workers }, log, 1024), 192)
  },
)

t.test('connections take what requests and workers leave, and are not fewer than requests', async t => {
  const { log } = recording()
  const told: object[] = []
  const noted: Log = { ...log, info: fields => void told.push(fields) }
  t.equal(connectionsWithinFiles(16_384, NEEDS, noted, undefined), 16_384)
  t.equal(connectionsWithinFiles(16_384, NEEDS, noted, 100_000), 16_384)
  t.strictSame(told, [])
  t.equal(connectionsWithinFiles(16_384, NEEDS, noted, 4096), 4096 - 128 - 400 - 1000)
  t.match(told, [{ openFilesMax: 4096, connectionsMax: 2568, insteadOf: 16_384 }])
  t.equal(connectionsWithinFiles(16_384, NEEDS, noted, 1024), 1000)
})

t.test('the limit is that of this process', { skip: SKIP }, async t => {
  const { stdout } = spawnSync('prlimit', [
    '--pid',
    String(process.pid),
    '--nofile',
    '--output',
    'SOFT',
    '--noheadings',
  ])
  const limit = stdout.toString().trim()
  t.equal(openFilesMax(), limit === 'unlimited' ? undefined : Number(limit))
})

const ROUTER = [
  'router',
  '--port',
  '0',
  '--router-event-threads',
  '1',
  '--tokenizer-threads',
  '1',
  '--probe-interval',
  '1h',
]

async function startBoth(t: Test, options: { readonly filesMax?: number } = {}) {
  const engine = new RunningCommand(t, [
    'engine',
    '--port',
    '0',
    '--events-port',
    '0',
    '--replay-port',
    '0',
    '--speed',
    '20',
  ])
  const { url: worker } = await engine.ready()
  const argv = [...ROUTER, '--worker', worker]
  const limit = [
    '-e',
    'require("node:child_process").spawnSync("prlimit", ["--nofile=" + process.argv[1] + ":" + process.argv[1], process.execPath, ...process.argv.slice(2)], { stdio: "inherit" })',
  ]
  const router =
    options.filesMax === undefined
      ? new RunningCommand(t, argv)
      : new RunningCommand(t, [String(options.filesMax), MAIN, ...argv], { nodeArguments: limit })
  return { router, worker, ...(await router.ready()) }
}

interface Answer {
  readonly status: number
  readonly body: string
}

/** Over the connections of `agent`. */
function ask(url: string, agent: Agent, path: string, body?: object): Promise<Answer | Error> {
  const headers = { 'content-type': 'application/json' }
  return new Promise(resolve => {
    const method = body === undefined ? 'GET' : 'POST'
    const call = request(`${url}${path}`, { method, agent, headers }, answer => {
      let text = ''
      answer.setEncoding('utf8').on('data', piece => {
        text += piece
      })
      answer.on('end', () => resolve({ status: answer.statusCode!, body: text }))
      answer.on('error', resolve)
    })
    call.on('error', resolve)
    call.end(body === undefined ? undefined : JSON.stringify(body))
  })
}

function complete(url: string, agent: Agent, prompt: string): Promise<Answer | Error> {
  return ask(url, agent, '/v1/completions', { model: 'homing-sim', prompt, max_tokens: 20 })
}

function hang(worker: string, how: 'generation' | 'off'): Promise<Response> {
  return fetch(`${worker}/admin/faults`, { method: 'POST', body: JSON.stringify({ hang: how }) })
}

t.test(
  'with few files allowed, requests are refused in words and no client is reset',
  { skip: SKIP },
  async t => {
    const { router, url, pid, worker } = await startBoth(t, { filesMax: 400 })
    t.match(
      router.stderr,
      /"openFilesMax":400,"openRequestsMax":52,"insteadOf":4096,"advice":"ulimit -n 8488, or --max-open-requests 52"/,
    )
    await hang(worker, 'generation')
    const agent = new Agent({ keepAlive: true })
    const counts = new Map<unknown, number>()
    const { promise: refused, resolve } = Promise.withResolvers<void>()
    const answers = Array.from({ length: 150 }, async (_, number) => {
      const answer = await complete(url, agent, `pigeon ${number}`)
      const what = answer instanceof Error ? answer.message : answer.status
      counts.set(what, (counts.get(what) ?? 0) + 1)
      if ([...counts.values()].reduce((sum, count) => sum + count) === 150 - 52) resolve()
    })
    await refused
    await hang(worker, 'off')
    await Promise.all(answers)
    agent.destroy()
    t.strictSame(Object.fromEntries(counts), { 200: 52, 503: 98 })
    t.notMatch(router.stderr, /worker is down|EMFILE/)
    process.kill(pid, 'SIGTERM')
    await router.exit()
  },
)

t.test('files that run out are told as what they are: no worker is down for it', { skip: SKIP }, async t => {
  const { router, url, pid, worker } = await startBoth(t)
  // Connections of all clients are there before; of those to the engine only the few that its probes have
  // left.
  const clients = Array.from({ length: 30 }, (_, client) => client)
  const agent = new Agent({ keepAlive: true, maxSockets: clients.length })
  await Promise.all(clients.map(() => ask(url, agent, '/health')))
  const before = openFilesMax()!
  const limit = (files: number): void => {
    spawnSync('prlimit', ['--pid', String(pid), `--nofile=${files}:`])
  }
  // What has the lowest numbers is there as long as the process is: whatever else is closed meanwhile gives
  // no number back.
  const files = 20
  const open = new Set(readdirSync(`/proc/${pid}/fd`).map(Number))
  t.ok(Array.from({ length: files }, (_, file) => open.has(file)).every(Boolean), 'no lower number is free')
  limit(files)
  // No request ends before one is refused: each that is sent keeps its connection, however slow the machine.
  await hang(worker, 'generation')
  const answers = clients.map(client => complete(url, agent, `prompt ${client}`))
  const refused = await Promise.any(
    answers.map(async answered => {
      const answer = await answered
      if (answer instanceof Error || answer.status !== 200) return answer
      throw new Error('not refused')
    }),
  )
  if (refused instanceof Error) throw refused
  t.equal(refused.status, 503)
  t.match(JSON.parse(refused.body).error, {
    code: 'overloaded',
    message: /^cannot send the request: .*EMFILE/,
  })
  await hang(worker, 'off')
  t.strictSame(
    (await Promise.all(answers)).filter(answer => answer instanceof Error),
    [],
  )
  // Its event connection ends, and no socket can be had for another.
  await fetch(`${worker}/admin/restart`, { method: 'POST', body: '{"downMs":50}' })
  const told = /"reason":"EMFILE: too many open files","msg":"ZeroMQ connection failed"/
  while (!told.test(router.stderr)) await router.changed()
  limit(before)
  t.match(await complete(url, agent, 'afterwards'), { status: 200 }, 'the worker was never out')
  while (!/"state": "live"/.test(((await ask(url, agent, '/workers')) as Answer).body));
  agent.destroy()
  router.child.kill('SIGTERM')
  const { code, stderr } = await router.exit()
  t.equal(code, 0)
  t.notMatch(stderr, /worker is down|does not answer/)
})

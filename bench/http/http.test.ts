import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { NO_NATS_SERVER } from '@homing/transport/testing'
import t from 'tap'
import { cpuMsOf, knowsCpuTime, startProcess } from './processes.ts'
import { promptBodies } from './prompts.ts'

const HERE = fileURLToPath(new URL('../..', import.meta.url))
const RELAY = fileURLToPath(new URL('relay.ts', import.meta.url))
const linuxOnly = knowsCpuTime ? {} : { skip: 'the CPU time of another process is read from /proc' }

function bench(...words: string[]) {
  return benchWith({}, ...words)
}

function benchWith(environment: NodeJS.ProcessEnv, ...words: string[]) {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  const env = { ...process.env, ...environment }
  return spawnSync(process.execPath, [run, 'http', ...words], { env, encoding: 'utf8', timeout: 300_000 })
}

t.test('a router stands beside the relays and beside the router of another checkout', linuxOnly, async t => {
  const { status, stdout, stderr } = bench('--smoke', `against=${HERE}`)
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  for (const part of ['stream', 'whole']) {
    t.match(results, {
      [`${part} homing`]: { median: Number, unit: 'ms CPU', raw: { relay: Number, 'relay parse': Number } },
      [`${part} before`]: { median: Number, unit: 'ms CPU' },
      [`${part} homing ÷ before`]: {
        median: Number,
        min: Number,
        max: Number,
        floor: { value: 1.05, is: /^(met|missed)$/ },
      },
      [`${part} prompt`]: { median: 1014.9 },
    })
    for (const arm of ['direct', 'relay', 'relay parse', 'homing', 'before']) {
      t.match(results, { [`${part} first byte ${arm}`]: { median: Number, unit: 'ms' } })
    }
    t.ok(results[`${part} homing`].median > 0, 'the router takes CPU time')
  }
})

t.test('in pairs each router is alone, and stands beside itself as well', linuxOnly, async t => {
  const { status, stdout, stderr } = bench('--smoke', '--pairs', '1', 'parts=stream', `against=${HERE}`)
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  const ratio = { ratio: Number, values: [Number] }
  t.match(results['stream CPU'], {
    ...{ unit: 'ms CPU', peers: { before: ratio, again: ratio } },
    floor: { value: 1.03, timesPeer: 'before', is: /^(met|missed)$/ },
  })
  t.ok(results['stream CPU'].median > 0, 'the router takes CPU time')
  t.match(results['stream answers'].peers, { before: { ratio: 1 }, again: { ratio: 1 } }, 'the same answers')
  const planes = bench('--smoke', '--pairs', '1', 'parts=plane-stream', `against=${HERE}`)
  t.strictSame([planes.status, planes.stderr], [2, 'bench: --pairs has no plane- or legs- parts\n'])
})

t.test('routers differ in the request plane alone', linuxOnly, async t => {
  const { status, stdout, stderr } = bench('--smoke', 'parts=plane-stream')
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  t.match(results['plane-stream http'], { median: Number, unit: 'ms CPU', raw: { relay: Number } })
  t.match(results['plane-stream tcp ÷ http'], { floor: { value: 1.1, is: /^(met|missed)$/ } })
  for (const plane of NO_NATS_SERVER === false ? ['tcp', 'nats'] : ['tcp']) {
    t.ok(results[`plane-stream ${plane}`].median > 0, 'the router takes CPU time')
    t.ok(results[`plane-stream ${plane} ÷ http`].median > 0)
  }
  for (const arm of ['direct', 'http', 'tcp', 'relay'])
    t.match(results, { [`plane-stream first byte ${arm}`]: { median: Number, unit: 'ms' } })
})

t.test('a request in two legs stands beside a whole one', linuxOnly, async t => {
  const { status, stdout, stderr } = bench('--smoke', 'parts=legs-1k', `against=${HERE}`)
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  for (const arm of ['whole', 'apart', 'before']) {
    t.ok(results[`legs-1k ${arm}`].median > 0, 'the router takes CPU time')
    t.match(results[`legs-1k first byte ${arm}`], { median: Number, unit: 'ms' })
  }
  t.match(results['legs-1k apart ÷ whole'], { floor: { value: 1.6, is: /^(met|missed)$/ } })
  t.match(results['legs-1k first byte added apart'], { unit: 'ms', floor: { value: 2 } })
  t.match(results['legs-1k apart ÷ before'], { median: Number })
})

t.test('a path that is no checkout is one clear line and exit code 2', async t => {
  const { status, stdout, stderr } = bench('--smoke', 'against=/nowhere')
  t.strictSame([status, stdout, stderr], [2, '', 'bench: against=/nowhere: not a checkout of homing\n'])
})

t.test(
  'in an open loop the router stands beside a relay, and an absent rival is named',
  linuxOnly,
  async t => {
    // A PATH on which taskset is, and no rival.
    const { status, stdout, stderr } = benchWith(
      { PATH: '/usr/bin:/bin', HOMING_BENCH_SMG: '' },
      ...['--smoke', '--vs', 'relay,smg', 'parts=open-next-1k-events,open-stream'],
    )
    t.equal(status, 0, stderr)
    t.match(
      stderr,
      /smg is skipped: it is not installed \(pip install smg; found as smg on PATH, or where HOMING_BENCH_SMG says\)/,
    )
    const { results, skipped } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
    t.match(skipped, { smg: /pip install smg/ })
    for (const part of ['open-next-1k-events', 'open-stream']) {
      for (const what of ['ready', 'CPU', 'p50', 'added p99', 'lag p99', 'resident idle', 'resident after'])
        t.match(
          results[`${part} ${what}`],
          { median: Number, peers: { relay: { median: Number } } },
          `${part} ${what}`,
        )
      t.ok(results[`${part} CPU`].median > 0, 'the router takes CPU time')
    }
    t.match(results['open-stream CPU first'], { median: Number }, 'the first seconds are apart')
    t.match(results['open-stream gap p99'], { unit: 'ms' })
    t.ok(results['open-next-1k-events overlap'].median > 500, 'the router has the frames of the engines')
  },
)

t.test('a part, a rival or a comparison that is not there is one clear line and exit code 2', async t => {
  const said = (environment: NodeJS.ProcessEnv, ...words: string[]) => {
    const { status, stdout, stderr } = benchWith(environment, '--smoke', ...words)
    t.strictSame([status, stdout], [2, ''], words.join(' '))
    return stderr
  }
  t.match(said({}, 'parts=open-seen-2k'), /^bench: parts=open-seen-2k: not stream, .*\n$/)
  t.match(
    said({}, '--vs', 'relay', 'parts=stream'),
    /^bench: --vs compares open- parts, and parts= has none\n$/,
  )
  t.match(
    said({}, '--vs', 'relay,haproxy'),
    /^bench: unknown peer haproxy; known: direct, relay, nginx, smg, .*\n$/,
  )
  const nowhere = said({ HOMING_BENCH_SMG: '/nowhere/smg' }, '--vs', 'smg', 'parts=open-rate')
  t.match(nowhere, /bench: HOMING_BENCH_SMG=\/nowhere\/smg: not a program\n$/)
})

t.test(
  'each prompt begins with a conversation that came before, and goes on with words of its own',
  async t => {
    const options = { seed: 1, promptTokens: 1000, outputTokens: 64, conversations: 4, isStream: true }
    const bodies = promptBodies(options)
    const messages = Array.from({ length: 40 }, () => JSON.parse(bodies.next().value).messages)
    const contents = (role: number) => messages.map(list => list[role].content)
    t.equal(new Set(contents(0)).size, 4)
    t.equal(new Set(contents(1)).size, 40)
    t.ok(contents(0).every(text => text.split(' ').length === 750))
    t.ok(contents(1).every(text => text.split(' ').length === 250))
  },
)

for (const mode of ['pipe', 'parse']) {
  t.test(
    `a relay (${mode}) passes bodies, answers and statuses on unchanged, by the engines in turn`,
    async t => {
      const asked: string[] = []
      const engines = await Promise.all(
        ['first', 'second'].map(async name => {
          const server = createServer(async (request, answer) => {
            asked.push(`${name} ${request.method} ${request.url} ${await buffer(request)}`)
            answer.writeHead(429, { 'x-engine': name }).end(`${name} is busy`)
          })
          await once(server.listen(0, '127.0.0.1'), 'listening')
          t.teardown(() => server.close())
          return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
        }),
      )
      const relay = await startProcess(RELAY, [mode, ...engines])
      t.teardown(() => relay.stop())
      for (const name of ['first', 'second', 'first']) {
        const reply = await fetch(`${relay.urls[0]}/v1/x?y=1`, { method: 'POST', body: '{"a": 1}' })
        t.strictSame([reply.status, reply.headers.get('x-engine')], [429, name])
        t.equal(await reply.text(), `${name} is busy`)
      }
      t.strictSame(
        asked,
        ['first', 'second', 'first'].map(name => `${name} POST /v1/x?y=1 {"a": 1}`),
      )
    },
  )
}

t.test('a program that ends before it is ready is told with its last words', async t => {
  const router = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
  await t.rejects(startProcess(router, ['router', '--nope']), {
    message: /^cannot start .*main\.ts: it ended with 2 before it was ready: .*--nope/s,
  })
})

t.test('the CPU time of a process has that of all its threads', linuxOnly, async t => {
  const spins = `const { parentPort } = require('node:worker_threads')
    while (process.threadCpuUsage().user < 150_000);
    parentPort.on('message', () => {}).postMessage('spun')`
  const before = cpuMsOf(process.pid)
  const worker = new Worker(spins, { eval: true })
  await once(worker, 'message')
  const spentMs = cpuMsOf(process.pid) - before
  await worker.terminate()
  t.ok(spentMs >= 120, `150 ms were spent, ${spentMs} were seen`)
})

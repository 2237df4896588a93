/** `homing doctor`: what it finds beyond the cases of docs/doctor.md, its exit codes, and its words. */

import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { loadEngineTokenizer } from '@homing/engine'
import t, { type Test } from 'tap'
import { run } from './command.ts'
import { closedPort, DoctorWorld, echoPort } from './doctor-world.ts'

const TINY = fileURLToPath(new URL('../fixtures/tiny', import.meta.resolve('@homing/tokenization')))
/** Short, for what never answers. */
const SOON = { timeoutMs: 800 } as const

async function webServer(t: Test): Promise<number> {
  const server = createServer((_, answer) => {
    answer.statusCode = 404
    answer.end('<html>not here</html>')
  })
  t.teardown(() => server.close())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as { readonly port: number }).port
}

for (const [what, portOf, text] of [
  ['nothing', closedPort, /nothing listens at 127\.0\.0\.1:\d+$/],
  ['a web server', webServer, /an HTTP server is there, but no OpenAI engine: GET \/v1\/models answers 404/],
  ['a TCP server that echoes', echoPort, /something else than HTTP is at 127\.0\.0\.1:\d+/],
] as const) {
  t.test(`where an engine should be is ${what}: it cannot be used`, async t => {
    const world = new DoctorWorld(t)
    const found = await world.look(`http://127.0.0.1:${await portOf(t)}`)
    t.match(found, { exitCode: 3, verdict: 'unusable', reachable_trust: 'none' })
    t.match(found.findings, [{ level: 'fault', about: 'answers', text, remedy: /\S/ }])
    t.equal(found.findings.length, 1)
    t.match(found.open_ports, [{ use: 'requests' }])
  })

  t.test(`where events should be is ${what}: the engine is used, and its cache not known`, async t => {
    const world = new DoctorWorld(t)
    const { engine, url, replayPort } = await world.engine(t)
    engine.setFaults({ sources: 'none' })
    const port = await portOf(t)
    const owners = {
      nothing: 'nothing listens there',
      'a web server': 'an HTTP server is there',
      'a TCP server that echoes': 'something else is there',
    }
    const found = await world.look(`${url}?events=${port}&replay=${replayPort}`, SOON)
    t.match(found, { exitCode: 1, reachable_trust: 'approximate' })
    const warnings = found.findings.filter(({ level }) => level === 'warning')
    t.match(warnings, [
      { about: 'events', text: `no event socket at tcp://127.0.0.1:${port}: ${owners[what]}` },
    ])
    t.equal(warnings.length, 1)
  })
}

t.test('ports for events and replay that are exchanged are told apart', async t => {
  const world = new DoctorWorld(t)
  const { engine, url, eventsPort, replayPort } = await world.engine(t)
  engine.setFaults({ sources: 'none' })
  const found = await world.look(`${url}?events=${replayPort}&replay=${eventsPort}`, SOON)
  t.match(found, { exitCode: 1, reachable_trust: 'approximate' })
  const [events] = found.findings.filter(({ about }) => about === 'events')
  t.match(events, { level: 'warning', text: /a replay socket is there$/, remedy: /^exchange the ports/ })
})

t.test('a replay port that publishes is told', async t => {
  const world = new DoctorWorld(t)
  const { engine, url, eventsPort } = await world.engine(t)
  const other = await world.engine(t)
  engine.setFaults({ sources: 'none' })
  const found = await world.look(`${url}?events=${eventsPort}&replay=${other.eventsPort}`, SOON)
  const [replay] = found.findings.filter(({ about }) => about === 'replay')
  t.match(replay, { level: 'warning', text: /a socket that publishes events is there$/ })
  t.equal(found.reachable_trust, 'partial')
})

t.test('the event port of another engine looks well until a request is sent', async t => {
  const world = new DoctorWorld(t)
  const { engine, url } = await world.engine(t)
  const other = await world.engine(t)
  engine.setFaults({ sources: 'none' })
  const given = `${url}?events=${other.eventsPort}&replay=${other.replayPort}`
  t.match(await world.look(given), { exitCode: 0 })
  const found = await world.look(given, { sends: true, timeoutMs: 500 })
  t.match(found, { exitCode: 1, reachable_trust: 'approximate' })
  t.match(found.reachable_trust_reason, /no event told of the blocks of its own request within 500 ms/)
})

t.test('ports that the engine contradicts are told, unless its own events come there', async t => {
  const world = new DoctorWorld(t)
  const { url, eventsPort } = await world.engine(t)
  const other = await world.engine(t)
  const given = `${url}?events=${other.eventsPort}`
  const found = await world.look(given)
  const [ports] = found.findings.filter(({ about }) => about === 'ports')
  t.match(ports, {
    level: 'warning',
    text: `given events=${other.eventsPort}, but it publishes on ${eventsPort}: these may be of another engine`,
  })
  t.equal(found.exitCode, 1)
})

t.test('an engine that hangs, refuses or is stuck is told apart', async t => {
  const world = new DoctorWorld(t)
  const { engine, url } = await world.engine(t)
  engine.setFaults({ hang: 'all' })
  const hung = await world.look(url, SOON)
  t.match(hung, {
    exitCode: 3,
    findings: [{ text: /takes the connection but does not answer GET \/v1\/models within 800 ms/ }],
  })

  engine.setFaults({ hang: 'off', refuse: -1 })
  t.match(await world.look(url), {
    exitCode: 3,
    findings: [{ text: /refuses requests: GET \/v1\/models answers 503/ }],
  })

  engine.setFaults({ refuse: 0, hang: 'generation' })
  t.equal((await world.look(url)).exitCode, 0, 'idle or stuck look alike')
  const stuck = await world.look(url, { sends: true, timeoutMs: 500 })
  const [request] = stuck.findings.filter(({ about }) => about === 'request')
  t.match(request, {
    level: 'warning',
    text: /did not answer one short request within 500 ms: it is overloaded or stuck/,
  })
  t.equal(stuck.exitCode, 1)
  engine.clearFaults()
})

t.test('a replay that has lost its beginning, or is silent, costs trust', async t => {
  const world = new DoctorWorld(t)
  const { engine, url } = await world.engine(t, { replayBatchesMax: 1 })
  for (let i = 0; i < 3; i++) await world.look(url, { sends: true })
  const late = await world.look(url)
  t.match(late, { exitCode: 1, reachable_trust: 'partial' })
  t.match(late.reachable_trust_reason, /^the replay begins with batch \d+/)
  t.match(await world.look(url, { asksHistory: false }), { exitCode: 0 }, 'how far it goes back is not asked')

  engine.setFaults({ events: { replaySilent: true } })
  const silent = await world.look(url, SOON)
  t.match(silent, { exitCode: 1, reachable_trust: 'partial' })
  t.match(silent.reachable_trust_reason, /^no replay at tcp:\S+: something is there that answers no replay$/)
})

t.test('a replay with holes is told, and costs no trust', async t => {
  const world = new DoctorWorld(t)
  const { engine, url } = await world.engine(t)
  for (let i = 0; i < 4; i++) await world.look(url, { sends: true })
  engine.setFaults({ events: { replayLoseEvery: 2 } })
  const found = await world.look(url)
  t.match(found, { exitCode: 0, reachable_trust: 'exact' })
  const [replay] = found.findings.filter(({ about }) => about === 'replay')
  t.match(replay, { level: 'note', text: /^the replay leaves out 1 of \d batches/ })
})

t.test('its tokens are compared with those of the router', async t => {
  const world = new DoctorWorld(t)
  const { url } = await world.engine(t, { tokenizer: TINY }, await loadEngineTokenizer(TINY))
  const same = await world.look(url, { sends: true })
  t.match(same, { exitCode: 0, reachable_trust: 'exact' })
  const tokens = same.findings.filter(({ about }) => about === 'tokens').map(({ text }) => text)
  t.equal(tokens[0], `prompts are tokenized here, with ${TINY}`, 'the engine names its directory')
  t.match(tokens[1], /^the tokens of the router are those of the events \(\d\d+ compared\)$/)

  const other = await world.engine(t)
  const differ = await world.look(other.url, { sends: true, tokenizer: TINY })
  t.match(differ, { exitCode: 1, reachable_trust: 'approximate' })
  t.match(
    differ.reachable_trust_reason,
    /^the tokens of the router differ from those of the engine from token \d+ on/,
  )
})

t.test('an engine behind a key is looked at with it, and the key is in nothing that is printed', async t => {
  const world = new DoctorWorld(t)
  const { url } = await world.engine(t, { apiKey: 'pigeon-secret' })
  const directory = await mkdtemp(join(tmpdir(), 'homing-doctor-'))
  t.teardown(() => rm(directory, { recursive: true }))
  const [right, wrong] = [join(directory, 'right'), join(directory, 'wrong')]
  await writeFile(right, 'pigeon-secret\n')
  await writeFile(wrong, 'hawk-secret\n')

  const well = await world.look(url, { engineKeyFile: right, sends: true })
  t.match(well, { exitCode: 0, reachable_trust: 'exact' })
  t.match(
    await world.look(`${url}?key_file=${right}`, { engineKeyFile: wrong }),
    { exitCode: 0 },
    'its own counts',
  )

  const refused = await world.look(url, { engineKeyFile: wrong })
  t.match(refused, {
    exitCode: 3,
    findings: [{ text: /^it does not accept the key that it is given: GET \/v1\/models answers 401$/ }],
  })
  const missing = await world.look(`${url}?key_file=${join(directory, 'none')}`)
  t.match(missing, {
    exitCode: 3,
    findings: [{ text: /^it was not asked: its API key: its file cannot be read: ENOENT$/ }],
  })
  for (const shown of [well, refused, missing]) t.notMatch(JSON.stringify(shown), /-secret/)
})

t.test('ranks are looked at one by one', async t => {
  const world = new DoctorWorld(t)
  const { url, ranks } = await world.engine(t, { ranks: 3 })
  const found = await world.look(url, { sends: true })
  t.match(found, { exitCode: 0, reachable_trust: 'exact' })
  t.equal(found.open_ports.length, 7)
  for (const { eventsPort } of ranks)
    t.ok(found.steps.some(({ asked }) => asked === `SUB tcp://127.0.0.1:${eventsPort}`))
  const [given] = (await world.look(`${url}?ranks=2`)).findings.filter(({ about }) => about === 'ranks')
  t.match(given, { level: 'warning', text: 'ranks=2 is given, but it has 3' })
})

t.test('the exit code is that of the worst worker, and each has its line at the end', async t => {
  const world = new DoctorWorld(t)
  const { url } = await world.engine(t)
  const dead = `http://127.0.0.1:${await closedPort()}`
  const { text, exitCode } = await world.show([url, dead])
  t.equal(exitCode, 3)
  t.match(text.split('\n').slice(-2), [
    /^http:\S+:8001 \(vllm 0\.32\.0\): well/,
    /: cannot be used: 1 fault$/,
  ])
  const json = await world.lookAtAll([url, dead])
  t.strictSame([json.exit_code, json.workers.map(({ verdict }) => verdict)], [3, ['well', 'unusable']])
})

t.test('the command as it is typed', async t => {
  const world = new DoctorWorld(t)
  const { url } = await world.engine(t)
  const plain = await run(t, ['doctor', '--listen', '50ms', url])
  t.match(plain, { code: 0, stderr: '' })
  t.match(
    plain.stdout,
    /^http:\S+ \(vllm 0\.32\.0\): well[\s\S]*\n {4}✓ ok {6}answers: vllm 0\.32\.0, in \d+ ms\n/,
  )

  const json = await run(t, ['doctor', '--json', '--listen=0', '--worker', url, `${url}?block_size=8`])
  t.equal(json.code, 1)
  t.strictSame(
    JSON.parse(json.stdout).workers.map(({ verdict }: { verdict: string }) => verdict),
    ['well', 'inexact'],
  )
})

t.test('a command line that cannot be used is one line and exit code 2', async t => {
  for (const [argv, stderr] of [
    [[], /^cannot start doctor: name an engine: homing doctor http:\/\/HOST:PORT\n$/],
    [['ftp://h:1'], /^cannot start doctor: --worker: "ftp:\/\/h:1"[^\n]*\n$/],
    [
      ['http://h:1?events=5557&replay=5557'],
      /^cannot start doctor: --worker: [^\n]*the ports of events=5557 and replay=5557 overlap[^\n]*\n$/,
    ],
    [
      ['http://h:1?events=5557&replay=5558&ranks=2'],
      /^cannot start doctor: --worker: [^\n]*overlap with 2 ranks, which publish on 5557 to 5558[^\n]*\n$/,
    ],
    [
      ['--timeuot', '1s', 'http://h:1'],
      /^cannot start doctor: unknown option --timeuot; did you mean --timeout\?\n$/,
    ],
    [
      ['--tokenizer', '/nowhere', 'http://127.0.0.1:1'],
      /^cannot start doctor: --tokenizer: [^\n]*\/nowhere[^\n]*\n$/,
    ],
    [
      ['--engine-api-key-file', '/nowhere', 'http://127.0.0.1:1'],
      /^cannot start doctor: --engine-api-key-file: [^\n]*\/nowhere[^\n]*\n$/,
    ],
    [['-v', 'http://h:1'], /^cannot start doctor: unexpected argument "-v": options begin with --\n$/],
  ] as const) {
    const { code, stdout, stderr: said } = await run(t, ['doctor', ...argv])
    t.strictSame([code, stdout], [2, ''], argv.join(' '))
    t.match(said, stderr)
  }
  const help = await run(t, ['doctor', '--help'])
  t.equal(help.code, 0)
  t.match(help.stdout, /^Usage: homing doctor \[options\] URL…$/m)
})

t.test('workers that take a part of a request are looked at together', async t => {
  const world = new DoctorWorld(t)
  const bootstrap = { eventForm: 'sglang-map', handover: 'bootstrap' } as const
  const [prefill, decode, both, giver, taker] = await Promise.all([
    world.engine(t, { role: 'prefill' }),
    world.engine(t, { role: 'decode' }),
    world.engine(t),
    world.engine(t, { ...bootstrap, role: 'prefill' }),
    world.engine(t, { ...bootstrap, role: 'decode' }),
  ])
  const given = `${prefill.url}?role=prefill`
  const cases: readonly (readonly [string, readonly string[], RegExp | undefined, string])[] = [
    ['a plain worker', [both.url], undefined, ''],
    ['both kinds', [given, `${decode.url}?role=decode`], /hands them over by kv_transfer to 127/, 'ok'],
    ['a plain worker takes over', [given, both.url], /hands them over by kv_transfer to 127/, 'ok'],
    ['prefill alone', [given], /and no other worker of its model that was looked at takes them over/, 'note'],
    ['two of prefill', [given, `${both.url}?role=prefill`], /no other worker of its model/, 'warning'],
    [
      'two ways',
      [given, taker.url],
      /it hands over by kv_transfer, and .* takes over by bootstrap/,
      'warning',
    ],
    [
      'decode alone',
      [`${decode.url}?role=decode`],
      /none was looked at that does: it gets requests whole/,
      'note',
    ],
    [
      'found by its probe',
      [giver.url, taker.url],
      /\(role=prefill, probed\), and hands them over by bootstrap/,
      'ok',
    ],
    ['a place that it tells', [giver.url, taker.url], /decode engines are to find it at 127/, 'ok'],
    ['SGLang for decode alone', [taker.url], /takes no request without one/, 'note'],
    ['… beside a plain one', [taker.url, both.url], /takes no request without one/, 'warning'],
    [
      'another zone',
      [`${given}&taints=topology/zone=a`, `${decode.url}?role=decode&taints=topology/zone=b`],
      /has not its taints topology\/zone=a/,
      'warning',
    ],
  ]
  for (const [what, urls, text, level] of cases) {
    const { workers } = await world.lookAtAll(urls)
    const found = workers[0]!.findings.filter(({ about }) => about === 'role')
    if (text === undefined) t.strictSame(found, [], what)
    else
      t.ok(
        found.some(finding => text.test(finding.text) && finding.level === level),
        `${what}: ${JSON.stringify(found)}`,
      )
  }
  const alone = await world.look(taker.url, { sends: true })
  t.match(
    alone.findings.find(({ about }) => about === 'request'),
    { level: 'note', text: /no request of its own was sent/ },
  )
})

/** Arguments of `homing indexer`, and its output; test/system tests what it serves. */

import { indexerCommand, parseSettings } from '@homing/config'
import t from 'tap'
import { faultsOfPeers, faultsOfRanks, parsePeers, parseRanks } from '../src/indexer-workers.ts'
import { RunningCommand, run } from './command.ts'

const QUIET = ['indexer', '--host', '127.0.0.1', '--port', '0', '--threads', '1', '--log-level', 'error']

t.test('settings that cannot be are told at once, with exit code 2', async t => {
  for (const [argv, message] of [
    [['--workers', '7=tcp://a:1'], /--workers need --block-size/],
    [
      ['--block-size', '4', '--workers', '7=tcp://a:1,7:0=tcp://b:1'],
      /"7:0=tcp:\/\/b:1": rank 7:0 is given twice/,
    ],
    [
      ['--block-size', '4', '--workers', '7=tcp://127.0.0.1:1,8=tcp://localhost:1'],
      /"8=tcp:\/\/localhost:1": it names tcp:\/\/localhost:1 for its events, which rank 7:0 names for its events/,
    ],
    [
      ['--block-size', '4', '--workers', '7=tcp://a:1?replay=1'],
      /it names tcp:\/\/a:1 for its events, which rank 7:0 names for its replay/,
    ],
    [['--peers', '10.0.0.1:8090'], /"10\.0\.0\.1:8090": it must be a URL such as/],
    [['--index-bytes', '1MiB', '--threads', '64'], /leaves 16384 bytes for each of --threads 64/],
    [['--max-bodies-bytes', '1MiB'], /is less than one body of --max-body-bytes/],
  ] as const) {
    const { code, stdout, stderr } = await run(t, ['indexer', ...argv])
    t.strictSame([code, stdout], [2, ''])
    t.match(stderr, message)
  }
})

t.test('what cannot be had is one line, with exit code 1', async t => {
  const indexer = new RunningCommand(t, QUIET)
  const { port, pid } = await indexer.ready()
  t.equal(pid, indexer.child.pid)
  t.match(indexer.stdout, /^indexer ready on http:\/\/127\.0\.0\.1:\d+ \(pid \d+\)\n/)
  for (const [argv, message] of [
    [['--port', String(port)], /^homing: cannot listen on .*EADDRINUSE.*; choose another with --port .*\n$/],
    [
      ['--access-log', '/nowhere/access.log'],
      /^homing: cannot open the access log \/nowhere\/access\.log: .*\n$/,
    ],
    [
      [
        '--worker-slots-max',
        '1',
        '--block-size',
        '4',
        '--workers',
        '1=tcp://127.0.0.1:1,2=tcp://127.0.0.1:2',
      ],
      /^homing: cannot register another rank: 1 are registered \(--worker-slots-max\) .*\n$/,
    ],
  ] as const) {
    const { code, stdout, stderr } = await run(t, [...QUIET, ...argv])
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr.replace(/^\{.*\}\n/gm, ''), message)
  }
  indexer.child.kill('SIGTERM')
  t.equal((await indexer.exit()).code, 0)
})

t.test('ranks are read with id, rank, endpoint and replay', async t => {
  const defaults = { model: 'm', group: 'g', blockSizeTokens: 16 }
  const rank = (instanceId: bigint, dpRank: number, endpoint: string, replayEndpoint?: string) => {
    return { ...defaults, instanceId, dpRank, endpoint, replayEndpoint }
  }
  const texts = [
    '18446744073709551615=tcp://a:1, 7:3=tcp://[::1]:5557?replay=5558',
    '8=ipc:///run/e?replay=tcp://b:2',
  ]
  t.strictSame(faultsOfRanks(texts), [])
  t.strictSame(parseRanks(texts, defaults), [
    rank(18446744073709551615n, 0, 'tcp://a:1'),
    rank(7n, 3, 'tcp://[::1]:5557', 'tcp://[::1]:5558'),
    rank(8n, 0, 'ipc:///run/e', 'tcp://b:2'),
  ])
  for (const [text, message] of [
    ['tcp://a:1', /must be ID=ENDPOINT/],
    ['-1=tcp://a:1', /must be ID=ENDPOINT/],
    ['18446744073709551616=tcp://a:1', /the id must be at most 18446744073709551615/],
    ['1:4294967296=tcp://a:1', /the rank must be at most/],
    ['1=http://a:1', /the endpoint must be tcp:/],
    ['1=tcp://*:1', /the endpoint names every interface/],
    ['1=tcp://a:1?repaly=2', /unknown parameter repaly; known: replay=PORT/],
    ['1=tcp://a:1?replay=99999', /the replay endpoint has a port out of range/],
  ] as const) {
    t.match(faultsOfRanks([text])[0], message)
  }
})

t.test('peers are URLs, each once', async t => {
  t.strictSame(faultsOfPeers(['http://a:1,http://b:2/']), [])
  t.strictSame(parsePeers(['http://a:1, http://b:2/', 'http://b:2']), ['http://a:1', 'http://b:2'])
  t.match(faultsOfPeers(['https://a'])[0], /must be a URL such as/)
  t.match(faultsOfPeers(['http://u:p@a'])[0], /must not carry a user name/)
})

t.test('the help says how engines and peers are named, and its examples can be typed', async t => {
  const { code, stdout } = await run(t, ['indexer', '--help'])
  t.equal(code, 0)
  for (const { name } of indexerCommand.settings)
    t.match(stdout, new RegExp(`^  --(\\[no-\\])?${name}\\b`, 'm'))
  for (const { line } of indexerCommand.examples) {
    t.match(stdout, line)
    const argv = line.replaceAll("'", '').split(' ').slice(2)
    t.doesNotThrow(() =>
      parseSettings(
        indexerCommand,
        argv,
        {},
        { listChecks: { workers: faultsOfRanks, peers: faultsOfPeers } },
      ),
    )
  }
})

t.test('the least memory that is allowed is enough to start with', async t => {
  const slots = ['--worker-slots-max', '16384']
  const ranks = ['--block-size', '4', '--workers', '1=tcp://127.0.0.1:1']
  const peers = [...ranks, '--peers', 'http://127.0.0.1:1', '--peer-wait', '0']
  for (const further of [[], peers]) {
    const argv = [...QUIET, ...slots, ...further]
    const { stderr } = await run(t, [...argv, '--index-bytes', '1MiB'])
    const [, least] = /each needs (\d+)/.exec(stderr) ?? []
    const indexer = new RunningCommand(t, [...argv, '--index-bytes', least!])
    await indexer.ready()
    indexer.child.kill('SIGTERM')
    t.equal((await indexer.exit()).code, 0)
  }
})

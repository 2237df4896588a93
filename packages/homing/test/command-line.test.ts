/** The command line: arguments, texts and exit codes. Nothing here serves a request. */

import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { type Command, parseSettings, routerCommand } from '@homing/config'
import { ENGINE_OPTIONS } from '@homing/engine'
import t, { type Test } from 'tap'
import { runCommandLine } from '../src/command-line.ts'
import { engineCommand } from '../src/engine-command.ts'
import { faultOfNodeVersion } from '../src/node-version.ts'
import { version } from '../src/version.ts'
import { faultsOfWorkers } from '../src/worker-specs.ts'
import { MAIN, RunningCommand, run } from './command.ts'

/** One line, and the line feed behind it. */
const ONE_LINE = /^[^\n]+\n$/

/** The same as a process, but for its start: for what ends before anything is started. */
async function runHere(t: Test, argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const mocked = t.intercept(process, 'env', { value: { ...process.env, ...env } })
  const shown = t.capture(console, 'log')
  const told = t.capture(console, 'error')
  const code = await runCommandLine(argv)
  const text = (calls: readonly { readonly args: readonly unknown[] }[]): string =>
    calls.map(({ args }) => `${args.join(' ')}\n`).join('')
  const result = { code, stdout: text(shown()), stderr: text(told()) }
  mocked.restore()
  shown.restore()
  told.restore()
  return result
}

t.test('settings of the request port of an engine are refused without the plane that has it', async t => {
  for (const given of ['--request-port', '--max-tcp-streams']) {
    const { code, stderr } = await runHere(t, ['engine', given, '2000'])
    t.equal(code, 2)
    t.match(stderr, `${given} has no effect without --request-plane tcp`)
  }
})

t.test('--help of each command shows every option, and is no failure', async t => {
  const router = await runHere(t, ['router', '--help'])
  const engine = await runHere(t, ['engine', '--port', 'x', '-h'])
  for (const [{ code, stdout, stderr }, settings] of [
    [router, routerCommand.settings],
    [engine, ENGINE_OPTIONS],
  ] as const) {
    t.strictSame([code, stderr], [0, ''])
    for (const { name } of settings) t.match(stdout, new RegExp(`^  --(\\[no-\\])?${name}\\b`, 'm'), name)
    t.match(stdout, /\bdefault\b/)
    t.match(stdout, /\bHOMING_[A-Z_]+/)
    t.match(stdout, /^Examples$/m)
  }
})

t.test('the examples of the help can be typed', async t => {
  const commands: readonly Command[] = [routerCommand, engineCommand]
  for (const command of commands) {
    for (const { line } of command.examples) {
      const [program, name, ...argv] = line.split(' ')
      t.strictSame([program, name], ['homing', command.name])
      t.doesNotThrow(() => parseSettings(command, argv, {}), line)
    }
  }
})

t.test('the overview names every command', async t => {
  const help = await runHere(t, ['--help'])
  const versionAsked = await runHere(t, ['--version'])
  t.strictSame([help.code, help.stderr], [0, ''])
  t.match(help.stdout, /^ {2}router .*\n {2}picker .*\n {2}engine /m)
  t.strictSame([versionAsked.code, versionAsked.stdout], [0, `${version()}\n`])
})

t.test('a reader that has gone is no failure', async t => {
  const command = new RunningCommand(t, ['router', '--help'])
  command.child.stdout!.destroy()
  const { code, stderr } = await command.exit()
  t.strictSame([code, stderr], [0, ''])
})

t.test('help of a command can be asked for in both orders', async t => {
  const [asked, typed] = [await runHere(t, ['help', 'router']), await runHere(t, ['router', '--help'])]
  t.strictSame(asked, typed)
})

t.test('what does not exist beside --help or --version is one line and exit code 2', async t => {
  for (const argv of [
    ['--help', '--bogus'],
    ['-h', 'x'],
    ['help', 'rooter'],
    ['help', 'router', 'x'],
    ['--version', '--bogus'],
    ['version', 'x'],
    ...[
      'router',
      'picker',
      'engine',
      'sidecar',
      'indexer',
      'slots',
      'select',
      'simulate',
      'load',
      'doctor',
    ].flatMap(name => [
      [name, '--help', '--bogus'],
      [name, '--bogus=1', '-h'],
    ]),
    // A doctor and a load take words: URLs.
    ...['router', 'picker', 'engine', 'sidecar', 'indexer', 'slots', 'select', 'simulate'].map(name => [
      name,
      '--help',
      'x',
    ]),
  ]) {
    const { code, stdout, stderr } = await runHere(t, argv)
    t.strictSame([code, stdout], [2, ''], argv.join(' '))
    t.match(stderr, ONE_LINE)
    t.match(stderr, /unknown option --bogus|unexpected argument/)
  }
})

t.test('a list of workers that names none is a fault, and no demo', async t => {
  const { code, stdout, stderr } = await runHere(t, ['router', '--port', '0'], { HOMING_WORKERS: ',' })
  t.strictSame([code, stdout], [2, ''])
  t.equal(stderr, 'cannot start router: HOMING_WORKERS: the list is empty; leave it out, or name one\n')
})

t.test('a directory for checkpoints that cannot be is one line before anything starts', async t => {
  const directory = process.platform === 'linux' ? '/proc/homing' : '/dev/null/homing'
  for (const argv of [
    ['router', '--port', '0', '--worker', 'http://127.0.0.1:1'],
    ['indexer', '--port', '0'],
  ]) {
    const { code, stdout, stderr } = await runHere(t, [...argv, '--checkpoint-dir', directory])
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr, ONE_LINE)
    t.match(stderr, `homing: cannot keep checkpoints in ${directory}: `)
    t.match(
      stderr,
      '; give --checkpoint-dir a directory that this user can create and write to [HOMING_LISTENER_CHECKPOINT_DIRECTORY]',
    )
  }
})

t.test('no command, or one that does not exist, is one line and exit code 2', async t => {
  for (const argv of [[], ['rooter'], ['constructor'], ['--port', '8000']]) {
    const { code, stdout, stderr } = await (argv.length === 0 ? run(t, argv) : runHere(t, argv))
    t.strictSame([code, stdout], [2, ''], argv.join(' '))
    t.match(stderr, ONE_LINE)
    t.match(
      stderr,
      /^homing: cannot run .*: name one of the commands router, picker, engine, sidecar, indexer, slots, select, simulate, load, doctor, key \(homing --help\)/,
    )
  }
})

t.test('settings that cannot be used are reported together, with exit code 2', async t => {
  const argv = [
    'router',
    '--port',
    '99999',
    '--router-mod',
    'kv',
    '--max-body-bytes',
    'lots',
    '--detach=maybe',
    '--worker',
    'http://10.0.0.1:8000?evnts=5557',
    '--worker',
    'nonsense',
  ]
  const { code, stdout, stderr } = await runHere(t, argv, { HOMING_RETRIES: '-1' })
  t.strictSame([code, stdout], [2, ''])
  for (const fault of [
    /--port: "?99999"? .*65,?535/,
    /unknown option --router-mod.*--router-mode/,
    /--max-body-bytes: "lots"/,
    /--detach: "maybe"/,
    /HOMING_RETRIES: "-1"/,
    /--worker: "nonsense" is not a URL/,
    /--worker: "http:[^"]*evnts=5557": unknown parameter evnts;/,
  ]) {
    t.match(stderr, fault)
  }
  t.equal(stderr.split('\n').length, 9, 'a line each, behind the one that says what they prevent')
  t.notMatch(stderr, / at .*\.ts:/, 'no stack')
  const one = await runHere(t, ['engine', '--ports', '1'])
  t.strictSame([one.code, one.stdout], [2, ''])
  t.match(one.stderr, ONE_LINE)
  t.match(one.stderr, /unknown option --ports.*--port/)
})

t.test('a worker that is no URL, or has a parameter that is none, is exit code 2', async t => {
  for (const [worker, why] of [
    ['nonsense', /is not a URL such as http:/],
    ['ftp://10.0.0.1:8000', /use http or https/],
    ['http://10.0.0.1:8000?evnts=5557', /unknown parameter evnts;/],
    ['http://10.0.0.1:8000?ranks=0', /ranks=0 is not a whole number from 1/],
  ] as const) {
    const argv = ['router', '--port', '0', '--worker', worker]
    const { code, stdout, stderr } = await runHere(t, argv)
    t.strictSame([code, stdout], [2, ''], worker)
    t.match(stderr, ONE_LINE)
    t.match(stderr, why)
  }
})

t.test('two workers that are the same, or have the same id, are one fault that names both', async t => {
  for (const [first, second, why] of [
    ['http://a:1', 'http://a:1/?id=7', /"http:\/\/a:1\?id=7": it is the worker "http:\/\/a:1" again/],
    ['http://a:1', 'http://b:1?id=0', /"http:\/\/b:1\?id=0": its id 0 is also that of "http:\/\/a:1"/],
  ] as const) {
    const { code, stdout, stderr } = await runHere(t, ['router', '--worker', first, '--worker', second])
    t.strictSame([code, stdout], [2, ''])
    t.match(stderr, ONE_LINE)
    t.match(stderr, why)
  }
})

t.test('two workers that name one socket are one fault that names both', async t => {
  for (const [first, second, why] of [
    [
      'http://h:1?events=5557',
      'http://h:2?events=5557',
      /"http:\/\/h:2\?events=5557": it names tcp:\/\/h:5557 for its events, which "http:\/\/h:1\?events=5557" names for its events: give each/,
    ],
    ['http://h:1?events=5557&ranks=2', 'http://h:2?events=5558', /names tcp:\/\/h:5558 for its events/],
    ['http://h:1?events=5557', 'http://h:2?events=5556&ranks=2', /names tcp:\/\/h:5557 for its events/],
    [
      'http://h:1?events=5557',
      'http://h:2?events=6557&replay=5557',
      /for its replay, which .* for its events/,
    ],
    [
      'http://h:1?events=5557&replay=6557',
      'http://h:2?events=6557',
      /for its events, which .* for its replay/,
    ],
    [
      'http://h:1?events=5557&replay=6557',
      'http://h:2?events=5657&replay=6557',
      /for its replay, which .* for its replay/,
    ],
    ['http://localhost:1?events=5557', 'http://127.0.0.1:2?events=5557', /for its events/],
    ['http://[::1]:1?events=5557', 'http://LOCALHOST:2?events=5557', /for its events/],
    ['http://localhost:1', 'http://127.0.0.1:1?id=7', /it is the worker "http:\/\/localhost:1" again/],
  ] as const) {
    const { code, stdout, stderr } = await runHere(t, ['router', '--worker', first, '--worker', second])
    t.strictSame([code, stdout], [2, ''])
    t.match(stderr, ONE_LINE)
    t.match(stderr, why)
    t.match(stderr, JSON.stringify(first), 'the other name')
  }
  const faults = faultsOfWorkers(['http://10.0.0.1:1?events=5557', 'http://10.0.0.2:1?events=5557'])
  t.strictSame(faults, [], 'another host is another socket')
})

t.test('an engine that cannot start says why in one line, with exit code 1', async t => {
  const server = createServer()
  t.teardown(() => server.close())
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port: taken } = server.address() as AddressInfo
  for (const [given, why] of [
    [['--port', taken], `cannot listen on http://127\\.0\\.0\\.1:${taken}: .*; choose another with --port `],
    [['--events-port', taken], `cannot listen on tcp://127\\.0\\.0\\.1:${taken}: .* with --events-port or `],
    [['--tokenizer', '/no/such'], 'cannot load the tokenizer in /no/such: .*\\[HOMING_TOKENIZATION_LOAD\\]'],
    [['--blocks', 1], 'cannot start an engine: blocks is 1'],
  ] as const) {
    const ports = ['--port', '0', '--events-port', '0', '--replay-port', '0']
    const { code, stdout, stderr } = await runHere(t, ['engine', ...ports, ...given.map(String)])
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr, ONE_LINE)
    t.match(stderr, new RegExp(why))
  }
})

t.test(
  'a router, indexer or sidecar that cannot listen says so in one line and nothing else, with exit code 1',
  async t => {
    const server = createServer()
    t.teardown(() => server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    const taken = ['--host', '127.0.0.1', '--port', String(port)]
    for (const [argv, why] of [
      [
        ['router', ...taken],
        `cannot listen on http://127\\.0\\.0\\.1:${port}: .*EADDRINUSE.*; choose another with --port `,
      ],
      [
        ['router', ...taken, '--worker', 'http://127.0.0.1:1'],
        `cannot listen on http://127\\.0\\.0\\.1:${port}: .*EADDRINUSE`,
      ],
      [
        ['router', '--host', '192.0.2.1', '--port', '0'],
        'EADDRNOTAVAIL.*; choose an address of this machine with --host',
      ],
      [
        // Told before its peer is waited for, which would take a minute.
        [
          ...['indexer', ...taken, '--block-size', '4', '--workers', '1=tcp://127.0.0.1:1'],
          ...['--peers', 'http://192.0.2.1:1', '--peer-timeout', '1m'],
        ],
        `cannot listen on http://127\\.0\\.0\\.1:${port}: .*EADDRINUSE.*; choose another with --port `,
      ],
      [
        [
          'sidecar',
          '--host',
          '127.0.0.1',
          '--events',
          'tcp://127.0.0.1:1',
          '--events-port',
          String(port),
          '--replay-port',
          '0',
          '--block-size',
          '16',
        ],
        'EADDRINUSE.*; choose another with --events-port ',
      ],
    ] as const) {
      // A process of its own: what its threads and its log say counts too.
      const { code, stdout, stderr } = await run(t, argv)
      t.strictSame([code, stdout], [1, ''], argv.join(' '))
      t.match(stderr, ONE_LINE)
      t.match(stderr, new RegExp(why))
    }
  },
)

t.test('a tokenizer directory that is none is refused before anything listens', async t => {
  const argv = [
    'router',
    '--port',
    '0',
    '--worker',
    'http://127.0.0.1:1',
    '--tokenizer',
    'm=/no/such/directory',
  ]
  const { code, stdout, stderr } = await runHere(t, argv)
  t.strictSame([code, stdout], [1, ''])
  t.match(stderr, ONE_LINE)
  t.match(stderr, /cannot load the tokenizer in \/no\/such\/directory: .*\[HOMING_TOKENIZATION_LOAD\]/)
})

t.test('an old Node is told so in one line', async t => {
  for (const old of ['18.20.4', '20.18.9', '0.12.0']) t.match(faultOfNodeVersion(old), /Node 20\.19 or later/)
  for (const good of ['20.19.0', '22.0.0', '23.0.0', '24.12.0', '100.0.0'])
    t.equal(faultOfNodeVersion(good), undefined)
  const pretend = 'data:text/javascript,Object.defineProperty(process.versions,"node",{value:"20.11.0"})'
  const { code, stdout, stderr } = await run(t, ['router'], { nodeArguments: ['--import', pretend, MAIN] })
  t.strictSame([code, stdout], [1, ''])
  t.match(stderr, ONE_LINE)
  t.match(stderr, /^homing: cannot run on Node 20\.11\.0: Node 20\.19 or later is needed/)
})

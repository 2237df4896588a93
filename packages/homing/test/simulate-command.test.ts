/** `homing simulate` as a process: what it prints, writes, keeps and refuses. */

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { generatedRequests, parseGenerator, traceText } from '@homing/trace'
import t, { type Test } from 'tap'
import { type Exit, RunningCommand, run } from './command.ts'

/** Small enough for a second. */
const QUICK = ['--requests', '400', '--speeds', '2', '--seeds', '2', '--policies', 'least-loaded,product']

/** One thread, if nothing else is said: each takes a moment to start. */
function simulate(t: Test, argv: readonly string[], folder = t.testdir({})): Promise<Exit> {
  return run(t, ['simulate', '--cache-dir', join(folder, 'cache'), '--threads', '1', ...argv])
}

function writeTrace(folder: string, change: (text: string) => string = text => text): string {
  const path = join(folder, 'trace.jsonl')
  const requests = [...generatedRequests(parseGenerator('sessions?requests=400&loop=open'), 3)]
  const whole = requests.map(request => ({ ...request, timestampMs: Math.round(request.timestampMs) }))
  writeFileSync(path, change(traceText(whole)))
  return path
}

t.test('it prints a table, and writes the same JSON again and a page', async t => {
  const folder = t.testdir({})
  const trace = writeTrace(folder)
  const [json, again, html] = ['a.json', 'b.json', 'a.html'].map(name => join(folder, name)) as [
    string,
    string,
    string,
  ]
  const first = await simulate(
    t,
    ['--trace', trace, ...QUICK, '--json', json, '--html', html, '--no-cache', '--threads', '2'],
    folder,
  )
  t.equal(first.code, 0, first.stderr)
  t.match(first.stdout, /^trace: speed 2 \(400 requests, [\d.]+ requests\/s\)\n {2}policy +TTFT s/)
  t.match(first.stdout, /\n {2}least-loaded +\d+\.\d\d ±\d/)
  t.match(first.stdout, /\n {2}product +\d+\.\d\d ±\d.* -\d+\.\d ±\d+\.\d %/)
  const { cells, about } = JSON.parse(readFileSync(json, 'utf8'))
  t.equal(cells.length, 4)
  t.match(about.command, /^homing simulate --cache-dir .*--trace .*trace\.jsonl --requests 400/)
  t.match(readFileSync(html, 'utf8'), /^<!doctype html>[\s\S]*TTFT p99, s/)

  const second = await simulate(t, ['--trace', trace, ...QUICK, '--json', again, '--no-cache'], folder)
  t.equal(second.stdout, first.stdout)
  t.strictSame(JSON.parse(readFileSync(again, 'utf8')).cells, cells, 'whatever the number of threads')
  t.notOk(existsSync(join(folder, 'cache')), '--no-cache keeps nothing')
})

t.test('closed loops, several traces, loads and a capacity are one command', async t => {
  const { code, stdout, stderr } = await simulate(t, [
    ...['--trace', 'generator:sessions?rate=200', '--trace', 'generator:unique?rate=20', '--requests', '60'],
    ...[
      '--loads',
      '50',
      '--capacity',
      'standard',
      '--seeds',
      '1',
      '--policies',
      'least-loaded,linear',
      '--workers',
      '2',
    ],
  ])
  t.equal(code, 0, stderr)
  t.match(stdout, /^sessions\?rate=200: 50 % of the best capacity, speed [\d.]+ \(\d+ requests/m)
  t.match(stdout, /^unique\?rate=20: 50 % of the best capacity/m)
  t.match(
    stdout,
    /^unique\?rate=20: capacity, the highest speed with 95 % .* tier standard\n {2}policy +speed\n {2}least-loaded +/m,
  )
})

t.test('a second run takes what is kept, and runs only the policy that is new', async t => {
  const folder = t.testdir({})
  const argv = ['--trace', writeTrace(folder), ...QUICK]
  const first = await simulate(t, argv, folder)
  const second = await simulate(t, [...argv, '--policies', 'threshold'], folder)
  t.equal(second.code, 0, second.stderr)
  t.match(second.stdout, /threshold/)
  t.match(second.stderr, /, 4 of them from earlier runs|^$/)
  const rows = (text: string): string[] =>
    text.split('\n').filter(line => /^ {2}(least-loaded|product) /.test(line))
  t.strictSame(rows(second.stdout), rows(first.stdout))
})

t.test('a fleet of one’s own is a profile, some slow workers, deaths and joins', async t => {
  const folder = t.testdir({
    'gpu.yaml':
      'name: tiny\noverheadMs: 2\nweightsMs: 20\nmsPerToken: 0.1\nmsPerTokenContext: 0.000001\nmsPerDecodeContext: 0.0001\nkvCapacityTokens: 120000\nstepTokensMax: 2048\nsequencesMax: 64\n',
  })
  const json = join(folder, 'a.json')
  const { code, stderr } = await simulate(
    t,
    [
      ...[
        '--trace',
        'generator:sessions',
        '--requests',
        '300',
        '--speeds',
        '1',
        '--seeds',
        '1',
        '--policies',
        'product,round-robin',
      ],
      ...[
        '--profile',
        join(folder, 'gpu.yaml'),
        '--workers',
        '5',
        '--slow-share',
        '0.4',
        '--death',
        '1@3s',
        '--join',
        '2@2s',
      ],
      ...['--view', 'guessed', '--routers', '2', '--json', json],
    ],
    folder,
  )
  t.equal(code, 0, stderr)
  const [{ result }] = JSON.parse(readFileSync(json, 'utf8')).cells
  t.match(result.spec, {
    workers: 5,
    profile: { name: 'tiny', kvCapacityTokens: 120_000 },
    slow: { share: 0.4, factor: 1.3 },
    deaths: [{ atMs: 3000, worker: 1 }],
    joins: [{ atMs: 2000, worker: 2 }],
    routers: 2,
    view: { kind: 'guessed', guessTtlMs: 120_000 },
  })
})

t.test('options that cannot be are told at once and together, each with what would be right', async t => {
  const refused = async (argv: readonly string[], messages: readonly RegExp[]): Promise<void> => {
    const { code, stdout, stderr } = await simulate(t, argv)
    t.strictSame([code, stdout], [2, ''])
    for (const message of messages) t.match(stderr, message)
    t.notMatch(stderr, /\n\s+at /, 'no stack trace')
  }
  await Promise.all([
    refused(
      [
        ...['--policies', 'fastest', '--policies', 'linear,product:2', '--speeds', '0', '--speeds', '1,-2'],
        ...['--loads', '0', '--loads', '50,,85', '--workers', '0', '--fleet', 'F9', '--view', 'all'],
        ...['--death', '7', '--spread', 'wide', '--sede', '2'],
      ],
      [
        /--policies: cannot simulate the policy "fastest": use random, round-robin/,
        /--policies: .*"product:2": only linear has a weight/,
        /--speeds: "0" is not a list of speeds above 0, at most 100000, such as 1,2,3\.5/,
        /--speeds: "1,-2" is not a list of speeds above 0/,
        /--loads: "0" is not a list of per cents above 0, at most 1000, such as 50,85,110/,
        /--loads: "50,,85" is not a list of per cents/,
        /--workers: "0" is out of range 1 … 10000/,
        /--fleet: "F9" is not one of F8, F8-70, F64, F1000/,
        /--view: "all" is not one of exact, late, guessed, text, none/,
        /--death: "7" is not a worker and a time, such as 3@90s/,
        /--spread: "wide" is neither auto, off nor a time/,
        /unknown option --sede; did you mean --seed\?/,
      ],
    ),
    refused(
      ['--loads', '50', '--speeds', '1', '--block-size', '100', '--death', '7@1s', '--workers', '4'],
      [
        /--speeds and --loads both say how much traffic there is/,
        /--block-size 100 does not divide 512/,
        /7@1s names a worker that --workers 4 does not have: they are 0 … 3/,
      ],
    ),
  ])
})

t.test('files that cannot be used are told before anything runs', async t => {
  const folder = t.testdir({ 'gpu.json': '{"overheadMs": 1}' })
  const trace = writeTrace(folder)
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [
      ['--trace', join(folder, 'absent.jsonl')],
      /cannot read trace .*absent\.jsonl: ENOENT.*\[HOMING_TRACE_UNREADABLE\]/,
    ],
    [['--trace', folder], /cannot read trace .*: EISDIR.*\[HOMING_TRACE_UNREADABLE\]/],
    [
      ['--trace', 'generator:chats'],
      /cannot generate "chats": .*use sessions, coding.*\[HOMING_TRACE_BAD_GENERATOR\]/,
    ],
    [
      ['--profile', join(folder, 'gpu.json')],
      /weightsMs is missing; msPerToken is missing.*\[HOMING_SIMULATE_BAD_PROFILE\]/,
    ],
    [['--profile', 'h200'], /cannot use the profile h200: ENOENT/],
    [
      ['--json', join(folder, 'no', 'a.json')],
      /cannot write the report .*no\/a\.json: ENOENT.*\[HOMING_SIMULATE_UNWRITABLE\]/,
    ],
    [['--html', folder], /cannot write the report .*: EISDIR.*\[HOMING_SIMULATE_UNWRITABLE\]/],
  ]
  await Promise.all(
    cases.map(async ([argv, message]) => {
      const { code, stdout, stderr } = await simulate(t, ['--trace', trace, ...argv], folder)
      t.strictSame([code, stdout], [2, ''], argv.join(' '))
      t.match(stderr, message)
      t.notMatch(stderr, /\n\s+at /, 'no stack trace')
    }),
  )
})

t.test('a broken line of a trace is told by its number, and nothing of it is kept', async t => {
  for (const [change, message] of [
    [(lines: string[]) => lines.with(122, '{"timestamp": 5, "input'), /line 123: it is not JSON/],
    [
      (lines: string[]) => lines.with(6, '{"timestamp":5,"input_length":3,"hash_ids":[1]}'),
      /line 7: .*output_length/,
    ],
    [
      (lines: string[]) => lines.with(99, lines[0]!),
      /line 100: timestamp \d+ is before \d+: sort the lines by timestamp/,
    ],
  ] as const) {
    const folder = t.testdir({})
    const trace = writeTrace(folder, text => change(text.split('\n')).join('\n'))
    const { code, stdout, stderr } = await simulate(t, ['--trace', trace, ...QUICK], folder)
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr, message)
    t.match(stderr, /\[HOMING_TRACE_MALFORMED\]\n/)
    t.notOk(existsSync(join(folder, 'cache')))
  }
})

t.test('Ctrl-C prints and writes what is done so far, and the next run goes on from there', async t => {
  const folder = t.testdir({})
  const html = join(folder, 'a.html')
  // The second trace takes a minute.
  const argv = [
    ...['simulate', '--cache-dir', join(folder, 'cache'), '--trace', 'generator:unique?requests=300'],
    ...[
      '--trace',
      'generator:sessions?requests=500000&rate=60',
      '--speeds',
      '1',
      '--seeds',
      '1',
      '--policies',
      'product',
    ],
    ...['--threads', '1', '--html', html],
  ]
  const command = new RunningCommand(t, argv)
  while (!command.stderr.includes('1 of 2 cells')) await command.changed()
  command.child.kill('SIGINT')
  const { code, stdout } = await command.exit()
  t.equal(code, 130)
  t.match(stdout, /^unique\?requests=300: speed 1 \(300 requests/)
  t.match(stdout, /Stopped before the end: what is above is what was done\./)
  t.notMatch(stdout, /sessions/)
  t.match(readFileSync(html, 'utf8'), /Stopped before the end/)

  const again = new RunningCommand(t, argv)
  while (!again.stderr.includes('1 of 2 cells, 1 of them from earlier runs')) await again.changed()
  again.child.kill('SIGINT')
  t.equal((await again.exit()).code, 130)
})

t.test('the help has an example for each question, and every option with its range', async t => {
  const { code, stdout } = await run(t, ['simulate', '--help'])
  t.equal(code, 0)
  for (const option of [
    ...['trace', 'fleet', 'workers', 'profile', 'policies', 'loads', 'speeds', 'view', 'routers', 'seeds'],
    ...['capacity', 'json', 'html', 'cache-size', 'threads', 'warmup', 'copies'],
  ]) {
    t.match(stdout, new RegExp(`\\n {2}--${option}\\b`))
  }
  t.match(stdout, /homing simulate --trace trace\.jsonl --loads 50,85,110 --html report\.html/)
})

t.test('two traces of the same name are two tables, and one that is named twice is one', async t => {
  const folder = t.testdir({ a: {}, b: {} })
  const first = writeTrace(join(folder, 'a'))
  const second = writeTrace(join(folder, 'b'), text => text.split('\n').slice(0, 200).join('\n'))
  const quick = ['--speeds', '2', '--seeds', '2', '--policies', 'least-loaded']
  const two = await simulate(t, ['--trace', first, '--trace', second, '--trace', first, ...quick], folder)
  t.equal(two.code, 0, two.stderr)
  t.match(two.stdout, `${first}: speed 2 (400 requests`)
  t.match(two.stdout, `${second}: speed 2 (200 requests`)
  t.equal(two.stdout.split('speed 2').length, 3, two.stdout)
})

t.test('a trace without a request is refused, not given figures of 0', async t => {
  const folder = t.testdir({ 'empty.jsonl': '\n' })
  const { code, stdout, stderr } = await simulate(
    t,
    ['--trace', join(folder, 'empty.jsonl'), ...QUICK],
    folder,
  )
  t.equal(code, 1)
  t.equal(stdout, '')
  t.match(stderr, /empty\.jsonl: there is no request in it \[HOMING_TRACE_UNREADABLE\]/)
})

t.test('loads of a fleet that serves nothing at any speed say why there is no table', async t => {
  const folder = t.testdir({})
  const trace = writeTrace(folder)
  const options = ['--loads', '50', '--kv-tokens', '1', '--seeds', '1', '--policies', 'least-loaded,product']
  const { code, stdout } = await simulate(t, ['--trace', trace, ...options], folder)
  t.equal(code, 0)
  t.match(stdout, /^trace: no table, because no policy keeps tier standard at any speed that was tried/)
})

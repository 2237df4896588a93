/** `homing load` as a process: what it prints, writes and refuses, against servers of this test. */

import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Exit, RunningCommand, type RunOptions, run } from './command.ts'

const KEY = 'sk-key-of-one-side'
/** This test says nothing of the speed of the machine that it runs on. */
const PATIENT = ['--max-issue-lag', '1h']
const ONE_OPEN = ['--max-open-requests', '1']

interface ServerOptions {
  /** Of each prompt, as usage reports it. */
  readonly cachedShare?: number
  /** One request of this number is answered with 503; 0: none. */
  readonly failEvery?: number
  /** Streams that have begun and do not end. */
  readonly hangs?: boolean
  readonly key?: string
}

interface Server {
  readonly url: string
  readonly bodies: Readonly<Record<string, unknown>>[]
  /** Resolves when this number of completions was asked for. */
  asked(count: number): Promise<void>
}

async function serverOf(t: Test, options: ServerOptions = {}): Promise<Server> {
  const { cachedShare = 0.5, failEvery = 0, hangs = false, key } = options
  const bodies: Readonly<Record<string, unknown>>[] = []
  const changed = new EventTarget()
  const server = createServer((request, response) => {
    if (key !== undefined && request.headers.authorization !== `Bearer ${key}`) {
      const message = `no such key: ${request.headers.authorization}`
      response.writeHead(401).end(JSON.stringify({ error: { message } }))
      return
    }
    if (request.url === '/v1/models') {
      response.end('{"data":[{"id":"served"}]}')
      return
    }
    if (request.method !== 'POST') {
      response.writeHead(404).end()
      return
    }
    let text = ''
    request.on('data', bytes => {
      text += bytes
    })
    request.on('end', () => {
      const body = JSON.parse(text)
      bodies.push(body)
      changed.dispatchEvent(new Event('asked'))
      if (failEvery > 0 && bodies.length % failEvery === 0) {
        response.writeHead(503).end('{"error":{"message":"all workers are busy"}}')
        return
      }
      const content = (word: string) => `data: {"choices":[{"delta":{"content":"${word}"}}]}\n\n`
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(content('one'))
      if (hangs) return
      const usage = {
        prompt_tokens: 100,
        completion_tokens: 2,
        prompt_tokens_details: { cached_tokens: 100 * cachedShare },
      }
      response.end(`${content('two')}data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`)
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as { readonly port: number }
  return {
    url: `http://127.0.0.1:${port}`,
    bodies,
    async asked(count) {
      while (bodies.length < count)
        await new Promise(resolve => changed.addEventListener('asked', resolve, { once: true }))
    },
  }
}

function load(t: Test, argv: readonly string[], options?: RunOptions): Promise<Exit> {
  return run(t, ['load', ...PATIENT, ...argv], options)
}

t.test(
  'it prints what was measured, writes JSON and a page, and the seed makes the same requests',
  async t => {
    const server = await serverOf(t)
    const folder = t.testdir({})
    const [json, report] = [join(folder, 'a.json'), join(folder, 'a.html')]
    const argv = [server.url, '--requests', '40', '--concurrency', '1', '--seed', '7', '--salt', 'none']
    const { code, stdout, stderr } = await load(t, [...argv, '--json', json, '--report', report])
    t.equal(code, 0, stderr)
    t.match(stdout, /^model served; closed loop, 1 requests at one time; .*, seed 7\n/)
    t.match(stdout, /^ {2}TTFT +\d/m)
    t.match(stdout, /^ {2}requests +36 counted, 36 answered/m)
    t.match(stdout, /^ {2}prompts +3600 tokens, 1800 cached \(50\.0 %\)$/m)
    const { sides, is_valid: isValid, settings } = JSON.parse(readFileSync(json, 'utf8'))
    t.equal(isValid, true)
    t.match(sides, [{ total: { requests: 36, output_tokens: 72, cached_share: 0.5, without_usage: 0 } }])
    t.match(settings, { seed: 7, concurrency: 1 })
    t.match(readFileSync(report, 'utf8'), /^<!doctype html>[\s\S]*TTFT/)
    t.equal(server.bodies.length, 40)
    t.match(server.bodies[0], {
      model: 'served',
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 64,
      ignore_eos: true,
    })

    const again = await load(t, [...argv, '--json', '-', '--model', 'mine'])
    t.strictSame(
      server.bodies.slice(40).map(({ messages }) => messages),
      server.bodies.slice(0, 40).map(({ messages }) => messages),
    )
    t.equal(server.bodies[40]!['model'], 'mine')
    const last = JSON.parse(again.stdout.trimEnd().split('\n').at(-1)!)
    t.match(last, { homing_load: 1, is_complete: true })
  },
)

t.test('two sides in blocks: a known difference is found, and what is equal has none', async t => {
  const [a, b] = [await serverOf(t, { cachedShare: 0.9 }), await serverOf(t, { cachedShare: 0.1 })]
  const argv = ['--requests', '60', '--blocks', '6', '--concurrency', '2']
  const { code, stdout, stderr } = await load(t, [a.url, '--against', b.url, ...argv])
  t.equal(code, 0, stderr)
  t.match(
    stdout,
    /^ {2}cached prompt tokens % +90\.0 +10\.0 +\+80\.0 +\+80\.0 … \+80\.0 +\+800 % +A better$/m,
  )
  t.match(stdout, /^ {2}errors % .* no difference$/m)
  t.match(stdout, /^A is better in .*cached prompt tokens/m)
  // Two that are sent at one time may arrive in either order.
  const promptsOf = ({ bodies }: Server): string =>
    bodies
      .map(({ messages }) =>
        (messages as { content: string }[]).map(({ content }) => content.split('\n\n').at(-1)),
      )
      .map(contents => JSON.stringify(contents))
      .sort()
      .join('\n')
  t.ok(promptsOf(a) === promptsOf(b), 'they got the same requests behind their salts')
  t.ok(JSON.stringify(a.bodies) !== JSON.stringify(b.bodies))

  const equal = await load(t, [a.url, '--against', a.url, ...argv])
  t.match(equal.stdout, /^ {2}cached prompt tokens % .* no difference$/m)
})

t.test('keys come from a file or a variable, and are in no output', async t => {
  const server = await serverOf(t, { key: KEY })
  const folder = t.testdir({ key: `${KEY}\n`, other: 'sk-other-key-of-one-side' })
  const report = join(folder, 'r.html')
  const quick = [server.url, '--requests', '4', '--concurrency', '1', '--json', '-', '--report', report]
  const byFile = await load(t, [...quick, '--api-key-file', join(folder, 'key')])
  t.equal(byFile.code, 0, byFile.stderr)
  const byVariable = await load(t, quick, { env: { HOMING_LOAD_API_KEY: KEY } })
  t.equal(byVariable.code, 0, byVariable.stderr)
  const none = await load(t, quick)
  t.equal(none.code, 1)
  t.match(none.stderr, /GET \/v1\/models answers 401; give --api-key-file \[HOMING_LOAD_TARGET\]\n$/)
  const wrong = await load(t, [...quick, '--model', 'm', '--api-key-file', join(folder, 'other')])
  t.equal(wrong.code, 1)
  t.match(wrong.stdout, /4? × status 401: no such key: Bearer …/)
  for (const { stdout, stderr } of [byFile, byVariable, none, wrong])
    t.notMatch(stdout + stderr, /of-one-side/)
  t.notMatch(readFileSync(report, 'utf8'), /of-one-side/)
})

t.test('too many errors make the result invalid, and exit code 1', async t => {
  const server = await serverOf(t, { failEvery: 5 })
  const argv = [server.url, '--requests', '40', '--concurrency', '2', '--warmup', '0']
  const { code, stdout } = await load(t, argv)
  t.equal(code, 1)
  t.match(stdout, /^ {2}errors +8 \(20\.0 %\)\n +8 × status 503: all workers are busy$/m)
  t.match(stdout, /^INVALID: 20 % of the requests failed, and --max-error-rate is 1 %/m)
  const allowed = await load(t, [...argv, '--max-error-rate', '0.5'])
  t.equal(allowed.code, 0)
})

t.test('Ctrl-C ends it with what was measured', async t => {
  const server = await serverOf(t)
  const command = new RunningCommand(t, [
    'load',
    ...PATIENT,
    server.url,
    '--rate',
    '50',
    '--duration',
    '10m',
    '--warmup',
    '0',
    // When the 20th is asked for, 19 are answered.
    ...ONE_OPEN,
  ])
  await server.asked(20)
  command.child.kill('SIGINT')
  const { code, stdout } = await command.exit()
  t.equal(code, 130)
  t.match(stdout, /^Stopped before the end/m)
  t.match(stdout, /^ {2}requests +\d\d+ counted/m)

  const hanging = await serverOf(t, { hangs: true })
  const stuck = new RunningCommand(t, ['load', ...PATIENT, hanging.url, '--concurrency', '3'])
  await hanging.asked(3)
  stuck.child.kill('SIGINT')
  t.equal((await stuck.exit()).code, 130, 'what is open does not hold it up')
})

t.test('bodies of a log are sent as they are, at their times or as fast as is said', async t => {
  const server = await serverOf(t)
  const folder = t.testdir({})
  const [timed, untimed] = [join(folder, 'timed.jsonl'), join(folder, 'untimed.jsonl')]
  const bodies = Array.from({ length: 6 }, (_, i) => ({
    messages: [{ role: 'user', content: `question ${i}` }],
    max_tokens: i + 1,
    model: 'of-the-log',
  }))
  writeFileSync(
    timed,
    bodies.map((body, i) => JSON.stringify({ timestamp: 5000 + i * 100, ...body })).join('\n'),
  )
  writeFileSync(untimed, bodies.map(body => JSON.stringify({ body })).join('\n'))
  const replay = await load(t, [
    server.url,
    '--trace',
    timed,
    '--speed',
    '5',
    '--warmup',
    '0',
    '--salt',
    'none',
    // Two on connections of their own may arrive in either order.
    ...ONE_OPEN,
  ])
  t.equal(replay.code, 0, replay.stderr)
  t.match(replay.stdout, /open loop at the times of the trace, speed 5; bodies of .*timed\.jsonl, 6 requests/)
  const sent = { stream: true, stream_options: { include_usage: true } }
  t.strictSame(
    server.bodies,
    bodies.map(body => ({ ...body, ...sent })),
  )
  const refused = await load(t, [server.url, '--trace', untimed])
  t.equal(refused.code, 2)
  t.match(
    refused.stderr,
    /^cannot start load: --trace ".*" has no timestamps: give --rate or --concurrency\n$/,
  )
  const closed = await load(t, [
    server.url,
    '--trace',
    untimed,
    '--concurrency',
    '2',
    '--no-stream',
    '--warmup',
    '0',
  ])
  t.equal(closed.code, 1, 'a stream where none was asked for is no JSON')
  t.match(closed.stdout, /6 × answer: not JSON/)
})

t.test('what cannot be is one clear line for each fault', async t => {
  const keyFile = join(t.testdir({ key: 'sk-other-key-of-another-side' }), 'key')
  const url = 'http://127.0.0.1:1'
  for (const [argv, code, why] of [
    [[], 2, 'cannot start load: name what gets the requests: homing load http://HOST:PORT'],
    [[url, url], 2, 'cannot start load: 2 URLs are given: name one, and the other with --against'],
    [['http://u:p@h'], 2, /has a user or a password; a key goes into --api-key-file/],
    [['h:8000'], 2, /is no http or https URL/],
    [['http://h?x=1'], 2, /has a query or a fragment/],
    [[url, '--speed', '2'], 2, /--speed is for the times of --trace; use --rate/],
    [[url, '--trace', 'x', '--rate', '1', '--speed', '2'], 2, /in whose place --rate is given/],
    [[url, '--against', url, '--duration', '5s'], 2, /give --requests, or --rate/],
    [
      [url, '--against', url, '--trace', 'x', '--concurrency', '2', '--duration', '5s'],
      2,
      /--duration cannot divide a closed loop/,
    ],
    [
      [`${url}/v1`, '--against', `${url}/`, '--against-api-key-file', keyFile],
      2,
      /--against-api-key-file: both sides are at http:\/\/127\.0\.0\.1:1, which gets one key/,
    ],
    [[url, '--requests', '5', '--warmup', '5'], 2, /leaves none of the 5 requests to count/],
    [[url, '--against', url, '--requests', '15'], 2, /--requests 15 leaves 1 for each of --blocks 10/],
    [[url, '--rate', '0'], 2, /--rate/],
    [[url, '--api-key-file', '/nowhere'], 2, /--api-key-file: its file cannot be read: ENOENT/],
    [[url, '--json', '/nowhere/x.json'], 1, /\[HOMING_SIMULATE_UNWRITABLE\]/],
    [[url, '--trace', '/nowhere'], 1, /HOMING_TRACE_UNREADABLE/],
    [[url], 1, /cannot load http:\/\/127\.0\.0\.1:1: GET \/v1\/models: .*\[HOMING_LOAD_TARGET\]/],
  ] as const) {
    const { code: ended, stdout, stderr } = await run(t, ['load', ...argv])
    t.strictSame([ended, stdout], [code, ''], `${argv.join(' ')}: ${stderr}`)
    t.match(stderr, why)
    t.equal(stderr.trimEnd().split('\n').length, 1, stderr)
  }
})

t.test('names that other tools have for the same are taken', async t => {
  const server = await serverOf(t)
  const { code, stderr } = await load(t, [
    ...[
      server.url,
      '--num-prompts',
      '10',
      '--max-concurrency',
      '2',
      '--num-warmups',
      '1',
      '--isl',
      '8',
      '--osl',
      '3',
    ],
    ...['--num-prefix-prompts', '2', '--prefix-prompt-length', '5', '--random-seed', '2'],
  ])
  t.equal(code, 0, stderr)
  t.equal(server.bodies.length, 10)
  t.equal(server.bodies[0]!['max_tokens'], 3)
})

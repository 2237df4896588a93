/**
 * Names that clients and engines choose, made to harm: what steers a terminal, begins a line, ends a label of
 * Prometheus or a text of JSON, is a member that every object has, or has megabytes. Nothing that the router
 * says, shows or keeps carries them further.
 */

import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { send, startProcess } from './fleet.ts'
import { startRawEngine } from './raw-engine.ts'

const MAIN = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const MODEL = 'raw'
const ANSWER = '{"id":"cmpl-1","choices":[{"index":0,"text":"a","finish_reason":"stop"}]}'
const STEERING = '\u001b]0;owned\u0007\u009b31m'
const TEXTS = [
  STEERING,
  'a\r\nb{"level":"error"}',
  'a"} 1\nhoming_gateway_forged_total{x="',
  'a\u202egpj.exe\u2028b\u{e0041}',
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '<img src=x onerror=alert(1)>',
  '%0d%0aset-cookie: a=b',
  '../../etc/passwd',
  'x'.repeat(2_000_000),
]
/** Headers carry bytes above a space only. */
const HEADER_TEXTS = TEXTS.map(text => text.replace(/[^\t\x20-\x7e\x80-\xff]/gu, '').slice(0, 8000))
/** Of a line; a line feed ends it. */
const UNSHOWN = /[^\n\P{Cc}]|[\p{Cf}\p{Zl}\p{Zp}]/u
const LINE_CHARACTERS_MAX = 8000
const SERIES = /^[a-z_:][a-z0-9_:]*(?:\{(?:[a-z_][a-z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? [-+0-9.eINaf]+$/i

function assertHarmless(t: Test, name: string, text: string): void {
  const at = UNSHOWN.exec(text)?.index
  t.equal(at, undefined, `${name}: ${escape(text.slice(Math.max(0, (at ?? 0) - 40), (at ?? 0) + 10))}`)
  for (const line of text.split('\n'))
    if (line.length > LINE_CHARACTERS_MAX) t.fail(`${name} has a line of ${line.length} characters`)
}

t.test('names that clients choose', async t => {
  const engine = await startRawEngine(MODEL, socket => {
    socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${ANSWER.length}\r\n\r\n${ANSWER}`,
    )
  })
  t.teardown(() => engine.close())
  const folder = t.testdir({})
  const [access, decisions] = ['access', 'decisions'].map(name => join(folder, name)) as [string, string]
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'trace', '--worker', engine.url],
    ...['--access-log', access, '--decision-log', decisions],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  const { url } = router
  let requests = 0
  const complete = async (body: object, headers: Readonly<Record<string, string>> = {}) => {
    requests++
    const answer = await send(url, '/v1/completions', { body: { prompt: 'x', ...body }, headers })
    assertHarmless(t, 'an answer', `${answer.text}${JSON.stringify(answer.headers)}`)
    return answer.status
  }
  for (const text of TEXTS) {
    t.equal(await complete({ model: text }), text.length > 1024 ? 400 : 404)
    const fields = { user: text, prompt_cache_key: text, cache_salt: text, previous_response_id: text }
    t.equal(await complete({ model: MODEL, ...fields, [text]: 1, metadata: { [text]: text } }), 200)
    t.equal(await complete({ model: MODEL, lora_path: text }), 200)
    const nvext = { nvext: { agent_hints: { [text]: 1 }, [text]: { [text]: text } } }
    t.match([200, 400].includes(await complete({ model: MODEL, ...nvext })), true)
  }
  for (const text of HEADER_TEXTS) {
    const named = ['x-request-id', 'x-homing-tenant', 'x-tenant-id', 'x-homing-policy-class', 'x-session-id']
    const headers = Object.fromEntries(named.map(name => [name, text]))
    t.equal(await complete({ model: MODEL }, headers), 200)
  }
  for (const number of [
    '1e400',
    '-1e400',
    '1e308',
    '-0',
    '99999999999999999999',
    '1.5',
    'null',
    '"7"',
    '{}',
  ]) {
    for (const name of ['max_tokens', 'n', 'priority', 'min_tokens', 'stream', 'logprobs', 'seed']) {
      requests++
      const body = `{"model":"${MODEL}","prompt":"x","${name}":${number}}`
      const { status, text } = await send(url, '/v1/completions', { body })
      t.ok(status === 200 || status === 400, `${name} ${number}: ${status} ${text}`)
    }
  }
  t.equal(await complete({ model: MODEL }), 200, 'and nothing has changed for the next')

  for (const path of [
    ...['/', '/workers', '/decisions?limit=1000', '/queue', '/what_if', '/replicas', '/busy_threshold'],
    ...['/actors', '/actors?format=text', '/actors/flight', '/v1/models', '/health', '/ready', '/metrics'],
    ...TEXTS.slice(0, 9).flatMap(text => [
      `/v1/models/${encodeURIComponent(text)}`,
      `/decisions/${encodeURIComponent(text)}`,
      `/workers/${encodeURIComponent(text)}`,
      `/workers?${encodeURIComponent(text)}=${encodeURIComponent(text)}`,
    ]),
  ]) {
    const { text, headers } = await send(url, path)
    assertHarmless(t, path, text)
    if (headers['content-type'] === 'application/json') t.type(JSON.parse(text), 'object', path)
  }
  const { json } = await send(url, '/decisions?limit=1000')
  for (const { request_id: id, model } of json.decisions) {
    if (id.length > 256) t.fail(`a receipt has an id of ${id.length} characters`)
    if (model.length > 1024) t.fail(`a receipt has a model of ${model.length} characters`)
  }
  const series = (await send(url, '/metrics')).text.split('\n').filter(line => line !== '' && line[0] !== '#')
  for (const line of series) if (!SERIES.test(line)) t.fail(`no line of Prometheus: ${line.slice(0, 200)}`)
  t.notMatch(series.join('\n'), /forged_total|owned|__proto__|onerror/)

  router.kill('SIGTERM')
  await router.ended
  assertHarmless(t, 'the log', [...router.outputLines, ...router.errorLines].join('\n'))
  for (const line of router.errorLines) t.type(JSON.parse(line).msg, 'string')
  for (const [name, path] of Object.entries({ access, decisions }))
    assertHarmless(t, name, readFileSync(path, 'utf8'))
  const lines = readFileSync(access, 'utf8').trimEnd().split('\n')
  t.equal(lines.filter(line => JSON.parse(line).route === 'completions').length, requests, 'a line each')
})

t.test('names that engines choose', async t => {
  const engine = createServer((request, answer) => {
    const named = { id: `m${STEERING}`, object: STEERING, owned_by: STEERING, root: STEERING }
    answer.setHeader('content-type', 'application/json')
    answer.end(
      request.url === '/v1/models'
        ? JSON.stringify({ object: 'list', data: [{ ...named, id: 'plain' }, named] })
        : request.url === '/metrics'
          ? `vllm:num_requests_running{model_name="${STEERING}"} 1\n`
          : JSON.stringify({
              version: STEERING,
              status: STEERING,
              model_path: STEERING,
              [STEERING]: STEERING,
            }),
    )
  })
  await new Promise<void>(resolve => engine.listen(0, '127.0.0.1', resolve))
  t.teardown(() => void engine.close())
  const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`
  for (const form of [[], ['--json']]) {
    const said = await new Promise<string>(resolve => {
      const argv = [MAIN, 'doctor', '--worker', url, '--timeout', '2s', ...form]
      execFile(process.execPath, argv, (_, stdout, stderr) => resolve(`${stdout}${stderr}`))
    })
    t.match(said, /127\.0\.0\.1/)
    assertHarmless(t, `homing doctor ${form}`, said)
  }
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'trace', '--worker', url],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  for (const path of ['/workers', '/v1/models', '/', '/metrics', '/queue', '/ready', '/health'])
    assertHarmless(t, path, (await send(router.url, path)).text)
  const { id } = (await send(router.url, '/workers')).json.workers[0]
  assertHarmless(t, 'its diagnosis', (await send(router.url, `/workers/${id}/diagnosis`)).text)
  assertHarmless(t, 'the log', [...router.outputLines, ...router.errorLines].join('\n'))
})

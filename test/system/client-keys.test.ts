/**
 * Clients with keys, with the command line: homing key makes one, the file is followed, and the key is in
 * nothing that the router says, keeps or sends.
 */

import { execFileSync } from 'node:child_process'
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { chunksOf, open, send, startProcess, startTestRouter, until } from './fleet.ts'
import { startRawEngine } from './raw-engine.ts'

const MAIN = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const MODEL = 'homing-sim'
const body = { model: MODEL, prompt: [...Array(64).keys()], max_tokens: 8 }

function newKey(name: string): { readonly key: string; readonly entry: string } {
  const text = execFileSync(process.execPath, [MAIN, 'key', name], { encoding: 'utf8' })
  const found = /^(hk-[\w-]{43})\n\n(- name: .*\n {2}sha256: '[0-9a-f]{64}')\n$/.exec(text)
  if (found === null) throw new Error(`homing key printed ${text}`)
  return { key: found[1]!, entry: found[2]! }
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` })

t.test('a key works, nothing tells it, and the file counts as it is now', async t => {
  const [one, two] = [newKey('team-one'), newKey('team-two')]
  t.not(one.key, two.key)
  const folder = t.testdir({ 'keys.yaml': `# clients\n${one.entry}\n  concurrent_requests: 1\n` })
  const [file, log, accessLog] = ['keys.yaml', 'decisions.jsonl', 'access.jsonl'].map(name =>
    join(folder, name),
  ) as [string, string, string]
  const engine = await startProcess('engine', [
    ...['--port', '0', '--events-port', '0', '--replay-port', '0'],
  ])
  t.teardown(() => engine.kill('SIGKILL'))
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--log-level', 'trace', '--decision-log', log],
    ...['--access-log', accessLog, '--client-keys-file', file, '--worker', engine.url],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  const { url } = router
  const texts: string[] = []
  const ask = async (path: string, key: string, given?: unknown) => {
    const answer = await send(url, path, { headers: bearer(key), body: given })
    texts.push(answer.text, JSON.stringify(answer.headers))
    return answer
  }
  t.equal((await send(url, '/v1/completions', { body })).status, 401)
  t.equal((await ask('/v1/completions', two.key, body)).status, 401)
  const answered = await ask('/v1/completions', one.key, body)
  t.equal(answered.status, 200, answered.text)
  const stream = await ask('/v1/completions', one.key, { ...body, stream: true })
  t.equal(chunksOf(stream.text).length > 0, true)
  t.equal((await ask('/v1/completions', one.key, { ...body, model: 'none' })).status, 404)
  t.equal((await ask('/v1/completions', one.key, { ...body, max_tokens: 'many' })).status, 400)

  // A client that leaves in the middle gives its place back.
  const leaving = new AbortController()
  const long = { ...body, max_tokens: 5000, ignore_eos: true, stream: true }
  const left = await open(url, '/v1/completions', {
    headers: bearer(one.key),
    body: long,
    signal: leaving.signal,
  })
  t.equal(left.statusCode, 200)
  const late = await ask('/v1/completions', one.key, body)
  t.strictSame([late.status, late.json.error.code], [429, 'rate_limit_exceeded'])
  t.equal(late.headers['retry-after'], '1')
  left.body.on('error', () => {})
  leaving.abort()
  await until('its place is free', async () =>
    (await ask('/v1/completions', one.key, body)).status === 200 ? true : undefined,
  )

  // The file as it is now counts; one that cannot be used changes nothing.
  writeFileSync(`${file}.new`, two.entry)
  renameSync(`${file}.new`, file)
  await until('the other key counts', async () =>
    (await ask('/v1/models', two.key)).status === 200 ? true : undefined,
  )
  t.equal((await ask('/v1/models', one.key)).status, 401)
  writeFileSync(file, `- name: x\n  sha256: ${two.key}\n`)
  await until('the fault is counted', async () =>
    /^homing_gateway_client_keys_files_broken_state 1$/m.test((await send(url, '/metrics')).text)
      ? true
      : undefined,
  )
  t.equal((await ask('/v1/models', two.key)).status, 200)
  const { text } = await send(url, '/metrics')
  t.match(text, /^homing_gateway_client_keys_refused_total\{reason="unknown"\} \d+$/m)
  t.match(text, /^homing_gateway_client_key_open_requests 0$/m)

  const { id } = (await send(url, '/workers')).json.workers[0]
  for (const path of [
    ...['/', '/workers', '/actors', '/actors?format=text', '/actors/flight', '/metrics', '/decisions'],
    ...['/queue', '/dump', '/health', '/ready', '/busy_threshold', '/replicas', '/what_if'],
    ...[`/workers/${id}/diagnosis`, `/decisions/${answered.headers['x-homing-decision']}`],
  ])
    texts.push((await send(url, path)).text)
  texts.push(execFileSync('ps', ['-eo', 'args']).toString())
  router.kill('SIGTERM')
  await router.ended
  for (const path of [log, accessLog]) texts.push(readFileSync(path, 'utf8'))
  texts.push([...router.outputLines, ...router.errorLines].join('\n'))
  t.ok(router.errorLines.length > 0)
  t.match(texts.join('\n'), /keys\.yaml: entry 1 \(x\): sha256 must be/)
  t.match(readFileSync(accessLog, 'utf8'), /"tenant":"team-one"/)
  for (const [at, text] of texts.entries())
    for (const { key } of [one, two]) t.notOk(text.includes(key), `text ${at} has no key`)
})

t.test('what goes to an engine has no key of a client', async t => {
  const { key, entry } = newKey('team')
  const folder = t.testdir({ keys: entry })
  const echo = await startRawEngine(MODEL, socket => {
    socket.end('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}')
  })
  t.teardown(() => echo.close())
  const router = await startTestRouter([echo.url], ['--client-keys-file', join(folder, 'keys')])
  t.teardown(() => router.stop(0))
  const headers = { ...bearer(key), 'x-api-key': key, 'api-key': key }
  await send(router.url, '/v1/completions', { headers, body })
  await send(router.url, '/v1/embeddings', { headers, body: { model: MODEL, input: 'a' } })
  t.ok(echo.requests.length > 0)
  for (const { head } of echo.requests) t.notOk(head.includes(key))
})

t.test('a file that cannot be used stops the start with all of its faults', async t => {
  const folder = t.testdir({ keys: '- { name: a, rate: 1 }\n- { sha256: no }\n' })
  const start = async () =>
    startTestRouter(['http://127.0.0.1:9'], ['--client-keys-file', join(folder, 'keys')])
  const thrown = await start().then(
    () => undefined,
    (error: Error) => error,
  )
  t.match(thrown?.message, /--client-keys-file ".*keys": entry 1 \(a\): rate is no member/)
  t.match(thrown?.message, /entry 1 \(a\): sha256 must be/)
  t.match(thrown?.message, /entry 2: name must have/)
  const bad = (argv: readonly string[]) => {
    try {
      execFileSync(process.execPath, [MAIN, 'key', ...argv], { stdio: 'pipe' })
      return 'it works'
    } catch (error) {
      return String((error as { stderr: Buffer }).stderr)
    }
  }
  t.match(bad([]), /name the client, as in: homing key team-a/)
  t.match(bad(['a', 'b']), /it takes one name and --role, and there are 2 words/)
  t.match(bad(['-a']), /a name has 1 to 64 letters/)
  const help = execFileSync(process.execPath, [MAIN, 'key', '--help'], { encoding: 'utf8' })
  t.match(help, /--client-keys-file/)
})

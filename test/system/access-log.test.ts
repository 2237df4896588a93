/** The access log of a router as a process: in a file and on standard output, with keys nowhere in it. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, renameSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { RouterClient, send, startEngines, startProcess, startTestRouter, until } from './fleet.ts'

const MODEL = 'homing-sim'
const MAIN = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const KEY = 'sk-access-1f2e3d4c'
const SERVER = ['--host', '127.0.0.1', '--port', '0']

const linesOf = (path: string): Record<string, unknown>[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .slice(0, -1)
    .map(line => JSON.parse(line))

t.test('each request has its line, and the file may be moved away', async t => {
  const { engines, stop } = await startEngines([{ apiKey: KEY }])
  t.teardown(stop)
  const folder = t.testdir({ key: KEY })
  const path = join(folder, 'access.jsonl')
  const router = await startProcess('router', [
    ...[...SERVER, '--access-log', path, '--admin-port', '0'],
    ...['--worker', `${engines[0]!.url}?key_file=${join(folder, 'key')}`],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  const headers = { authorization: `Bearer ${KEY}`, 'x-api-key': KEY, 'x-homing-tenant': 'acme' }
  const prompt = 'the wording of the prompt'
  for (const stream of [false, true]) {
    const body = { model: MODEL, prompt, max_tokens: 3, stream }
    const { status } = await send(router.url, `/v1/completions?key=${KEY}`, { body, headers })
    t.equal(status, 200)
  }
  const garbage = connect(Number(new URL(router.url).port), '127.0.0.1')
  garbage.end('no request\r\n\r\n').resume()
  await once(garbage, 'close')
  const first = await until('three lines are there', async () =>
    linesOf(path).filter(({ path: at }) => at !== '/ready').length >= 3 ? linesOf(path) : undefined,
  )
  t.match(first, [
    { path: '/v1/completions', status: 200, outcome: 'ok', tenant: 'acme', stream: false, output_tokens: 3 },
    { path: '/v1/completions', status: 200, outcome: 'ok', tenant: 'acme', stream: true, attempts: 1 },
    { route: 'none', status: 400, outcome: 'refused' },
  ])
  for (const line of first.slice(0, 2)) {
    const stages = ['read_ms', 'tokenize_ms', 'place_ms', 'connect_ms', 'call_ms', 'duration_ms']
    for (const stage of stages) t.type(line[stage], 'number', stage)
    const [read, tokenize, place, call, duration] = ['read', 'tokenize', 'place', 'call', 'duration'].map(
      stage => line[`${stage}_ms`] as number,
    )
    t.ok(read! + tokenize! + place! + call! <= duration! + 1, 'stages follow each other')
  }
  renameSync(path, `${path}.1`)
  await until('a new file is begun', async () => {
    await send(router.url, '/health')
    try {
      return linesOf(path).length > 0 ? true : undefined
    } catch {
      return undefined
    }
  })
  router.kill('SIGTERM')
  t.equal(await router.ended, 0)
  const text = `${readFileSync(path, 'utf8')}${readFileSync(`${path}.1`, 'utf8')}`
  for (const secret of [KEY, 'wording', 'key=']) t.notOk(text.includes(secret), secret)
})

t.test('on standard output the ready line is the first, also where somebody asked before', async t => {
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const router = await startProcess('router', [...SERVER, '--access-log', '-', '--worker', engines[0]!.url])
  t.teardown(() => router.kill('SIGKILL'))
  await send(router.url, '/health')
  await until('its line is there', async () =>
    router.outputLines.some(line => line.startsWith('{') && JSON.parse(line).path === '/health')
      ? true
      : undefined,
  )
  t.match(router.outputLines[0], /^router ready on /)
})

/** Resolves when `count` requests, written at once, have their answers. */
async function answered(url: string, count: number): Promise<void> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1')
  socket.setEncoding('latin1')
  const head = `GET /${'x'.repeat(300)} HTTP/1.1\r\nhost: x\r\nx-request-id: ${'y'.repeat(256)}\r\n`
  socket.write(`${head}\r\n`.repeat(count - 1))
  socket.write(`${head}connection: close\r\n\r\n`)
  let text = ''
  for await (const piece of socket) text += String(piece)
  const answers = text.split('HTTP/1.1 404 ').length - 1
  if (answers < count) throw new Error(`${answers} of ${count} requests were answered`)
}

t.test('a reader of standard output that does not read holds up no request and no end', async t => {
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const argv = [MAIN, 'router', ...SERVER, '--access-log', '-', '--worker', engines[0]!.url]
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'ignore'] })
  t.teardown(() => void child.kill('SIGKILL'))
  let text = ''
  const url = await new Promise<string>(resolve => {
    child.stdout.on('data', bytes => {
      text += bytes
      const found = /ready on (http:\S+)[\s\S]*placement: /.exec(text)
      if (found === null) return
      child.stdout.pause()
      resolve(found[1]!)
    })
  })
  const client = new RouterClient(url)
  await until('lines are dropped', async () => {
    await Promise.all(Array.from({ length: 20 }, () => answered(url, 50)))
    const { text: metrics } = await client.send('/metrics')
    return /^homing_access_log_lines_total\{outcome="dropped"\} [1-9]/m.test(metrics) ? true : undefined
  })
  t.equal(
    (await client.send('/v1/completions', { body: { model: MODEL, prompt: 'a', max_tokens: 1 } })).status,
    200,
  )
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  t.strictSame(await ended, [0, null])
})

t.test('a place where nothing can be written ends the start', async t => {
  const folder = t.testdir()
  for (const path of [folder, join(folder, 'none', 'log')]) {
    await t.rejects(startTestRouter(['http://127.0.0.1:1'], ['--access-log', path]), {
      code: 'HOMING_HTTP_ACCESS_LOG',
    })
  }
})

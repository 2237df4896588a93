/**
 * A key in the wrong place, at a running router and indexer: no log, answer, view, metric, title of a process
 * or file has it.
 */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { MARKER, SECRET_WAYS, TRACE } from '../secret-ways.ts'
import { send, startEngines, startProcess, type TestProcess, until } from './fleet.ts'

const MODEL = 'homing-sim'
const HERE = ['--host', '127.0.0.1', '--port', '0', '--log-level', 'trace']

function titleOf({ pid }: TestProcess): string {
  // Of Linux; elsewhere the title is that of the command line.
  return process.platform === 'linux' ? readFileSync(`/proc/${pid}/cmdline`, 'utf8') : ''
}

function filesIn(folder: string): string {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(({ parentPath, name }) => `${name} ${readFileSync(join(parentPath, name), 'latin1')}`)
    .join('\n')
}

t.test('a router repeats no key, wherever it was written', async t => {
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const folder = t.testdir({ state: {}, files: {} })
  const [state, workers] = [join(folder, 'state'), join(folder, 'files', 'workers')]
  writeFileSync(workers, `${engines[0]!.url}\n`)
  const router = await startProcess('router', [
    ...[...HERE, '--workers-file', workers, '--checkpoint-dir', join(state, 'checkpoints')],
    ...['--access-log', join(state, 'access'), '--decision-log', join(state, 'decisions')],
    ...['--worker', `http://127.0.0.1:1?key_file=${MARKER}`, '--probe-interval', '100ms'],
  ])
  t.teardown(() => router.kill('SIGKILL'))
  const answers: string[] = []
  const ask = async (path: string, call: Parameters<typeof send>[2] = {}) => {
    const { status, text } = await send(router.url, path, call)
    answers.push(`${path.split('?')[0]} ${status} ${text}`)
    return status
  }
  for (const url of SECRET_WAYS) {
    const status = await ask('/workers', { body: { url } })
    t.ok(status === 400 || status === 201, `${url}: ${status}`)
  }
  for (const [name, value] of [
    [MARKER, 'http://127.0.0.1:2'],
    ['url', 7],
    ['url', { key: MARKER }],
  ] as const)
    t.equal(await ask('/workers', { body: { [name]: value } }), 400)
  const headers = {
    authorization: `Bearer ${MARKER}`,
    'x-api-key': MARKER,
    cookie: MARKER,
    'x-homing-tenant': 'acme',
  }
  const body = { model: MODEL, prompt: 'a b c', max_tokens: 2 }
  t.equal(await ask(`/v1/completions?api_key=${MARKER}`, { body, headers }), 200)
  for (const path of ['/workers', '/queue', '/dump', '/decisions', '/actors', '/metrics', '/what_if'])
    await ask(`${path}?api_key=${MARKER}`, { headers })
  // A worker of the file, as it was written wrong, one way after the other.
  for (const way of SECRET_WAYS.filter((_, at) => at % 16 === 0)) {
    writeFileSync(workers, `${engines[0]!.url}\n${way}\n`)
    const seen = router.errorLines.length
    await until('the file was looked at', async () =>
      router.errorLines.slice(seen).some(line => line.includes('workers file')) ? true : undefined,
    )
  }
  for (const path of ['/workers', '/decisions', '/actors', '/actors/flight', '/metrics', '/', '/queue'])
    t.equal(await ask(path), 200)
  await ask(`/workers/${encodeURIComponent('127.0.0.1:1')}/diagnosis`)
  router.kill('SIGTERM')
  await router.ended
  const log = [...router.outputLines, ...router.errorLines]
  for (const line of [...log, ...answers]) if (TRACE.test(line)) t.fail(line.slice(0, 600))
  t.notOk(TRACE.test(filesIn(state)), 'no file that it wrote has it')
  t.ok(log.length > 20 && answers.length > 60)
})

t.test('an indexer repeats no key', async t => {
  const folder = t.testdir({})
  const indexer = await startProcess('indexer', [...HERE, '--access-log', join(folder, 'access')])
  t.teardown(() => indexer.kill('SIGKILL'))
  const answers: string[] = []
  for (const way of SECRET_WAYS) {
    for (const [path, body] of [
      ['/register', { instance_id: 7, model_name: 'm', block_size: 4, endpoint: way }],
      ['/register', { instance_id: way, model_name: 'm', block_size: 4, endpoint: 'tcp://127.0.0.1:1' }],
      ['/register', { instance_id: 7, model_name: 'm', block_size: way, endpoint: 'tcp://127.0.0.1:1' }],
      ['/register_peer', { url: way }],
    ] as const) {
      const { status, text } = await send(indexer.url, path, { body, headers: { authorization: MARKER } })
      t.equal(status, 400, `${path} ${JSON.stringify(body)}`)
      answers.push(text)
    }
  }
  for (const path of ['/workers', '/peers', '/metrics', '/dump'])
    answers.push((await send(indexer.url, `${path}?api_key=${MARKER}`)).text)
  t.notOk(TRACE.test(titleOf(indexer)), 'its title')
  indexer.kill('SIGTERM')
  await indexer.ended
  for (const line of [...indexer.outputLines, ...indexer.errorLines, ...answers])
    if (TRACE.test(line)) t.fail(line.slice(0, 600))
  t.notOk(TRACE.test(filesIn(folder)), 'no file that it wrote has it')
})

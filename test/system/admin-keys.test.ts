/**
 * Operators with keys and roles, over real sockets: every route asks for a key, a reader sees everything and
 * changes nothing, and the file counts as it is now.
 */

import { execFileSync } from 'node:child_process'
import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { OPERATOR_ROUTES } from '@homing/actors/console'
import t from 'tap'
import { open, send, startEngines, startProcess, startTestRouter, until } from './fleet.ts'

const MAIN = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const HERE = ['--host', '127.0.0.1', '--port', '0', '--log-level', 'trace'] as const
/** Anyone may have the files of the page. */
const FILES = { method: 'GET', path: '/page/*' }

function newKey(name: string, role: string): { readonly key: string; readonly entry: string } {
  const argv = [MAIN, 'key', name, '--role', role]
  const [key = '', ...entry] = execFileSync(process.execPath, argv, { encoding: 'utf8' }).split('\n')
  return { key, entry: entry.join('\n') }
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` })

for (const ports of ['one port', 'a port of their own'] as const) {
  t.test(`roles, on ${ports}`, async t => {
    const [reader, operator] = [newKey('grafana', 'reader'), newKey('ops', 'operator')]
    const folder = t.testdir({ 'keys.yaml': reader.entry + operator.entry })
    const { engines, stop } = await startEngines([{}])
    t.teardown(stop)
    const router = await startProcess('router', [
      ...[...HERE, '--worker', engines[0]!.url, '--admin-keys-file', join(folder, 'keys.yaml')],
      ...(ports === 'one port' ? [] : ['--admin-port', '0']),
    ])
    t.teardown(() => router.kill('SIGKILL'))
    const named = router.outputLines.join('\n')
    const url = /routes for operators on (http:\S+)/.exec(named)?.[1] ?? router.url
    const texts: string[] = []
    const ask = async (method: string, path: string, key?: string, body?: unknown) => {
      const headers = key === undefined ? {} : bearer(key)
      const answer = await send(url, path, { method, headers, ...(body === undefined ? {} : { body }) })
      texts.push(answer.text, JSON.stringify(answer.headers))
      return answer
    }

    for (const { method, path } of OPERATOR_ROUTES) {
      if (method === FILES.method && path === FILES.path) continue
      const at = path.replace('*', 'a:1')
      const body = method === 'POST' ? {} : undefined
      for (const key of [undefined, 'guess', `${reader.key}x`]) {
        const { status, headers, json } = await ask(method, at, key, body)
        t.strictSame(
          [status, json.error.code, headers['www-authenticate']],
          [401, 'unauthorized', 'Bearer'],
          at,
        )
      }
      const isChange = method !== 'GET' && path !== '/route'
      const { status, text } = await ask(method, at, reader.key, body)
      if (isChange)
        t.match({ status, text }, { status: 403, text: /with the key of grafana: its role is reader/ }, at)
      else t.notOk([401, 403].includes(status), `${method} ${at}: ${status}`)
      if (isChange) t.notOk([401, 403].includes((await ask(method, at, operator.key, body)).status), at)
    }

    // The page: its files for all, its stream and the diagnosis of a worker for a reader.
    const page = await send(url, '/', { headers: { accept: 'text/html' } })
    t.equal((await send(url, `/${/src="(page\/[^"]+)"/.exec(page.text)![1]}`)).status, 200)
    t.equal((await ask('GET', '/page/live')).status, 401)
    const live = await open(url, '/page/live', { headers: bearer(reader.key) })
    t.equal(live.statusCode, 200)
    for await (const bytes of live.body) {
      t.match(String(bytes), /event: /)
      break
    }
    const { id } = (await ask('GET', '/workers', reader.key)).json.workers[0]
    const diagnosis = await ask('GET', `/workers/${id}/diagnosis`, reader.key)
    t.equal(diagnosis.status, 200, diagnosis.text)
    t.equal(
      (
        await ask('POST', '/busy_threshold', operator.key, {
          model: 'homing-sim',
          active_decode_blocks_threshold: 0.5,
        })
      ).status,
      200,
    )

    // A page of another site has no key, and where it had one, it would be let in as any program.
    const strange = { origin: 'http://evil.example', host: 'evil.example' }
    t.equal((await send(url, '/workers', { headers: strange })).status, 401)

    // The API asks for none of these keys, and neither do probes.
    for (const path of ['/v1/models', '/health', '/ready'])
      t.equal((await send(router.url, path)).status, 200)

    // The file as it is now counts, also for a page that is open.
    const tabs = await Promise.all(
      [reader, operator].map(({ key }) => open(url, '/page/live', { headers: bearer(key) })),
    )
    const ended = [false, false]
    const reads = tabs.map(async ({ body }, at) => {
      for await (const _ of body);
      ended[at] = true
    })
    const file = join(folder, 'keys.yaml')
    writeFileSync(`${file}.new`, operator.entry)
    renameSync(`${file}.new`, file)
    await until('the key of the reader is gone', async () =>
      (await ask('GET', '/queue', reader.key)).status === 401 ? true : undefined,
    )
    await reads[0]
    t.strictSame(ended, [true, false], 'the page of that key has ended')
    writeFileSync(file, `- {name: x, sha256: ${reader.key}, role: king}\n`)
    await until('the fault is counted', async () =>
      /^homing_operator_keys_files_broken_state 1$/m.test((await ask('GET', '/metrics', operator.key)).text)
        ? true
        : undefined,
    )
    const metrics = (await ask('GET', '/metrics', operator.key)).text
    for (const reason of ['missing', 'unknown', 'role'])
      t.match(metrics, new RegExp(`^homing_operator_keys_refused_total\\{reason="${reason}"\\} [1-9]`, 'm'))
    router.kill('SIGTERM')
    await router.ended
    await reads[1]!.catch(() => {})
    texts.push(...router.outputLines, ...router.errorLines)
    const said = texts.join('\n')
    t.match(
      said,
      /"key":"ops","method":"POST","path":"\/busy_threshold"/,
      'the log says who changed something',
    )
    t.match(said, /entry 1 \(x\): role must be one of reader, operator/)
    for (const { key } of [reader, operator]) t.notOk(said.includes(key), 'nothing tells a key')
  })
}

t.test('a file that cannot be used stops the start, and so do settings that exclude each other', async t => {
  const folder = t.testdir({
    keys: '- { name: a }\n- { name: b, role: admin, key: no }\n',
    key: 'x'.repeat(20),
  })
  const keys = ['--admin-keys-file', join(folder, 'keys')]
  const faultOf = (argv: readonly string[]) =>
    startTestRouter(['http://127.0.0.1:9'], argv).then(
      () => '',
      (error: Error) => error.message,
    )
  const faults = await faultOf(keys)
  t.match(faults, /--admin-keys-file ".*keys": entry 1 \(a\): sha256 must be/)
  t.match(faults, /entry 1 \(a\): role must be one of reader, operator/)
  t.match(faults, /entry 2 \(b\): key is no member; there are name, sha256, role/)
  t.match(await faultOf([...keys, '--admin-key-file', join(folder, 'key')]), /exclude each other/)
  t.match(await faultOf([...keys, '--page', 'open']), /--page open exclude each other/)
  const argv = [MAIN, 'key', 'a', '--role', 'king']
  t.throws(() => execFileSync(process.execPath, argv, { stdio: 'pipe' }), /--role is one of reader, operator/)
})

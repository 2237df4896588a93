/**
 * A router that speaks https: with the certificate that its files hold now, on both of its ports, and through
 * all of its gateways.
 */

import { renameSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { connect } from 'node:net'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { type Certificate, certificate, hasOpenssl } from './certificates.ts'
import { chunksOf, QUICK, startEngines, startTestRouter, until } from './fleet.ts'

const MODEL = 'homing-sim'
const NAMES = 'IP:127.0.0.1'
const skip = hasOpenssl ? false : 'openssl is not installed'

interface TlsAnswer {
  readonly status: number | undefined
  readonly text: string
  readonly fingerprint: string
}

/** Over a connection of its own. `begun`: the first bytes of the answer are there. */
function ask(url: string, path: string, ca: string, body?: unknown, begun = () => {}): Promise<TlsAnswer> {
  const { port } = new URL(url)
  const method = body === undefined ? 'GET' : 'POST'
  const headers = { 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const call = request({ host: '127.0.0.1', port, path, method, headers, ca, agent: false }, answer => {
      const { fingerprint256 } = (answer.socket as TLSSocket).getPeerCertificate()
      let text = ''
      answer.setEncoding('utf8').on('data', (piece: string) => {
        if (text === '') begun()
        text += piece
      })
      answer.on('error', reject)
      answer.on('end', () => resolve({ status: answer.statusCode, text, fingerprint: fingerprint256 }))
    })
    call.on('error', reject).end(body === undefined ? undefined : JSON.stringify(body))
  })
}

/** Both files are replaced, as a secret that is mounted is. */
function install(folder: string, { key, cert }: Certificate): void {
  for (const [name, text] of [
    ['tls.pem', cert],
    ['tls.key', key],
  ] as const) {
    writeFileSync(join(folder, `${name}.new`), text)
    renameSync(join(folder, `${name}.new`), join(folder, name))
  }
}

async function start(t: Test, more: readonly string[] = []) {
  const folder = t.testdir()
  const [one, two] = [certificate(folder, 'one', NAMES), certificate(folder, 'two', NAMES)]
  install(folder, one)
  const { engines, stop } = await startEngines([{ ...QUICK, speed: 1 }])
  t.teardown(stop)
  const files = ['--tls-cert', join(folder, 'tls.pem'), '--tls-key', join(folder, 'tls.key')]
  const router = await startTestRouter([engines[0]!.url], [...files, ...more])
  t.teardown(() => router.stop(0))
  return { folder, one, two, router, engine: engines[0]! }
}

const chat = (max_tokens: number) => {
  const messages = [{ role: 'user', content: 'say something that is long' }]
  return { model: MODEL, messages, max_tokens, ignore_eos: true, stream: true }
}

t.test('a stream goes on with its certificate while new connections see another', { skip }, async t => {
  const { folder, one, two, router, engine } = await start(t)
  t.match(router.url, /^https:\/\/127\.0\.0\.1:\d+$/)
  t.equal(router.adminUrl, router.url)
  const { promise: begun, resolve } = Promise.withResolvers<void>()
  // It does not end before others see another certificate.
  await engine.faults({ slowMs: 300 })
  const open = ask(router.url, '/v1/chat/completions', one.cert, chat(100), resolve)
  await begun
  install(folder, two)
  const seen = await until('new connections see the other certificate', () =>
    ask(router.url, '/v1/models', two.cert).catch(() => undefined),
  )
  t.equal(seen.status, 200)
  await engine.faults({ slowMs: 0 })
  const stream = await open
  t.equal(stream.status, 200)
  t.ok(chunksOf(stream.text).length >= 100, 'the open stream came to its end')
  t.not(stream.fingerprint, seen.fingerprint)

  // Both files may have been looked at between their changes.
  const metrics = await until('the files are whole', async () => {
    const { text } = await ask(router.url, '/metrics', two.cert)
    return /^homing_gateway_tls_files_broken_state 0$/m.test(text) ? text : undefined
  })
  const expiry = Number(/^homing_gateway_tls_expiry_timestamp_seconds (\d+)$/m.exec(metrics)?.[1])
  t.ok(Math.abs(expiry * 1000 - Date.now() - 2 * 86_400_000) < 3_600_000, String(expiry))
  t.match(metrics, /^homing_gateway_tls_reloads_total\{outcome="loaded"\} [12]$/m)

  // A pair that does not fit changes nothing, and is counted.
  writeFileSync(join(folder, 'tls.key'), one.key)
  await until('the wrong key was seen', async () =>
    /^homing_gateway_tls_files_broken_state 1$/m.test((await ask(router.url, '/metrics', two.cert)).text)
      ? true
      : undefined,
  )
  t.equal((await ask(router.url, '/v1/models', two.cert)).fingerprint, seen.fingerprint)
})

t.test('who speaks plain HTTP gets no answer and breaks nothing', { skip }, async t => {
  const { one, router } = await start(t)
  const answered = await new Promise<string>(resolve => {
    let text = ''
    const socket = connect(Number(new URL(router.url).port), '127.0.0.1')
    socket.on('error', () => {}).on('close', () => resolve(text))
    socket.setEncoding('latin1').on('data', piece => (text += piece))
    socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n')
  })
  t.notMatch(answered, /^HTTP\/1\.1 200/)
  t.equal((await ask(router.url, '/health', one.cert)).status, 200)
})

t.test('both ports and all gateways have it', { skip }, async t => {
  const { folder, one, two, router } = await start(t, ['--gateway-threads', '2', '--admin-port', '0'])
  t.match(router.adminUrl, /^https:/)
  for (let turn = 0; turn < 8; turn++) {
    const { status, text } = await ask(router.url, '/v1/chat/completions', one.cert, chat(4))
    t.equal(status, 200, text)
  }
  t.equal((await ask(router.adminUrl, '/workers', one.cert)).status, 200)
  install(folder, two)
  let inARow = 0
  await until('all gateways have the other one', async () => {
    const answer = await ask(router.url, '/ready', two.cert).catch(() => undefined)
    inARow = answer?.status === 200 ? inARow + 1 : 0
    return inARow === 16 ? true : undefined
  })
  const metrics = await until('the port for operators has it', () =>
    ask(router.adminUrl, '/metrics', two.cert).catch(() => undefined),
  )
  const expiry = Number(/^homing_gateway_tls_expiry_timestamp_seconds (\d+)$/m.exec(metrics.text)?.[1])
  t.ok(expiry * 1000 < Date.now() + 3 * 86_400_000, 'not the sum of both')
})

t.test('files that cannot be used stop the start, each with one sentence', { skip }, async t => {
  const folder = t.testdir()
  certificate(folder, 'one', NAMES)
  certificate(folder, 'two', NAMES)
  const at = (name: string): string => join(folder, name)
  const refused = async (cert: string, key: string): Promise<unknown> => {
    const argv = ['--tls-cert', at(cert), '--tls-key', at(key)]
    return startTestRouter(['http://127.0.0.1:9'], argv).then(
      router => router.stop(0),
      (thrown: Error) => thrown.message,
    )
  }
  const cases: readonly [string, string, RegExp][] = [
    ['none.pem', 'one.key', /--tls-cert ".*none\.pem" cannot be read: ENOENT/],
    ['one.pem', 'none.key', /--tls-key ".*none\.key" cannot be read: ENOENT/],
    ['one.pem', '.', /--tls-key ".*" cannot be read: it is not a regular file/],
    ['one.key', 'one.key', /--tls-cert ".*one\.key" is no certificate in PEM/],
    ['one.pem', 'two.key', /--tls-key ".*two\.key" is not the private key of that certificate/],
  ]
  for (const [cert, key, message] of cases) {
    const told = String(await refused(cert, key))
    t.match(told, message)
    t.equal(told.match(/--tls-/g)?.length, 1, told)
  }
  const alone = async () => startTestRouter(['http://127.0.0.1:9'], ['--tls-cert', at('one.pem')])
  await t.rejects(alone, {
    message: /--tls-cert and --tls-key go together: give --tls-key, too, or leave both out/,
  })
})

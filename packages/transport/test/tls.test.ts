/** A listener that speaks TLS: new certificates, other protocols, and clients that never say hello. */

import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { request } from 'node:https'
import { connect } from 'node:net'
import process from 'node:process'
import type { TLSSocket } from 'node:tls'
import { promisify } from 'node:util'
import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { expiryMsOf, faultOfIdentity, systemTransport, type TlsIdentity } from '../src/index.ts'
import { NO_OPENSSL, selfSigned } from '../src/testing.ts'
import { bounded, until } from './inbox.ts'

const skip = NO_OPENSSL

async function serve(t: Test, tls: TlsIdentity) {
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => transport.close())
  const ends: (() => void)[] = []
  const listener = await transport.http.listen({ host: '127.0.0.1', port: 0, tls }, exchange => {
    exchange.writeHead(200, {})
    exchange.write(Buffer.from('first'))
    const end = (): void => exchange.end(Buffer.from(' last'))
    if (exchange.path === '/wait') ends.push(end)
    else end()
  })
  return { listener, ends }
}

/** Text of the answer, and who the server said to be. `begun`: its first bytes are there. */
function ask(port: number, ca: string, path = '/', begun = () => {}) {
  return bounded(
    new Promise<{ readonly text: string; readonly name: unknown }>((resolve, reject) => {
      const call = request({ port, host: '127.0.0.1', path, ca, agent: false }, answer => {
        const name = (answer.socket as TLSSocket).getPeerCertificate().subject?.CN
        let text = ''
        answer.setEncoding('utf8').on('data', (piece: string) => {
          if (text === '') begun()
          text += piece
        })
        answer.on('end', () => resolve({ text, name })).on('error', reject)
      })
      call.on('error', reject).end()
    }),
    'an answer over TLS',
  )
}

t.test('a new certificate is for new connections, and open ones go on', { skip }, async t => {
  const folder = t.testdir()
  const [one, two] = [selfSigned(folder, 'one'), selfSigned(folder, 'two')]
  const { listener, ends } = await serve(t, one)
  t.strictSame(await ask(listener.port, one.certificate), { text: 'first last', name: 'one' })
  const { promise: begun, resolve } = Promise.withResolvers<void>()
  const open = ask(listener.port, one.certificate, '/wait', resolve)
  await begun
  listener.setIdentity(two)
  t.strictSame(await ask(listener.port, two.certificate), { text: 'first last', name: 'two' })
  await t.rejects(ask(listener.port, one.certificate), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' })
  ends[0]!()
  t.strictSame(await open, { text: 'first last', name: 'one' })
})

t.test('who does not speak TLS is let go, and who is silent holds up no end', { skip }, async t => {
  const one = selfSigned(t.testdir(), 'one')
  const { listener } = await serve(t, one)
  const plain = connect(listener.port, '127.0.0.1')
  plain.on('error', () => {})
  plain.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  let answered = ''
  plain.setEncoding('latin1').on('data', piece => (answered += piece))
  await bounded(once(plain, 'close'), 'the end of a plain connection')
  t.notMatch(answered, /HTTP\/1\.1 200/)
  t.equal((await ask(listener.port, one.certificate)).text, 'first last')
  const silent = connect(listener.port, '127.0.0.1')
  silent.on('error', () => {}).resume()
  await once(silent, 'connect')
  t.equal((await ask(listener.port, one.certificate)).text, 'first last')
  // Such as a probe of a load balancer: it says nothing, and closes.
  const probe = connect(listener.port, '127.0.0.1')
  probe.on('error', () => {}).resume()
  await once(probe, 'connect')
  t.equal((await ask(listener.port, one.certificate)).text, 'first last')
  await until(() => listener.connections === 2, 'the connections of the answers to go')
  probe.end()
  await until(() => listener.connections < 2, 'the connection of the probe to go')
  t.equal(listener.connections, 1, 'that of the silent one is kept')
  const gone = once(silent, 'close')
  await bounded(listener.close(3_600_000), 'the end of the listener')
  await bounded(gone, 'the end of the silent one')
  t.equal(listener.connections, 0)
})

t.test('calls believe the authorities of NODE_EXTRA_CA_CERTS, on Node 20 too', { skip }, async t => {
  const folder = t.testdir()
  const [one, other] = [selfSigned(folder, 'one'), selfSigned(folder, 'other')]
  const { listener } = await serve(t, one)
  const program = new URL('./authorities-process.ts', import.meta.url).pathname
  const said = async (file: string | undefined, node: string): Promise<string> => {
    const { NODE_EXTRA_CA_CERTS: _, ...others } = process.env
    const env = file === undefined ? others : { ...others, NODE_EXTRA_CA_CERTS: file }
    const { stdout } = await promisify(execFile)(process.execPath, [program, String(listener.port), node], {
      env,
    })
    return stdout
  }
  for (const node of ['as-it-is', 'as-on-node-20']) {
    t.equal(await said(one.certificateFile, node), '200\n', node)
    t.match(await said(other.certificateFile, node), /self-signed certificate/, `${node}: another one`)
    t.match(await said(undefined, node), /self-signed certificate/, `${node}: none`)
    t.match(await said(`${folder}/none.pem`, node), /self-signed certificate/, `${node}: no such file`)
  }
})

t.test('what is wrong with a pair is told, and nothing of it', { skip }, async t => {
  const folder = t.testdir()
  const [one, two] = [selfSigned(folder, 'one'), selfSigned(folder, 'two')]
  const locked = selfSigned(folder, 'locked', undefined, 'secret-word')
  t.equal(faultOfIdentity(one), undefined)
  const inTwoDays = Date.now() + 2 * 86_400_000
  t.ok(Math.abs(expiryMsOf(one) - inTwoDays) < 3_600_000)
  const cases: readonly [TlsIdentity, string, RegExp][] = [
    [{ ...one, certificate: 'nothing' }, 'certificate', /^is no certificate in PEM/],
    [{ ...one, certificate: '' }, 'certificate', /^is no certificate in PEM/],
    [{ ...one, key: 'nothing' }, 'key', /^is no private key in PEM$/],
    [{ ...one, key: two.key }, 'key', /^is not the private key of that certificate$/],
    [{ ...one, key: one.certificate }, 'key', /^is no private key in PEM$/],
    [locked, 'key', /^wants a passphrase/],
    [
      {
        ...one,
        certificate: `${one.certificate}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`,
      },
      'certificate',
      /^cannot be used: /,
    ],
  ]
  for (const [given, of, why] of cases) {
    const fault = faultOfIdentity(given)
    t.match(fault, { of, why })
    for (const line of one.key.split('\n').filter(line => line !== '')) {
      if (!line.startsWith('-----')) t.notOk(fault?.why.includes(line))
    }
  }
})

/**
 * `homing doctor` about engines behind TLS. Certificates are made by openssl; TLS ends in this process, in
 * front of a simulated engine.
 */

import { type AddressInfo, connect } from 'node:net'
import { createServer } from 'node:tls'
import { NO_OPENSSL, selfSigned } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { DoctorWorld } from './doctor-world.ts'

const skip = NO_OPENSSL

interface Front {
  readonly port: number
  /** The certificate, signed by itself. */
  readonly file: string
}

/** What comes to it goes to the engine, decrypted. */
async function tlsFront(t: Test, enginePort: number, name: string): Promise<Front> {
  const folder = t.testdir({})
  const { key, certificate: cert, certificateFile: file } = selfSigned(folder, 'front', name)
  const server = createServer({ key, cert }, socket => {
    const behind = connect(enginePort, '127.0.0.1')
    socket.pipe(behind).pipe(socket)
    for (const one of [socket, behind]) {
      one.on('error', () => {
        socket.destroy()
        behind.destroy()
      })
    }
  })
  server.on('tlsClientError', () => {})
  t.teardown(() => server.close())
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return { port: (server.address() as AddressInfo).port, file }
}

t.test('with its certificate an engine behind TLS is well', { skip }, async t => {
  const world = new DoctorWorld(t)
  const { port } = await world.engine(t)
  const front = await tlsFront(t, port, 'IP:127.0.0.1')
  const found = await world.look(`https://127.0.0.1:${front.port}`, { engineCaFile: front.file, sends: true })
  t.match(found, { exitCode: 0, reachable_trust: 'exact' })
})

t.test('what is wrong with TLS is said, with what would be right', { skip }, async t => {
  const { port } = await new DoctorWorld(t).engine(t)
  const good = await tlsFront(t, port, 'IP:127.0.0.1')
  for (const [url, remedy] of [
    [`https://127.0.0.1:${good.port}`, /certificate: give it.*--engine-ca-file/],
    [`http://127.0.0.1:${good.port}`, /https:\/\/ for an engine with TLS/],
    [`https://127.0.0.1:${port}`, /write http:\/\//],
  ] as const) {
    // Of its own: certificates are believed before the first call over TLS.
    const found = await new DoctorWorld(t).look(url)
    t.match(found, { exitCode: 3, findings: [{ level: 'fault', about: 'answers', remedy }] }, url)
  }
})

t.test('a certificate for another name is said', { skip }, async t => {
  const world = new DoctorWorld(t)
  const { port } = await world.engine(t)
  const front = await tlsFront(t, port, 'DNS:elsewhere.example')
  const found = await world.look(`https://127.0.0.1:${front.port}`, { engineCaFile: front.file })
  t.match(found, { exitCode: 3, findings: [{ remedy: /for another host name/ }] })
})

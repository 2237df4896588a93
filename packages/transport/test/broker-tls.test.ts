/** Connections to a broker that wants TLS, and to one that has none. Certificates are made by openssl. */

import { type AddressInfo, createServer } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { systemClock } from '@homing/base'
import t, { type Test } from 'tap'
import { type BrokerAccess, setBrokerAccess, systemTransport } from '../src/index.ts'
import { NatsServer, NO_NATS_SERVER, NO_OPENSSL, type SelfSigned, selfSigned } from '../src/testing.ts'

const skip = NO_NATS_SERVER || NO_OPENSSL

/** Why there is no connection; undefined: there is one. */
async function refusalOf(t: Test, address: string, access: BrokerAccess): Promise<string | undefined> {
  setBrokerAccess(access)
  t.teardown(() => setBrokerAccess({}))
  let refused: (reason: string) => void = () => {}
  const refusal = new Promise<string>(resolve => {
    refused = resolve
  })
  const log = { warn: (fields: Readonly<Record<string, unknown>>) => refused(String(fields['reason'])) }
  const { messages, close } = systemTransport({ clock: systemClock, log })
  t.teardown(close)
  const connected = new Promise<undefined>(resolve => {
    messages.present(
      { endpoint: `nats://${address}/homing.tls`, card: undefined },
      { present() {}, gone() {}, connected: () => resolve(undefined) },
    )
  })
  return Promise.race([connected, refusal])
}

t.test('certificates that are given are believed besides those of Node', { skip }, async t => {
  const folder = t.testdir({})
  const [ofBroker, other] = [selfSigned(folder, 'broker'), selfSigned(folder, 'other')]
  const brokerAt = async (t: Test): Promise<string> => {
    const configuration = [
      `tls { cert_file: "${ofBroker.certificateFile}", key_file: "${ofBroker.keyFile}" }`,
    ]
    const server = await NatsServer.start({ configuration })
    t.teardown(() => server.stop())
    return server.address
  }
  const pem = ({ certificate }: SelfSigned): string => certificate

  t.match(await refusalOf(t, await brokerAt(t), {}), /self-signed certificate/)
  t.match(
    await refusalOf(t, await brokerAt(t), { certificates: pem(other) }),
    /self-signed certificate/,
    'another one is none',
  )
  t.equal(await refusalOf(t, await brokerAt(t), { certificates: pem(ofBroker) }), undefined)

  const before = getCACertificates('default')
  t.teardown(() => setDefaultCACertificates(before))
  setDefaultCACertificates([...before, pem(ofBroker)])
  t.equal(
    await refusalOf(t, await brokerAt(t), { certificates: pem(other) }),
    undefined,
    'what Node believes is believed still',
  )
})

t.test(
  'an address in another spelling is no reason to believe a certificate of others',
  { skip },
  async t => {
    const ofOthers = selfSigned(t.testdir({}), 'others', 'DNS:others.example')
    const configuration = [
      `tls { cert_file: "${ofOthers.certificateFile}", key_file: "${ofOthers.keyFile}" }`,
    ]
    const server = await NatsServer.start({ configuration })
    t.teardown(() => server.stop())
    const certificates = ofOthers.certificate
    for (const host of ['127.0.0.1', '127.1']) {
      const address = server.address.replace('127.0.0.1', host)
      t.match(await refusalOf(t, address, { certificates }), /does not match certificate/, host)
    }
  },
)

t.test('with certificates, a broker without TLS gets no login', { skip: NO_OPENSSL }, async t => {
  const { certificate: certificates } = selfSigned(t.testdir({}), 'broker')
  let heard = ''
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.on('data', data => {
      heard += data.toString()
    })
    socket.write('INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"proto":1}\r\n')
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const access = { token: 'secret', certificates }
  t.match(await refusalOf(t, address, access), /tls/i)
  t.equal(heard, '')
})

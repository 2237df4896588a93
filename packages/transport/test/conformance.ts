/** The promises of every transport; run against sockets and against memory. */

import type { Test } from 'tap'
import type { HttpExchange, Transport } from '../src/index.ts'
import { testHttp } from './http-conformance.ts'
import { callInto, HOST, Inbox } from './inbox.ts'
import { subscribe, testMessages } from './message-conformance.ts'

/** `createTransport` gives transports that can reach each other. */
export function testTransport(t: Test, createTransport: (t: Test) => Transport): void {
  testHttp(t, createTransport)
  testMessages(t, createTransport)

  t.test('nothing is called after close, and close ends everything', async t => {
    const transport = createTransport(t)
    const other = createTransport(t)
    const publisher = await transport.messages.publish({ endpoint: `tcp://${HOST}:0` })
    const exchanges = new Inbox<HttpExchange>()
    const listener = await transport.http.listen({ host: HOST, port: 0 }, exchanges.put)
    const own = subscribe(t, transport, publisher.endpoint)
    const foreign = subscribe(t, other, publisher.endpoint)
    t.equal(await own.inbox.next('the connection'), 'connected')
    t.equal(await foreign.inbox.next('the connection'), 'connected')
    const { inbox } = callInto(other, { origin: `http://${HOST}:${listener.port}`, method: 'GET', path: '/' })
    await exchanges.next('the request')
    transport.close()
    transport.close()
    t.equal(await foreign.inbox.next('the disconnection'), 'disconnected')
    t.match(await inbox.next('the failure'), { type: 'failed' })
    t.equal(own.inbox.size, 0)
  })
}

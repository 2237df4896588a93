import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { systemClock } from '@homing/clock'
import t from 'tap'
import { giveUpBytes, type HttpCall, systemTransport } from '../src/index.ts'

const LONG = 64 * 1024

t.test('the memory of a long array is free at once', async t => {
  const bytes = new Uint8Array(LONG)
  giveUpBytes(bytes)
  t.equal(bytes.length, 0)
})

t.test('short arrays, parts of others and shared memory stay as they are', async t => {
  const part = new Uint8Array(new ArrayBuffer(2 * LONG), 0, LONG)
  const behind = new Uint8Array(new ArrayBuffer(2 * LONG), LONG)
  const shared = new Uint8Array(new SharedArrayBuffer(LONG))
  const short = new Uint8Array(100)
  for (const bytes of [part, behind, shared, short]) {
    const { length } = bytes
    giveUpBytes(bytes)
    t.equal(bytes.length, length)
  }
})

t.test('a body is in use until its call has ended and the operating system has taken all of it', async t => {
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  // Longer than the buffers of a connection that nobody reads.
  const body = new Uint8Array(32 * 2 ** 20).fill(0x61)
  for (const readsFirst of [true, false]) {
    let received = 0
    const server = createServer((socket: Socket) => {
      const answer = (): void => void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok')
      const count = (piece: Buffer): void => {
        received += piece.length
        if (received > body.length) answer()
      }
      if (readsFirst) socket.on('data', count)
      else socket.once('readable', answer)
      socket.on('error', () => {})
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    let call: HttpCall | undefined
    const usesBody = await new Promise<boolean>((resolve, reject) => {
      call = transport.http.call(
        { origin: `http://127.0.0.1:${port}`, method: 'POST', path: '/', body },
        { head() {}, data() {}, end: () => resolve(call!.usesBody), failed: reject },
      )
      t.equal(call.usesBody, true, 'before its end')
    })
    t.equal(usesBody, !readsFirst, readsFirst ? 'all of it was taken' : 'some of it waits')
    server.close()
  }
  transport.close()
})

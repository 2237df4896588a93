import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { systemClock } from '@homing/base'
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
    const sockets: Socket[] = []
    const server = createServer((socket: Socket) => {
      sockets.push(socket)
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
    for (const socket of sockets) socket.destroy()
    await untilUnused(call!)
    server.close()
  }
  transport.close()
})

t.test('the body of a call that fails or is aborted is in use no more, wherever that was', async t => {
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  const body = new Uint8Array(32 * 2 ** 20)
  const sockets: Socket[] = []
  const server = createServer((socket: Socket) => void sockets.push(socket))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const begin = (to: number) => {
    let isSent = (): void => {}
    const sent = new Promise<void>(resolve => {
      isSent = resolve
    })
    let isFailed = (): void => {}
    const failed = new Promise<void>(resolve => {
      isFailed = resolve
    })
    const origin = `http://127.0.0.1:${to}`
    const handler = { sent: isSent, head() {}, data() {}, end() {}, failed: isFailed }
    return { call: transport.http.call({ origin, method: 'POST', path: '/', body }, handler), sent, failed }
  }
  const early = begin(port)
  early.call.abort()
  await early.failed
  await untilUnused(early.call)
  const writing = begin(port)
  await writing.sent
  writing.call.abort()
  await writing.failed
  t.equal(writing.call.usesBody, true, 'the connection is still there')
  await untilUnused(writing.call)
  const cut = begin(port)
  await cut.sent
  while (sockets.length === 0) await setImmediate()
  server.close()
  const seeker = setInterval(() => {
    for (const socket of sockets) socket.destroy()
  }, 1)
  await cut.failed
  clearInterval(seeker)
  await untilUnused(cut.call)
  const refused = begin(port)
  await refused.failed
  t.equal(refused.call.usesBody, false, 'no connection has ever had it')
  transport.close()
})

/** Never, where a call keeps its body: then the test is stopped. */
async function untilUnused(call: HttpCall): Promise<void> {
  while (call.usesBody) await setImmediate()
}

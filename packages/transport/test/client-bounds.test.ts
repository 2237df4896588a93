/** Clients that stop in the middle: of sending, or of reading. Real sockets, simulated time. */

import { once } from 'node:events'
import { setImmediate } from 'node:timers/promises'
import { SimulatedClock } from '@homing/base'
import t, { type Test } from 'tap'
import {
  type BodyRoom,
  type ClientGoneReason,
  type HttpExchange,
  MemoryNetwork,
  systemTransport,
} from '../src/index.ts'
import { StallWatch } from '../src/stall-watch.ts'
import { bounded, bytes, callInto, Inbox, text, until } from './inbox.ts'
import { type Link, overEach } from './links.ts'

const BOUNDS = { bodySilenceMsMax: 60_000, readerStallMsMax: 120_000 }

async function serve(t: Test, link: Link, onExchange: (exchange: HttpExchange) => void) {
  const clock = new SimulatedClock()
  const transport = systemTransport({ clock, log: { warn() {} } })
  const { tls } = link
  const listener = await transport.http.listen({ host: '127.0.0.1', port: 0, tls, ...BOUNDS }, onExchange)
  const socket = await link.open(listener.port)
  socket.on('error', () => {})
  t.teardown(() => {
    socket.destroy()
    transport.close()
  })
  return { clock, socket }
}

/** Once the server has seen the end of its connection, too. */
async function timersLeft(clock: SimulatedClock): Promise<number> {
  await until(() => clock.pendingCount === 0, 'the last timer to go')
  return clock.pendingCount
}

/** Room for everything; `taken` tells how much has come. */
function unboundedRoom(taken: Inbox<number>): BodyRoom {
  return { check() {}, take: taken.put }
}

overEach(t, 'a body may take long, but not be silent for long', async (t, link) => {
  const taken = new Inbox<number>()
  const outcomes = new Inbox<unknown>()
  const { clock, socket } = await serve(t, link, exchange => {
    exchange.readBody(1000, unboundedRoom(taken)).catch(error => {
      outcomes.put(error)
      exchange.writeHead(408, {})
      exchange.end(bytes('too slow'))
    })
  })
  const received = new Inbox<string>()
  socket.on('data', data => received.put(data.toString('latin1')))
  socket.on('close', () => received.put('closed'))
  socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n')
  for (let piece = 0; piece < 5; piece++) {
    socket.write('abc')
    await taken.next('the piece')
    clock.advance(59_999)
  }
  await setImmediate()
  t.equal(outcomes.size, 0, 'five minutes with a byte in each are fine')
  clock.advance(1)
  t.match(await outcomes.next('the refusal'), {
    code: 'HOMING_TRANSPORT_BODY_TIMEOUT',
    message: 'cannot read the body: nothing came for 60000 ms after 15 bytes',
  })
  const answer = await received.next('the answer')
  t.match(answer, /^HTTP\/1\.1 408 /)
  t.match(answer, /connection: close/i)
  t.equal(await received.next('the close'), 'closed')
  t.equal(await timersLeft(clock), 0, 'no timer is left')
})

overEach(
  t,
  'a body that comes a byte for each pause ends at last, and a slow one that goes on does not',
  async (t, link) => {
    const taken = new Inbox<number>()
    const outcomes = new Inbox<unknown>()
    const { clock, socket } = await serve(t, link, exchange => {
      exchange.readBody(1e6, unboundedRoom(taken)).catch(outcomes.put)
    })
    socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n')
    // 4,096 bytes a second are as slow as it may come for ever.
    for (let piece = 0; piece < 20; piece++) {
      socket.write('a'.repeat(8192))
      for (let came = 0; came < 8192; ) came += await taken.next('the piece')
      clock.advance(2000)
    }
    let minutes = 0
    while (outcomes.size === 0 && minutes < 12) {
      socket.write('a')
      await taken.next('the byte')
      clock.advance(59_999)
      await setImmediate()
      minutes++
    }
    t.equal(minutes, 11, 'ten minutes are lent')
    t.match(await outcomes.next('the refusal'), {
      code: 'HOMING_TRANSPORT_BODY_TOO_SLOW',
      message: /^cannot read the body: only 163851 bytes came in \d+ ms$/,
    })
    t.equal(await timersLeft(clock), 0, 'no timer is left')
  },
)

overEach(t, 'a body that has come is not waited for', async (t, link) => {
  const bodies = new Inbox<Uint8Array>()
  const { clock, socket } = await serve(t, link, exchange => exchange.readBody(1e6).then(bodies.put))
  // In pieces of one byte, more than are kept apart.
  const body = 'abcdefg'.repeat(700)
  const chunks = [...body].map(letter => `1\r\n${letter}\r\n`).join('')
  socket.write(`POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`)
  t.equal(text(await bodies.next('the body')), body)
  t.equal(await timersLeft(clock), 0)
})

overEach(
  t,
  'a body for which there is no room is refused as it comes, or by its announced length',
  async (t, link) => {
    const errors = new Inbox<unknown>()
    const full = new Error('no room')
    const refuse = (): void => {
      throw full
    }
    const rooms: BodyRoom[] = [
      { check: refuse, take() {} },
      { check() {}, take: refuse },
    ]
    for (const room of rooms) {
      const { clock, socket } = await serve(t, link, exchange => {
        exchange.readBody(1000, room).catch(error => {
          errors.put(error)
          exchange.writeHead(503, {})
          exchange.end()
        })
      })
      const closed = once(socket, 'close')
      socket.resume().write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc')
      t.equal(await errors.next('the refusal'), full)
      await bounded(closed, 'the connection to be closed')
      t.equal(await timersLeft(clock), 0)
    }
  },
)

for (const hasEnded of [false, true]) {
  overEach(
    t,
    `a client that takes nothing is cut, ${hasEnded ? 'also after' : 'before'} the end of its answer`,
    async (t, link) => {
      const gone = new Inbox<ClientGoneReason>()
      const { clock, socket } = await serve(t, link, exchange => {
        exchange.onClientGone(gone.put)
        if (hasEnded) return exchange.end(new Uint8Array(64 * 2 ** 20))
        const piece = new Uint8Array(256 * 1024)
        const writeOn = (): void => {
          while (exchange.write(piece));
          exchange.onDrain(writeOn)
        }
        writeOn()
      })
      socket.pause()
      const closed = once(socket, 'close')
      socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
      while (gone.size === 0) {
        await setImmediate()
        clock.advance(1000)
      }
      t.equal(await gone.next('the cut'), 'stalled')
      socket.resume()
      await bounded(closed, 'the connection to be cut')
      t.equal(await timersLeft(clock), 0)
    },
  )
}

overEach(t, 'a client that reads slowly is left alone', async (t, link) => {
  const total = 48 * 2 ** 20
  const gone = new Inbox<string>()
  const { clock, socket } = await serve(t, link, exchange => {
    exchange.onClientGone(reason => gone.put(reason))
    exchange.end(new Uint8Array(total))
  })
  let received = 0
  socket.on('data', data => {
    received += data.length
  })
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  // Reads 4 MiB, pauses for a minute; one write of the server, so that only its parts show that it goes on.
  for (let goal = 4 * 2 ** 20; received < total; goal += 4 * 2 ** 20) {
    await until(() => received >= Math.min(goal, total) || gone.size > 0, `${goal} bytes`)
    socket.pause()
    clock.advance(60_000)
    await setImmediate()
    if (gone.size > 0) break
    socket.resume()
  }
  t.equal(gone.size, 0)
  t.ok(received >= total, `${received} of ${total} bytes have come`)
})

overEach(t, 'an answer that waits for another one of its connection is not cut for it', async (t, link) => {
  const exchanges = new Inbox<HttpExchange>()
  const gone = new Inbox<string>()
  const { clock, socket } = await serve(t, link, exchange => {
    exchange.onClientGone(reason => gone.put(reason))
    exchanges.put(exchange)
  })
  socket.resume().write('GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /2 HTTP/1.1\r\nhost: x\r\n\r\n')
  const first = await exchanges.next('the first')
  const second = await exchanges.next('the second')
  second.end(bytes('two'))
  clock.advance(600_000)
  await setImmediate()
  t.equal(gone.size, 0)
  const closed = once(socket, 'close')
  first.end(bytes('one'))
  t.equal(await timersLeft(clock), 0, 'both have been sent')
  socket.destroy()
  await closed
})

overEach(t, 'a body that is not read ends with its answer, unless it is short', async (t, link) => {
  for (const head of ['transfer-encoding: chunked', 'content-length: 65537', 'content-length: 1000']) {
    const received = new Inbox<string>()
    const { clock, socket } = await serve(t, link, exchange => {
      exchange.writeHead(401, { 'content-length': '2' })
      exchange.end(bytes('no'))
    })
    const closed = once(socket, 'close')
    let text = ''
    socket.on('data', data => {
      text += data
      if (text.endsWith('no')) received.put(text)
    })
    socket.write(`POST / HTTP/1.1\r\nhost: x\r\n${head}\r\n\r\n`)
    const answer = await received.next('the answer')
    t.equal(/connection: close/i.test(answer), head !== 'content-length: 1000', head)
    if (head === 'content-length: 1000') {
      socket.write(`${'x'.repeat(1000)}GET / HTTP/1.1\r\nhost: x\r\n\r\n`)
      text = ''
      await received.next('the answer to the next request')
      clock.advance(600_000)
      text = ''
      socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nthree')
      await received.next('the answer to one whose body does not come')
      await until(() => clock.pendingCount > 0, 'the time of its body to begin')
      // Its rest, and another one behind it: each has its own two seconds.
      socket.write('x'.repeat(995))
      clock.advance(1000)
      text = ''
      socket.write('POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nfour')
      await received.next('the answer to the next one')
      await until(() => clock.nextDueMs === clock.nowMs() + 2000, 'the time of its body to begin')
      clock.advance(2000)
    }
    await bounded(closed, 'the end of the connection')
    t.equal(await timersLeft(clock), 0)
  }
})

t.test('the network in memory keeps the same bounds', async t => {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock })
  const outcomes = new Inbox<unknown>()
  await network.transport().http.listen({ host: 'router', port: 80, ...BOUNDS }, exchange => {
    exchange.onClientGone(outcomes.put)
    if (exchange.method === 'POST') exchange.readBody(100).catch(outcomes.put)
    else exchange.write(new Uint8Array(1e6))
  })
  const client = network.transport()
  network.faults.http = ({ method }) => (method === 'POST' ? 'stall-body' : 'deliver')
  const posted = callInto(client, { origin: 'http://router:80', method: 'POST', path: '/', body: bytes('x') })
  await setImmediate()
  clock.advance(59_999)
  await setImmediate()
  t.equal(outcomes.size, 0)
  clock.advance(1)
  t.match(await outcomes.next('the refusal'), { code: 'HOMING_TRANSPORT_BODY_TIMEOUT' })
  posted.call.abort()
  t.equal(await outcomes.next('the leave'), 'left')

  const { call } = callInto(client, { origin: 'http://router:80', method: 'GET', path: '/' })
  call.pause()
  await setImmediate()
  clock.advance(119_999)
  await setImmediate()
  t.equal(outcomes.size, 0)
  clock.advance(1)
  t.equal(await outcomes.next('the cut'), 'stalled')
})

t.test('any progress starts the bound anew', t => {
  const clock = new SimulatedClock()
  let waitingBytes = 10
  let progress = 0
  let cuts = 0
  const watch = new StallWatch(clock, 100, {
    waitingBytes: () => waitingBytes,
    progress: () => progress,
    cut: () => cuts++,
  })
  watch.start()
  for (let turn = 0; turn < 10; turn++) {
    clock.advance(99)
    progress++
    watch.start()
  }
  t.equal(cuts, 0)
  waitingBytes = 0
  clock.advance(1000)
  t.strictSame([cuts, clock.pendingCount], [0, 0], 'nothing waits, nothing is looked at')
  watch.start()
  t.equal(clock.pendingCount, 0, 'an answer that was taken as it was written costs no timer')
  waitingBytes = 1
  watch.start()
  clock.advance(99)
  t.equal(cuts, 0)
  clock.advance(1)
  t.equal(cuts, 1)
  watch.stop()
  watch.stop()
  t.equal(clock.pendingCount, 0)
  t.end()
})

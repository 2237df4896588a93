/**
 * Fifty readers over real sockets, half of which take nothing: the others lose nothing by it, and no memory
 * grows. Time is simulated.
 */

import { connect, type Socket } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { SimulatedClock, systemClock } from '@homing/base'
import { EventStreams, type StreamCounts, sendOrStream } from '@homing/http'
import { systemTransport } from '@homing/transport'
import t, { type Test } from 'tap'

const READERS = 50
const PAUSE_MS = 250
const SILENCE_MS = 120_000
/** Some dozens of them fill what the system keeps for a socket. */
const FILLER = 'x'.repeat(128 * 1024)
const UPDATES_MAX = 400
/** Of real time, before another update is sent to readers that were skipped by the last one. */
const TOLD_MS_MAX = 50
const MIB = 2 ** 20
/** A twentieth of the frames of 100 updates for all silent readers. */
const GROWN_MIB_MAX = 16

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** A client that reads: what of `state` it was told last. */
class Reader {
  last = -1
  #tail = ''

  constructor(socket: Socket) {
    socket.setEncoding('latin1')
    socket.on('data', (text: unknown) => {
      this.#tail += String(text)
      const at = this.#tail.lastIndexOf('event: state\ndata: ')
      const found = /^event: state\ndata: (\d+) /.exec(this.#tail.slice(Math.max(0, at), at + 40))
      if (found !== null) this.last = Number(found[1])
      this.#tail = this.#tail.slice(-40)
    })
  }
}

async function worldOf(t: Test) {
  const clock = new SimulatedClock()
  let counts: StreamCounts | undefined
  const source = { state: 0, beat: 0 }
  const streams = new EventStreams({
    clock,
    readersMax: READERS,
    silenceMsMax: SILENCE_MS,
    pull: async () => ({
      events: [
        { event: 'state', data: `${source.state} ${FILLER}` },
        { event: 'beat', data: String(source.beat++) },
      ],
      pauseMs: PAUSE_MS,
    }),
    told: told => {
      counts = told
    },
  })
  const transport = systemTransport({ clock: systemClock, log: { warn() {} } })
  const headers = { 'content-type': 'text/event-stream' }
  const { port } = await transport.http.listen({ host: '127.0.0.1', port: 0 }, exchange => {
    sendOrStream(exchange, { status: 200, headers, body: new Uint8Array(0) }, streams)
  })
  const sockets: Socket[] = []
  t.teardown(() => {
    streams.close()
    for (const socket of sockets) socket.destroy()
    transport.close()
  })
  const open = async (): Promise<Socket> => {
    const socket = connect({ port, host: '127.0.0.1' })
    socket.on('error', () => {})
    sockets.push(socket)
    const before = counts?.readers ?? 0
    socket.write('GET /live HTTP/1.1\r\nhost: x\r\n\r\n')
    while ((counts?.readers ?? 0) === before && counts?.refusedReaders !== 1) await turn()
    return socket
  }
  /** One update, and what follows from it at once. */
  const pass = async (): Promise<void> => {
    clock.advance(PAUSE_MS)
    for (let i = 0; i < 5; i++) await turn()
  }
  return { source, open, pass, counts: () => counts! }
}

function turn(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}

function heldBytes(): number {
  collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

t.test('of fifty readers half take nothing: the others are told all, and nothing piles up', async t => {
  const { source, open, pass, counts } = await worldOf(t)
  const silent: Socket[] = []
  const readers: Reader[] = []
  for (let i = 0; i < READERS; i++) {
    const socket = await open()
    if (i % 2 === 0) silent.push(socket)
    else readers.push(new Reader(socket))
  }
  t.equal(counts().readers, READERS)

  const oneMore = await open()
  const refusal = await new Promise<string>(resolve => oneMore.once('data', data => resolve(String(data))))
  t.match(refusal, /^HTTP\/1\.1 503 /)
  t.match(refusal, /retry-after: 1/)
  t.match(refusal, /cannot open another tab of the page: 50 are open \(--page-tabs-max\)/)
  oneMore.destroy()

  const update = async (): Promise<void> => {
    source.state++
    await pass()
  }
  // A reader that is in time is skipped now and then, too, so all silent ones are held back when as many are,
  // update after update.
  for (let held = 0; held < 20; ) {
    t.ok(source.state < UPDATES_MAX, 'what the system keeps for a socket is full in the end')
    if (source.state >= UPDATES_MAX) return
    const before = counts().skippedFrames
    await update()
    held = counts().skippedFrames - before >= silent.length ? held + 1 : 0
  }
  const isTold = (): boolean => readers.every(({ last }) => last === source.state)
  const untilTold = async (): Promise<void> => {
    for (let i = 0; i < 100 && !isTold(); i++) {
      await pass()
      const endMs = systemClock.nowMs() + TOLD_MS_MAX
      while (!isTold() && systemClock.nowMs() < endMs) await turn()
    }
  }
  /** Memory once all readers have all events: frames on their way are no leak. */
  const keptBytes = async (): Promise<number> => {
    await untilTold()
    return heldBytes()
  }
  const before = await keptBytes()
  for (let i = 0; i < 100; i++) await update()
  let grownMib = ((await keptBytes()) - before) / MIB
  // Buffers that V8 has collected are let go when a thread of its own finds the time.
  for (let look = 0; look < 100 && grownMib >= GROWN_MIB_MAX; look++) {
    await turn()
    grownMib = (heldBytes() - before) / MIB
  }
  t.comment(`${source.state} updates, ${grownMib.toFixed(1)} MiB more`)
  t.ok(
    grownMib < GROWN_MIB_MAX,
    `${grownMib.toFixed(1)} MiB more after 100 updates that ${silent.length} readers did not take`,
  )

  await untilTold()
  t.ok(isTold(), 'those who read know the last state')
  t.equal(counts().cutReaders, 0)
  for (let ms = 0; ms < SILENCE_MS + PAUSE_MS; ms += PAUSE_MS) await pass()
  t.match(counts(), { readers: readers.length, cutReaders: silent.length, refusedReaders: 1 })
  await update()
  await untilTold()
  t.ok(isTold(), 'they go on')
})

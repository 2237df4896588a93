/** Event streams with readers that read, that do not, and that are too many. */

import { SimulatedClock } from '@homing/base'
import { EventStreams, type StreamCounts, type StreamEvent } from '@homing/http'
import type { HttpExchange } from '@homing/transport'
import t from 'tap'

const HEADERS = { 'content-type': 'text/event-stream' }
const SILENCE_MS = 10_000
const PAUSE_MS = 250

/** A client whose socket takes as much as the test says. */
class Client {
  text = ''
  isCut = false
  isEnded = false
  hasRoom = true
  #gone: () => void = () => {}
  #drained: () => void = () => {}

  readonly exchange = {
    isClosed: false,
    onClientGone: (callback: () => void) => {
      this.#gone = callback
    },
    writeHead: () => {},
    write: (bytes: Uint8Array) => {
      this.text += new TextDecoder().decode(bytes)
      return this.hasRoom
    },
    onDrain: (callback: () => void) => {
      this.#drained = callback
    },
    end: () => {
      this.isEnded = true
    },
    destroy: () => {
      this.isCut = true
    },
  } as unknown as HttpExchange

  leave(): void {
    this.#gone()
  }

  drain(): void {
    this.hasRoom = true
    this.#drained()
  }

  /** Data of an event, in the order in which they came. */
  dataOf(event: string): string[] {
    return [...this.text.matchAll(new RegExp(`event: ${event}\\ndata: (.*)\\n\\n`, 'g'))].map(
      ([, data]) => data!,
    )
  }
}

function world(readersMax = 3) {
  const clock = new SimulatedClock()
  const source = {
    events: [] as StreamEvent[],
    pulls: [] as boolean[],
    fails: false,
    rules: undefined as string | undefined,
  }
  const stays: { asked: HttpExchange[]; answer: () => Promise<boolean> } = {
    asked: [],
    answer: async () => true,
  }
  let counts: StreamCounts | undefined
  const streams = new EventStreams({
    clock,
    readersMax,
    silenceMsMax: SILENCE_MS,
    pull: async isFirst => {
      source.pulls.push(isFirst)
      if (source.fails) throw new Error('no answer')
      return { events: source.events, pauseMs: PAUSE_MS, rules: source.rules }
    },
    mayStay: exchange => {
      stays.asked.push(exchange)
      return stays.answer()
    },
    told: told => {
      counts = told
    },
  })
  const open = () => {
    const client = new Client()
    return { client, isOpen: streams.open(client.exchange, HEADERS) }
  }
  return { clock, source, stays, streams, open, counts: () => counts! }
}

const event = (name: string, data: string): StreamEvent => ({ event: name, data })

/** Lets promises run that are due at this time. */
async function pass(clock: SimulatedClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= PAUSE_MS) {
    await settled()
    clock.advance(Math.min(left, PAUSE_MS))
  }
  await settled()
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await Promise.resolve()
}

t.test('the source is asked only while somebody reads, as often for many as for one', async t => {
  const { clock, source, open } = world()
  await pass(clock, 5000)
  t.equal(source.pulls.length, 0)
  const readers = [open(), open(), open()]
  await pass(clock, 1000)
  t.equal(source.pulls.length, 5)
  t.strictSame(source.pulls, [true, false, false, false, false])
  for (const { client } of readers) client.leave()
  await pass(clock, 5000)
  t.equal(source.pulls.length, 5)
  open()
  await pass(clock, 1)
  t.equal(source.pulls.at(-1), true)
})

t.test('an event goes out when its data has changed, and whoever comes later gets all of them', async t => {
  const { clock, source, open } = world()
  source.events = [event('a', '1'), event('b', '1')]
  const { client } = open()
  await pass(clock, 1000)
  t.strictSame([client.dataOf('a'), client.dataOf('b')], [['1'], ['1']])
  source.events = [event('a', '1'), event('b', '2')]
  await pass(clock, 1000)
  t.strictSame([client.dataOf('a'), client.dataOf('b')], [['1'], ['1', '2']])
  const { client: late } = open()
  await pass(clock, 1000)
  t.strictSame([late.dataOf('a'), late.dataOf('b')], [['1'], ['2']])
})

t.test(
  'one that takes nothing is skipped, gets everything anew when it reads again, and is cut in the end',
  async t => {
    const { clock, source, open, counts } = world()
    source.events = [event('a', '1'), event('b', '1')]
    const { client: slow } = open()
    const { client: other } = open()
    slow.hasRoom = false
    await pass(clock, 500)
    for (const data of ['2', '3', '4']) {
      source.events = [event('a', data), event('b', '1')]
      await pass(clock, PAUSE_MS)
    }
    t.strictSame(other.dataOf('a'), ['1', '2', '3', '4'])
    t.strictSame(slow.dataOf('a'), ['1'])
    t.equal(counts().skippedFrames, 3)
    slow.drain()
    source.events = [event('a', '5'), event('b', '1')]
    await pass(clock, PAUSE_MS)
    t.strictSame(
      [slow.dataOf('a'), slow.dataOf('b')],
      [
        ['1', '5'],
        ['1', '1'],
      ],
    )
    slow.hasRoom = false
    source.events = [event('a', '6'), event('b', '1')]
    await pass(clock, SILENCE_MS - 1000)
    t.equal(slow.isCut, false)
    await pass(clock, 2000)
    t.equal(slow.isCut, true)
    t.match(counts(), { readers: 1, cutReaders: 1 })
    t.equal(other.isCut, false)
  },
)

t.test('one more than may be is refused, until another leaves', async t => {
  const { clock, open, counts } = world(2)
  const { client } = open()
  open()
  t.equal(open().isOpen, false)
  t.match(counts(), { readers: 2, refusedReaders: 1 })
  client.leave()
  t.equal(open().isOpen, true)
  await pass(clock, PAUSE_MS)
})

t.test('a source that fails is asked again', async t => {
  const { clock, source, open } = world()
  source.fails = true
  source.events = [event('a', '1')]
  const { client } = open()
  await pass(clock, 3000)
  t.ok(source.pulls.length >= 3)
  source.fails = false
  await pass(clock, 1000)
  t.strictSame(client.dataOf('a'), ['1'])
})

t.test('a reader is asked for when the rules have changed, and ends if it may not stay', async t => {
  const { clock, source, stays, open, counts } = world()
  const { client } = open()
  await pass(clock, 1000)
  t.equal(stays.asked.length, 0, 'there are no rules')
  source.rules = 'a'
  await pass(clock, 1000)
  t.strictSame(stays.asked, [client.exchange], 'once')
  const { client: other } = open()
  await pass(clock, 1000)
  t.strictSame(stays.asked, [client.exchange, other.exchange], 'one that has come since')
  source.rules = 'b'
  stays.answer = async () => {
    throw new Error('no answer')
  }
  await pass(clock, 1000)
  t.notOk(client.isEnded, 'it is not known')
  stays.answer = async () => stays.asked.at(-1) !== client.exchange
  await pass(clock, 1000)
  t.strictSame([client.isEnded, other.isEnded, counts().readers], [true, false, 1])
  source.events = [event('a', '1')]
  await pass(clock, 1000)
  t.strictSame([client.dataOf('a'), other.dataOf('a')], [[], ['1']])
})

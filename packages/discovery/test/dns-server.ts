/** For tests: a DNS server over UDP, with the records that a test gives it. */

import { createSocket, type Socket } from 'node:dgram'

const TYPES = { 1: 'A', 28: 'AAAA', 33: 'SRV' } as const
export type DnsRecord =
  | { readonly type: 'A' | 'AAAA'; readonly address: string; readonly ttl?: number }
  | {
      readonly type: 'SRV'
      readonly target: string
      readonly port: number
      readonly priority?: number
      readonly ttl?: number
    }

/** How it answers: as it should, with SERVFAIL, or not at all. */
export type DnsMood = 'well' | 'servfail' | 'silent'

export class DnsServer {
  readonly #socket: Socket
  readonly #records = new Map<string, readonly DnsRecord[]>()
  mood: DnsMood = 'well'
  /** Of single names, in place of `mood`. */
  readonly moods = new Map<string, DnsMood>()
  /** Questions that came, as 'A name'. */
  readonly log: string[] = []

  private constructor(socket: Socket) {
    this.#socket = socket
    socket.on('message', (message, { port, address }) => {
      const answer = this.#answer(message)
      if (answer !== undefined) socket.send(answer, port, address)
    })
  }

  static async start(): Promise<DnsServer> {
    const socket = createSocket('udp4')
    await new Promise<void>(resolve => socket.bind(0, '127.0.0.1', resolve))
    return new DnsServer(socket)
  }

  /** 'address:port'. */
  get address(): string {
    return `127.0.0.1:${this.#socket.address().port}`
  }

  /** None: the name is not there. */
  set(name: string, records: readonly DnsRecord[]): void {
    if (records.length === 0) this.#records.delete(name)
    else this.#records.set(name, records)
  }

  async stop(): Promise<void> {
    await new Promise<void>(resolve => this.#socket.close(() => resolve()))
  }

  #answer(message: Buffer): Buffer | undefined {
    const { name, end } = readName(message, 12)
    const type = TYPES[message.readUInt16BE(end) as keyof typeof TYPES] ?? 'other'
    this.log.push(`${type} ${name}`)
    const mood = this.moods.get(name) ?? this.mood
    if (mood === 'silent') return undefined
    const known = this.#records.get(name)
    const records = mood === 'well' ? (known ?? []).filter(record => record.type === type) : []
    const code = mood === 'servfail' ? 2 : known === undefined ? 3 : 0
    const header = Buffer.alloc(12)
    message.copy(header, 0, 0, 2)
    // An answer with authority, recursion wanted and to be had.
    header.writeUInt16BE(0x8580 | code, 2)
    header.writeUInt16BE(1, 4)
    header.writeUInt16BE(records.length, 6)
    return Buffer.concat([header, message.subarray(12, end + 4), ...records.map(recordBytes)])
  }
}

function recordBytes(record: DnsRecord): Buffer {
  const data = dataOf(record)
  const head = Buffer.alloc(12)
  // The name stands in the question.
  head.writeUInt16BE(0xc00c, 0)
  head.writeUInt16BE(record.type === 'A' ? 1 : record.type === 'AAAA' ? 28 : 33, 2)
  head.writeUInt16BE(1, 4)
  head.writeUInt32BE(record.ttl ?? 1, 6)
  head.writeUInt16BE(data.length, 10)
  return Buffer.concat([head, data])
}

function dataOf(record: DnsRecord): Buffer {
  if (record.type !== 'SRV') {
    if (record.type === 'A') return Buffer.from(record.address.split('.').map(Number))
    const [left, right = ''] = record.address.split('::')
    const groups = (text: string): number[] =>
      text === '' ? [] : text.split(':').map(group => Number.parseInt(group, 16))
    const [first, last] = [groups(left!), groups(right)]
    const all = [...first, ...Array<number>(8 - first.length - last.length).fill(0), ...last]
    return Buffer.from(all.flatMap(group => [group >> 8, group & 255]))
  }
  const head = Buffer.alloc(6)
  head.writeUInt16BE(record.priority ?? 0, 0)
  head.writeUInt16BE(1, 2)
  head.writeUInt16BE(record.port, 4)
  return Buffer.concat([head, nameBytes(record.target)])
}

function nameBytes(name: string): Buffer {
  const labels = name
    .split('.')
    .map(label => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]))
  return Buffer.concat([...labels, Buffer.from([0])])
}

function readName(message: Buffer, from: number): { readonly name: string; readonly end: number } {
  const labels: string[] = []
  let at = from
  for (let length = message[at]!; length > 0; length = message[at]!) {
    labels.push(message.toString('latin1', at + 1, at + 1 + length))
    at += length + 1
  }
  return { name: labels.join('.').toLowerCase(), end: at + 1 }
}

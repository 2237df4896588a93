/** What a header claims is not believed: a stranger needs no login to send bytes to a replica. */

import { encode } from '@msgpack/msgpack'
import t from 'tap'
import {
  decodeBatch,
  decodeDigests,
  decodeMoved,
  decodeOpenDigests,
  decodeSnapshotPart,
  decodeWaiting,
  isBye,
  isQuestion,
} from '../src/index.ts'

const READERS = {
  decodeBatch,
  decodeDigests,
  decodeMoved,
  decodeOpenDigests,
  decodeSnapshotPart,
  decodeWaiting,
  isBye,
  isQuestion,
}
const LIFE = '0123456789abcdef'

/** 142 bytes: arrays within each other, each of which says that it has 2^24 elements. */
function claims(): Uint8Array {
  const claim = [0xdd, 0x01, 0x00, 0x00, 0x00]
  return Uint8Array.from([0x9f, 0x01, ...new Array<number[]>(28).fill(claim).flat()])
}

/** Empty maps, of a byte each, which take fifty times that once they are made. */
function manyValues(count: number): Uint8Array {
  const bytes = Buffer.alloc(6 + count, 0x80)
  bytes.set([0x92, 0x01, 0xdd], 0)
  bytes.writeUInt32BE(count, 3)
  return bytes.subarray(0, 7 + count)
}

const HOSTILE: Readonly<Record<string, Uint8Array>> = {
  'arrays that claim 2^24 elements': claims(),
  'a text that claims 4 GiB': Uint8Array.from([0x92, 0x01, 0xdb, 0xff, 0xff, 0xff, 0xff]),
  'bytes that claim 4 GiB': Uint8Array.from([0x92, 0x01, 0xc6, 0xff, 0xff, 0xff, 0xff]),
  'a map that claims 2^32 members': Uint8Array.from([0x92, 0x01, 0xdf, 0xff, 0xff, 0xff, 0xff]),
  'an extension': encode([1, new Date(0)]),
  'deep arrays': Uint8Array.from([0x92, 0x01, ...new Array<number>(100_000).fill(0x91), 0xc0]),
  'five million maps': manyValues(5_000_000),
}

for (const [name, bytes] of Object.entries(HOSTILE)) {
  t.test(`${name}: no reader of replicas' messages makes anything of it`, async t => {
    for (const [reader, read] of Object.entries(READERS)) {
      const before = process.memoryUsage().heapTotal
      t.notOk(read(bytes), reader)
      const grownBytes = process.memoryUsage().heapTotal - before
      t.ok(grownBytes < 32 * 2 ** 20, `${reader} takes ${grownBytes} bytes of heap`)
    }
  })
}

t.test('the largest batch that a replica sends is read', async t => {
  const operation = [0, 'i'.repeat(64), 'w'.repeat(64), 1, 2, 3, true, true, 4, 5, 's'.repeat(64)]
  const batch = decodeBatch(encode([1, LIFE, 7, new Array(65_536).fill(operation)]))
  t.equal(batch?.operations.length, 65_536)
})

t.test('a part of a snapshot has no more bookings than a replica puts into one', async t => {
  const booking = [0, 'i', 'w', 1, 2, 3, true, true, 4, 5, null, false]
  const part = (count: number) =>
    decodeSnapshotPart(encode([1, LIFE, 7, 0, 1024, new Array(count).fill(booking)]))
  t.equal(part(2000)?.bookings.length, 2000)
  t.equal(part(2001), undefined)
})

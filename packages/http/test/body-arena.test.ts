/** The arena of long bodies, against a list of all ranges that are lent. */

import { brotliCompressSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { SimulatedClock, seededRandom } from '@homing/base'
import type { BodyRoom, HttpExchange } from '@homing/transport'
import t from 'tap'
import { Bodies, BodyArena, type BodyLoan, LENT_BYTES_MIN } from '../src/index.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const ARENA_BYTES = 1024 * 1024
const STEPS = 3000

/** A body and the loans of it that are open; what was lost stays so for ever. */
interface Held {
  readonly bytes: Uint8Array
  readonly loans: BodyLoan[]
}

t.test('bytes that are lent belong to one body, whatever is taken, lent, given back and lost', async t => {
  const random = seededRandom(SEED)
  const arena = new BodyArena(ARENA_BYTES)
  const held: Held[] = []
  const lost: Uint8Array[] = []
  let refused = 0
  for (let step = 0; step < STEPS; step++) {
    const what = random.below(10)
    const at = random.below(Math.max(1, held.length))
    const one = held[at]
    if (what < 5 || one === undefined) {
      const size = LENT_BYTES_MIN + random.below(random.below(4) === 0 ? 400_000 : 40_000)
      const loan = arena.take(size)
      if (loan === undefined) refused++
      else {
        const { bytes } = loan
        const other = [...held.map(({ bytes }) => bytes), ...lost].find(known => overlaps(known, bytes))
        if (other !== undefined || bytes.length !== size)
          t.fail(`step ${step} of seed ${SEED} lends ${placeOf(bytes)}, where ${placeOf(other)} is lent`)
        held.push({ bytes, loans: [loan] })
      }
    } else if (what < 7) one.loans.push(one.loans[0]!.lend())
    else {
      const [loan] = one.loans.splice(random.below(one.loans.length), 1)
      if (random.below(100) === 0) {
        loan!.lose()
        lost.push(loan!.bytes)
      } else loan!.giveBack()
      // Once more is no more.
      loan!.giveBack()
      loan!.lose()
      if (one.loans.length === 0) held.splice(at, 1)
    }
    const bytes = held.reduce((sum, { bytes }) => sum + bytes.length, 0)
    if (arena.bytes !== bytes) t.equal(arena.bytes, bytes, `step ${step} of seed ${SEED}`)
  }
  t.ok(refused > 0 && lost.length > 0, `it was full, and lost some (seed ${SEED})`)
  for (const { loans } of held) for (const loan of loans) loan.giveBack()
  t.equal(arena.bytes, 0)
  t.equal(arena.take(ARENA_BYTES)?.bytes.length, ARENA_BYTES, 'what was given back is one piece again')
})

t.test('memory of a burst is left once no body came for a while, and not before', async t => {
  const clock = new SimulatedClock()
  const arena = new BodyArena(ARENA_BYTES, clock)
  t.equal(arena.keptBytes, 0)
  const burst = Array.from({ length: 10 }, () => arena.take(65_536)!)
  const [first] = burst
  for (const loan of burst.slice(1)) loan.giveBack()
  t.equal(arena.keptBytes, 655_360)
  clock.advance(120_000)
  t.equal(arena.keptBytes, 655_360, 'one is still open')
  first!.bytes.fill(7)
  first!.giveBack()
  const memory = first!.bytes.buffer
  for (let at = 0; at < 20; at++) {
    const loan = arena.take(65_536)!
    t.equal(loan.bytes.buffer, memory, 'bodies come and go')
    loan.giveBack()
    clock.advance(10_000)
  }
  clock.advance(60_000)
  t.equal(arena.keptBytes, 0)
  t.equal(arena.bytes, 0)
  const next = arena.take(65_536)!
  t.not(next.bytes.buffer, memory)
  t.equal(next.bytes[0], 0)
  t.equal(arena.keptBytes, 65_536)
  next.giveBack()
  clock.advance(60_000)
  t.equal(arena.keptBytes, 0, 'again')
})

t.test('what is too short, too long, or finds no room, is not taken', async t => {
  const arena = new BodyArena(ARENA_BYTES)
  t.equal(arena.take(LENT_BYTES_MIN - 1), undefined)
  t.equal(arena.take(ARENA_BYTES + 1), undefined)
  const all = arena.take(ARENA_BYTES)!
  t.equal(arena.take(LENT_BYTES_MIN), undefined)
  all.giveBack()
  t.not(arena.take(LENT_BYTES_MIN), undefined)
  t.equal(new BodyArena(2 ** 30).take(5 * 2 ** 20), undefined, 'longer than a few may be')
  t.throws(() => all.lend(), { message: /given back/ })
})

t.test('a hold gives its body back at its end, and its readers later', async t => {
  const arena = new BodyArena(ARENA_BYTES)
  const bodies = new Bodies(2 * ARENA_BYTES, () => new Error('full'), arena)
  const hold = bodies.hold()
  hold.take(LENT_BYTES_MIN)
  t.equal(hold.lend(), undefined, 'nothing lies there yet')
  const place = hold.place(LENT_BYTES_MIN)!
  t.ok(place.buffer instanceof SharedArrayBuffer)
  t.equal(hold.place(LENT_BYTES_MIN), undefined, 'a request has one body')
  const loan = hold.lend()!
  hold.release()
  t.equal(bodies.bytes, 0)
  t.equal(bodies.sharedBytes, LENT_BYTES_MIN)
  loan.giveBack()
  t.equal(bodies.sharedBytes, 0)
  hold.release()
  t.equal(hold.place(LENT_BYTES_MIN), undefined, 'its request is over')
  t.equal(bodies.sharedBytes, 0)
})

t.test('a compressed body is decoded where it lies, and gives its room back', async t => {
  const random = seededRandom(1)
  const plain = Uint8Array.from({ length: 2 * LENT_BYTES_MIN }, () => random.below(256))
  for (const [encoding, compress] of [
    ['gzip', gzipSync],
    ['br', brotliCompressSync],
    ['zstd', zstdCompressSync],
  ] as const) {
    const arena = new BodyArena(ARENA_BYTES)
    const bodies = new Bodies(2 * ARENA_BYTES, () => new Error('full'), arena)
    const given = compress(plain)
    const exchange = {
      headers: { 'content-encoding': encoding },
      async readBody(_: number, room: BodyRoom) {
        room.take(given.length)
        const place = room.place!(given.length)!
        place.set(given)
        return place
      },
    } as unknown as HttpExchange
    const hold = bodies.hold()
    const body = await hold.readDecoded(exchange, ARENA_BYTES)
    t.equal(Buffer.compare(body, plain), 0, encoding)
    t.equal(bodies.sharedBytes, 0)
    t.equal(bodies.bytes, plain.length)
    hold.release()
    t.equal(bodies.bytes, 0)
  }
})

function overlaps(one: Uint8Array, other: Uint8Array): boolean {
  return (
    one.buffer === other.buffer &&
    one.byteOffset < other.byteOffset + other.length &&
    other.byteOffset < one.byteOffset + one.length
  )
}

function placeOf(bytes: Uint8Array | undefined): string {
  return bytes === undefined ? 'nothing' : `bytes ${bytes.byteOffset} … ${bytes.byteOffset + bytes.length}`
}

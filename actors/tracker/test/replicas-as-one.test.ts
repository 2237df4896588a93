/**
 * Routers that tell each other what they book count as one router that books it all: active blocks of every
 * worker, and what of a prompt would be new there. HOMING_SEED sets the seed.
 */

import assert from 'node:assert/strict'
import process from 'node:process'
import { ActiveLoad, EngineBook } from '@homing/load'
import { decodeBatch, decodeDigests, encodeBatch, encodeDigests, withDigests } from '@homing/replication'
import fc from 'fast-check'
import t from 'tap'
import { ReplicaBookings } from '../src/replica-bookings.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
t.comment(`HOMING_SEED=${SEED}`)
const SLOTS = 2
const ROUTERS = 3
const GATEWAY = { name: 'g', life: '1' }

/** Hashes of a prompt: as text, equal beginnings are equal blocks. */
function hashesOf(prompt: string): Int32Array {
  let [low, high] = [17, 5]
  return Int32Array.from(
    [...prompt].flatMap(letter => {
      low = (Math.imul(low, 31) + letter.charCodeAt(0)) | 0
      high = (Math.imul(high, 37) ^ low) | 0
      return [low, high]
    }),
  )
}

/** `isEarlier`: a version that neither sends nor reads digests. */
function router(name: string, isEarlier = false) {
  const load = new ActiveLoad({ workerSlotsMax: SLOTS })
  const book = new EngineBook({ workerSlotsMax: SLOTS })
  const slotOf = (worker: string) => Number(worker)
  const reported = (): void => assert.fail('no router reports for another here')
  const life = name.padStart(16, '0')
  const bookings = new ReplicaBookings({ load, book, life, nowMs: () => 0, slotOf, reported })
  return {
    name,
    load,
    bookings,
    book(id: string, workerSlot: number, prompt: string) {
      const sequenceHashes = hashesOf(prompt)
      const count = prompt.length
      const tokens = { promptTokens: 16 * count, prefillTokens: 16 * count }
      assert.equal(load.book(id, workerSlot, { sequenceHashes, count, ...tokens }), 'booked')
      const of = { worker: String(workerSlot), workerSlot }
      const booking = { decisionId: id, gateway: GATEWAY, ...of, sequenceHashes, ...tokens }
      const more = { isStream: true, stepTokens: 2048 }
      bookings.booked(
        { ...booking, ...more },
        String(workerSlot),
        true,
        isEarlier ? new Int32Array(0) : sequenceHashes,
      )
    },
    free(id: string) {
      load.free(id)
      bookings.freed(id, {})
    },
    newBlocks(prompt: string): number[] {
      const hashes = hashesOf(prompt)
      const slots = Array.from({ length: SLOTS }, (_, slot) => slot)
      const projection = load.project(hashes, prompt.length, slots)
      const newBlocks = projection.newBlocks.slice(0, SLOTS)
      bookings.lessNew(hashes, slots, newBlocks)
      return [...newBlocks]
    },
    blocks: () => Array.from({ length: SLOTS }, (_, slot) => load.totals(slot).activeBlocks),
  }
}

type Router = ReturnType<typeof router>

/** What a router has to tell goes over the wire to all others. */
function tell(from: Router, others: readonly Router[], withDigest = true): void {
  const batch = from.bookings.outbox.take()
  const digests = encodeDigests(batch)
  const told = withDigest && digests !== undefined ? decodeDigests(digests) : undefined
  const { operations } = withDigests(decodeBatch(encodeBatch(batch))!, told)
  for (const other of others) other.bookings.apply(from.name, operations)
}

t.test('a prompt that is open through two routers counts once', async t => {
  const [a, b] = [router('a'), router('b')]
  const prompt = 'x'.repeat(75)
  a.book('1', 0, prompt)
  tell(a, [b])
  t.strictSame(b.newBlocks(prompt), [0, 75], 'what is active through another router is not new')
  b.book('2', 0, prompt)
  tell(b, [a])
  t.strictSame(
    [a.blocks(), b.blocks()],
    [
      [75, 0],
      [75, 0],
    ],
  )
  b.book('3', 0, `${prompt}yyyyy`)
  tell(b, [a])
  t.strictSame(
    [a.blocks(), b.blocks()],
    [
      [80, 0],
      [80, 0],
    ],
  )
  a.load.setOutputBlocks('1', 4)
  a.free('1')
  tell(a, [b])
  t.strictSame(
    [a.blocks(), b.blocks()],
    [
      [80, 0],
      [80, 0],
    ],
  )
  for (const id of ['2', '3']) b.free(id)
  tell(b, [a])
  t.strictSame(
    [a.blocks(), b.blocks()],
    [
      [0, 0],
      [0, 0],
    ],
  )
})

t.test('blocks of answers of other routers are known as such', async t => {
  const [a, b] = [router('a'), router('b')]
  const outputs = () => [...b.load.project(hashesOf('x'), 1, [0]).outputBlocks.slice(0, 1)]
  a.book('1', 0, 'x'.repeat(75))
  a.book('2', 0, 'y')
  a.load.setOutputBlocks('1', 7)
  a.free('2')
  tell(a, [b])
  t.strictSame([b.blocks(), outputs()], [[82, 0], [7]])
  // Its prompt has no digest: how much of what no digest tells is its prompt cannot be seen.
  const old = router('f', true)
  old.book('3', 0, 'abc')
  old.load.setOutputBlocks('3', 2)
  tell(old, [b])
  old.book('4', 0, 'ab')
  tell(old, [b])
  t.strictSame([b.blocks(), outputs()], [[87, 0], [7]])
  for (const id of ['3', '4']) old.free(id)
  tell(old, [b])
  a.free('1')
  tell(a, [b])
  t.strictSame([b.blocks(), outputs()], [[0, 0], [0]])
})

t.test('a router of an earlier version counts whole, as it always did', async t => {
  const [a, old] = [router('a'), router('f')]
  a.book('1', 0, 'abc')
  old.book('2', 0, 'abc')
  tell(old, [a], false)
  t.strictSame(a.blocks(), [6, 0])
  old.free('2')
  tell(old, [a], false)
  t.strictSame(a.blocks(), [3, 0])
})

t.test('a snapshot brings the digests that a batch had lost', async t => {
  const [a, b] = [router('a'), router('b')]
  a.book('1', 0, 'abcde')
  b.book('2', 0, 'abcde')
  tell(a, [b], false)
  t.strictSame(b.blocks(), [10, 0])
  b.bookings.reset('a', a.bookings.outbox.snapshot().bookings)
  t.strictSame(b.blocks(), [5, 0])
  b.bookings.reset('a', [])
  b.free('2')
  t.strictSame(b.blocks(), [0, 0])
})

const prompt = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 12 })
const step = fc.record({
  router: fc.nat(ROUTERS - 1),
  slot: fc.nat(SLOTS - 1),
  prompt,
  frees: fc.boolean(),
  which: fc.nat(20),
})

t.test('several routers count as one, whatever happened before, and return to 0', async t => {
  const agree = fc.property(fc.array(step, { maxLength: 30 }), prompt, (steps, asked) => {
    const routers = Array.from({ length: ROUTERS }, (_, i) => router(String.fromCharCode(97 + i)))
    const one = new ActiveLoad({ workerSlotsMax: SLOTS })
    const open: { id: string; owner: Router }[] = []
    const check = (): void => {
      const slots = Array.from({ length: SLOTS }, (_, slot) => slot)
      const blocks = slots.map(slot => one.totals(slot).activeBlocks)
      const expected = [...one.project(hashesOf(asked), asked.length, slots).newBlocks.slice(0, SLOTS)]
      for (const each of routers) {
        assert.deepEqual(each.blocks(), blocks)
        assert.deepEqual(each.newBlocks(asked), expected)
      }
    }
    const changed = (owner: Router): void => {
      tell(
        owner,
        routers.filter(other => other !== owner),
      )
      check()
    }
    for (const [i, { router: at, slot, prompt: text, frees, which }] of steps.entries()) {
      if (frees && open.length > 0) {
        const [{ id, owner }] = open.splice(which % open.length, 1) as [(typeof open)[number]]
        owner.free(id)
        one.free(id)
        changed(owner)
        continue
      }
      const owner = routers[at]!
      const id = String(i)
      owner.book(id, slot, text)
      one.book(id, slot, {
        sequenceHashes: hashesOf(text),
        count: text.length,
        promptTokens: 1,
        prefillTokens: 1,
      })
      open.push({ id, owner })
      changed(owner)
    }
    for (const { id, owner } of open) {
      owner.free(id)
      one.free(id)
      changed(owner)
    }
    for (const each of routers) assert.deepEqual(each.blocks(), [0, 0])
  })
  t.doesNotThrow(() => fc.assert(agree, { seed: SEED }))
})

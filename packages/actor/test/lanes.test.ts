/**
 * The two lanes between threads: clones and primitives; what arrives, in which order, and how much may wait.
 */

import { createActorSystem } from '@homing/actor'
import t from 'tap'
import { type TypedMessage, typed } from './fixtures/typed.ts'
import { restart, soon, startThreads } from './thread-systems.ts'

t.test('messages to another thread', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(typed, {
    name: 'typed',
    args: undefined,
    thread: 'p-0',
    mailbox: { capacity: 65_536 },
  })

  t.test('an answer is the answer, on both lanes', async t => {
    t.equal(await ref.ask({ type: 'add', a: 2, b: -3 }, soon), -1)
    t.strictSame(await ref.ask({ type: 'place', hashes: Int32Array.of(7, 8, 9) }, soon), {
      worker: 'worker-7',
      overlap: 3,
    })
    t.equal(await ref.ask({ type: 'add', a: 0.5, b: 1 }, soon), 1.5)
    t.equal(await ref.ask({ type: 'add', a: 2 ** 40, b: 0 }, soon), 2 ** 40)
    const large = new Int32Array(1_000_000)
    large[0] = 5
    t.strictSame(await ref.ask({ type: 'place', hashes: large }, soon), {
      worker: 'worker-5',
      overlap: 1_000_000,
    })
  })

  t.test('messages of any size keep their order', async t => {
    const tell = async (message: TypedMessage): Promise<void> => {
      while (ref.tell(message) !== 'ok') await new Promise<void>(resolve => setImmediate(resolve))
    }
    for (let n = 0; n < 30_000; n++) {
      const text = n % 5 === 0 ? `${n} é ☃` : 'x'.repeat(n % 50)
      await tell({ type: 'note', n, text })
      if (n % 7 === 0) await tell({ type: 'odd', any: { at: [n] } })
    }
    const tally = await ref.ask({ type: 'tally' }, soon)
    t.match(tally, { notes: 30_000, gaps: 0, last: 29_999, lastText: 'x'.repeat(29_999 % 50) })
    t.strictSame(
      tally.odd,
      Array.from({ length: Math.ceil(30_000 / 7) }, (_, i) => ({ at: [7 * i] })),
    )
  })
})

t.test(
  'tells that a dead thread had not taken reach its heir, in order, and those told meanwhile',
  async t => {
    const system = await startThreads(t)
    const ref = system.spawn(typed, {
      name: 'heir',
      args: undefined,
      thread: 'p-0',
      mailbox: { capacity: 65_536 },
      supervision: restart,
    })
    await ref.ask({ type: 'add', a: 1, b: 1 }, soon)
    ref.tell({ type: 'die' })
    // The thread takes at most one batch with the poison: from then on nothing may be missing.
    const statuses = new Set<string>()
    let n = 0
    for (let round = 0; round < 200; round++) {
      for (let i = 0; i < 10; i++) {
        statuses.add(ref.tell({ type: 'note', n, text: 'either' }))
        n++
      }
      await new Promise<void>(resolve => setImmediate(resolve))
    }
    t.strictSame([...statuses], ['ok'])
    let tally: { notes: number; gaps: number; last: number } | undefined
    while (tally === undefined || tally.last < n - 1) {
      tally = await ref.ask({ type: 'tally' }, soon).catch(() => undefined)
      await new Promise<void>(resolve => setImmediate(resolve))
    }
    t.ok(tally.gaps <= 1, 'what is missing is missing at the start')
    t.ok(n - tally.notes <= 64, `lost ${n - tally.notes} with the thread, at most one batch`)
  },
)

t.test('a link holds about 16,384 messages, whatever the size of its ring', async t => {
  for (const ringKib of [16, 1024]) {
    const system = await startThreads(t, { ringKib })
    const ref = system.spawn(typed, {
      name: 'typed',
      args: undefined,
      thread: 'p-0',
      mailbox: { capacity: 65_536 },
    })
    await ref.ask({ type: 'add', a: 1, b: 1 }, soon)
    let n = 0
    let isFull = false
    while (!isFull && n < 100_000) {
      isFull = ref.tell({ type: 'note', n, text: 'wait' }) === 'full'
      if (!isFull) n++
    }
    t.ok(n >= 16_000, `ring of ${ringKib} KiB: ${n} were taken, then it was full: ${isFull}`)
    let tally = { notes: 0, gaps: 0 }
    while (tally.notes < n) {
      tally = await ref.ask({ type: 'tally' }, soon).catch(() => tally)
      await new Promise<void>(resolve => setImmediate(resolve))
    }
    t.match(tally, { notes: n, gaps: 0 })
  }
  for (const ringKib of [8, 1000, 16_384, Number.NaN]) {
    await t.rejects(
      createActorSystem({ ringKib }),
      new RangeError(`cannot give threads rings of ${ringKib} KiB: use a power of two of 16 … 8192`),
    )
  }
})

t.test('a message that its sender changes while it waits for room harms no other', async t => {
  const system = await startThreads(t, { ringKib: 16 })
  const ref = system.spawn(typed, {
    name: 'typed',
    args: undefined,
    thread: 'p-0',
    mailbox: { capacity: 65_536 },
  })
  await ref.ask({ type: 'tally' }, soon)
  // All in one turn: the ring is too small for them.
  const notes = Array.from({ length: 4000 }, (_, n) => ({ type: 'note' as const, n, text: 'short' }))
  t.ok(notes.every(note => ref.tell(note) === 'ok'))
  for (const note of notes) Object.assign(note, { text: note.n % 2 === 0 ? 7 : 'long'.repeat(2000) })
  Object.assign(notes.at(-1)!, { text: 'last' })
  const { notes: count, gaps, lastText } = await ref.ask({ type: 'tally' }, soon)
  t.strictSame({ count, gaps, lastText }, { count: 4000, gaps: 0, lastText: 'last' })
})

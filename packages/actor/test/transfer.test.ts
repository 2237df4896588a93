/**
 * Buffers of a transfer list move to another thread, at once and whole; in every other case nobody loses
 * them.
 */

import assert from 'node:assert/strict'
import { UnserializableMessageError } from '@homing/actor'
import { createSimulation } from '@homing/actor/simulation'
import fc from 'fast-check'
import t from 'tap'
import { Moves } from '../src/packing/moves.ts'
import { mover } from './fixtures/movers.ts'
import { startSystem } from './inline-actors.ts'
import { restart, soon, startThreads } from './thread-systems.ts'

function bytesOf(length: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array(length).fill(1)
}

t.test('a transferred buffer is detached when it is told, and arrives whole', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0' })
  const told = bytesOf(1000)
  t.equal(ref.tell({ type: 'take', value: { deep: [told] } }, { transfer: [told.buffer] }), 'ok')
  t.equal(told.byteLength, 0)
  const asked = bytesOf(1000)
  const sum = ref.ask({ type: 'sum', bytes: asked.subarray(100, 300) }, { ...soon, transfer: [asked.buffer] })
  t.equal(asked.byteLength, 0)
  t.equal(await sum, 200)
  t.equal(await ref.ask({ type: 'taken' }, soon), 1)

  const kept = bytesOf(1000)
  t.equal(await ref.ask({ type: 'sum', bytes: kept }, soon), 1000)
  t.equal(kept.byteLength, 1000, 'without a list it is copied')
})

t.test('what is listed moves from wherever it is, and also when it is nowhere in the message', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0' })
  const [inMap, inSet, deep, nowhere] = [bytesOf(10), bytesOf(20), bytesOf(30), bytesOf(40)]
  const value = {
    map: new Map<unknown, unknown>([
      ['bytes', inMap.subarray(5)],
      [new Map([['list', [{ deep }]]]), 'a key'],
    ]),
    set: new Set([inSet.buffer]),
    other: new Map([['text', 'as it is']]),
  }
  const transfer = [inMap, inSet, deep, nowhere].map(bytes => bytes.buffer)
  const asked = ref.ask({ type: 'echo', value }, { ...soon, transfer })
  t.strictSame(
    [inMap, inSet, deep, nowhere].map(bytes => bytes.byteLength),
    [0, 0, 0, 0],
  )
  t.strictSame(await asked, {
    map: new Map<unknown, unknown>([
      ['bytes', bytesOf(5)],
      [new Map([['list', [{ deep: bytesOf(30) }]]]), 'a key'],
    ]),
    set: new Set([bytesOf(20).buffer]),
    other: new Map([['text', 'as it is']]),
  })
})

t.test('what many messages of one burst list moves in one post, each to its own', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0' })
  const sums = Array.from({ length: 1000 }, (_, n) => {
    const bytes = bytesOf(n)
    return ref.ask({ type: 'sum', bytes }, { ...soon, transfer: [bytes.buffer] })
  })
  t.strictSame(
    await Promise.all(sums),
    sums.map((_, n) => n),
  )
})

t.test('an answer moves its buffers too', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0' })
  const filled = await ref.ask({ type: 'fill', length: 500 }, soon)
  t.strictSame(filled, new Uint8Array(500).fill(7))
  t.equal(await ref.ask({ type: 'left' }, soon), 0)
})

t.test('a list with something that does not move is refused, and nothing is detached', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0' })
  const whole = bytesOf(8)
  const gone = bytesOf(8)
  gone.buffer.transfer()
  for (const other of [gone.buffer, new SharedArrayBuffer(8), Buffer.from('pooled').buffer, 'none', null]) {
    const transfer = [whole.buffer, other as ArrayBuffer]
    t.equal(ref.tell({ type: 'take', value: whole }, { transfer }), 'dead')
    await t.rejects(ref.ask({ type: 'sum', bytes: whole }, { ...soon, transfer }), UnserializableMessageError)
  }
  t.equal(ref.tell({ type: 'take', value: [whole, () => {}] }, { transfer: [whole.buffer] }), 'dead')
  t.equal(whole.byteLength, 8)
})

t.test('a cycle is refused with a list as without one', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0' })
  const bytes = bytesOf(8)
  const cyclic: Record<string, unknown> = { bytes }
  cyclic['self'] = { again: cyclic, once: [cyclic, cyclic] }
  const refused = async (more: { readonly transfer?: readonly ArrayBuffer[] }): Promise<unknown> =>
    ref.ask({ type: 'echo', value: cyclic }, { ...soon, ...more }).catch((error: unknown) => error)
  const plain = (await refused({})) as UnserializableMessageError
  const listed = (await refused({ transfer: [bytes.buffer] })) as UnserializableMessageError
  t.ok(plain instanceof UnserializableMessageError)
  t.strictSame([listed.code, listed.message, listed.details], [plain.code, plain.message, plain.details])
  t.equal(ref.tell({ type: 'take', value: cyclic }, { transfer: [bytes.buffer] }), 'dead')
  t.equal(bytes.byteLength, 8)
})

t.test('a link that is full takes nothing', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0' })
  const words = new Int32Array(new SharedArrayBuffer(4))
  ref.tell({ type: 'spin', words })
  t.not(await Atomics.waitAsync(words, 0, 0, 60_000).value, 'timed-out')
  while (ref.tell({ type: 'take', value: 1 }) === 'ok');
  const bytes = bytesOf(100)
  t.equal(ref.tell({ type: 'take', value: bytes }, { transfer: [bytes.buffer] }), 'full')
  await t.rejects(ref.ask({ type: 'sum', bytes }, { ...soon, transfer: [bytes.buffer] }), {
    code: 'HOMING_ACTOR_ASK_REFUSED',
  })
  t.equal(bytes.byteLength, 100)
})

t.test('on one thread nothing moves', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(mover, { name: 'mover' })
  const bytes = bytesOf(100)
  t.equal(await ref.ask({ type: 'echo', value: bytes }, { ...soon, transfer: [bytes.buffer] }), bytes)
  t.equal(bytes.byteLength, 100)
})

t.test('a test system and a simulation move as threads do', async t => {
  const sys = startSystem(t)
  const simulation = await createSimulation({ seed: 1, pools: { core: { count: 1 } } })
  const placed = { name: 'mover', thread: 'core-0' } as const
  const settle = <T>(asked: Promise<T>): Promise<T> => simulation.settle(asked)
  for (const [system, settled] of [
    [sys, async <T>(asked: Promise<T>): Promise<T> => asked],
    [simulation, settle],
  ] as const) {
    const ref = system.spawn(mover, placed)
    const bytes = bytesOf(100)
    const sum = ref.ask({ type: 'sum', bytes: bytes.subarray(10) }, { ...soon, transfer: [bytes.buffer] })
    t.equal(bytes.byteLength, 0)
    t.equal(await settled(sum), 90)
    t.equal((await settled(ref.ask({ type: 'fill', length: 9 }, soon))).length, 9)
    t.equal(await settled(ref.ask({ type: 'left' }, soon)), 0)
    t.equal(ref.tell({ type: 'take', value: bytes }, { transfer: [bytes.buffer] }), 'dead')
  }
  await settle(simulation.shutdown())
})

t.test('a thread that dies takes what had moved to it with it; what follows arrives, in order', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(mover, { name: 'mover', thread: 'p-0', supervision: restart })
  const words = new Int32Array(new SharedArrayBuffer(4))
  ref.tell({ type: 'spin', words })
  t.not(await Atomics.waitAsync(words, 0, 0, 60_000).value, 'timed-out')
  const bytes = bytesOf(100)
  t.equal(ref.tell({ type: 'take', value: bytes }, { transfer: [bytes.buffer] }), 'ok')
  ref.tell({ type: 'take', value: 'plain' })
  await new Promise<void>(resolve => setImmediate(resolve))
  await system.killThread('p-0')
  let taken = 0
  while (taken === 0) taken = await ref.ask({ type: 'taken' }, soon).catch(() => 0)
  t.equal(taken, 1, 'the plain one')
  t.equal(system.counters().total.deadLettersByReason.unserializable, 1)
})

t.test('what is lifted out and put back, over buffers of their own, is what structuredClone makes', t => {
  const view = fc.record({ buffer: fc.nat(2), offset: fc.nat(7), length: fc.nat(8), kind: fc.nat(4) })
  const values = fc.letrec(tie => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.integer(),
      fc.string(),
      fc.constant(null),
      view,
      fc.array(tie('value'), { maxLength: 4 }),
      fc.record({
        collection: fc.constantFrom('map', 'set'),
        items: fc.array(tie('value'), { maxLength: 3 }),
      }),
      fc.dictionary(fc.string({ maxLength: 3 }), tie('value'), { maxKeys: 4 }),
    ),
  })).value
  const same = fc.property(values, fc.uint8Array({ minLength: 16, maxLength: 16 }), (made, content) => {
    const withBuffers = (): [unknown, ArrayBuffer[]] => {
      const buffers = [0, 1, 2].map(add => new Uint8Array(content).map(byte => byte + add).buffer)
      const build = (value: unknown): unknown => {
        if (Array.isArray(value)) return value.map(build)
        if (typeof value !== 'object' || value === null) return value
        const { collection, items } = value as { collection?: string; items?: unknown[] }
        if (collection === 'set' && items !== undefined) return new Set(items.map(build))
        if (collection === 'map' && items !== undefined)
          return new Map(items.map((item, index) => [index, build(item)]))
        const { buffer, offset, length, kind } = value as Record<string, number>
        if (typeof kind === 'number' && typeof buffer === 'number' && Object.keys(value).length === 4) {
          const of = buffers[buffer]!
          if (kind === 0) return of
          if (kind === 1) return new Uint8Array(of, offset, length)
          if (kind === 2) return new DataView(of, offset, length)
          if (kind === 3) return new Uint16Array(of, offset! & ~1, length! >> 1)
          return new BigInt64Array(of, 0, 1)
        }
        return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, build(item)]))
      }
      return [build(made), buffers]
    }
    const [value, buffers] = withBuffers()
    const moves = new Moves(buffers)
    const body = moves.commit(moves.putBack(moves.lift(value, () => undefined)))
    const [again, others] = withBuffers()
    assert.deepEqual(
      structuredClone(body, { transfer: moves.buffers }),
      structuredClone(again, { transfer: others }),
    )
  })
  t.doesNotThrow(() => fc.assert(same, { numRuns: 300 }))
  t.end()
})

/**
 * Messages whose parts occur in several places: looked at once, however many ways lead to them, and still one
 * object where they arrive.
 */

import assert from 'node:assert/strict'
import { type ActorSystem, UnserializableMessageError } from '@homing/actor'
import { createSimulation } from '@homing/actor/simulation'
import fc from 'fast-check'
import t from 'tap'
import { Moves } from '../src/packing/moves.ts'
import { BaseRef, pack, type RefTarget, type ReplyTarget, unpack } from '../src/packing/pack.ts'
import { echo } from './fixtures/echo.ts'
import { startSystem } from './inline-actors.ts'
import { soon, startThreads } from './thread-systems.ts'

/** 2 to the power of this are the ways to the innermost part: nobody walks them all. */
const LEVELS = 50

type Pair = readonly [unknown, unknown]

/** [[[…inner…], the same], the same] */
function nest(inner: unknown, levels = LEVELS): unknown {
  return levels === 0 ? inner : twice(nest(inner, levels - 1))
}

function twice(part: unknown): Pair {
  return [part, part]
}

/** The innermost part; undefined where the two parts of a level are not the same. */
function innermost(value: unknown, levels = LEVELS): unknown {
  for (; levels > 0; levels--) {
    const [first, second] = value as Pair
    if (first !== second) return undefined
    value = first
  }
  return value
}

t.test('a tell does not walk all the ways to a shared part, and an answer neither', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
  t.equal(ref.tell({ type: 'note', n: 1, more: nest({ text: 'x' }) } as never), 'ok')
  const ask = async (value: unknown, transfer?: readonly ArrayBuffer[]): Promise<unknown> =>
    ref.ask({ type: 'echo', value }, { ...soon, ...(transfer === undefined ? {} : { transfer }) })
  t.strictSame(innermost(await ask(nest({ text: 'x' }))), { text: 'x' })
  // Refs and views have to be replaced in every place where they occur.
  const { to, bytes } = innermost(await ask(nest({ to: ref, bytes: new Uint8Array(9).subarray(4) }))) as {
    to: typeof ref
    bytes: Uint8Array
  }
  t.strictSame([to.key, bytes.length], [ref.key, 5])
  t.equal(await to.ask({ type: 'where' }, soon), 'p-0')

  const moved = [new Uint8Array(9).fill(1), new Uint8Array(8).fill(2), new Uint8Array(7).fill(3)] as const
  const answer = (await ask(
    {
      plain: nest({ to: ref, bytes: moved[0] }),
      map: new Map([['key', nest({ bytes: moved[1] })]]),
      set: new Set([nest([new Uint8Array(9).subarray(4), moved[2]])]),
    },
    moved.map(({ buffer }) => buffer),
  )) as { plain: unknown; map: Map<string, unknown>; set: Set<unknown> }
  t.strictSame(
    moved.map(({ byteLength }) => byteLength),
    [0, 0, 0],
  )
  t.match(innermost(answer.plain), { to: { key: ref.key }, bytes: new Uint8Array(9).fill(1) })
  t.strictSame(innermost(answer.map.get('key')), { bytes: new Uint8Array(8).fill(2) })
  t.strictSame(innermost([...answer.set][0]), [new Uint8Array(5), new Uint8Array(7).fill(3)])
  t.strictSame(innermost(await ask(nest('x'), [new ArrayBuffer(8)])), 'x', 'a list of what is elsewhere')
})

t.test('what may not travel is found in a shared part, and told with its path', async t => {
  const system = await startThreads(t)
  const ref = system.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
  const cyclic: unknown[] = []
  cyclic.push(nest(cyclic, 20), nest('x'))
  for (const [value, what] of [
    [nest(() => {}), 'a function'],
    [nest(new Map([['ref', { ref }]])), 'a Map or Set'],
    [nest(cyclic, 20), 'a value'],
  ] as const) {
    for (const more of [{}, { transfer: [new ArrayBuffer(8)] }]) {
      const asked = ref.ask({ type: 'echo', value }, { ...soon, ...more })
      const error: unknown = await asked.catch(thrown => thrown)
      t.ok(error instanceof UnserializableMessageError)
      t.match((error as UnserializableMessageError).details, { what, path: `value${'[0]'.repeat(7)}…` })
    }
  }
})

t.test('test systems and simulations do not walk all the ways either', async t => {
  const simulation = await createSimulation({ seed: 1, pools: { core: { count: 1 } } })
  const systems: readonly (readonly [ActorSystem, (asked: Promise<unknown>) => Promise<unknown>])[] = [
    [startSystem(t), asked => asked],
    [simulation, asked => simulation.settle(asked)],
  ]
  for (const [system, settled] of systems) {
    const ref = system.spawn(echo, { name: 'far', args: {}, thread: 'core-0' })
    for (const inner of ['x', { to: ref }]) {
      t.match(innermost(await settled(ref.ask({ type: 'echo', value: nest(inner) }, soon))), inner)
    }
  }
  await simulation.settle(simulation.shutdown())
})

class FakeRef extends BaseRef {
  readonly id: number

  constructor(id: number) {
    super()
    this.id = id
  }

  override target(): RefTarget {
    return { kind: 'ref', thread: 'x', id: this.id, name: 'n' }
  }
}

t.test('what arrives is shared as it was, whatever occurs where', async t => {
  const reply = (): void => {}
  const describeReply = (given: unknown): ReplyTarget | undefined =>
    given === reply ? { kind: 'reply', thread: 'x', corr: 7 } : undefined
  const reader = { ref: ({ id }: RefTarget) => new FakeRef(id), reply: () => reply }
  // Each part is an array or object of earlier parts, so that many occur often.
  const parts = fc.array(
    fc.record({
      isArray: fc.boolean(),
      items: fc.array(
        fc.oneof(
          { weight: 3, arbitrary: fc.record({ part: fc.nat(20) }) },
          { weight: 1, arbitrary: fc.constantFrom('ref', 'reply', 'view', 'buffer', 'number') },
        ),
        { minLength: 1, maxLength: 4 },
      ),
    }),
    { minLength: 1, maxLength: 12 },
  )
  const agree = fc.property(parts, fc.boolean(), fc.boolean(), (given, isLarge, hasMoves) => {
    const bytes = new Uint8Array(8).fill(7)
    const made: unknown[] = []
    for (const { isArray, items } of given) {
      const holder = items.map(item => {
        if (typeof item !== 'string') return made.length === 0 ? 0 : made[item.part % made.length]
        if (item === 'ref') return new FakeRef(items.length)
        if (item === 'reply') return reply
        if (item === 'view') return new Uint8Array(6).fill(1).subarray(2)
        return item === 'buffer' ? bytes.subarray(1) : 5
      })
      made.push(isArray ? holder : Object.fromEntries(holder.map((item, index) => [`f${index}`, item])))
    }
    // Past some thousands of items a scan remembers what it has seen.
    const value = { bulk: isLarge ? new Array<number>(6000).fill(0) : [], root: made.at(-1) }
    const before = drawingOf(value)
    const moves = hasMoves ? new Moves([bytes.buffer]) : undefined
    const { body, patches } = pack(
      moves === undefined ? value : moves.lift(value, describeReply),
      describeReply,
    )
    const sent = moves === undefined ? body : moves.commit(moves.putBack(body))
    const transfer = moves?.buffers ?? []
    const arrived = unpack(structuredClone(sent, { transfer }), structuredClone(patches), reader)
    assert.equal(drawingOf(arrived), before)
    if (!hasMoves) assert.equal(drawingOf(value), before, 'the sent message is untouched')
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 300 }))
})

/** A value as text in which a part that occurs again is the number of its first occurrence. */
function drawingOf(value: unknown): string {
  const numbers = new Map<unknown, number>()
  const draw = (part: unknown): string => {
    if (typeof part === 'function') return 'reply'
    if (part instanceof FakeRef) return `ref ${part.id}`
    if (part instanceof Uint8Array) return `bytes ${part}`
    if (typeof part !== 'object' || part === null) return String(part)
    const known = numbers.get(part)
    if (known !== undefined) return `#${known}`
    numbers.set(part, numbers.size)
    return `${Array.isArray(part) ? 'array' : 'object'}(${Object.entries(part).map(([key, item]) => `${key}: ${draw(item)}`)})`
  }
  return draw(value)
}

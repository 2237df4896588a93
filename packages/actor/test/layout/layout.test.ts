import fc from 'fast-check'
import t from 'tap'
import type { ActorRef } from '../../src/contract/types.ts'
import type { FieldsDescription } from '../../src/layout/description.ts'
import { type LayoutOf, layout } from '../../src/layout/layout.ts'
import { LayoutError } from '../../src/values/errors.ts'
import type { Message, Reply } from '../../src/values/message.ts'
import { layoutCases } from './arbitraries.ts'

interface Tree {
  readonly child: Tree | undefined
}

type WorkerId = number & { readonly brand: 'worker' }

type SessionMessage =
  | { readonly type: 'touch'; readonly tokens: number }
  | { readonly type: 'ping' }
  | {
      readonly type: 'route'
      readonly model: string
      readonly hashes: Int32Array
      readonly reply: Reply<{ readonly worker: WorkerId; readonly overlap: number }>
    }
  | {
      readonly type: 'all'
      readonly worker: WorkerId
      readonly state: 'up' | 'down'
      readonly isReady: boolean
      readonly bytes: Uint8Array
      readonly words: Uint32Array
      readonly floats: Float64Array
      readonly names: readonly string[]
      readonly pair: readonly [number, number]
      readonly error: { readonly code: string; readonly at: { readonly ms: number } } | undefined
    }
  | { readonly type: 'ref'; readonly id: number; readonly from: ActorRef<Message> }
  | { readonly type: 'union'; readonly value: string | number }
  | { readonly type: 'records'; readonly value: { readonly a: number } | { readonly b: number } }
  | { readonly type: 'map'; readonly map: ReadonlyMap<string, number> }
  | { readonly type: 'dictionary'; readonly byName: Readonly<Record<string, number>> }
  | { readonly type: 'missing'; readonly note?: string }
  | { readonly type: 'nothing'; readonly value: null }
  | { readonly type: 'buffer'; readonly bytes: Buffer }
  | { readonly type: 'shared'; readonly words: Int32Array<SharedArrayBuffer> }
  | { readonly type: 'big'; readonly value: bigint }
  | { readonly type: 'unknown'; readonly value: unknown }
  | { readonly type: 'tree'; readonly tree: Tree }
  | { readonly type: 'flags'; readonly flags: readonly boolean[] }
  | { readonly type: 'alone'; readonly value: { readonly list: number } }
  | { readonly type: 'data'; readonly reply: string }
  | { readonly type: 'ask'; readonly id: number; readonly reply: Reply<string | number> }
  | { readonly type: 'find'; readonly reply: Reply<string | undefined> }
  | { readonly type: 'twice'; readonly a: number }
  | { readonly type: 'twice'; readonly b: number }

t.test('a description is kept as plain data that can be cloned and does not change', async t => {
  const given = {
    touch: { tokens: 'u32' },
    ping: {},
    route: { model: 'string', hashes: 'i32s', reply: { worker: 'u32', overlap: 'u32' } },
    all: {
      worker: 'u16',
      state: 'string',
      isReady: 'bool',
      bytes: 'bytes',
      words: 'u32s',
      floats: 'f64s',
      names: { list: 'string' },
      pair: { list: 'f64' },
      error: { optional: { code: 'string', at: { ms: 'f64' } } },
    },
    ask: { id: 'u32' },
    find: { reply: { optional: 'string' } },
  } as const satisfies LayoutOf<SessionMessage>
  const { description } = layout<SessionMessage>(given)
  t.strictSame(description, given)
  t.strictSame(structuredClone(description), given)
  t.ok(Object.isFrozen(description))
  t.ok(Object.isFrozen(description['route']))
})

t.test('any description that is right is accepted', async t => {
  const accepted = fc.property(layoutCases, ({ fields, reply }) => {
    layout<Message>({ x: { ...fields, reply } } as never)
  })
  t.doesNotThrow(() => fc.assert(accepted, { numRuns: 200 }))
})

t.test('the types refuse what does not fit, and variants that cannot be described', async t => {
  // Never called: only the types count.
  const refused = () => {
    // @ts-expect-error a number takes no string
    layout<SessionMessage>({ touch: { tokens: 'string' } })
    // @ts-expect-error there is no such kind
    layout<SessionMessage>({ touch: { tokens: 'u64' } })
    // @ts-expect-error a field is not described
    layout<SessionMessage>({ route: { model: 'string' } })
    // @ts-expect-error there is no such field
    layout<SessionMessage>({ touch: { tokens: 'u32', more: 'u32' } })
    // @ts-expect-error there is no such variant
    layout<SessionMessage>({ tuoch: { tokens: 'u32' } })
    // @ts-expect-error the type is implied
    layout<SessionMessage>({ touch: { type: 'string', tokens: 'u32' } })
    // @ts-expect-error touch is no ask
    layout<SessionMessage>({ touch: { tokens: 'u32', reply: 'u32' } })
    // @ts-expect-error the answer has another field
    layout<SessionMessage>({ route: { model: 'string', hashes: 'i32s', reply: { worker: 'u32' } } })
    // @ts-expect-error hashes are signed
    layout<SessionMessage>({ route: { model: 'string', hashes: 'u32s' } })
    // @ts-expect-error no kind fits a ref
    layout<SessionMessage>({ ref: { id: 'u32', from: { key: 'string', name: 'string' } } })
    // @ts-expect-error leaving the ref out describes another message
    layout<SessionMessage>({ ref: { id: 'u32' } })
    // @ts-expect-error no kind fits a union
    layout<SessionMessage>({ union: { value: 'string' } })
    // @ts-expect-error no kind fits a union of records
    layout<SessionMessage>({ records: { value: { a: 'u32' } } })
    // @ts-expect-error no kind fits a map
    layout<SessionMessage>({ map: { map: { size: 'u32' } } })
    // @ts-expect-error no kind fits a dictionary
    layout<SessionMessage>({ dictionary: { byName: { a: 'u32' } } })
    // @ts-expect-error what may be missing is not what may be undefined
    layout<SessionMessage>({ missing: { note: { optional: 'string' } } })
    // @ts-expect-error no kind fits null
    layout<SessionMessage>({ nothing: { value: 'bool' } })
    // @ts-expect-error a Buffer would be read as another class
    layout<SessionMessage>({ buffer: { bytes: 'bytes' } })
    // @ts-expect-error shared memory is not copied
    layout<SessionMessage>({ shared: { words: 'i32s' } })
    // @ts-expect-error no kind fits a bigint
    layout<SessionMessage>({ big: { value: 'f64' } })
    // @ts-expect-error no kind fits what is not known
    layout<SessionMessage>({ unknown: { value: 'string' } })
    // @ts-expect-error a tree has no end
    layout<SessionMessage>({ tree: { tree: { child: { optional: { child: 'string' } } } } })
    // @ts-expect-error lists are of numbers or strings
    layout<SessionMessage>({ flags: { flags: { list: 'bool' } } })
    // @ts-expect-error it would read as a list
    layout<SessionMessage>({ alone: { value: { list: 'u32' } } })
    // @ts-expect-error a field `reply` is for asks
    layout<SessionMessage>({ data: { reply: 'string' } })
    // @ts-expect-error no kind fits the answer; the ask itself can be described
    layout<SessionMessage>({ ask: { id: 'u32', reply: 'u32' } })
    // @ts-expect-error which of the two is not known
    layout<SessionMessage>({ twice: { a: 'u32' } })
    // @ts-expect-error a list needs its kind
    layout<SessionMessage>({ all: { ...all, names: 'string' } })
    // @ts-expect-error undefined has to be allowed for
    layout<SessionMessage>({ all: { ...all, error: { code: 'string', at: { ms: 'f64' } } } })
  }
  t.type(refused, 'function')
})

const all = {
  worker: 'u16',
  state: 'string',
  isReady: 'bool',
  bytes: 'bytes',
  words: 'u32s',
  floats: 'f64s',
  names: { list: 'string' },
  pair: { list: 'f64' },
  error: { optional: { code: 'string', at: { ms: 'f64' } } },
} as const

t.test('a wrong description is refused with type, field, what was given and what would be right', async t => {
  const cycle: Record<string, unknown> = {}
  cycle['again'] = cycle
  class Fields {
    a = 'u8'
  }
  const kinds = 'u8, u16, u32, i32, f64, bool, string, bytes, i32s, u32s, f64s'
  const form = 'use the name of a kind, { list }, { optional } or an object of fields'
  const cases: readonly (readonly [description: unknown, message: string])[] = [
    [{ x: { a: 'u64' } }, `cannot lay out field 'a' of 'x' as 'u64': use one of ${kinds}`],
    [{ x: { a: { b: 'int' } } }, `cannot lay out field 'a.b' of 'x' as 'int': use one of ${kinds}`],
    [{ x: { a: 1 } }, `cannot lay out field 'a' of 'x' as 1: ${form}`],
    [{ x: { a: null } }, `cannot lay out field 'a' of 'x' as null: ${form}`],
    [{ x: { a: ['u8'] } }, `cannot lay out field 'a' of 'x' as an array: ${form}`],
    [{ x: { reply: undefined } }, `cannot lay out field 'reply' of 'x' as undefined: ${form}`],
    [
      { x: { type: 'string' } },
      `cannot lay out field 'type' of 'x' as 'string': the type is implied, leave it out`,
    ],
    [
      { x: { a: { list: 'bool' } } },
      `cannot lay out field 'a' of 'x' as { list: 'bool' }: use a list of u8, u16, u32, i32, f64 or string`,
    ],
    [
      { x: { a: { optional: { optional: 'u8' } } } },
      `cannot lay out field 'a' of 'x' as { optional: … }: use one { optional }, which has a single undefined`,
    ],
    [
      { x: { ['__proto__']: 'u8' } },
      `cannot lay out field '__proto__' of 'x' as 'u8': no field may have this name`,
    ],
    [
      { x: { a: { ['__proto__']: 'u8' } } },
      `cannot lay out field 'a.__proto__' of 'x' as 'u8': no field may have this name`,
    ],
    [
      { ['__proto__']: {} },
      `cannot lay out '__proto__' as an object without fields of its own: no variant may have this name`,
    ],
    [
      { x: { __proto__: { a: 'u8' } } },
      `cannot lay out 'x' as an object without fields of its own: use an object of its fields`,
    ],
    [{ x: new Fields() }, `cannot lay out 'x' as { a: 'u8' }: use an object of its fields`],
    [{ x: 'u8' }, `cannot lay out 'x' as 'u8': use an object of its fields`],
    [undefined, `cannot lay out '*' as undefined: use an object of variants by type`],
  ]
  for (const [description, message] of cases) {
    t.throws(() => layout(description as never), {
      name: 'LayoutError',
      code: 'HOMING_ACTOR_LAYOUT',
      message,
    })
  }
  t.throws(() => layout({ x: cycle as FieldsDescription } as never), LayoutError)
})

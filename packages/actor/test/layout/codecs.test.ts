import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { inspect } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { canGenerate } from '../../src/layout/can-generate.ts'
import { closureCodec } from '../../src/layout/closures.ts'
import { BODY_WORDS_MAX, type BodyCodec, type RingViews } from '../../src/layout/codec.ts'
import { CompiledLayout, compileLayout } from '../../src/layout/compile.ts'
import type { FieldDescription, LayoutDescription, Shape } from '../../src/layout/description.ts'
import { generateCodec } from '../../src/layout/generate.ts'
import { layoutCases, strings } from './arbitraries.ts'

const makers = { generated: generateCodec, closures: closureCodec }

t.equal(canGenerate(), true, 'this process may generate code')

for (const [name, codecOf] of Object.entries(makers)) {
  t.test(
    `${name}: what fits comes back as it was, at any even offset, and no other word is touched`,
    async t => {
      const holds = fc.property(layoutCases, fc.nat(40), ({ fields, message, reply, answer }, half) => {
        const { body, reply: replyCodec } = codecsOf({ x: { ...fields, reply } }, codecOf)
        roundTrip(body, message, half * 2, ['type', ...Object.keys(fields)])
        roundTrip(replyCodec!, answer, half * 2)
      })
      t.doesNotThrow(() => fc.assert(holds, { numRuns: 1000 }))
    },
  )

  t.test(
    `${name}: fields come in the order of the layout, whatever the order they were given in`,
    async t => {
      const { body } = codecsOf({ x: { a: 'u8', b: { c: 'bool', d: 'string' } } }, codecOf)
      const read = copyOf(body, { b: { d: 'q', c: true }, type: 'x', a: 1 })
      t.equal(JSON.stringify(read), '{"type":"x","a":1,"b":{"c":true,"d":"q"}}')
    },
  )

  t.test(`${name}: a field more or less, or of another type, does not fit`, async t => {
    const holds = fc.property(layoutCases, ({ fields, message }) => {
      const { body } = codecsOf({ x: fields }, codecOf)
      assert.equal(body.sizeOf({ ...message, another: 1, reply: 2 }), -1)
      assert.equal(body.sizeOf({ ...message, type: 'y' }), -1)
      for (const key of Object.keys(message)) {
        const { [key]: left, ...rest } = message
        assert.equal(body.sizeOf(rest), -1, `without ${key}`)
        assert.equal(body.sizeOf({ ...rest, another: left }), -1, `another for ${key}`)
        for (const wrong of [null, () => 1, Symbol('s'), 1n, new Map(), /r/]) {
          assert.equal(body.sizeOf({ ...message, [key]: wrong }), -1, `${inspect(wrong)} for ${key}`)
        }
      }
    })
    t.doesNotThrow(() => fc.assert(holds, { numRuns: 200 }))
  })

  t.test(`${name}: what a kind does not hold exactly does not fit`, async t => {
    const holds = fc.property(strings, text => {
      for (const [kind, misfits] of misfitsOf(text)) {
        const { body } = codecsOf({ x: { field: kind } }, codecOf)
        for (const misfit of misfits) {
          assert.equal(
            body.sizeOf({ type: 'x', field: misfit }),
            -1,
            `${inspect(misfit)} as ${inspect(kind)}`,
          )
        }
      }
    })
    t.doesNotThrow(() => fc.assert(holds, { numRuns: 20 }))
  })

  t.test(`${name}: no value but a plain object fits a record`, async t => {
    class Pair {
      type = 'x'
      a = 1
    }
    const { body } = codecsOf({ x: { a: 'u8' } }, codecOf)
    for (const value of [
      undefined,
      null,
      1,
      'x',
      [],
      new Pair(),
      Object.create({ type: 'x', a: 1 }),
      () => 1,
    ]) {
      t.equal(body.sizeOf(value), -1, inspect(value))
    }
    t.equal(body.sizeOf(Object.assign(Object.create(null), { type: 'x', a: 1 })), 1)
  })

  t.test(`${name}: a body over the bound does not fit, one at the bound does`, async t => {
    const { body } = codecsOf({ x: { hashes: 'i32s' } }, codecOf)
    t.equal(body.sizeOf({ type: 'x', hashes: new Int32Array(BODY_WORDS_MAX - 1) }), BODY_WORDS_MAX)
    t.equal(body.sizeOf({ type: 'x', hashes: new Int32Array(BODY_WORDS_MAX) }), -1)
  })

  t.test(
    `${name}: what was read is not changed by what is written later, and its memory is its own`,
    async t => {
      const { body } = codecsOf(
        { x: { bytes: 'bytes', ints: 'i32s', words: 'u32s', floats: 'f64s' } },
        codecOf,
      )
      for (const length of [0, 1, 16, 17, 100]) {
        const views = viewsOf(1024)
        const message = {
          type: 'x',
          bytes: new Uint8Array(length).fill(7),
          ints: new Int32Array(length).fill(-7),
          words: new Uint32Array(length).fill(2 ** 32 - 7),
          floats: new Float64Array(length).fill(0.7),
        }
        body.write(message, views, 0)
        const read = body.read(views, 0) as typeof message
        views.words.fill(-1)
        t.strictSame(read, message)
        for (const view of [read.bytes, read.ints, read.words, read.floats]) {
          t.notOk(view.buffer instanceof SharedArrayBuffer)
          t.equal(view.byteLength, view.buffer.byteLength)
        }
      }
    },
  )
}

t.test('both generators write the same words and count the same', async t => {
  const agree = fc.property(layoutCases, ({ fields, message, reply, answer }) => {
    const description = { x: { ...fields, reply } }
    const [generated, closures] = [codecsOf(description, generateCodec), codecsOf(description, closureCodec)]
    for (const [one, other, value] of [
      [generated.body, closures.body, message],
      [generated.reply!, closures.reply!, answer],
    ] as const) {
      assert.equal(one.sizeOf(value), other.sizeOf(value))
      const [views, otherViews] = [viewsOf(one.sizeOf(value)), viewsOf(one.sizeOf(value))]
      assert.equal(one.write(value, views, 0), other.write(value, otherViews, 0))
      assert.deepEqual(views.words, otherViews.words)
      assert.deepEqual(one.read(otherViews, 0), other.read(views, 0))
    }
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 500 }))
})

t.test('equal descriptions are one layout, also when cloned; another order is another layout', async t => {
  const description: LayoutDescription = { b: { s: 'string', n: 'u32' }, a: {} }
  const compiled = compileLayout(description)
  t.equal(compileLayout(structuredClone(compiled.description)), compiled)
  t.equal(new CompiledLayout(description, closureCodec).id, compiled.id)
  t.not(compileLayout({ b: { n: 'u32', s: 'string' }, a: {} }).id, compiled.id)
  t.not(compileLayout({ a: {}, b: { s: 'string', n: 'u32' } }).id, compiled.id)
  t.strictSame(compiled.description, description)
})

t.test('variants are numbered in the order of the layout, and found by type', async t => {
  const compiled = compileLayout({
    touch: { tokens: 'u32' },
    route: { model: 'string', reply: 'u32' },
    ping: {},
  })
  t.strictSame(
    compiled.variants.map(variant => [variant.type, variant.number, variant.reply !== undefined]),
    [
      ['touch', 0, false],
      ['route', 1, true],
      ['ping', 2, false],
    ],
  )
  t.equal(compiled.variantOf('route'), compiled.variants[1])
  t.equal(compiled.variantOf('toString'), undefined)
  t.strictSame(copyOf(compiled.variants[2]!.body, { type: 'ping' }), { type: 'ping' })
})

t.test('an inherited property stands for no field', async t => {
  const { body } = codecsOf({ x: { ['toString' as string]: { optional: 'string' }, a: 'u8' } }, generateCodec)
  t.equal(body.sizeOf({ type: 'x', a: 1, b: 2 }), -1)
  t.strictSame(copyOf(body, { type: 'x', toString: undefined, a: 1 }), {
    type: 'x',
    toString: undefined,
    a: 1,
  })
})

t.test('where code may not be generated, layouts compile to closures', async t => {
  const fixture = fileURLToPath(new URL('./fixtures/no-code-generation.ts', import.meta.url))
  const output = execFileSync(process.execPath, ['--disallow-code-generation-from-strings', fixture], {
    encoding: 'utf8',
    timeout: 120_000,
  })
  t.strictSame(JSON.parse(output), {
    canGenerate: false,
    read: { type: 'route', model: 'm', hashes: [1, 2], note: null },
    answer: { worker: 7, overlap: 3 },
  })
})

/** Values that only look as if they fitted. */
function misfitsOf(text: string): readonly (readonly [FieldDescription, readonly unknown[]])[] {
  const shared = new SharedArrayBuffer(64)
  const detached = new Int32Array(4)
  structuredClone(detached.buffer, { transfer: [detached.buffer] })
  const noNumbers = [undefined, true, '1', text, new Number(1), [1], { valueOf: () => 1 }, 1n]
  const noIntegers = [...noNumbers, -0, 0.5, Number.NaN, Infinity, 2 ** 32, -(2 ** 31) - 1, 2 ** 53]
  return [
    ['u8', [...noIntegers, -1, 256]],
    ['u16', [...noIntegers, -1, 65_536]],
    ['u32', [...noIntegers, -1]],
    ['i32', [...noIntegers, 2 ** 31]],
    ['f64', noNumbers],
    ['bool', [undefined, 0, 1, 'true', text]],
    ['string', [undefined, 0, new String(text), [text]]],
    [
      'bytes',
      [
        undefined,
        [1],
        text,
        new Int8Array(1),
        new Uint8ClampedArray(1),
        new Uint8Array(shared),
        new DataView(shared),
      ],
    ],
    [
      'i32s',
      [
        undefined,
        [1],
        new Uint32Array(1),
        new Int32Array(shared),
        detached,
        Object.create(Int32Array.prototype),
      ],
    ],
    ['u32s', [undefined, [1], new Int32Array(1), new Uint32Array(shared)]],
    ['f64s', [undefined, [1], new Float32Array(1), new Float64Array(shared)]],
    [
      { list: 'u8' },
      [undefined, 1, { length: 0 }, new Uint8Array(1), [256], [1, undefined], new Array(1), [-0], ['1']],
    ],
    [{ list: 'string' }, [undefined, text, [text, 1], [text, undefined], new Array(1)]],
    [{ optional: 'u8' }, [null, 256, text]],
    [{ a: 'u8' }, [undefined, null, {}, { a: 1, b: 2 }, { b: 1 }, { a: text }, [1]]],
  ]
}

function codecsOf(description: LayoutDescription, codecOf: (shape: Shape) => BodyCodec) {
  return new CompiledLayout(description, codecOf).variants[0]!
}

function viewsOf(wordCount: number): RingViews {
  const memory = new SharedArrayBuffer(wordCount * 4)
  return { words: new Int32Array(memory), bytes: new Uint8Array(memory) }
}

function copyOf(codec: BodyCodec, value: unknown): unknown {
  const views = viewsOf(codec.sizeOf(value))
  codec.write(value, views, 0)
  return codec.read(views, 0)
}

/** Throws unless `value` is written within its words and read as it was. */
function roundTrip(codec: BodyCodec, value: unknown, at: number, keys?: readonly string[]): void {
  const size = codec.sizeOf(value)
  assert.ok(size >= 0, 'fits')
  const views = viewsOf(at + size + 8)
  for (const fill of [-1, 0x55aa55aa]) {
    views.words.fill(fill)
    const used = codec.write(value, views, at)
    assert.ok(used >= 0 && used <= size, `used ${used} of ${size}`)
    assert.ok(
      views.words.subarray(0, at).every(word => word === fill),
      'before',
    )
    assert.ok(views.words.subarray(at + used).every(word => word === fill) || used < size, 'after')
    assert.ok(
      views.words.subarray(at + size).every(word => word === fill),
      'after all',
    )
    const read = codec.read(views, at)
    assert.deepStrictEqual(read, value)
    assert.equal(keyOrder(read), keyOrder(value))
    if (keys !== undefined) assert.deepEqual(Object.keys(read as object).sort(), [...keys].sort())
  }
}

function keyOrder(value: unknown): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || ArrayBuffer.isView(value))
    return ''
  return JSON.stringify(Object.entries(value).map(([key, item]) => [key, keyOrder(item)]))
}

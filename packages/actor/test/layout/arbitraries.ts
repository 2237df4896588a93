/** Random layouts, with values that fit them. */

import fc from 'fast-check'
import type { FieldDescription, FieldsDescription } from '../../src/layout/description.ts'

/** A description of a field and what fits it. */
interface Described {
  readonly description: FieldDescription
  readonly values: fc.Arbitrary<unknown>
}

const floats = fc.oneof(fc.double(), fc.constantFrom(Number.NaN, -0, 0, Infinity, -Infinity, 5e-324))
const u32 = fc.oneof(fc.nat(2 ** 32 - 1), fc.constantFrom(0, 2 ** 31, 2 ** 32 - 1))
const i32 = fc.oneof(
  fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  fc.constantFrom(-(2 ** 31), 2 ** 31 - 1),
)

/** Of each encoding and of lengths about the bounds between loops and native calls. */
export const strings = fc.oneof(
  fc.string({ maxLength: 70 }),
  fc.string({ unit: 'binary', maxLength: 70 }),
  fc.array(fc.nat(0xffff), { maxLength: 70 }).map(units => String.fromCharCode(...units)),
  fc
    .array(fc.constantFrom(0, 0x61, 0x7f, 0x80, 0xff, 0x100, 0x17f), { maxLength: 70 })
    .map(units => String.fromCharCode(...units)),
  fc
    .tuple(
      fc.constantFrom('a', 'é', 'ж', '😀', '\ud800'),
      fc.constantFrom(1, 31, 32, 33, 48, 49, 300, 5000),
      strings16(),
    )
    .map(([character, count, rest]) => rest + character.repeat(count)),
)

function strings16(): fc.Arbitrary<string> {
  return fc.string({ maxLength: 4 })
}

const lengths = { maxLength: 40 }

const valuesOfKind = {
  u8: fc.nat(0xff),
  u16: fc.nat(0xffff),
  u32,
  i32,
  f64: floats,
  bool: fc.boolean(),
  string: strings,
  bytes: fc.uint8Array(lengths),
  i32s: fc.int32Array(lengths),
  u32s: fc.uint32Array(lengths),
  f64s: fc.array(floats, lengths).map(values => Float64Array.from(values)),
}

const elementKinds = ['u8', 'u16', 'u32', 'i32', 'f64', 'string'] as const

/** Also names that are numbers, or mean something to an object, or would break code they are pasted into. */
const fieldNames = fc.oneof(
  fc.string({ minLength: 1, maxLength: 5 }),
  fc.constantFrom(
    'a',
    'b',
    'c',
    'id',
    '0',
    '17',
    'constructor',
    'toString',
    'hasOwnProperty',
    '"];',
    '`',
    '\u2028',
    '\ud800',
  ),
)

const scalars: fc.Arbitrary<Described> = fc.oneof(
  fc.constantFrom(...(Object.keys(valuesOfKind) as (keyof typeof valuesOfKind)[])).map(kind => ({
    description: kind,
    values: valuesOfKind[kind],
  })),
  fc.constantFrom(...elementKinds).map(list => ({
    description: { list },
    values: fc.array<unknown>(valuesOfKind[list] as fc.Arbitrary<unknown>, { maxLength: 20 }),
  })),
)

const { described } = fc.letrec<{ described: Described; record: Described }>(tie => ({
  described: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    scalars,
    fc.oneof(scalars, tie('record') as fc.Arbitrary<Described>).map(({ description, values }) => ({
      description: { optional: description },
      values: fc.option(values, { nil: undefined }),
    })),
    tie('record'),
  ),
  record: fieldsOf(tie('described') as fc.Arbitrary<Described>).filter(
    ({ description }) => !['list', 'optional'].includes(Object.keys(description).join()),
  ),
}))

function fieldsOf(
  field: fc.Arbitrary<Described>,
): fc.Arbitrary<{ description: FieldsDescription; values: fc.Arbitrary<Record<string, unknown>> }> {
  return fc
    .uniqueArray(fc.tuple(fieldNames, field), { selector: ([name]) => name, maxLength: 6 })
    .map(entries => entries.filter(([name]) => name !== '__proto__'))
    .map(entries => ({
      description: Object.fromEntries(entries.map(([name, { description }]) => [name, description])),
      values: fc
        .tuple(...entries.map(([, { values }]) => values))
        .map(values => Object.fromEntries(entries.map(([name], i) => [name, values[i]]))),
    }))
}

export interface LayoutCase {
  readonly fields: FieldsDescription
  readonly message: { readonly type: string } & Record<string, unknown>
  readonly reply: FieldDescription
  readonly answer: unknown
}

/** A variant 'x' with a message and an answer that fit. */
export const layoutCases: fc.Arbitrary<LayoutCase> = fc
  .tuple(fieldsOf(described), described)
  .chain(([body, reply]) => {
    const { type: _, reply: __, ...fields } = body.description
    return fc.record({
      fields: fc.constant(fields),
      message: body.values.map(values => {
        const { type: _, reply: __, ...rest } = values
        return { type: 'x', ...rest }
      }),
      reply: fc.constant(reply.description),
      answer: reply.values,
    })
  })

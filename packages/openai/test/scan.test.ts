import assert from 'node:assert/strict'
import { JSON_DEPTH_MAX, seededRandom } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import {
  cutMembers,
  MalformedJsonError,
  MEMBERS_MAX,
  type RequestScan,
  type ScanPoint,
  scanPoint,
  scanRequest,
  spliceMember,
} from '../src/index.ts'

function tryScan(bytes: Uint8Array, known?: ScanPoint) {
  try {
    return scanRequest(bytes, known)
  } catch (error) {
    assert.ok(error instanceof MalformedJsonError, String(error))
    assert.ok(error.position >= 0 && error.position <= bytes.length)
    return undefined
  }
}

function isObjectText(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}

/** Where the scan fails; undefined: nowhere. */
function faultIn(bytes: Uint8Array): number | undefined {
  try {
    scanRequest(bytes)
    return undefined
  } catch (error) {
    return (error as MalformedJsonError).position
  }
}

const text = (bytes: Uint8Array, range: { start: number; end: number }) =>
  Buffer.from(bytes.subarray(range.start, range.end)).toString()

t.test('finds every member with its exact bytes', async t => {
  const body = Buffer.from(
    ' { "model" : "m" ,"seed":18446744073709551615,\n"t":1.0,"a":{"b":[1,{"c":"}"}]},"é":null }\n',
  )
  const scan = scanRequest(body)
  t.strictSame(
    scan.members.map(({ name, value, member }) => [name, text(body, value), text(body, member)]),
    [
      ['model', '"m"', '"model" : "m"'],
      ['seed', '18446744073709551615', '"seed":18446744073709551615'],
      ['t', '1.0', '"t":1.0'],
      ['a', '{"b":[1,{"c":"}"}]}', '"a":{"b":[1,{"c":"}"}]}'],
      ['é', 'null', '"é":null'],
    ],
  )
  t.equal(body[scan.open], '{'.charCodeAt(0))
  t.equal(body[scan.close], '}'.charCodeAt(0))
})

t.test('of repeated names the last counts, also when one is written with escapes', async t => {
  const body = Buffer.from('{"n":1,"nv\\u0065xt":{},"n":2,"nvext":3}')
  const scan = scanRequest(body)
  t.equal(text(body, scan.byName.get('n')!.value), '2')
  t.equal(text(body, scan.byName.get('nvext')!.value), '3')
  t.equal(Buffer.from(cutMembers(body, scan, ['nvext'])).toString(), '{"n":1,"n":2}')
})

t.test('names that objects inherit are members like others', async t => {
  const scan = scanRequest(Buffer.from('{"__proto__":1,"constructor":2}'))
  t.strictSame([...scan.byName.keys()], ['__proto__', 'constructor'])
})

t.test('refuses what is not JSON, with the position and a reason', async t => {
  const cases: readonly [string, number, RegExp][] = [
    ['', 0, /the body is empty/],
    ['  ', 2, /expected a JSON object, found the end/],
    ['[1]', 0, /expected a JSON object, found '\['/],
    ['{"a":1', 6, /expected ',' or '}', found the end/],
    ['{"a":1,}', 7, /expected a name in quotes, found '}'/],
    ['{a:1}', 1, /expected a name in quotes, found 'a'/],
    ['{"a" 1}', 5, /expected ':', found '1'/],
    ['{"a":01}', 6, /leading zero/],
    ['{"a":-}', 6, /expected a digit/],
    ['{"a":1.}', 7, /expected a digit/],
    ['{"a":1e+}', 8, /expected a digit/],
    ['{"a":nul}', 8, /expected null/],
    ['{"a":NaN}', 5, /expected a value, found 'N'/],
    ['{"a":"b', 5, /unterminated string/],
    ['{"a":"\n"}', 6, /unescaped control character/],
    ['{"a":"\\x"}', 7, /invalid escape/],
    ['{"a":"\\u12g4"}', 10, /expected a hexadecimal digit/],
    ['{"a":[1 2]}', 8, /expected ',' or '\]'/],
    ['{"a":{"b":1 "c":2}}', 12, /expected ',' or '}'/],
    ['{"a":[1}', 7, /expected ',' or '\]', found '}'/],
    ['{} x', 3, /expected nothing after the object/],
    ['{}{}', 2, /expected nothing after the object/],
    ['\ufeff{}', 0, /expected a JSON object, found 0xef/],
  ]
  for (const [body, position, reason] of cases) {
    t.throws(
      () => scanRequest(Buffer.from(body)),
      { position, message: reason, code: 'HOMING_OPENAI_MALFORMED_JSON' },
      body,
    )
  }
})

t.test('refuses invalid UTF-8 at its first byte', async t => {
  for (const bad of [
    [0xff],
    [0xc3],
    [0xc3, 0x28],
    [0xed, 0xa0, 0x80],
    [0xf0, 0x9f, 0x98],
    [0xc0, 0x80],
    [0xa9],
  ]) {
    const body = Buffer.concat([Buffer.from('{"é":"'), Buffer.from(bad), Buffer.from('"}')])
    t.throws(() => scanRequest(body), { position: 7, message: /invalid UTF-8/ }, bad.join())
  }
})

t.test('is bounded in depth and in members', async t => {
  const nested = (levels: number) => Buffer.from(`{"a":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`)
  t.equal(scanRequest(nested(JSON_DEPTH_MAX)).members.length, 1)
  t.throws(() => scanRequest(nested(JSON_DEPTH_MAX + 1)), { message: /more than 256 levels/ })
  t.throws(() => scanRequest(Buffer.from('{"a":'.repeat(100_000))), MalformedJsonError)
  const many = (count: number) => Buffer.from(`{${Array.from({ length: count }, (_, i) => `"${i}":0`)}}`)
  t.equal(scanRequest(many(MEMBERS_MAX)).members.length, MEMBERS_MAX)
  t.throws(() => scanRequest(many(MEMBERS_MAX + 1)), { message: /more than 4096 members/ })
})

t.test('a view into a larger buffer is scanned by its own bytes', async t => {
  const large = Buffer.from('xx{"a":"b"}yy')
  const scan = scanRequest(large.subarray(2, 11))
  t.strictSame([...scan.byName.keys()], ['a'])
})

t.test('agrees with JSON.parse on which texts are valid, however they are damaged', async t => {
  const damaged = fc.tuple(
    fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue({ maxDepth: 3, stringUnit: 'binary' })),
    fc.boolean(),
    fc.array(
      fc.tuple(
        fc.nat(),
        fc.constantFrom('', ',', '"', '}', '{', '[', ']', ':', '0', '-', '.', 'e', '\\', '\t', 'n', 'u'),
      ),
    ),
  )
  const agree = fc.property(damaged, ([value, pretty, edits]) => {
    let body = JSON.stringify(value, null, pretty ? 1 : 0)
    for (const [at, insert] of edits.slice(0, 3)) {
      const i = at % (body.length + 1)
      body = body.slice(0, i) + insert + body.slice(insert === '' ? i + 1 : i)
    }
    // A lone surrogate that an edit made is no UTF-8 text.
    if (!body.isWellFormed()) return
    assert.equal(tryScan(Buffer.from(body)) !== undefined, isObjectText(body), body)
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 3000 }))
})

t.test('a long text ends where it does, or fails where it does, in whatever memory it lies', async t => {
  /** What may stand in a text, and where it is at fault. */
  const pieces: readonly (readonly [string, number?])[] = [
    ...(['\\"', '\\\\', '\\u00e9', '\\ud83d\\ude00', '\\/\\b\\f\\n\\r\\t', 'é', '😀', ' '] as const).map(
      piece => [piece] as const,
    ),
    ['\\x', 1],
    ['\\u00g0', 4],
    ['\\uD83', 5],
    ['\u001f', 0],
    ['\n', 0],
  ]
  // Around the sizes of the parts in which a long text is read.
  const sizes = [0, 1, 250, 4090, 4096, 20_470, 86_010, 151_550]
  for (let seed = 1; seed <= 400; seed++) {
    const random = seededRandom(seed)
    const filler = () => 'x'.repeat(sizes[random.below(sizes.length)]! + random.below(20))
    let inside = filler()
    let fault: number | undefined
    for (let left = 1 + random.below(4); left > 0 && fault === undefined; left--) {
      const [piece, at] = pieces[random.below(pieces.length)]!
      if (at !== undefined) fault = 6 + Buffer.byteLength(inside) + at
      inside += piece + filler()
    }
    const whole = Buffer.from(`{"a":"${inside}","b":1}`)
    // Cut anywhere in the text.
    const end = random.below(4) === 0 ? 6 + random.below(whole.length - 6) : whole.length
    const offset = random.below(9)
    const Memory = random.below(2) === 0 ? SharedArrayBuffer : ArrayBuffer
    const bytes = new Uint8Array(new Memory(offset + end + random.below(9)), offset, end)
    bytes.set(whole.subarray(0, end))
    if (end === whole.length && fault === undefined) {
      t.equal(text(bytes, scanRequest(bytes).byName.get('a')!.value), `"${inside}"`, `seed ${seed}`)
    } else if (fault !== undefined && fault < end) {
      t.equal(faultIn(bytes), fault, `seed ${seed}`)
    } else t.equal(tryScan(bytes), undefined, `seed ${seed}`)
  }
})

t.test('never throws anything but MalformedJsonError on arbitrary bytes', async t => {
  const bytes = fc.uint8Array({ maxLength: 40 }).map(tail => Buffer.concat([Buffer.from('{"a":'), tail]))
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(bytes, bytes => void tryScan(bytes)),
      { numRuns: 2000 },
    ),
  )
})

const names = fc.constantFrom('a', 'b', 'c', 'nvext', 'd')
const member = fc.tuple(
  names,
  fc.constantFrom('1', '1.0', '[1, 2]', '"}"', '{"nvext":1}', 'null'),
  fc.constantFrom('', ' ', '\n  '),
)
const object = fc
  .array(member, { maxLength: 6 })
  .map(
    members =>
      `{${members.map(([name, value, space]) => `${space}"${name}"${space}:${space}${value}${space}`).join(',')}}`,
  )

t.test('from a point behind any message, the scan ends as the whole scan does, whatever follows', async t => {
  const message = fc.oneof(
    fc.record({ role: fc.constant('user'), content: fc.oneof(fc.string({ unit: 'binary' }), fc.json()) }),
    fc.jsonValue({ maxDepth: 3 }),
  )
  const body = fc
    .tuple(
      fc.dictionary(fc.string({ maxLength: 4 }), fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 }),
      fc.array(message, { maxLength: 5 }),
      fc.dictionary(fc.string({ maxLength: 4 }), fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 }),
      fc.constantFrom(undefined, 1),
      fc.boolean(),
    )
    .map(([before, messages, after, space, isTwice]) => {
      const object = JSON.stringify({ ...before, messages, ...after }, undefined, space)
      return isTwice ? `${object.slice(0, -1)},"messages":[{}]}` : object
    })
  let points = 0
  fc.assert(
    fc.property(body, fc.string(), fc.nat(), fc.nat(), (object, junk, start, size) => {
      const bytes = Buffer.from(object)
      const whole = scanRequest(bytes)
      for (let number = 0; number < (whole.messages?.ends.length ?? 0); number++) {
        const point = scanPoint(bytes, whole, number)
        if (point === undefined) continue
        assert.deepEqual(withoutEnds(scanRequest(bytes, point)), withoutEnds(whole))
        assert.deepEqual(scanRequest(bytes, point).messages?.ends, whole.messages?.ends.slice(number + 1))
        const tail = object.length - point.at
        const from = point.at + (start % tail)
        const damaged = Buffer.from(
          Buffer.from(object.slice(0, from) + junk + object.slice(from + (size % 3))),
        )
        const isSame = damaged.subarray(0, point.at).equals(bytes.subarray(0, point.at))
        if (isSame) assert.deepEqual(withoutEnds(tryScan(damaged, point)), withoutEnds(tryScan(damaged)))
        points++
      }
    }),
  )
  t.ok(points > 100, `${points} points`)
})

function withoutEnds(scan: RequestScan | undefined) {
  return scan === undefined ? undefined : { ...scan, messages: { ...scan.messages, ends: [] } }
}

t.test('messages are bounded in depth like everything else', async t => {
  const nested = (levels: number) => Buffer.from(`{"messages":[${'['.repeat(levels)}${']'.repeat(levels)}]}`)
  scanRequest(nested(JSON_DEPTH_MAX - 2))
  t.throws(() => scanRequest(nested(JSON_DEPTH_MAX - 1)), MalformedJsonError)
  for (const [body, number] of [
    ['{"messages":[{}]}', 1],
    ['{"messages":{}}', 0],
    ['{"messages":[12]}', 0],
  ] as const) {
    t.equal(scanPoint(Buffer.from(body), scanRequest(Buffer.from(body)), number), undefined, body)
  }
})

t.test('cutting leaves a valid object with every other member as it was, byte for byte', async t => {
  const holds = fc.property(object, fc.uniqueArray(names), (body, cut: readonly string[]) => {
    const bytes = Buffer.from(body)
    const scan = scanRequest(bytes)
    const result = cutMembers(bytes, scan, cut)
    const rest = scanRequest(result)
    const kept = scan.members.filter(({ name }) => !cut.includes(name))
    assert.deepEqual(
      rest.members.map(m => text(result, m.member)),
      kept.map(m => text(bytes, m.member)),
    )
    if (kept.length === scan.members.length) assert.equal(result, bytes)
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 1000 }))
})

t.test('splicing sets one member and leaves every other byte alone', async t => {
  const holds = fc.property(object, names, (body, name) => {
    const bytes = Buffer.from(body)
    const scan = scanRequest(bytes)
    const result = spliceMember(bytes, scan, name, '{"é":[]}')
    const after = scanRequest(result)
    assert.equal(text(result, after.byName.get(name)!.value), '{"é":[]}')
    const others = (all: readonly string[]) => all.filter(member => !member.includes(`"${name}"`))
    assert.deepEqual(
      others(after.members.map(m => text(result, m.member))),
      others(scan.members.map(m => text(bytes, m.member))),
    )
    assert.deepEqual(JSON.parse(Buffer.from(result).toString()), { ...JSON.parse(body), [name]: { é: [] } })
  })
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 1000 }))
})

t.test('a number above 2^53, 1.0 and integer-like names survive a cut and a splice', async t => {
  const body = Buffer.from('{"b":1.0,"2":{"x":1,"1":2},"nvext":{"a":1},"bootstrap_room":4611686018427387905}')
  const cut = cutMembers(body, scanRequest(body), ['nvext'])
  const result = spliceMember(cut, scanRequest(cut), 'stream', 'true')
  t.equal(
    Buffer.from(result).toString(),
    '{"b":1.0,"2":{"x":1,"1":2},"bootstrap_room":4611686018427387905,"stream":true}',
  )
})

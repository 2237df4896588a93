/** Bodies read with a memory of earlier ones have the values that they have without. */

import assert from 'node:assert/strict'
import { scanRequest } from '@homing/openai'
import { tryParseJson } from '@homing/tokenization'
import fc from 'fast-check'
import t from 'tap'
import { BodyMemory } from '../src/body-memory.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)

function check(memory: BodyMemory, text: string): void {
  const body = utf8(text)
  const { scan, values } = memory.read(body)
  const { messages: _, ...whole } = scanRequest(body)
  const { messages: __, ...read } = scan
  assert.deepEqual(read, whole)
  assert.deepEqual(values(), tryParseJson(text))
}

const content = fc.oneof(
  { weight: 3, arbitrary: fc.string({ unit: 'binary', maxLength: 3000 }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 9000 }).map(count => 'word '.repeat(count)) },
  { weight: 1, arbitrary: fc.constant([{ type: 'text', text: '1.0 \n "quoted" é' }]) },
)
const message = fc.oneof(
  { weight: 9, arbitrary: fc.record({ role: fc.constantFrom('user', 'assistant', 'système'), content }) },
  { weight: 1, arbitrary: fc.constantFrom<unknown>(12, null, 'text', [], {}) },
)
/** What is done to a conversation from one request to the next. */
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('say' as const), message }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('edit' as const), at: fc.nat(30), message }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('drop' as const), at: fc.nat(30) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('fork' as const), at: fc.nat(5) }) },
)
const form = fc.record({
  before: fc.constantFrom(
    '',
    '"model":"m",',
    '"tools":[{"x":1.0}], "model" : "m" ,',
    `"user":"${'u'.repeat(5000)}",`,
  ),
  after: fc.constantFrom('', ',"max_tokens":16', ',"seed":18446744073709551615', ',"messages":[{"a":1}]'),
  space: fc.constantFrom(undefined, 1),
})

t.test(`whatever conversations do, and however much is remembered (seed ${SEED})`, async t => {
  let recalled = 0
  fc.assert(
    fc.property(
      fc.array(step, { minLength: 5, maxLength: 40 }),
      form,
      fc.constantFrom(20_000, 200_000, 1e9),
      (steps, { before, after, space }, bytesMax) => {
        const memory = new BodyMemory(bytesMax)
        const chats: unknown[][] = [[{ role: 'system', content: 'You are brief. '.repeat(200) }]]
        let chat = chats[0]!
        for (const what of steps) {
          if (what.kind === 'say') chat.push(what.message)
          else if (what.kind === 'edit') chat[what.at % chat.length] = what.message
          else if (what.kind === 'drop' && chat.length > 1) chat.splice(what.at % chat.length, 1)
          else if (what.kind === 'fork') {
            chat = [...chats[what.at % chats.length]!]
            chats.push(chat)
          }
          check(memory, `{${before}"messages": ${JSON.stringify(chat, undefined, space)}${after}}`)
          assert.ok(memory.bytes <= bytesMax)
          recalled += memory.bytes > 0 ? 1 : 0
        }
      },
    ),
    { seed: SEED, numRuns: 60 },
  )
  t.ok(recalled > 100)
})

t.test('a number at the end of a window that goes on in the next body is read whole', async () => {
  const memory = new BodyMemory(1e9)
  const start = '{"messages":['
  const filler = JSON.stringify({ role: 'user', content: 'x'.repeat(2048 - start.length - 32) })
  const head = `${start}${filler},`
  const padded = `${head}${' '.repeat(2048 - head.length - 2)}12`
  assert.equal(padded.length, 2048)
  check(memory, `${padded},{"a":1}]}`)
  check(memory, `${padded}34,{"a":1}]}`)
  check(memory, `${padded},{"a":2}]}`)
})

t.test('what is not JSON is refused in the same place, whatever was known before it', async t => {
  const memory = new BodyMemory(1e9)
  const good = JSON.stringify({
    messages: Array.from({ length: 90 }, (_, i) => ({ role: 'user', content: `turn ${i}` })),
  })
  check(memory, good)
  for (const bad of [`${good.slice(0, -2)},]}`, `${good}x`, good.slice(0, -1), `${good.slice(0, -2)}{}]}`]) {
    let message = ''
    try {
      scanRequest(utf8(bad))
    } catch (error) {
      message = (error as Error).message
    }
    t.match(message, / at byte \d+$/)
    t.throws(() => memory.read(utf8(bad)), { message })
  }
})

t.test('bodies whose values are taken after others were read are read all the same', async () => {
  const memory = new BodyMemory(30_000)
  const bodyOf = (name: string, turns: number): string =>
    JSON.stringify({
      messages: Array.from({ length: turns }, (_, i) => ({ role: name, content: `${name} ${i}`.repeat(40) })),
    })
  for (let round = 0; round < 50; round++) {
    const long = bodyOf('a', 12)
    const open = memory.read(utf8(long))
    // Others push the windows of the open one out, and bring its beginning back.
    for (let i = 0; i < 10; i++) check(memory, bodyOf(`other ${round} ${i}`, 10))
    check(memory, bodyOf('a', 6))
    assert.deepEqual(open.values(), tryParseJson(long))
    check(memory, bodyOf(`last ${round}`, 10))
  }
})

t.test('values that take much more memory than their text count for what they take', async t => {
  const bytesMax = 1e7
  const memory = new BodyMemory(bytesMax)
  const counts: number[] = []
  for (let round = 0; round < 40; round++) {
    const filled = { round, content: Array.from({ length: 5000 }, () => ({})) }
    check(memory, JSON.stringify({ messages: [filled, { content: 'behind it '.repeat(500) }] }))
    counts.push(memory.bytes)
  }
  t.ok(counts[0]! > 5000 * 200, `${counts[0]} bytes for 5,000 empty objects`)
  t.ok(Math.max(...counts) <= bytesMax)
})

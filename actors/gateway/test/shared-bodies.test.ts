/** Long bodies in the memory that threads share: who may still read them when their request ends. */

import t from 'tap'
import { SlicedPrompt } from '../src/sliced-prompt.ts'
import { start, type World } from './gateway-world.ts'
import { READ } from './sample-records.ts'
import { die, end, head } from './worker-exchange.ts'

const LENGTH = 20_000
const LIMITS = { bodyBytesMax: 100_000, bodiesBytesMax: 1_000_000, openRequestsMax: 100 }
const PATH = '/v1/chat/completions'

/** Another text for each number. */
const textOf = (number: number): string => `${number} `.repeat(LENGTH).slice(0, LENGTH)

async function sharedBytes({ ask }: World): Promise<number> {
  const { body } = await ask('GET', '/metrics')
  return Number(/^homing_gateway_shared_body_bytes (\d+)$/m.exec(body)?.[1])
}

t.test('the tokenizer reads, and the worker gets, the bytes of a long body where they lie', async t => {
  const seen: Uint8Array[] = []
  const world = await start(
    t,
    LIMITS,
    {
      read: ({ body }) => {
        seen.push(body)
        return { kind: 'read', request: READ }
      },
    },
    { usesBody: () => false },
  )
  await world.ask('POST', PATH, { body: textOf(1) })
  t.ok(seen[0]!.buffer instanceof SharedArrayBuffer)
  t.equal(Buffer.from(seen[0]!).toString(), textOf(1))
  t.equal(Buffer.from(world.called().body).toString(), textOf(1))
  t.equal(await sharedBytes(world), LENGTH)
  await world.answer(head(), end)
  t.equal(await sharedBytes(world), 0)
  await world.ask('POST', PATH, { body: '{}' })
  t.not(seen[1]!.buffer instanceof SharedArrayBuffer, 'a short one')
})

t.test('it is free however the request ends', async t => {
  const world = await start(t, LIMITS, {}, { usesBody: () => false })
  const { script, system, send, ask, answer } = world
  const ends: readonly (readonly [string, () => Promise<void> | void])[] = [
    ['the worker answers', () => answer(head(), end)],
    ['the worker dies', () => answer(die)],
  ]
  for (const [what, happens] of ends) {
    const call = await ask('POST', PATH, { body: textOf(1) })
    t.equal(await sharedBytes(world), LENGTH, what)
    await happens()
    t.not(call.status, undefined, what)
    t.equal(await sharedBytes(world), 0, what)
  }
  const leaving = send('POST', PATH, { body: textOf(2) })
  await system.settle()
  leaving.call.abort()
  await system.settle()
  t.equal(await sharedBytes(world), 0, 'the client leaves')
  for (const path of [PATH, '/v1/embeddings']) {
    script.decide = () => ({
      kind: 'refused',
      error: { code: 'HOMING_ROUTER_NO_WORKER', message: 'cannot place it', details: {} },
    })
    t.equal((await ask('POST', path, { body: textOf(3) })).status, 503)
    t.equal(await sharedBytes(world), 0, `${path} is placed nowhere`)
  }
  script.read = () => ({
    kind: 'refused',
    error: { code: 'HOMING_OPENAI_MALFORMED_JSON', message: 'cannot read', details: {} },
    param: undefined,
  })
  t.equal((await ask('POST', PATH, { body: textOf(4) })).status, 400)
  t.equal(await sharedBytes(world), 0, 'it cannot be read')
})

t.test('a late tokenizer, and a connection that has bytes of it, keep it from others', async t => {
  const bodies: { readonly body: Uint8Array; readonly reply: () => void }[] = []
  let usesBody = true
  const world = await start(t, LIMITS, {}, { usesBody: () => usesBody })
  const { script, system, send, ask, answer } = world
  script.read = ({ body, reply }) => {
    bodies.push({ body, reply: () => reply({ kind: 'read', request: READ }) })
    return undefined
  }
  const late = send('POST', PATH, { body: textOf(1) })
  const gone = send('POST', PATH, { body: textOf(2) })
  await system.settle()
  gone.call.abort()
  await system.advance('5s')
  t.equal(late.status, 504)
  const third = send('POST', PATH, { body: textOf(3) })
  await system.settle()
  t.strictSame(
    bodies.map(
      ({ body }) => Buffer.from(body).toString() === textOf(bodies.findIndex(one => one.body === body) + 1),
    ),
    [true, true, true],
  )
  t.equal(await sharedBytes(world), 3 * LENGTH)
  for (const { reply } of bodies) reply()
  await system.settle()
  t.equal(await sharedBytes(world), LENGTH, 'only the third is open')
  await answer(head(), end)
  t.equal(third.status, 200)
  await system.advance('1s')
  t.equal(await sharedBytes(world), LENGTH, 'its connection has bytes of it')
  const [, , { body }] = bodies as [unknown, unknown, { readonly body: Uint8Array }]
  await ask('POST', PATH, { body: textOf(4) })
  t.equal(Buffer.from(body).toString(), textOf(3))
  usesBody = false
  await system.advance('1s')
  t.equal(await sharedBytes(world), LENGTH, 'the fourth')
})

t.test('what a tokenizer had that does not answer any more belongs to no other body', async t => {
  const bodies: Uint8Array[] = []
  const world = await start(t, { ...LIMITS, bodiesBytesMax: 3 * LENGTH }, {}, { usesBody: () => false })
  const { script, system, send, ask } = world
  script.read = ({ body }) => {
    bodies.push(body)
    return undefined
  }
  const lost = send('POST', PATH, { body: textOf(1) })
  // The longest time that a tokenizer may take.
  await system.advance('60m')
  t.equal(lost.status, 504)
  t.equal(await sharedBytes(world), 0)
  script.read = ({ body }) => {
    bodies.push(body)
    return { kind: 'read', request: READ }
  }
  await ask('POST', PATH, { body: textOf(2) })
  t.equal(Buffer.from(bodies[0]!).toString(), textOf(1))
  t.not(bodies[0]!.buffer, bodies[1]!.buffer)
})

t.test('the ids of a prompt that could go in slices are freed with its request', async t => {
  const ids = new Int32Array(100_000)
  const prompt = new SlicedPrompt(ids, '')
  t.equal(JSON.parse(Buffer.from(prompt.body(3, false)).toString()).prompt.length, 3)
  prompt.giveUp()
  t.strictSame([ids.length, prompt.bytes], [0, 0])
})

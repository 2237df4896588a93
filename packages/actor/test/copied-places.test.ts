/** In a test system, actors of different placements share nothing that they would not share in production. */

import { type ActorRef, AskTimeoutError, type Reply, UnserializableMessageError } from '@homing/actor'
import { RemoteError } from '@homing/base'
import t from 'tap'
import { actor, startSystem } from './inline-actors.ts'

type BoxMessage =
  | { readonly type: 'put'; readonly items: string[]; readonly extra?: unknown }
  | { readonly type: 'get'; readonly reply: Reply<string[]> }
  | { readonly type: 'odd'; readonly reply: Reply<unknown> }
  | { readonly type: 'fail'; readonly reply: Reply<never> }
  | { readonly type: 'silent'; readonly reply: Reply<never> }
  | { readonly type: 'self'; readonly reply: Reply<ActorRef<BoxMessage>> }
  | { readonly type: 'passOn'; readonly to: ActorRef<BoxMessage>; readonly reply: Reply<string[]> }
  | { readonly type: 'passed'; readonly answer: { readonly to: Reply<string[]> } }
  | { readonly type: 'bytes'; readonly to?: ActorRef<BoxMessage>; readonly reply: Reply<Uint8Array> }
  | { readonly type: 'bytesFor'; readonly answer: { readonly to: Reply<Uint8Array> } }
  /** How many bytes it has that it gave away. */
  | { readonly type: 'left'; readonly reply: Reply<number> }

class Oddity {
  readonly size = 1
}

const box = actor<BoxMessage, { readonly items: string[] } | undefined>((ctx, args) => {
  let items = args?.items ?? []
  const given = new Uint8Array(8)
  return {
    put(message) {
      items = message.items
      items.push('seen')
    },
    get: ({ reply }) => reply(items),
    odd: ({ reply }) => reply(new Oddity()),
    fail() {
      throw new Oddity()
    },
    silent() {},
    self: ({ reply }) => reply(ctx.self),
    passOn: ({ to, reply }) => void to.tell({ type: 'passed', answer: { to: reply } }),
    passed: ({ answer }) => answer.to(items),
    bytes({ to, reply }) {
      if (to === undefined) reply(given, { transfer: [given.buffer] })
      else to.tell({ type: 'bytesFor', answer: { to: reply } })
    },
    bytesFor: ({ answer }) => answer.to(given, { transfer: [given.buffer] }),
    left: ({ reply }) => reply(given.byteLength),
  }
})
const soon = { timeout: '1s' } as const
const places = ['core-0', { pool: 'core', key: 7 }, 'dedicated'] as const

t.test('a message to another place is a copy, and so is the answer', async t => {
  for (const thread of places) {
    const sys = startSystem(t)
    const ref = sys.spawn(box, { name: 'box', thread })
    const items = ['a']
    ref.tell({ type: 'put', items })
    const first = await ref.ask({ type: 'get' }, soon)
    t.strictSame(items, ['a'])
    t.strictSame(first, ['a', 'seen'])
    t.not(await ref.ask({ type: 'get' }, soon), first)
  }
})

t.test('within a place, and everywhere when told so, the same object arrives', async t => {
  for (const [options, thread] of [
    [{}, 'main'],
    [{}, 'here'],
    [{ byReference: true }, 'core-0'],
  ] as const) {
    const sys = startSystem(t, options)
    const ref = sys.spawn(box, { name: 'box', thread })
    const items = ['a']
    ref.tell({ type: 'put', items })
    t.equal(await ref.ask({ type: 'get' }, soon), items)
  }
})

t.test('args are copied to another place', async t => {
  const sys = startSystem(t)
  const items = ['a']
  const far = sys.spawn(box, { name: 'far', thread: 'core-0', args: { items } })
  const near = sys.spawn(box, { name: 'near', args: { items } })
  t.not(await far.ask({ type: 'get' }, soon), items)
  t.equal(await near.ask({ type: 'get' }, soon), items)
})

t.test('what cannot travel is refused as between threads', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(box, { name: 'box', thread: 'core-0', supervision: { directive: 'resume' } })
  for (const extra of [() => {}, new Oddity(), Symbol('odd')]) {
    t.equal(ref.tell({ type: 'put', items: [], extra }), 'dead')
    await t.rejects(ref.ask({ type: 'get', extra } as never, soon), UnserializableMessageError)
    t.throws(
      () => sys.spawn(box, { name: 'x', thread: 'core-1', args: { items: [], extra } as never }),
      UnserializableMessageError,
    )
  }
  await t.rejects(ref.ask({ type: 'odd' }, soon), { code: 'HOMING_ACTOR_UNSERIALIZABLE' })
  await t.rejects(ref.ask({ type: 'fail' }, soon), RemoteError)
  t.equal((await sys.stats()).deadLettersByReason.unserializable, 3)
  const near = sys.spawn(box, { name: 'near' })
  t.equal(near.tell({ type: 'put', items: [], extra: () => {} }), 'ok')
})

t.test('refs and replies that travel work where they arrive', async t => {
  const sys = startSystem(t)
  const probe = sys.probe<BoxMessage>()
  const a = sys.spawn(box, { name: 'a', thread: 'core-0' })
  const b = sys.spawn(box, { name: 'b', thread: 'core-1', args: { items: ['of b'] } })
  t.strictSame(await a.ask({ type: 'passOn', to: b }, soon), ['of b'], 'a reply that was passed on')
  a.tell({ type: 'passOn', to: probe.ref, reply: undefined as never })
  const self = await b.ask({ type: 'self' }, soon)
  t.equal(self.key, b.key)
  t.strictSame(await self.ask({ type: 'get' }, soon), ['of b'])
  t.match(await probe.next(), { type: 'passed' })
  probe.watch(self)
  await sys.stop(b)
  t.equal((await probe.nextTerminated()).ref.key, b.key)
})

t.test('what an answer transfers has moved, also when the reply was passed on', async t => {
  const sys = startSystem(t)
  const a = sys.spawn(box, { name: 'a', thread: 'core-0' })
  const b = sys.spawn(box, { name: 'b', thread: 'core-1' })
  t.equal((await a.ask({ type: 'bytes', to: b }, soon)).byteLength, 8)
  t.strictSame(await Promise.all([a, b].map(ref => ref.ask({ type: 'left' }, soon))), [8, 0])
  t.equal((await a.ask({ type: 'bytes' }, soon)).byteLength, 8)
  t.strictSame(await Promise.all([a, b].map(ref => ref.ask({ type: 'left' }, soon))), [0, 0])
  await t.rejects(a.ask({ type: 'bytes', to: b }, soon), { code: 'HOMING_ACTOR_UNSERIALIZABLE' })
})

t.test('an ask that nobody answers ends at its deadline, and leaves nothing behind', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(box, { name: 'box', thread: 'core-0' })
  const asked = ref.ask({ type: 'silent' }, soon)
  const rejected = t.rejects(asked, AskTimeoutError)
  await sys.advance('1s')
  await rejected
  t.equal((await sys.stats()).asksPending, 0)
  // An ask that was still open would hold this up.
  t.match(await sys.shutdown({ after: 'mailbox' }), { undrained: [], slow: [] })
})

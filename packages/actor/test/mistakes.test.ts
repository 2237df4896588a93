/** What is wrong in the calling code is told to the caller, and harms nobody else. */

import {
  type ActorRef,
  createActorSystem,
  MalformedMessageError,
  type Message,
  type Reply,
  UnserializableMessageError,
} from '@homing/actor'
import t from 'tap'
import { echo } from './fixtures/echo.ts'
import { typed } from './fixtures/typed.ts'
import { actor, startSystem } from './inline-actors.ts'

type Told =
  | { readonly type: 'note'; readonly n: number }
  | { readonly type: 'get'; readonly reply: Reply<number> }

const soon = { timeout: '5s' } as const

/** Counts its notes. */
const counting = actor<Told>(() => {
  let notes = 0
  return { note: () => void notes++, get: m => m.reply(notes) }
})

const revoked = (): object => {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

const malformed: readonly unknown[] = [
  null,
  undefined,
  7,
  'note',
  {},
  [],
  { type: 7 },
  { type: null },
  revoked(),
]

t.test('what is no message is a dead letter, and the actor goes on', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(counting, { name: 'a', args: undefined })
  for (const message of malformed) t.equal(ref.tell(message as never), 'dead')
  for (const message of malformed) await t.rejects(ref.ask(message as never, soon), MalformedMessageError)
  ref.tell({ type: 'note', n: 1 })
  t.equal(await ref.ask({ type: 'get' }, soon), 1)
  const { deadLettersByReason, asksPending } = await sys.stats()
  t.equal(deadLettersByReason.malformed, malformed.length)
  t.equal(asksPending, 0)
})

t.test(
  'what is no message is a dead letter also when its actor is on another thread, has ended or is its sender',
  async t => {
    const sys = await createActorSystem({
      pools: { p: { count: 1 } },
      logLevel: 'silent',
      threadExecArgv: [],
    })
    t.teardown(() => sys.shutdown())
    const far = sys.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
    const ended = sys.spawn(counting, { name: 'ended', args: undefined })
    await sys.stop(ended)
    for (const ref of [far as unknown as ActorRef<Told>, ended]) {
      for (const message of malformed) t.equal(ref.tell(message as never), 'dead')
      for (const message of malformed) await t.rejects(ref.ask(message as never, soon), MalformedMessageError)
    }
    const itself = sys.spawn(
      actor<Told>(ctx => {
        ctx.schedule(0, null as never)
        ctx.pipe(
          Promise.resolve(),
          () => ({ type: 7 }) as never,
          () => null as never,
        )
        let notes = 0
        return { note: () => void notes++, get: m => m.reply(notes) }
      }),
      { name: 'itself', args: undefined },
    )
    itself.tell({ type: 'note', n: 1 })
    t.equal(await itself.ask({ type: 'get' }, soon), 1)
    t.equal(await far.ask({ type: 'where' }, soon), 'p-0', 'its thread goes on')
    const { threadRestarts } = await sys.stats()
    t.equal(threadRestarts, 0)
  },
)

t.test('a message that loses its type on the way or while it waits is a dead letter', async t => {
  const sys = await createActorSystem({ pools: { p: { count: 1 } }, logLevel: 'silent', threadExecArgv: [] })
  t.teardown(() => sys.shutdown())
  const far = sys.spawn(echo, { name: 'far', args: {}, thread: 'p-0' })
  t.equal(
    far.tell(Object.assign(new Date(), { type: 'note', n: 1 }) as never),
    'ok',
    'a clone of it has no type',
  )
  t.equal(await far.ask({ type: 'where' }, soon), 'p-0')
  const here = sys.spawn(counting, { name: 'here', args: undefined })
  const message: { type: string; n: number } = { type: 'note', n: 1 }
  here.tell(message as never)
  message.type = undefined as never
  t.equal(await here.ask({ type: 'get' }, soon), 0)
  const { deadLettersByReason, threadRestarts } = await sys.stats()
  t.equal(deadLettersByReason.malformed, 2)
  t.equal(threadRestarts, 0)
})

t.test('a message that cannot be read cannot travel; tell says so and does not throw', async t => {
  const sys = await createActorSystem({ pools: { p: { count: 1 } }, logLevel: 'silent', threadExecArgv: [] })
  t.teardown(() => sys.shutdown())
  const ref = sys.spawn(typed, { name: 'typed', args: undefined, thread: 'p-0' })
  // From here on there is a link, and messages are coded.
  await ref.ask({ type: 'add', a: 1, b: 2 }, soon)
  const unreadable = <M extends Message>(message: M, field: string): M =>
    Object.defineProperty(message, field, {
      enumerable: true,
      get() {
        throw new Error('no field')
      },
    })
  t.equal(ref.tell(unreadable({ type: 'note', n: 0, text: '' }, 'text')), 'dead')
  t.equal(ref.tell(unreadable({ type: 'odd', any: 0 }, 'any')), 'dead')
  const ask = ref.ask(unreadable({ type: 'add', a: 1, b: 2 }, 'b'), soon)
  await t.rejects(ask, UnserializableMessageError)
  t.equal((await sys.stats()).deadLettersByReason.unserializable, 2)
  t.match(await ref.ask({ type: 'tally' }, soon), { notes: 0, odd: [] })
})

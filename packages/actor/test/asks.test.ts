/** The promises of docs/actors.md about asks that one thread can show, on a simulated clock. */

import {
  ActorTerminatedError,
  AskAbortedError,
  AskRefusedError,
  AskTimeoutError,
  type Reply,
  UnhandledMessageError,
} from '@homing/actor'
import t from 'tap'
import { actor, restart, startSystem } from './inline-actors.ts'

type Work =
  | { readonly type: 'work'; readonly n: number; readonly reply: Reply<number> }
  | { readonly type: 'tick'; readonly n: number }

t.test('an ask settles with the reply; a second reply is discarded', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        m.reply(m.n + 1)
        m.reply(0)
      },
      tick() {},
    })),
    { name: 'a', args: undefined },
  )
  t.equal(await ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), 2)
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('an ask without an answer settles at its deadline; a late reply is discarded', async t => {
  const sys = startSystem(t)
  let late: Reply<number> = () => {}
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        late = m.reply
      },
      tick() {},
    })),
    { name: 'a', args: undefined },
  )
  const asked = ref.ask({ type: 'work', n: 1 }, { timeout: '50ms' })
  const rejected = t.rejects(asked, AskTimeoutError)
  await sys.advance('49ms')
  t.equal((await sys.stats()).asksPending, 1)
  await sys.advance('1ms')
  await rejected
  t.doesNotThrow(() => late(1))
  const stats = await sys.stats()
  t.equal(stats.asksPending, 0)
  t.equal(stats.asksTimedOut, 1)
})

t.test('an ask that a full mailbox refuses settles at once', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined, mailbox: { capacity: 1 } },
  )
  ref.tell({ type: 'tick', n: 0 })
  await t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), AskRefusedError)
})

t.test('an ask whose message is dropped from a full mailbox is refused', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined, mailbox: { capacity: 1, overflow: 'dropOldest' } },
  )
  const asked = ref.ask({ type: 'work', n: 1 }, { timeout: '1s' })
  const rejected = t.rejects(asked, AskRefusedError)
  ref.tell({ type: 'tick', n: 0 })
  await rejected
})

t.test('an ask settles when its target is dead, or dies before it answers', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined },
  )
  const open = t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), ActorTerminatedError)
  await sys.settle()
  await sys.stop(ref)
  await open
  await t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), ActorTerminatedError)
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('an ask can be aborted, before and while it waits', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ work() {}, tick() {} })),
    { name: 'a', args: undefined },
  )
  await t.rejects(
    ref.ask({ type: 'work', n: 1 }, { timeout: '1s', signal: AbortSignal.abort() }),
    AskAbortedError,
  )
  const controller = new AbortController()
  const asked = t.rejects(
    ref.ask({ type: 'work', n: 1 }, { timeout: '1s', signal: controller.signal }),
    AskAbortedError,
  )
  controller.abort()
  await asked
  t.equal((await sys.stats()).asksPending, 0)
})

t.test('an ask rejects with the error that its handler threw', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        if (m.n === 0) throw new TypeError('zero')
        return Promise.reject(new TypeError('not zero'))
      },
      tick() {},
    })),
    { name: 'a', args: undefined, supervision: restart() },
  )
  await t.rejects(ref.ask({ type: 'work', n: 0 }, { timeout: '1s' }), new TypeError('zero'))
  await sys.advance('1s')
  await t.rejects(ref.ask({ type: 'work', n: 1 }, { timeout: '1s' }), new TypeError('not zero'))
})

t.test('an ask of a type without an arm is rejected, and told messages of it are dead letters', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({ tick() {} }) as never),
    { name: 'a', args: undefined },
  )
  await t.rejects(ref.ask({ type: 'work', n: 0 }, { timeout: '1s' }), UnhandledMessageError)
  t.equal((await sys.stats()).deadLetters, 1)
})

t.test('an ask that waits in the mailbox survives a restart; one that was taken does not', async t => {
  const sys = startSystem(t)
  const ref = sys.spawn(
    actor<Work>(() => ({
      work(m) {
        if (m.n > 0) m.reply(m.n)
      },
      tick() {
        throw new Error('poison')
      },
    })),
    { name: 'a', args: undefined, supervision: restart() },
  )
  const taken = t.rejects(ref.ask({ type: 'work', n: 0 }, { timeout: '5s' }), ActorTerminatedError)
  ref.tell({ type: 'tick', n: 0 })
  const waiting = ref.ask({ type: 'work', n: 7 }, { timeout: '5s' })
  await taken
  await sys.advance('1s')
  t.equal(await waiting, 7)
})

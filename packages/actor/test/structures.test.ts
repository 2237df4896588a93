/** The structures under the runtime, against naive models. */

import assert from 'node:assert/strict'
import { SimulatedClock } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { OpenAsk } from '../src/asks/asks.ts'
import { Mailbox } from '../src/cell/mailbox.ts'
import { backoffMs } from '../src/cell/supervision.ts'
import { toSettings } from '../src/contract/settings.ts'
import { BaseRef, pack, type RefTarget, type ReplyTarget, unpack } from '../src/packing/pack.ts'
import { resolvePlacement } from '../src/runtime/placement.ts'
import { type Deadline, Deadlines } from '../src/values/deadlines.ts'
import { UnserializableMessageError } from '../src/values/errors.ts'

t.test('a mailbox holds what a bounded array would, in its order', async t => {
  const agree = fc.property(
    fc.integer({ min: 1, max: 20 }),
    fc.array(fc.constantFrom('push', 'pushForced', 'shift'), { maxLength: 200 }),
    (capacity, operations) => {
      const mailbox = new Mailbox(capacity)
      const naive: { type: string }[] = []
      for (const [i, operation] of operations.entries()) {
        const message = { type: String(i) }
        if (operation === 'shift') assert.equal(mailbox.take(), naive.shift())
        else if (operation === 'pushForced') {
          mailbox.pushForced(message)
          naive.push(message)
        } else {
          const fits = naive.length < capacity
          assert.equal(mailbox.offer(message), fits)
          if (fits) naive.push(message)
        }
        assert.equal(mailbox.size, naive.length)
        assert.deepEqual([...mailbox.waiting()], naive)
      }
    },
  )
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('a mailbox with a control lane and keys holds what two arrays would, in their order', async t => {
  type M = { readonly type: string; readonly key: string | undefined; readonly n: number }
  const operation = fc.oneof(
    fc.record({
      kind: fc.constant('push' as const),
      type: fc.constantFrom('control', 'data'),
      key: fc.constantFrom(undefined, 'x', 'y', 'z'),
    }),
    fc.record({ kind: fc.constantFrom('shift', 'follow') }),
  )
  const rules = { control: new Set(['control']), coalesce: (m: M) => m.key }
  const agree = fc.property(
    fc.integer({ min: 1, max: 6 }),
    fc.array(operation, { maxLength: 100 }),
    (capacity, operations) => {
      const mailbox = new Mailbox(capacity)
      let isFollowing = false
      let [control, user]: [M[], M[]] = [[], []]
      const same = (m: M) => (w: M) => isFollowing && m.key !== undefined && w.key === m.key
      const add = (m: M): 'full' | 'ok' => {
        if (isFollowing && m.type === 'control') {
          if (control.length >= capacity) return 'full'
          control.push(m)
          return 'ok'
        }
        const at = user.findIndex(same(m))
        if (at >= 0) user[at] = m
        else if (user.length >= capacity) return 'full'
        else user.push(m)
        return 'ok'
      }
      for (const [n, given] of operations.entries()) {
        if (given.kind === 'push') {
          const m: M = { type: given.type, key: given.key, n }
          const taken = mailbox.replace(m) !== undefined || mailbox.offer(m)
          assert.equal(taken ? 'ok' : 'full', add(m))
        } else if (given.kind === 'shift') {
          const m = mailbox.take() as M | undefined
          assert.equal(m, control.shift() ?? user.shift())
        } else if (!isFollowing) {
          mailbox.follow(rules)
          isFollowing = true
          const waiting = user
          user = []
          for (const m of waiting) {
            const at = m.type === 'control' ? -1 : user.findIndex(same(m))
            if (m.type === 'control') control.push(m)
            else if (at >= 0) user[at] = m
            else user.push(m)
          }
        }
        assert.equal(mailbox.size, control.length + user.length)
        assert.deepEqual([...mailbox.waiting()], [...control, ...user])
      }
    },
  )
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('deadlines expire when a sorted list says so, whatever was removed', async t => {
  const operation = fc.oneof(
    fc.record({ kind: fc.constant('add' as const), ms: fc.nat(50) }),
    fc.record({ kind: fc.constant('remove' as const), ms: fc.nat(100) }),
    fc.record({ kind: fc.constant('advance' as const), ms: fc.nat(20) }),
  )
  const agree = fc.property(fc.array(operation, { maxLength: 200 }), operations => {
    const clock = new SimulatedClock()
    const deadlines = new Deadlines(clock)
    const entries: (Deadline & { expiredMs: number | undefined })[] = []
    const naive: { dueMs: number; isRemoved: boolean }[] = []
    for (const { kind, ms } of operations) {
      if (kind === 'add') {
        const entry = { dueMs: 0, position: -1, expiredMs: undefined as number | undefined, expire: () => {} }
        entry.expire = () => {
          assert.equal(entry.expiredMs, undefined)
          entry.expiredMs = clock.nowMs()
        }
        entries.push(entry)
        naive.push({ dueMs: clock.nowMs() + ms, isRemoved: false })
        deadlines.add(entry, ms)
      } else if (kind === 'remove' && entries.length > 0) {
        const at = ms % entries.length
        deadlines.remove(entries[at]!)
        if (naive[at]!.dueMs > clock.nowMs() || entries[at]!.expiredMs === undefined)
          naive[at]!.isRemoved = true
      } else if (kind === 'advance') clock.advance(ms)
      for (const [i, entry] of entries.entries()) {
        const { dueMs, isRemoved } = naive[i]!
        if (isRemoved) assert.equal(entry.expiredMs, undefined)
        else if (dueMs < clock.nowMs()) assert.equal(entry.expiredMs, dueMs)
      }
      assert.equal(
        deadlines.size,
        entries.filter((entry, i) => !naive[i]!.isRemoved && entry.expiredMs === undefined).length,
      )
      assert.ok(clock.pendingCount <= 1, 'one timer at most')
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test(
  'deadlines of one burst get their time when it is over: never too early, and removed ones never',
  async t => {
    const operation = fc.oneof(
      fc.record({ kind: fc.constant('add' as const), ms: fc.nat(50) }),
      fc.record({ kind: fc.constant('remove' as const), ms: fc.nat(100) }),
      fc.record({ kind: fc.constant('busy' as const), ms: fc.nat(20) }),
      fc.record({ kind: fc.constant('endBurst' as const), ms: fc.nat(20) }),
    )
    const agree = fc.property(fc.array(operation, { maxLength: 200 }), operations => {
      const simulated = new SimulatedClock()
      let endBurst: (() => void)[] = []
      const deadlines = new Deadlines({
        nowMs: () => simulated.nowMs(),
        wallMs: () => simulated.wallMs(),
        after: (delayMs, callback) => simulated.after(delayMs, callback),
        afterBurst: callback => void endBurst.push(callback),
      })
      // A burst: time passes, and no timer fires.
      let busyMs = 0
      const entries: (Deadline & { fromMs: number; ms: number; isRemoved: boolean; expiredMs: number })[] = []
      for (const { kind, ms } of operations) {
        const at = entries[ms % Math.max(1, entries.length)]
        if (kind === 'add') {
          const again = at !== undefined && at.position === -1 && ms % 3 === 0
          const entry = again
            ? at
            : {
                dueMs: 0,
                position: -1,
                fromMs: 0,
                ms: 0,
                isRemoved: false,
                expiredMs: Number.NaN,
                expire: () => {},
              }
          Object.assign(entry, {
            fromMs: simulated.nowMs() + busyMs,
            ms,
            isRemoved: false,
            expiredMs: Number.NaN,
          })
          entry.expire = () => {
            entry.expiredMs = simulated.nowMs()
          }
          if (!again) entries.push(entry)
          deadlines.add(entry, ms)
        } else if (kind === 'remove' && at !== undefined && Number.isNaN(at.expiredMs)) {
          deadlines.remove(at)
          at.isRemoved = true
        } else if (kind === 'busy') busyMs += ms
        else if (kind === 'endBurst') {
          simulated.advance(busyMs)
          busyMs = 0
          const callbacks = endBurst
          endBurst = []
          for (const callback of callbacks) callback()
          simulated.advance(ms)
        }
      }
      simulated.advance(busyMs)
      for (const callback of endBurst) callback()
      simulated.advance(1000)
      for (const { fromMs, ms, isRemoved, expiredMs } of entries) {
        if (isRemoved) assert.ok(Number.isNaN(expiredMs))
        else assert.ok(expiredMs >= fromMs + ms, `${expiredMs}: too early for ${fromMs} + ${ms}`)
      }
      assert.equal(deadlines.size, 0)
    })
    t.doesNotThrow(() => fc.assert(agree))
  },
)

t.test('the list of open asks holds what was linked and not unlinked', async t => {
  class Ask extends OpenAsk {
    override answer(): void {}
    override fail(): void {}
  }
  const agree = fc.property(fc.array(fc.nat(30), { maxLength: 200 }), picks => {
    const owner = { firstAsk: undefined as OpenAsk | undefined, asksAnswered() {} }
    const asks = Array.from({ length: 31 }, () => new Ask())
    const naive = new Set<OpenAsk>()
    for (const pick of picks) {
      const ask = asks[pick]!
      if (naive.delete(ask)) ask.unlink()
      else {
        ask.linkTo(owner)
        naive.add(ask)
      }
      const listed = new Set<OpenAsk>()
      for (let at = owner.firstAsk; at !== undefined; at = at.next) listed.add(at)
      assert.deepEqual(listed, naive)
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
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

t.test('a packed and cloned message unpacks to an equal one, refs and replies included', async t => {
  const reply = (): void => {}
  const describeReply = (f: unknown): ReplyTarget | undefined =>
    f === reply ? { kind: 'reply', thread: 'x', corr: 7 } : undefined
  const reader = { ref: (target: RefTarget) => new FakeRef(target.id), reply: () => reply }
  const leaf = fc.oneof(
    fc.integer(),
    fc.string(),
    fc.constant(null),
    fc.boolean(),
    fc.nat(99).map(id => new FakeRef(id)),
    fc.constant(reply),
    fc.uint8Array({ maxLength: 8 }).map(bytes => bytes.subarray(bytes.length >> 1)),
    fc.date({ noInvalidDate: true }),
  )
  const key = fc.string().filter(name => name !== '__proto__')
  const message = fc.letrec(tie => ({
    value: fc.oneof(
      { maxDepth: 5 },
      leaf,
      fc.array(tie('value')),
      fc.dictionary(key, tie('value'), { noNullPrototype: true }),
    ),
  })).value
  const agree = fc.property(message, value => {
    const before = describeValue(value)
    const { body, patches } = pack(value, describeReply)
    const arrived = unpack(structuredClone(body), structuredClone(patches), reader)
    assert.deepEqual(describeValue(arrived), before)
    assert.deepEqual(describeValue(value), before, 'the sent message is untouched')
  })
  t.doesNotThrow(() => fc.assert(agree))
  t.throws(() => pack({ f: () => {} }, describeReply), UnserializableMessageError)
  t.throws(() => pack(new Map([['ref', new FakeRef(1)]]), describeReply), UnserializableMessageError)
})

t.test('a shared memory of WebAssembly may travel, one of its own thread may not', async t => {
  const { Memory } = (globalThis as unknown as { WebAssembly: { Memory: new (limits: object) => object } })
    .WebAssembly
  const memory = new Memory({ initial: 1, maximum: 1, shared: true })
  t.strictSame(
    pack({ memory }, () => undefined),
    { body: { memory }, patches: 0 },
  )
  t.throws(() => pack({ memory: new Memory({ initial: 1 }) }, () => undefined), UnserializableMessageError)
})

/** `value` in a form that deepEqual compares by content, functions and refs included. */
function describeValue(value: unknown): unknown {
  if (typeof value === 'function') return 'reply'
  if (value instanceof FakeRef) return `ref ${value.id}`
  if (value instanceof Uint8Array) return `bytes ${[...value]}`
  if (Array.isArray(value)) return value.map(describeValue)
  if (typeof value === 'object' && value !== null && !(value instanceof Date)) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, describeValue(item)]))
  }
  return value
}

t.test('only the keys of a lost thread move to other threads', async t => {
  const threads = ['p-0', 'p-1', 'p-2', 'p-3']
  const pools = [{ name: 'p', threads }]
  const counts = new Map<string, number>()
  for (let key = 0; key < 4000; key++) {
    const thread = resolvePlacement({ pool: 'p', key }, pools, () => true)
    counts.set(thread, (counts.get(thread) ?? 0) + 1)
    const without = resolvePlacement({ pool: 'p', key }, pools, name => name !== 'p-2')
    assert.equal(without === thread, thread !== 'p-2')
  }
  for (const thread of threads)
    t.ok(Math.abs(counts.get(thread)! - 1000) < 200, `${thread}: ${counts.get(thread)}`)
})

t.test('backoff doubles, is capped and never negative', async t => {
  const settings = toSettings({
    name: 'x',
    args: undefined,
    supervision: { directive: 'restart', max: 3, within: '1s', backoff: { min: 10, max: 35, jitter: 0.5 } },
  })
  t.strictSame(
    [1, 2, 3, 4].map(attempt => backoffMs(settings, attempt, 0)),
    [10, 20, 35, 35],
  )
  t.equal(backoffMs(settings, 1, 1), 5)
})

t.test('options out of range are refused', async t => {
  const base = { name: 'x', args: undefined }
  const backoff = { min: 1, max: 1 }
  const refused = [
    { ...base, mailbox: { capacity: 0 } },
    { ...base, mailbox: { capacity: 1, overflow: 'coalesce' } as const },
    { ...base, shutdown: -1 },
    { ...base, supervision: { directive: 'restart', max: -1, within: 1, backoff } as const },
    {
      ...base,
      supervision: { directive: 'restart', max: 1, within: 1, backoff: { ...backoff, jitter: 2 } } as const,
    },
  ]
  for (const options of refused) t.throws(() => toSettings(options), RangeError)
})

/**
 * Snapshots and purges by several routers, each of which may end at any step, or lose the lock without
 * noticing: after every step, snapshot and stream meet.
 */

import assert from 'node:assert/strict'
import { SimulatedClock } from '@homing/base'
import type { StreamFill } from '@homing/transport'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { type SnapshotSource, snapshotPass, turnsBehind } from '../src/snapshot-pass.ts'

/** Of one publisher: batches 0 … published − 1 of one life. */
class ModelSubject {
  published = 40
  /** The first batch that the stream still has. */
  first = 0
  /** Snapshots in force stand for all batches before this one, and are proven from `keepFrom` on. */
  snapshot: { readonly keepFrom: number; readonly revision: number } | undefined

  /** A router that starts alone knows all. */
  check(): void {
    if (this.snapshot === undefined) assert.equal(this.first, 0, 'without a snapshot, the stream has all')
    else
      assert.ok(
        this.first <= this.snapshot.keepFrom,
        'the stream has the proof of the snapshot, and all behind',
      )
  }
}

function fillOf(fill: Partial<StreamFill>): StreamFill {
  return {
    ...{ messages: 0, bytes: 0, ageMs: 0 },
    ...{ messagesMax: undefined, bytesMax: undefined, ageMsMax: undefined },
    ...fill,
  }
}

class Crash extends Error {}

class ModelBroker {
  readonly subjects = new Map<string, ModelSubject>()
  revisions = 0
  switches = 0
  purged = 0
  lock: object | undefined
  /** Applied by each router, by subject. */
  readonly applied: Map<string, number>[]

  constructor(names: readonly string[], routers: number) {
    for (const name of names) this.subjects.set(name, new ModelSubject())
    this.applied = Array.from({ length: routers }, () => new Map(names.map(name => [name, 40])))
  }

  of(subject: string): ModelSubject {
    return this.subjects.get(subject)!
  }

  /** The store as one router has it; `step` waits for its turn, or throws. */
  store(step: () => Promise<void>): Parameters<typeof snapshotPass>[0] {
    return {
      fill: async () => {
        await step()
        const all = [...this.subjects.values()]
        return fillOf({ messages: all.reduce((sum, { published, first }) => sum + published - first, 0) })
      },
      lock: async () => {
        await step()
        if (this.lock !== undefined) return undefined
        const own = {}
        this.lock = own
        return {
          renew: async () => {
            await step()
            return this.lock === own
          },
          release: async () => {
            await step()
            if (this.lock === own) this.lock = undefined
          },
        }
      },
      named: async subject => {
        await step()
        return { ...(this.of(subject).snapshot ?? { revision: 0, keepFrom: 0 }), life: '', ageMs: 0 }
      },
      replace: async (subject, { keepFrom }, revision) => {
        // The upload; a router may end here, and no snapshot names what it has uploaded.
        await step()
        await step()
        const model = this.of(subject)
        if ((model.snapshot?.revision ?? 0) !== revision) return 'late'
        if (model.snapshot !== undefined && model.snapshot.keepFrom > keepFrom) return 'older'
        model.snapshot = { keepFrom, revision: ++this.revisions }
        this.switches++
        return 'replaced'
      },
      purge: async (subject, snapshot) => {
        await step()
        const { keepFrom } = snapshot!
        const model = this.of(subject)
        const floor = Math.min(...this.applied.map(applied => applied.get(subject)!))
        const before = model.first
        model.first = Math.max(model.first, Math.min(keepFrom, floor))
        this.purged += model.first - before
        return model.first - before
      },
      tidy: () => step(),
    }
  }
}

const PROOF_BATCHES = 16

const schedules = fc.record({
  routers: fc.integer({ min: 1, max: 3 }),
  /** What happens next: a step of a router, a batch, an application, the end of the lock or of a router. */
  turns: fc.array(
    fc.record({
      what: fc.constantFrom(
        ...Array<'step'>(24).fill('step'),
        'publish',
        'publish',
        'apply',
        'apply',
        'unlock',
        'crash',
      ),
      who: fc.nat(2),
      count: fc.integer({ min: 1, max: 40 }),
    }),
    { minLength: 60, maxLength: 250 },
  ),
})

t.test('wherever a router ends, snapshot and stream meet', async t => {
  const names = ['one', 'two']
  const seen = { switches: 0, purged: 0 }
  const agree = fc.asyncProperty(schedules, async ({ routers, turns }) => {
    const broker = new ModelBroker(names, routers)
    const waiting = new Map<number, PromiseWithResolvers<void>>()
    const running = new Map<number, Promise<void>>()
    const settle = async (): Promise<void> => {
      for (let i = 0; i < 20; i++) await Promise.resolve()
    }
    const begin = (who: number): void => {
      let isOver = false
      const step = (): Promise<void> => {
        if (isOver) return Promise.reject(new Crash())
        const turn = Promise.withResolvers<void>()
        waiting.set(who, turn)
        return turn.promise.catch((error: unknown) => {
          isOver = true
          throw error
        })
      }
      const sources: SnapshotSource[] = names.map(subject => ({
        subject,
        take: async () => {
          const applied = broker.applied[who]!.get(subject)!
          await step()
          const keepFrom = Math.max(0, applied - PROOF_BATCHES)
          return applied === 0 ? undefined : { bytes: new Uint8Array(0), life: '', keepFrom }
        },
      }))
      const warn = (error: unknown): void => {
        if (!(error instanceof Crash)) throw error
      }
      const pass = snapshotPass(broker.store(step), {
        thresholdMessages: 10,
        sources,
        known: () => new Set<string>(),
        clock: new SimulatedClock(),
        warn,
      }).then(
        () => {},
        (error: unknown) => {
          if (!(error instanceof Crash)) throw error
        },
      )
      running.set(
        who,
        pass.finally(() => running.delete(who)),
      )
    }
    for (const { what, who: any, count } of turns) {
      const who = any % routers
      const name = names[count % 2]!
      if (what === 'publish') broker.of(name).published += count
      else if (what === 'apply') {
        const applied = Math.min(broker.of(name).published, broker.applied[who]!.get(name)! + count)
        broker.applied[who]!.set(name, applied)
      } else if (what === 'unlock') broker.lock = undefined
      else {
        if (!running.has(who)) begin(who)
        await settle()
        const turn = waiting.get(who)
        waiting.delete(who)
        // One that ends does not unlock either: its lock ends by itself.
        if (what === 'crash') {
          turn?.reject(new Crash())
          await settle()
          waiting.get(who)?.reject(new Crash())
          waiting.delete(who)
          // It begins anew, and knows all: from snapshot and stream.
          for (const subject of names) broker.applied[who]!.set(subject, broker.of(subject).published)
        } else turn?.resolve()
        await settle()
      }
      for (const model of broker.subjects.values()) model.check()
    }
    for (const turn of waiting.values()) turn.reject(new Crash())
    await settle()
    for (const turn of waiting.values()) turn.reject(new Crash())
    await Promise.allSettled(running.values())
    seen.switches += broker.switches
    seen.purged += broker.purged
  })
  await fc.assert(agree, { numRuns: Number(process.env.HOMING_SNAPSHOT_RUNS ?? 500) })
  t.ok(seen.switches > 100 && seen.purged > 100, JSON.stringify(seen))
})

/** A broker at which nothing fails and nothing happens besides. */
function calmStore(fill: Partial<StreamFill>, snapshotAgeMs?: number) {
  const seen: string[] = []
  const store: Parameters<typeof snapshotPass>[0] = {
    fill: async () => fillOf(fill),
    lock: async () => ({ renew: async () => true, release: async () => {} }),
    named: async () => {
      const revision = snapshotAgeMs === undefined ? 0 : 1
      return { revision, life: '', keepFrom: 0, ageMs: snapshotAgeMs ?? 0 }
    },
    replace: async subject => {
      seen.push(`replaced ${subject}`)
      return 'replaced'
    },
    purge: async (subject, snapshot) => {
      seen.push(`purged ${subject} ${snapshot === undefined ? 'as applied' : `to ${snapshot.keepFrom}`}`)
      return 1
    },
    tidy: async () => void seen.push('tidied'),
  }
  return { store, seen }
}

function calm(t: Test) {
  const clock = new SimulatedClock()
  return {
    thresholdMessages: 10,
    known: () => new Set<string>(),
    clock,
    warn: (error: unknown) => t.fail(String(error)),
  }
}

function sourceOf(subject: string): SnapshotSource {
  return { subject, take: async () => ({ bytes: new Uint8Array(0), life: '', keepFrom: 1 }) }
}

t.test('a pass is due past the threshold, and at half of each limit of the stream', async t => {
  const outcome = async (fill: Partial<StreamFill>, snapshotAgeMs?: number) => {
    const { store } = calmStore(fill, snapshotAgeMs)
    const { outcome, taken } = await snapshotPass(store, { ...calm(t), sources: [sourceOf('one')] })
    return `${outcome} ${taken}`
  }
  t.equal(await outcome({ messages: 10 }), 'below 0')
  t.equal(await outcome({ messages: 11 }), 'done 1')
  t.equal(await outcome({ messages: 5, messagesMax: 10 }), 'below 0')
  t.equal(await outcome({ messages: 6, messagesMax: 10 }), 'done 1')
  t.equal(await outcome({ messages: 1, bytes: 500, bytesMax: 1000 }), 'below 0')
  t.equal(await outcome({ messages: 1, bytes: 501, bytesMax: 1000 }), 'done 1')
  t.equal(await outcome({ messages: 1, ageMs: 500, ageMsMax: 1000 }), 'below 0')
  t.equal(await outcome({ messages: 1, ageMs: 501, ageMsMax: 1000 }), 'done 1')
  t.equal(await outcome({ messages: 1, ageMs: 501, ageMsMax: 1000 }, 249), 'done 0', 'it has a fresh one')
  t.equal(await outcome({ messages: 1, ageMs: 501, ageMsMax: 1000 }, 250), 'done 1')
  t.equal(await outcome({ messages: 11, ageMs: 501, ageMsMax: 1000 }, 249), 'done 1', 'full all the same')
})

t.test('a key that cannot be stored holds up no other, and what is left over is tidied', async t => {
  const { store, seen } = calmStore({ messages: 11 })
  const warned: string[] = []
  const options = {
    ...calm(t),
    sources: ['one', 'two', 'three'].map(sourceOf),
    warn: (error: unknown) => void warned.push((error as Error).message),
  }
  const replace: typeof store.replace = async (subject, ...rest) => {
    if (subject === 'one') throw new Error('no room')
    return await store.replace(subject, ...rest)
  }
  const pass = await snapshotPass({ ...store, replace }, options)
  t.match(pass, { outcome: 'failed', taken: 2, failed: 1 })
  t.strictSame(seen, ['replaced two', 'purged two to 1', 'replaced three', 'purged three to 1', 'tidied'])
  t.strictSame(warned, ['no room'])
  const tidy = async () => {
    throw new Error('no answer')
  }
  t.match(await snapshotPass({ ...store, tidy }, options), { outcome: 'failed', taken: 3, failed: 0 })
})

t.test('a broker at which all keys fail is left alone', async t => {
  const { store, seen } = calmStore({ messages: 11 })
  const asked: string[] = []
  const named = async (subject: string) => {
    asked.push(subject)
    throw new Error('no answer')
  }
  const sources = ['one', 'two', 'three', 'four', 'five'].map(sourceOf)
  const pass = await snapshotPass({ ...store, named }, { ...calm(t), sources, warn() {} })
  t.match(pass, { outcome: 'failed', failed: 3 })
  t.strictSame(asked, ['one', 'two', 'three'])
  t.strictSame(seen, ['tidied'])
})

t.test('a lock is renewed while a key is dumped and uploaded, however long that takes', async t => {
  const { store, seen } = calmStore({ messages: 11 })
  const options = calm(t)
  const { clock } = options
  let endMs = Number.POSITIVE_INFINITY
  const lock: typeof store.lock = async () => {
    endMs = clock.nowMs() + 30_000
    return {
      async renew() {
        if (clock.nowMs() >= endMs) return false
        endMs = clock.nowMs() + 30_000
        return true
      },
      release: async () => {},
    }
  }
  /** A minute passes, in steps in which answers can come. */
  const minute = async (): Promise<void> => {
    for (let second = 0; second < 60; second++) {
      clock.advance(1000)
      for (let i = 0; i < 10; i++) await Promise.resolve()
    }
  }
  const slow = (subject: string): SnapshotSource => {
    const { take } = sourceOf(subject)
    return { subject, take: stored => minute().then(() => take(stored)) }
  }
  const replace: typeof store.replace = (...given) => minute().then(() => store.replace(...given))
  const pass = await snapshotPass(
    { ...store, lock, replace },
    { ...options, sources: ['one', 'two'].map(slow) },
  )
  t.match(pass, { outcome: 'done', taken: 2, last: 'two' })
  t.strictSame(seen, ['replaced one', 'purged one to 1', 'replaced two', 'purged two to 1', 'tidied'])
  t.equal(clock.pendingCount, 0, 'and no longer')
})

t.test(
  'a lock that is lost while a key is dumped is not renewed, and the pass says where it ended',
  async t => {
    const { store, seen } = calmStore({ messages: 11 })
    const lost = { renew: async () => false, release: async () => {} }
    const sources = ['one', 'two'].map(sourceOf)
    const pass = await snapshotPass({ ...store, lock: async () => lost }, { ...calm(t), sources })
    t.match(pass, { outcome: 'lost', taken: 0, last: 'one' })
    t.strictSame(seen, [])
  },
)

t.test('a pass begins behind the key with which the one before ended', async t => {
  const order = (last: string | undefined) =>
    turnsBehind(['one', 'two', 'three'].map(sourceOf), last).map(({ subject }) => subject)
  t.strictSame(order(undefined), ['one', 'two', 'three'])
  t.strictSame(order('one'), ['two', 'three', 'one'])
  t.strictSame(order('three'), ['one', 'two', 'three'])
  t.strictSame(order('gone'), ['one', 'two', 'three'])
})

t.test('a lock that cannot be given back is no failure of the pass', async t => {
  const { store } = calmStore({ messages: 11 })
  const warned: string[] = []
  const held = {
    renew: async () => true,
    async release() {
      throw new Error('no answer')
    },
  }
  const pass = await snapshotPass(
    { ...store, lock: async () => held },
    {
      ...{ ...calm(t), sources: [sourceOf('one')] },
      warn: (error, text) => void warned.push(`${text}: ${(error as Error).message}`),
    },
  )
  t.match(pass, { outcome: 'done', taken: 1 })
  t.strictSame(warned, ['the lock for snapshots is not given back: no answer'])
})

t.test(
  'a key that has not changed is purged without an upload, and one of a sidecar as it was applied',
  async t => {
    const { store, seen } = calmStore({ messages: 11 }, 0)
    const sources: SnapshotSource[] = [
      { subject: 'one', take: async () => 'unchanged' },
      { subject: 'two', take: async () => 'ofPublisher' },
    ]
    const pass = await snapshotPass(store, { ...calm(t), sources })
    t.match(pass, { outcome: 'done', taken: 0, unchanged: 2, skipped: 0, purgedMessages: 2 })
    t.strictSame(seen, ['purged one to 0', 'purged two as applied', 'tidied'])
  },
)

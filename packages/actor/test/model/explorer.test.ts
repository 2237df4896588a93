/** The explorer itself, on programs whose outcomes are known. */

import assert from 'node:assert/strict'
import process from 'node:process'
import fc from 'fast-check'
import t from 'tap'
import { type Bounds, explore, type Model, type VirtualThread } from './explorer.ts'
import type { Program } from './model-words.ts'

t.test('every order of independent steps is counted, once', async t => {
  const storeTimes =
    (index: number, count: number): Program =>
    words => {
      for (let i = 0; i < count; i++) words.store(index, i)
    }
  const report = explore({ threads: threads({ a: storeTimes(0, 3), b: storeTimes(1, 3) }) })
  t.equal(report.interleavings, 20, '6 over 3')
  t.equal(report.states, 16, 'a grid of 4 by 4')
  t.ok(report.isComplete)

  const three = { a: storeTimes(0, 2), b: storeTimes(1, 2), c: storeTimes(2, 2) }
  t.equal(explore({ threads: threads(three) }).interleavings, 90, '6! / 2!³')
})

t.test('an order with more pre-emptions than the bound is left out', async t => {
  const twice: Program = words => {
    words.store(0, 1)
    words.store(0, 2)
  }
  const count = (preemptionsMax: number) =>
    explore({ threads: threads({ a: twice, b: twice }) }, { preemptionsMax }).interleavings
  t.strictSame([0, 1, 2, 3].map(count), [2, 4, 6, 6])
})

t.test('two threads that load and store lose an update; with exchange as a lock they do not', async t => {
  const careless: Program = words => words.store(0, words.load(0) + 1)
  const careful: Program = words => {
    if (words.exchange(1, 1) === 1) return
    words.write(0, words.read(0) + 1)
    words.store(1, 0)
  }
  const atEnd: Model['atEnd'] = state => (state.word(0) === 2 ? undefined : 'an update is lost')
  const broken = explore({ threads: threads({ a: careless, b: careless }), atEnd })
  t.equal(broken.failure, 'an update is lost')
  t.equal(broken.trace.length, 4, 'the trace is a shortest one')

  const lock = explore({ threads: threads({ a: careful, b: careful }) })
  t.equal(lock.failure, undefined, 'what the lock guards is no data race')
})

t.test('of two threads that store, then load, at least one sees the other', async t => {
  const first: Program = (words, host) => {
    words.store(0, 1)
    host.note(`sees ${words.load(1)}`)
  }
  const second: Program = (words, host) => {
    words.store(1, 1)
    host.note(`sees ${words.load(0)}`)
  }
  const outcomes = new Set<string>()
  const report = explore({
    threads: threads({ a: first, b: second }),
    atEnd(state) {
      outcomes.add([...state.notes('a'), ...state.notes('b')].join(', '))
      return undefined
    },
  })
  t.equal(report.failure, undefined)
  t.strictSame([...outcomes].sort(), ['sees 0, sees 1', 'sees 1, sees 0', 'sees 1, sees 1'])
})

t.test('plain words are a race unless a store that was read lies between', async t => {
  const send =
    (isPlain: boolean): Program =>
    words => {
      words.write(0, 7)
      if (isPlain) words.write(1, 1)
      else words.store(1, 1)
    }
  const receive: Program = words => {
    if (words.load(1) === 1 && words.read(0) !== 7) throw new Error('a message is lost')
  }
  const unguarded: Program = words => void words.read(0)
  for (const interleavesPlain of [false, true]) {
    const bounds: Bounds = { interleavesPlain }
    const run = (a: Program, b: Program) => explore({ threads: threads({ a, b }) }, bounds).failure
    t.equal(run(send(false), receive), undefined)
    t.match(run(send(true), receive), /data race: (a's write|b's load) of word 1/)
    t.match(run(send(false), unguarded), /data race: (a's write|b's read) of word 0/)
    t.equal(run(unguarded, unguarded), undefined, 'two reads are none')
  }
})

t.test(
  'a thread that spins is reported, as is one that throws or is not the same when run again',
  async t => {
    const spins: Program = words => {
      while (words.load(0) === 0);
    }
    t.match(explore({ threads: threads({ spins }) }, { stepsMax: 50 }).failure, /no end after 50 steps/)

    const throws: Program = words => {
      if (words.load(0) === 0) throw new Error('zero')
    }
    t.equal(explore({ threads: threads({ throws }) }).failure, 'zero')

    let runs = 0
    const differs: Program = words => {
      if (runs++ === 0) words.store(0, 1)
    }
    t.match(explore({ threads: threads({ differs }) }).failure, /not the same/)
  },
)

t.test('a signal wakes one wait, and a choice goes every way', async t => {
  const asks: Program = (words, host) => {
    if (host.choose(2) === 0) host.ring('bell')
    else words.store(0, 1)
  }
  const waits: Program = (_, host) => host.wait('bell')
  const ends = new Set<string>()
  const report = explore({
    threads: threads({ asks, waits }),
    bells: ['bell'],
    atEnd(state) {
      ends.add(`${state.word(0)} ${state.status('waits')}`)
      return undefined
    },
  })
  t.equal(report.failure, undefined)
  t.strictSame([...ends].sort(), ['0 ended', '1 waiting'])
})

t.test('a thread dies before any of its steps, and its heir knows what it did', async t => {
  const writes: Program = words => {
    words.write(0, 1)
    words.store(1, 1)
    words.write(0, 2)
    words.store(1, 2)
  }
  const heir: Program = (words, host) => host.note(`found ${words.read(0)}`)
  const found = new Set<string>()
  const report = explore(
    {
      threads: [
        { name: 'writes', program: writes, mayDie: true },
        { name: 'heir', program: heir, heirOf: 'writes' },
      ],
      atEnd(state) {
        found.add(`${state.status('heir')} ${state.notes('heir').join()}`)
        return undefined
      },
    },
    { interleavesPlain: true },
  )
  t.equal(report.failure, undefined)
  t.strictSame([...found].sort(), ['ended found 0', 'ended found 1', 'ended found 2', 'unborn '])
})

t.test('it finds what trying every order one by one finds', async t => {
  const seed = Number(process.env['HOMING_SEED'] ?? 1)
  t.comment(`seed ${seed}`)
  let races = 0
  const agree = fc.property(randomPrograms(), programs => {
    const naive = tryAll(programs)
    if (naive.hasRace) races += 1
    for (const interleavesPlain of [false, true]) {
      const outcomes = new Set<string>()
      const report = explore(
        {
          threads: programs.map((steps, i) => ({ name: String(i), program: toProgram(steps) })),
          atEnd(state) {
            const seen = programs.map((_, i) => state.notes(String(i)))
            outcomes.add(JSON.stringify([seen, WORDS.map(index => state.word(index))]))
            return undefined
          },
        },
        { interleavesPlain },
      )
      assert.equal(report.failure?.startsWith('data race') ?? false, naive.hasRace)
      if (naive.hasRace) continue
      assert.deepEqual([...outcomes].sort(), [...naive.outcomes].sort())
      if (interleavesPlain) assert.equal(report.interleavings, naive.interleavings)
    }
  })
  t.doesNotThrow(() => fc.assert(agree, { seed, numRuns: 1000 }))
  t.comment(`${races} of 1000 cases have a data race`)
})

interface RandomStep {
  readonly kind: 'load' | 'store' | 'exchange' | 'read' | 'write'
  readonly index: number
  readonly value: number
  /** Skipped unless the last value seen is this one, so that later steps depend on values seen. */
  readonly onlyAfter: number | undefined
}

const WORDS = [0, 1, 2]

/** Words 0 and 1 are for synchronization, word 2 is for plain accesses (now and then the other way round). */
function randomPrograms(): fc.Arbitrary<RandomStep[][]> {
  const value = fc.integer({ min: 0, max: 2 })
  const onlyAfter = fc.option(value, { nil: undefined, freq: 2 })
  const synchronizing = fc.record({
    kind: fc.constantFrom('load' as const, 'store' as const, 'exchange' as const),
    index: fc.oneof(
      { weight: 9, arbitrary: fc.constantFrom(0, 1) },
      { weight: 1, arbitrary: fc.constant(2) },
    ),
    value,
    onlyAfter,
  })
  const plain = fc.record({
    kind: fc.constantFrom('read' as const, 'write' as const),
    index: fc.constant(2),
    value,
    onlyAfter,
  })
  const step = fc.oneof({ weight: 3, arbitrary: synchronizing }, { weight: 1, arbitrary: plain })
  return fc.array(fc.array(step, { minLength: 1, maxLength: 3 }), { minLength: 2, maxLength: 3 })
}

function toProgram(steps: readonly RandomStep[]): Program {
  return (words, host) => {
    let last = 0
    for (const { kind, index, value, onlyAfter } of steps) {
      if (onlyAfter !== undefined && onlyAfter !== last) continue
      if (kind === 'store') words.store(index, value)
      else if (kind === 'write') words.write(index, value)
      else {
        last = kind === 'exchange' ? words.exchange(index, value) : words[kind](index)
        host.note(String(last))
      }
    }
  }
}

interface Access {
  readonly thread: number
  readonly step: RandomStep
  /** Accesses, by place in the order so far, that happened before this one. */
  readonly before: ReadonlySet<number>
}

/** Every order, by recursion; "happens before" as sets. */
function tryAll(programs: readonly (readonly RandomStep[])[]) {
  const outcomes = new Set<string>()
  let interleavings = 0
  let hasRace = false

  const next = (steps: readonly RandomStep[], from: number, last: number) => {
    const found = steps.findIndex(
      ({ onlyAfter }, i) => i >= from && (onlyAfter === undefined || onlyAfter === last),
    )
    return found === -1 ? undefined : found
  }
  const go = (
    at: readonly number[],
    seen: readonly (readonly number[])[],
    memory: readonly number[],
    writers: readonly (number | undefined)[],
    order: readonly Access[],
  ): void => {
    let isEnd = true
    for (const [thread, steps] of programs.entries()) {
      const place = next(steps, at[thread]!, seen[thread]!.at(-1) ?? 0)
      if (place === undefined) continue
      isEnd = false
      const step = steps[place]!
      const { kind, index, value } = step
      const isReading = kind !== 'store' && kind !== 'write'
      const isWriting = kind !== 'load' && kind !== 'read'
      const before = new Set<number>()
      const own = order.findLastIndex(access => access.thread === thread)
      const source = kind === 'load' || kind === 'exchange' ? writers[index] : undefined
      const isSynchronized = source !== undefined && order[source]!.step.kind !== 'write'
      for (const i of isSynchronized ? [own, source] : [own]) {
        if (i === -1) continue
        before.add(i)
        for (const earlier of order[i]!.before) before.add(earlier)
      }
      const access = { thread, step, before }
      if (order.some((other, i) => !before.has(i) && isConflict(other, access))) {
        hasRace = true
        continue
      }
      go(
        at.with(thread, place + 1),
        isReading ? seen.with(thread, [...seen[thread]!, memory[index]!]) : seen,
        isWriting ? memory.with(index, value) : memory,
        isWriting ? writers.with(index, order.length) : writers,
        [...order, access],
      )
    }
    if (!isEnd) return
    interleavings += 1
    outcomes.add(JSON.stringify([seen.map(values => values.map(String)), memory]))
  }
  const zeros = programs.map(() => 0)
  go(
    zeros,
    programs.map(() => []),
    WORDS.map(() => 0),
    WORDS.map(() => undefined),
    [],
  )
  return { outcomes, interleavings, hasRace }
}

function isConflict(left: Access, right: Access): boolean {
  if (left.thread === right.thread || left.step.index !== right.step.index) return false
  const kinds = [left.step.kind, right.step.kind]
  const isPlain = kinds.includes('read') || kinds.includes('write')
  return isPlain && kinds.some(kind => kind !== 'load' && kind !== 'read')
}

function threads(programs: Readonly<Record<string, Program>>): VirtualThread[] {
  return Object.entries(programs).map(([name, program]) => ({ name, program }))
}

/** The explorer itself, on programs whose outcomes are known. */

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

function threads(programs: Readonly<Record<string, Program>>): VirtualThread[] {
  return Object.entries(programs).map(([name, program]) => ({ name, program }))
}

/** Views as large as the fleet: who shares one, what they take of the thread's time, and what they say. */

import { SimulatedClock } from '@homing/base'
import fc from 'fast-check'
import t from 'tap'
import { CostlyViews, rowsAnswer, Slices } from '../src/index.ts'

/** A clock on which work takes time. */
class WorkingClock extends SimulatedClock {
  workedMs = 0

  override nowMs(): number {
    return super.nowMs() + this.workedMs
  }
}

const settled = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await Promise.resolve()
}

t.test('all who ask before a view is gathered get one answer, and later ones a new one', async t => {
  const views = new CostlyViews(new SimulatedClock())
  let gathered = 0
  const gates: PromiseWithResolvers<void>[] = []
  const view = views.shared(
    async () => {
      const number = ++gathered
      const gate = Promise.withResolvers<void>()
      gates.push(gate)
      await gate.promise
      return number
    },
    async number => number,
  )
  const first = [view(), view()]
  await settled()
  const second = [view(), view(), view()]
  await settled()
  t.equal(gathered, 1, 'the next one is gathered when the first is written')
  gates[0]!.resolve()
  await settled()
  gates[1]!.resolve()
  t.strictSame(await Promise.all([...first, ...second]), [1, 1, 2, 2, 2])
})

t.test(
  'one that cannot be gathered fails for those who asked, holds up no other, and is tried anew',
  async t => {
    const views = new CostlyViews(new SimulatedClock())
    let tries = 0
    const failing = views.shared(
      async () => {
        if (++tries === 1) throw new Error('nothing there')
      },
      async () => 'there',
    )
    const silent = views.shared(
      () => new Promise<void>(() => {}),
      async () => 'never',
    )
    const together = await Promise.allSettled([failing(), failing()])
    t.strictSame(
      together.map(({ status }) => status),
      ['rejected', 'rejected'],
    )
    void silent()
    t.equal(await failing(), 'there')
    t.equal(
      await views.make(
        async () => 7,
        async state => state,
      ),
      7,
    )
  },
)

t.test('writing lets others have their turn, and rests three times as long', async t => {
  const clock = new WorkingClock()
  const views = new CostlyViews(clock)
  const begunMs: number[] = []
  let turns = 0
  const view = views.shared(
    async () => {},
    async (_, slices) => {
      begunMs.push(clock.nowMs())
      for (let i = 0; i < 50; i++) {
        clock.workedMs += 2
        const wait = slices.next()
        if (wait === undefined) continue
        turns++
        await wait
      }
      return slices.workMs
    },
  )
  const turned = async (count: number): Promise<void> => {
    for (let i = 0; i < 100 && turns < count; i++) {
      await settled()
      clock.advance(0)
    }
    t.equal(turns, count, 'every 4 ms of 100')
    await settled()
  }
  const first = view()
  await turned(25)
  t.equal(await first, 100)
  const endedMs = clock.nowMs()
  const second = view()
  await settled()
  clock.advance(299)
  await settled()
  t.equal(begunMs.length, 1)
  clock.advance(1)
  await turned(50)
  t.equal(begunMs[1], endedMs + 300)
  t.equal(await second, 100)
})

t.test('a shared view does not wait behind all that single clients have asked for', async t => {
  const views = new CostlyViews(new SimulatedClock())
  const written: string[] = []
  const gates: PromiseWithResolvers<void>[] = []
  const write = (name: string) => async () => {
    const gate = Promise.withResolvers<void>()
    gates.push(gate)
    await gate.promise
    written.push(name)
  }
  const scrape = views.shared(async () => {}, write('scrape'))
  const single = (name: string) => views.make(async () => {}, write(name))
  const asked = [single('one'), single('two'), single('three'), scrape()]
  for (let i = 0; i < 4; i++) {
    await settled()
    gates[i]!.resolve()
  }
  await Promise.all(asked)
  t.strictSame(written, ['one', 'scrape', 'two', 'three'])
  // One that fails gives its turn on.
  const failed = views.make(
    async () => {},
    async () => {
      throw new Error('cut')
    },
  )
  await t.rejects(failed, { message: 'cut' })
  const last = single('last')
  await settled()
  gates[4]!.resolve()
  await last
})

t.test('rows are written as JSON writes them', async t => {
  const slices = new Slices(new SimulatedClock())
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(
        fc.string().filter(name => name !== 'rows' && !/^(\d+|__proto__)$/.test(name)),
        fc.jsonValue(),
      ),
      fc.array(fc.jsonValue()),
      async (head, rows) => {
        const { body } = await rowsAnswer(head, 'rows', rows, slices)
        t.equal(Buffer.from(body).toString(), `${JSON.stringify({ ...head, rows }, null, 2)}\n`)
      },
    ),
  )
  const long = fc.array(fc.jsonValue(), { minLength: 17, maxLength: 40 })
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ name: fc.string(), long, none: fc.constant(undefined), deep: fc.tuple(long) })),
      async rows => {
        const { body } = await rowsAnswer({}, 'rows', rows, slices)
        t.equal(Buffer.from(body).toString(), `${JSON.stringify({ rows }, null, 2)}\n`)
      },
    ),
    { numRuns: 30 },
  )
  const many = Array.from({ length: 3000 }, (_, i) => ({ text: 'x'.repeat(100), i, list: [i, { i }] }))
  const { body, headers, status } = await rowsAnswer({ version: 1 }, 'rows', many, slices)
  t.equal(Buffer.from(body).toString(), `${JSON.stringify({ version: 1, rows: many }, null, 2)}\n`)
  t.strictSame([status, headers], [200, { 'content-type': 'application/json' }])
})

/** Workers whose learned figures are far from those of their twins, or from what any engine has. */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { AUTO_CONSTANTS, EngineBook, LearnedValues, type OddChange, OddWorkers } from '../src/index.ts'

const { ALARM_MS } = AUTO_CONSTANTS.odd
const SEED = 20_261_128
const LOOK_MS = 5000

interface Speed {
  readonly prefill?: number
  readonly decode?: number
  readonly output?: number
}

/** A fleet that serves a request for each worker with each look; `speeds`: times the usual, by worker. */
class World {
  readonly learned = new LearnedValues()
  readonly odd = new OddWorkers()
  readonly #book = new EngineBook({ workerSlotsMax: 16, learned: this.learned })
  readonly #random = seededRandom(SEED)
  readonly #kinds: readonly string[]
  #requests = 0
  nowMs = 1000

  constructor(kinds: readonly string[]) {
    this.#kinds = kinds
  }

  look(): readonly OddChange[] {
    const workers = this.#kinds.map((kind, workerSlot) => ({ worker: `w${workerSlot}`, workerSlot, kind }))
    return this.odd.look(this.learned, workers, this.nowMs)
  }

  /** Changes, as 'worker figure', and '-' before those that end. */
  serve(ms: number, speeds: readonly Speed[]): readonly string[] {
    const told: string[] = []
    for (const endMs = this.nowMs + ms; this.nowMs < endMs; ) {
      for (const [slot, { prefill = 1, decode = 1, output = 1 }] of speeds.entries()) {
        for (let each = 0; each < 2; each++) this.#request(slot, prefill, decode, output)
      }
      this.nowMs += LOOK_MS
      for (const { worker, figure, isOdd } of this.look()) told.push(`${isOdd ? '' : '-'}${worker} ${figure}`)
    }
    return told
  }

  #request(slot: number, prefill: number, decode: number, output: number): void {
    const id = String(this.#requests++)
    const promptTokens = 500 + this.#random.below(4000)
    this.#book.sent(id, slot, { promptTokens, newTokens: promptTokens, nowMs: this.nowMs })
    this.nowMs += prefill * (2 + 0.04 * promptTokens) * (0.9 + 0.2 * this.#random.next())
    this.#book.firstToken(id, this.nowMs)
    const tokens = Math.ceil(output * (20 + this.#random.below(20)))
    this.nowMs += 12 * decode * tokens
    this.#book.ended(id, this.nowMs, tokens, 0)
  }
}

const ALIKE: readonly Speed[] = [{}, {}, {}, {}]
const SAME = ['m', 'm', 'm', 'm']

t.test('workers that are alike are not odd', async t => {
  const world = new World(SAME)
  t.strictSame(world.serve(20 * ALARM_MS, ALIKE), [])
  t.strictSame(world.odd.marks('w0'), [])
})

t.test('a worker that is far from its twins is told once, and once when it is no longer', async t => {
  for (const [speed, figure] of [
    [{ prefill: 5 }, 'prefill'],
    [{ prefill: 0.2 }, 'prefill'],
    [{ decode: 5 }, 'decode'],
    [{ decode: 0.2 }, 'decode'],
    [{ output: 8 }, 'output'],
  ] as const) {
    const name = JSON.stringify(speed)
    const world = new World(SAME)
    t.strictSame(world.serve(20 * ALARM_MS, [{}, {}, speed, {}]), [`w2 ${figure}`], name)
    const marks = world.odd.marks('w2')
    const times = Object.values(speed)[0]!
    t.match(marks, [{ figure, against: 'twins' }], name)
    t.ok(marks[0]!.times / times > 0.6 && marks[0]!.times / times < 1.6, `${name}: ${marks[0]!.times}`)
    t.ok(world.nowMs - marks[0]!.sinceMs > ALARM_MS, name)
    t.strictSame(world.serve(120 * ALARM_MS, ALIKE), [`-w2 ${figure}`], name)
    t.strictSame(world.odd.marks('w2'), [], name)
  }
})

t.test('workers of other kinds are no twins, and of two no one can say which is odd', async t => {
  const slow = { prefill: 5, decode: 5 }
  t.strictSame(new World(['m', 'm', 'n', 'm']).serve(10 * ALARM_MS, [{}, {}, slow, {}]), [])
  t.strictSame(new World(['m', 'm']).serve(10 * ALARM_MS, [{}, slow]), [])
})

t.test('one that no accelerator is like is odd even alone', async t => {
  const world = new World(['m'])
  t.strictSame(world.serve(400 * ALARM_MS, [{ prefill: 400 }]), ['w0 prefill'])
  t.match(world.odd.marks('w0'), [{ figure: 'prefill', against: 'prior' }])
})

t.test('requests for one token are no fault of a worker', async t => {
  t.strictSame(new World(['m']).serve(40 * ALARM_MS, [{ output: 0.01 }]), [])
})

t.test('a moment is not told, and neither is one that is gone', async t => {
  const world = new World(SAME)
  world.serve(10 * ALARM_MS, ALIKE)
  t.strictSame(world.serve(ALARM_MS / 4, [{}, {}, { prefill: 5 }, {}]), [])
  t.strictSame(world.serve(40 * ALARM_MS, ALIKE), [])
  t.strictSame(world.serve(20 * ALARM_MS, [{}, {}, { prefill: 5 }, {}]), ['w2 prefill'])
  t.strictSame(world.odd.look(world.learned, [], world.nowMs), [])
  t.strictSame(world.odd.marks('w2'), [])
})

t.test('no request, no alarm: an odd worker without requests is forgotten with its age', async t => {
  const world = new World(SAME)
  world.serve(20 * ALARM_MS, [{}, {}, { prefill: 5 }, {}])
  t.equal(world.odd.marks('w2').length, 1)
  world.learned.forget(2)
  world.nowMs += LOOK_MS
  t.strictSame(world.look(), [])
  world.nowMs += ALARM_MS
  t.match(world.look(), [{ worker: 'w2', isOdd: false }])
})

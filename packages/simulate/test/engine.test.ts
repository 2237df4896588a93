/** Single rules of the engine, each with times that are calculated by hand. */

import type { StepWork } from '@homing/engine'
import t from 'tap'
import { type EngineOptions, SimEngine } from '../src/engine.ts'
import { newSimRequest, type SimRequest } from '../src/sim-request.ts'

const BLOCK_TOKENS = 10

/**
 * An engine whose steps are taken by hand. A step takes 1 ms per prompt token, 100 per decoding request,
 * 1/1000 per token of context.
 */
class Bench {
  readonly engine: SimEngine
  readonly stored: number[] = []
  readonly evicted: number[] = []
  readonly firstTokens: number[] = []
  readonly completed: number[] = []
  readonly gaps: [ms: number, requests: number][] = []
  works: StepWork[] = []
  #count = 0

  constructor(options: Partial<EngineOptions> = {}) {
    this.engine = new SimEngine({
      worker: 3,
      blockTokens: BLOCK_TOKENS,
      capacityBlocks: 10,
      stepTokensMax: 30,
      sequencesMax: 8,
      storeAt: 'prompt-end',
      slowness: 1,
      stepMs: work => {
        this.works.push({ ...work })
        return work.prefillTokens + 100 * work.decodeRequests + work.decodeContextTokens / 1000
      },
      sink: {
        stored: (_, id) => void this.stored.push(id),
        evicted: (_, id) => void this.evicted.push(id),
        admitted() {},
        firstToken: ({ index }) => void this.firstTokens.push(index),
        completed: ({ index }) => void this.completed.push(index),
        gap: (ms, requests) => void this.gaps.push([ms, requests]),
      },
      ...options,
    })
  }

  send(
    inputTokens: number,
    outputTokens: number,
    blockIds: readonly number[],
    answerIds?: readonly number[],
  ): SimRequest {
    const trace = { timestampMs: 0, inputTokens, outputTokens, hashIds: blockIds }
    const blocks = Math.floor(inputTokens / BLOCK_TOKENS)
    const request = newSimRequest(trace, this.#count++, blockIds, blocks, 0, answerIds)
    this.engine.enqueue(request)
    return request
  }

  /** Milliseconds of one whole step; −1: there is nothing to do. */
  step(): number {
    const ms = this.engine.startStep()
    if (ms >= 0) this.engine.finishStep()
    return ms
  }
}

t.test('a prompt is computed in chunks, and its first token comes with the last one', async t => {
  const bench = new Bench()
  bench.send(70, 3, [1, 2, 3, 4, 5, 6, 7])
  t.equal(bench.step(), 30)
  t.equal(bench.step(), 30)
  t.strictSame([bench.firstTokens, bench.stored], [[], []])
  t.equal(bench.step(), 10)
  t.strictSame(bench.firstTokens, [0])
  t.strictSame(bench.stored, [1, 2, 3, 4, 5, 6, 7])
  t.equal(
    bench.works[1]!.prefillAttention,
    30 * (30 + 15),
    'a chunk attends to what came before it, and half of itself',
  )
  t.equal(bench.step(), 100 + 71 / 1000, 'the second token attends to the prompt and the first one')
  t.equal(bench.step(), 100 + 72 / 1000)
  t.strictSame(bench.completed, [0])
  t.equal(bench.step(), -1)
  t.strictSame(
    bench.gaps.map(([ms]) => ms),
    [100.071, 100.072],
  )
})

t.test('decoding requests take from the budget first, then the oldest prompt', async t => {
  const bench = new Bench({ capacityBlocks: 20 })
  bench.send(5, 9, [])
  bench.step()
  bench.send(50, 1, [1, 2, 3, 4, 5])
  bench.send(20, 1, [6, 7])
  t.equal(bench.step(), 29 + 100 + 6 / 1000)
  t.equal(bench.step(), 29 + 100 + 7 / 1000, '21 tokens of the older, 8 of the younger')
  t.strictSame(bench.completed, [1])
  t.equal(bench.works[2]!.prefillAttention, 21 * (29 + 10.5) + 8 * 4)
  t.equal(bench.step(), 12 + 100 + 8 / 1000)
})

t.test('a full prompt that is cached is computed from its last token on', async t => {
  const bench = new Bench()
  bench.send(20, 1, [1, 2])
  bench.step()
  const again = bench.send(20, 1, [1, 2])
  t.equal(bench.step(), 1)
  t.equal(again.reusedTokens, 19)
  const longer = bench.send(25, 1, [1, 2])
  t.equal(bench.step(), 5)
  t.equal(longer.reusedTokens, 20)
})

t.test('the head of the queue waits for room, and nobody overtakes it', async t => {
  const bench = new Bench()
  bench.send(55, 5, [1, 2, 3, 4, 5])
  bench.send(45, 5, [6, 7, 8, 9])
  bench.send(1, 1, [])
  t.equal(bench.engine.requests, 3)
  t.equal(bench.step(), 30)
  t.equal(bench.step(), 25, 'there is budget for more')
  for (let token = 2; token <= 5; token++) t.equal(bench.works.length >= 2 && bench.step() > 100, true)
  t.strictSame(bench.completed, [0])
  t.equal(bench.step(), 30, 'now the second one, alone: it takes the whole budget')
  t.equal(bench.step(), 16, 'and with its last 15 tokens the third')
  t.strictSame(bench.firstTokens, [0, 1, 2])
})

t.test('blocks of an ended request are evicted tail first, the longest unused request first', async t => {
  const bench = new Bench({ capacityBlocks: 10, stepTokensMax: 1000 })
  bench.send(31, 1, [1, 2, 3])
  bench.step()
  bench.send(31, 1, [1, 4, 5])
  bench.step()
  t.equal(bench.engine.cachedBlocks, 5)
  bench.send(75, 1, [11, 12, 13, 14, 15, 16, 17])
  bench.step()
  t.strictSame(bench.evicted, [3, 2, 5], '8 blocks are needed, 5 are free; the root 1 was used last')
  t.equal(bench.engine.evictions, 3)
})

t.test('what a request reuses is not evicted for it', async t => {
  const bench = new Bench({ capacityBlocks: 6, stepTokensMax: 1000 })
  bench.send(21, 1, [1, 2])
  bench.step()
  bench.send(21, 1, [3, 4])
  bench.step()
  const grown = bench.send(51, 1, [1, 2, 5, 6, 7])
  bench.step()
  t.equal(grown.reusedTokens, 20)
  t.strictSame(bench.evicted, [4, 3])
})

t.test('when blocks can be found depends on the engine', async t => {
  for (const [storeAt, reused] of [
    ['prompt-end', [0, 50]],
    ['chunk-end', [30, 50]],
    ['chunk-start', [50, 50]],
  ] as const) {
    const bench = new Bench({ storeAt, capacityBlocks: 40, sequencesMax: 3, stepTokensMax: 30 })
    bench.send(51, 1, [1, 2, 3, 4, 5])
    bench.step()
    const second = bench.send(52, 1, [1, 2, 3, 4, 5])
    bench.step()
    t.equal(second.reusedTokens, reused[0], storeAt)
    while (bench.step() >= 0);
    const third = bench.send(53, 1, [1, 2, 3, 4, 5])
    bench.step()
    t.equal(third.reusedTokens, reused[1], storeAt)
  }
  const together = new Bench({ storeAt: 'chunk-start', capacityBlocks: 40, stepTokensMax: 100 })
  together.send(31, 1, [1, 2, 3])
  const twin = together.send(31, 1, [1, 2, 3])
  together.step()
  t.equal(twin.reusedTokens, 30, 'even in the step that computes them')
})

t.test('a block that two requests computed at once is kept once', async t => {
  const bench = new Bench({ capacityBlocks: 10, stepTokensMax: 100 })
  bench.send(21, 2, [1, 2])
  bench.send(21, 2, [1, 2])
  bench.step()
  t.strictSame(bench.stored, [1, 2])
  t.equal(bench.engine.cachedBlocks, 2)
  t.equal(bench.engine.activeBlocks, 4, 'two shared ones, and one of each for the rest')
  bench.step()
  t.equal(bench.engine.activeBlocks, 0)
})

t.test('seats limit how many run at once', async t => {
  const bench = new Bench({ sequencesMax: 2, capacityBlocks: 40 })
  for (let i = 0; i < 3; i++) bench.send(5, 2, [])
  t.equal(bench.step(), 10)
  t.equal(bench.step(), 200 + 12 / 1000)
  t.equal(bench.step(), 5)
})

t.test('a slow engine takes longer for every step', async t => {
  const bench = new Bench({ slowness: 1.5 })
  bench.send(20, 1, [1, 2])
  t.equal(bench.step(), 30)
  t.equal(bench.engine.busyMs, 30)
})

t.test('an answer whose blocks are known is cached when it is whole, and let go with its prompt', async t => {
  const bench = new Bench()
  bench.send(25, 16, [1, 2], [3, 4])
  bench.step()
  t.strictSame(bench.stored, [1, 2])
  while (bench.step() >= 0);
  t.strictSame(bench.stored, [1, 2, 3, 4])
  t.match(bench.engine, { activeBlocks: 0, cachedBlocks: 4 })
  const next = bench.send(45, 1, [1, 2, 3, 4])
  bench.step()
  t.equal(next.reusedTokens, 40)
  // The whole cache: blocks without references are evicted.
  bench.send(90, 10, [11, 12, 13, 14, 15, 16, 17, 18, 19])
  while (bench.step() >= 0);
  t.strictSame(bench.evicted.toSorted(), [1, 2, 3, 4])
  t.equal(bench.engine.activeBlocks, 0)
  // More than it holds are not cached.
  bench.send(15, 2, [21], [22, 23, 24])
  while (bench.step() >= 0);
  t.strictSame(bench.stored.slice(-2), [21, 22])
})

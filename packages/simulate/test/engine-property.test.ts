/** The engine and a naive model of it, on the same random workloads. */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { type ProfileName, timingProfile } from '@homing/engine'
import fc from 'fast-check'
import t from 'tap'
import { type EngineSink, SimEngine } from '../src/engine.ts'
import { newSimRequest, type SimRequest } from '../src/sim-request.ts'
import { type NaiveAnswer, type NaiveRequest, naiveEngine } from './naive-engine.ts'

const RUNS = 400

const BLOCK_TOKENS = 16

interface Case {
  readonly seed: number
  readonly profile: ProfileName
  readonly capacityBlocks: number
  readonly stepTokensMax: number
  readonly sequencesMax: number
}

const cases: fc.Arbitrary<Case> = fc.record({
  seed: fc.integer({ min: 0, max: 2 ** 31 }),
  profile: fc.constantFrom<ProfileName>('h100-8b', 'mock-poly', 'mock-simple'),
  capacityBlocks: fc.integer({ min: 24, max: 120 }),
  stepTokensMax: fc.integer({ min: 8, max: 300 }),
  sequencesMax: fc.integer({ min: 1, max: 8 }),
})

/** Prompts along a small tree, so that some share a prefix; a few that fill the cache; bursts and pauses. */
function workload(seed: number): NaiveRequest[] {
  const random = seededRandom(seed)
  const requests: NaiveRequest[] = []
  let arrivalMs = 0
  for (let name = 0; name < 40; name++) {
    if (random.next() < 0.6) arrivalMs += random.next() * 120
    const blocks = random.below(20)
    const family = random.below(3)
    const sharedBlocks = random.below(12)
    const branch = random.below(4)
    const blockIds = Array.from({ length: blocks }, (_, depth) =>
      depth < sharedBlocks
        ? family * 1000 + depth
        : 10_000 * (1 + family) + 1000 * sharedBlocks + 100 * branch + depth,
    )
    const partial = random.next() < 0.2 && blocks > 0 ? 0 : 1 + random.below(BLOCK_TOKENS - 1)
    const inputTokens = blocks * BLOCK_TOKENS + partial
    const outputTokens = random.next() < 0.2 ? 1 : 1 + random.below(60)
    requests.push({ name, arrivalMs, inputTokens, outputTokens, blockIds })
  }
  return requests
}

/** The engine alone, driven by an event loop of its own. */
function simulated(requests: readonly NaiveRequest[], options: Case): NaiveAnswer[] {
  const answers: NaiveAnswer[] = []
  let nowMs = 0
  let open = 0
  const sink: EngineSink = {
    stored() {},
    evicted() {},
    admitted() {},
    gap() {},
    firstToken(request: SimRequest) {
      request.firstTokenMs = nowMs
    },
    completed({ index, firstTokenMs, reusedTokens }: SimRequest) {
      open--
      answers.push({ name: index, firstTokenMs, lastTokenMs: nowMs, reusedTokens })
    },
  }
  const profile = timingProfile(options.profile)
  const engine = new SimEngine({
    worker: 0,
    blockTokens: BLOCK_TOKENS,
    capacityBlocks: options.capacityBlocks,
    stepTokensMax: options.stepTokensMax,
    sequencesMax: options.sequencesMax,
    storeAt: 'prompt-end',
    slowness: 1,
    stepMs: work => profile.stepMs(work),
    sink,
  })
  let stepEndMs = Number.POSITIVE_INFINITY
  for (let next = 0; next < requests.length || stepEndMs < Number.POSITIVE_INFINITY; ) {
    const request = requests[next]
    if (request === undefined || stepEndMs <= request.arrivalMs) {
      nowMs = stepEndMs
      engine.finishStep()
      const ms = engine.startStep()
      stepEndMs = ms < 0 ? Number.POSITIVE_INFINITY : nowMs + ms
      continue
    }
    nowMs = request.arrivalMs
    next++
    open++
    const { name, inputTokens, outputTokens, blockIds } = request
    const trace = { timestampMs: nowMs, inputTokens, outputTokens, hashIds: blockIds }
    engine.enqueue(newSimRequest(trace, name, blockIds, Math.floor(inputTokens / BLOCK_TOKENS), 0))
    if (!engine.isStepping) stepEndMs = nowMs + engine.startStep()
  }
  assert.equal(open, 0)
  assert.equal(engine.activeBlocks, 0, 'nobody holds a block when all is done')
  return answers
}

t.test('the engine answers as the naive model does, to the last bit of every time', async t => {
  const property = fc.property(cases, options => {
    const requests = workload(options.seed)
    const profile = timingProfile(options.profile)
    const expected = naiveEngine(requests, {
      ...options,
      blockTokens: BLOCK_TOKENS,
      stepMs: work => profile.stepMs(work),
    })
    assert.deepEqual(simulated(requests, options), expected)
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: RUNS }))
})

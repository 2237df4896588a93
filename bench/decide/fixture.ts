/** The fleet and the prompts of SEL. */

import { seededRandom } from '@homing/base'
import type { Fleet } from '@homing/fleet'
import { STEP_TOKENS_DEFAULT } from '@homing/load'

export const SEL_PROMPT_TOKENS = 2048
export const BLOCK_TOKENS = 16

export interface Fixture {
  readonly workers: number
  readonly overlapBlocks: Int32Array
  readonly candidates: {
    readonly count: number
    readonly workerSlots: Int32Array
    readonly overlapBlocks: Int32Array
    readonly creditFactors: Float64Array
    readonly activeBlocks: Int32Array
    readonly newBlocks: Int32Array
    readonly activePrefillTokens: Float64Array
    readonly activeRequests: Int32Array
  }
}

/** The workers of SEL; what a prompt adds to active blocks is all that is not in the overlap. */
export function fixtureOf(workers: number, promptTokens: number): Fixture {
  const numbers = Array.from({ length: workers }, (_, i) => i)
  const promptBlocks = promptTokens / BLOCK_TOKENS
  const overlapBlocks = Int32Array.from(numbers, i => ((i % 32) * 64) / BLOCK_TOKENS)
  return {
    workers,
    overlapBlocks,
    candidates: {
      count: workers,
      workerSlots: Int32Array.from(numbers),
      overlapBlocks: overlapBlocks.slice(),
      creditFactors: new Float64Array(workers).fill(1),
      activeBlocks: Int32Array.from(numbers, i => i % 127),
      newBlocks: Int32Array.from(numbers, i => promptBlocks - overlapBlocks[i]!),
      activePrefillTokens: Float64Array.from(numbers, i => 16 * i),
      activeRequests: Int32Array.from(numbers, i => i % 17),
    },
  }
}

export function promptOf(promptTokens: number, seed = promptTokens): Int32Array {
  const random = seededRandom(seed)
  return Int32Array.from({ length: promptTokens }, () => random.below(128_000))
}

/** As a router is told of them: one rank each; worker i has worker slot i. */
export function fleetOf(workers: number): Fleet {
  return {
    version: 1,
    workers: Array.from({ length: workers }, (_, slot) => ({
      id: `worker-${slot}`,
      instanceId: slot,
      joinedMs: 1,
      origin: `http://worker-${slot}`,
      state: 'up',
      stateReason: 'it answers',
      engine: 'vllm',
      engineVersion: '',
      models: [{ name: 'm', base: undefined, root: undefined, maxModelTokens: undefined }],
      blockSizeTokens: { value: BLOCK_TOKENS, source: 'given' },
      maxBatchedTokens: { value: STEP_TOKENS_DEFAULT, source: 'given' },
      kvBlocks: undefined,
      ranks: { value: 1, source: 'given' },
      taints: [],
      canTokenize: false,
      keys: [
        {
          key: `worker-${slot}/0`,
          workerSlot: slot,
          dpRank: 0,
          eventsEndpoint: undefined,
          replayEndpoint: undefined,
          topic: '',
          shard: 0,
          trust: 'exact',
          trustReason: '',
          trustSinceMs: 0,
          epoch: 1,
        },
      ],
    })),
  }
}

/**
 * A decision log of its own on files in memory, told what the test makes up; every letter of a prompt is a
 * block.
 */

import { createTestSystem } from '@homing/actor/testing'
import { recordingLog, SimulatedClock } from '@homing/base'
import { chainSequence } from '@homing/blocks'
import type { Fleet } from '@homing/fleet'
import { type DecisionLogLine, readLogLine } from '@homing/trace'
import type { Test } from 'tap'
import { type DecisionLogArgs, decisionLog, logFiles, type SettledRequest } from '../src/index.ts'
import { MemoryFiles } from './memory-files.ts'

export const BLOCK = 16
export const ASK = { timeout: '1s' } as const
export const PATH = '/log/decisions.jsonl'

export const ARGS: DecisionLogArgs = {
  path: PATH,
  fileBytesMax: 1 << 20,
  filesMax: 3,
  selection: { mode: 'kv', policy: 'linear', overlapWeight: 1, temperature: 0, followsEvents: true },
}

/** One letter is a block, and one token more. */
export function settled(letters: string, extra: Partial<SettledRequest> = {}): SettledRequest {
  const local = Int32Array.from([...letters].flatMap(letter => [letter.charCodeAt(0), 7]))
  return {
    arrivedAtMs: 1_700_000_000_000,
    promptTokens: letters.length * BLOCK + 1,
    outputTokens: 5,
    blockSizeTokens: BLOCK,
    sequenceHashes: chainSequence(local, letters.length),
    knowledge: 'tokens',
    sessionId: undefined,
    model: 'm',
    worker: 'a/0',
    policy: 'linear',
    predictedTokens: 0,
    cachedTokens: 0,
    routerMs: 1,
    firstTokenMs: 20,
    totalMs: 50,
    outcome: 'ok',
    error: undefined,
    attempts: 1,
    wasTaken: true,
    ...extra,
  }
}

export function fleetOf(...ids: readonly string[]): Fleet {
  return {
    version: 1,
    workers: ids.map((id, instanceId) => ({
      id,
      instanceId,
      joinedMs: 1,
      origin: `http://${id}`,
      state: 'up',
      stateReason: '',
      engine: 'vllm',
      engineVersion: '',
      models: [{ name: 'm', base: undefined, root: undefined, maxModelTokens: undefined }],
      blockSizeTokens: { value: BLOCK, source: 'probed' },
      maxBatchedTokens: { value: 8192, source: 'default' },
      kvBlocks: { value: 101, source: 'probed' },
      ranks: { value: 1, source: 'probed' },
      taints: [],
      canTokenize: false,
      keys: [
        {
          key: `${id}/0`,
          workerSlot: instanceId,
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

/** The lines of a text; throws for one that cannot be read. */
export function linesOf(text: string): readonly DecisionLogLine[] {
  if (text !== '' && !text.endsWith('\n')) throw new Error('the last line is cut')
  return text
    .split('\n')
    .slice(0, -1)
    .map(line => {
      const read = readLogLine(line)
      if (typeof read === 'string') throw new Error(`${read}: ${line}`)
      return read
    })
}

export const requestsOf = (text: string) =>
  linesOf(text).flatMap(line => (line.kind === 'request' ? [line.request] : []))

export function start(t: Test, args: Partial<DecisionLogArgs> = {}, files = new MemoryFiles()) {
  const log = recordingLog()
  const system = createTestSystem({
    clock: new SimulatedClock(1_700_000_000_000),
    log,
    provide: [[logFiles, files]],
  })
  t.teardown(() => system.shutdown())
  const spawn = () =>
    system.spawn(decisionLog, {
      name: 'decision-log',
      args: { ...ARGS, ...args },
      supervision: {
        directive: 'restart',
        max: 10,
        within: '1m',
        backoff: { min: '20ms', max: '5s' },
      },
    })
  const ref = spawn()
  let number = 0
  const tell = (...requests: readonly SettledRequest[]): void => {
    for (const request of requests) ref.tell({ type: 'settled', request, number: number++ })
  }
  /** Requests that never come. */
  const skip = (count: number): void => {
    number += count
  }
  const flush = () => ref.ask({ type: 'flush' }, ASK)
  const status = () => ref.ask({ type: 'status' }, ASK)
  return { system, files, log, ref, tell, skip, flush, status }
}

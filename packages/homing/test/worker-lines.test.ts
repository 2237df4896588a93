/** The lines about workers, by what is known of them. */

import type { WorkerKeyRecord, WorkerRecord } from '@homing/fleet'
import t from 'tap'
import { workerLines } from '../src/worker-lines.ts'

const KEY: WorkerKeyRecord = {
  key: '10.0.0.1:8001/0',
  workerSlot: 0,
  dpRank: 0,
  eventsEndpoint: 'tcp://10.0.0.1:5557',
  replayEndpoint: 'tcp://10.0.0.1:5558',
  topic: '',
  shard: 0,
  trust: 'exact',
  trustReason: 'complete since its start',
  trustSinceMs: 0,
  epoch: 0,
}

const WORKER: WorkerRecord = {
  id: '10.0.0.1:8001',
  instanceId: 0,
  joinedMs: 1,
  origin: 'http://10.0.0.1:8001',
  state: 'up',
  stateReason: '',
  engine: 'sglang',
  engineVersion: '0.5.23',
  models: ['base', 'poet'].map(name => ({
    name,
    base: undefined,
    root: undefined,
    maxModelTokens: undefined,
  })),
  blockSizeTokens: { value: 16, source: 'probed' },
  maxBatchedTokens: { value: 8192, source: 'default' },
  kvBlocks: undefined,
  ranks: { value: 2, source: 'probed' },
  taints: [],
  canTokenize: true,
  keys: [KEY, { ...KEY, key: '10.0.0.1:8001/1', dpRank: 1, workerSlot: 1 }],
}

t.test('a worker whose cache is known is one line', async t => {
  t.strictSame(workerLines(WORKER), [
    'worker 10.0.0.1:8001: sglang 0.5.23, models base, poet, blocks of 16 tokens, 2 ranks, events tcp://10.0.0.1:5557, trust exact',
  ])
})

t.test('what is missing stands below it, with what to do', async t => {
  const [line, ...missing] = workerLines({
    ...WORKER,
    engine: 'unknown',
    engineVersion: '',
    models: [],
    blockSizeTokens: undefined,
    keys: [
      { ...KEY, replayEndpoint: undefined },
      { ...KEY, trust: 'none', trustReason: 'no event yet' },
    ],
  })
  t.equal(
    line,
    'worker 10.0.0.1:8001: unknown engine, no model, block size unknown, 2 ranks, events tcp://10.0.0.1:5557, trust exact 1, none 1',
  )
  t.match(missing, [
    /^ {2}trust none: no event yet$/,
    /^ {2}no replay: add "replay_endpoint"/,
    /^ {2}block size unknown/,
  ])
  t.equal(missing.length, 3)
})

t.test('a worker that does not answer says why', async t => {
  t.strictSame(workerLines({ ...WORKER, state: 'down', stateReason: 'ECONNREFUSED' }), [
    'worker 10.0.0.1:8001: down: ECONNREFUSED; it is probed until it answers',
  ])
})

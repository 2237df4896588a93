/**
 * One worker, one request to it, its decision and its receipt, as the scripted actors tell them unless a test
 * says otherwise.
 */

import type { WorkerDiagnosis } from '@homing/actors/directory'
import type { ShardStatus } from '@homing/actors/indexer'
import type { QueueStatus } from '@homing/actors/queue'
import type { ReadRequest, TokenizerStatus } from '@homing/actors/tokenizer'
import type { Fleet, WorkerRecord } from '@homing/fleet'
import type { Decision, Receipt } from '@homing/placement'

export const WORKER_HOST = '10.0.0.1'

/** The smallest body of a chat. */
export const CHAT = '{"model":"m","messages":[{"role":"user","content":"hi"}]}'
export const JSON_TYPE = { 'content-type': 'application/json' }

export const TOKENIZERS: TokenizerStatus = {
  tokenizers: [
    { directory: '/models/m', models: ['m'], path: 'library', reason: 'it has a WordPiece model' },
  ],
  checks: 12,
  differences: 1,
  checksFailed: 2,
  hedges: 3,
  setAside: ['w1'],
  promptCacheBytes: 4096,
  wordTableBytes: 2 ** 20,
  vocabularyBytes: 2 ** 24,
}

export const DECISION: Decision = {
  id: 'decision-1',
  workerId: `${WORKER_HOST}:8001`,
  workerJoinedMs: 1,
  worker: '10.0.0.1:8001/0',
  workerSlot: 0,
  origin: 'http://10.0.0.1:8001',
  dpRank: 0,
  pinRank: false,
  usesKey: false,
  takesUsageOption: true,
  overlapBlocks: 3,
  bestOverlapBlocks: 0,
  lookupMs: 0,
  decisionMs: 0,
  blockSizeTokens: 16,
  prefillTokens: 16,
  predictedTokens: 48,
  guessedTokens: 0,
  pooledTokens: 0,
  trust: 'exact',
  epoch: 1,
}

const WAITING = {
  requests: 3,
  promptTokens: 900,
  uncachedTokens: 700,
  oldestMs: 1500,
  why: { no_room: 2, others_first: 0, long_prompt: 1 },
}

export const QUEUE: QueueStatus = {
  isOn: true,
  requests: 3,
  requestsMax: 100,
  tokens: 900,
  tokensMax: 1000,
  bytes: 30,
  bytesMax: 400,
  models: [
    {
      model: 'm',
      isOn: true,
      workers: 1,
      assumed: { rows: [{ worker: 'w', what: 'max_batched_tokens', value: 8192 }], leftOut: 0 },
      snapshot: {
        waiting: WAITING,
        bytes: 30,
        asked: 1,
        drainTokensPerSecond: 350,
        expectedWaitMs: 2000,
        classes: [
          {
            policyClass: 'default',
            waiting: WAITING,
            elsewhere: { requests: 3, promptTokens: 300, uncachedTokens: 200 },
            served: { requests: 5, uncachedTokens: 2500, share: 1 },
            refused: { deadline: 2 },
            expectedWaitMs: 2000,
          },
        ],
        tenants: [
          {
            tenant: 'acme',
            weight: 1,
            waiting: WAITING,
            served: { requests: 5, uncachedTokens: 2500, share: 1 },
            refused: { deadline: 2 },
            longPromptWorkers: 0,
            isHeld: false,
            expectedWaitMs: 1000,
          },
        ],
        strictPriorities: [{ strictPriority: 0, waiting: WAITING, passedOver: 0, isStarving: false }],
      },
    },
  ],
}

export const READ: ReadRequest = {
  model: 'm',
  isStream: false,
  promptTokens: 100,
  blockSizeTokens: 16,
  localHashes: new Int32Array(0),
  sequenceHashes: new Int32Array(0),
  tokenIds: undefined,
  unknownPromptReason: undefined,
  separated: undefined,
  textBlocksReason: undefined,
  tokenizedBy: 'router',
  override: { overlapWeight: undefined, overlapCredit: undefined, temperature: undefined },
  constraints: undefined,
  pinnedInstanceId: undefined,
  pinnedRank: undefined,
  annotations: [],
  extraFields: [],
  upstreamBody: undefined,
  usageEdit: undefined,
}

/** As a fresh look at `10.0.0.3:8001` finds it. */
export const WORKER_DIAGNOSIS: WorkerDiagnosis = {
  worker: '10.0.0.3:8001',
  origin: 'http://10.0.0.3:8001',
  engine: 'vllm',
  engineVersion: '0.32.0',
  verdict: 'inexact',
  trust: { reachable: 'partial', reason: 'no replay' },
  steps: [{ asked: 'GET /version', answered: '200', durationMs: 1.5, told: '0.32.0' }],
  findings: [
    {
      level: 'warning',
      about: 'replay',
      text: 'no replay',
      remedy: 'start it',
      trustMax: 'partial',
      needsFlags: true,
    },
  ],
  engineFlags: '--kv-events-config {}',
  doors: [{ at: '10.0.0.3:5557', use: 'events', dpRank: 0 }],
  known: {
    state: 'up',
    stateReason: 'answers',
    keys: [{ key: '10.0.0.3:8001/0', trust: 'partial', trustReason: 'no replay', trustSinceMs: 0 }],
  },
}

export const RECEIPT: Receipt = {
  id: 'decision-1',
  requestId: 'request-1',
  atMs: Date.UTC(2026, 0, 1),
  mode: 'kv',
  cost: {
    policy: 'linear',
    rule: 'linear',
    formula: 'prefill_blocks + decode_blocks',
    unit: 'blocks',
    terms: [
      { name: 'prefill_blocks', unit: 'blocks', means: 'To prefill.' },
      { name: 'decode_blocks', unit: 'blocks', means: 'To decode.' },
    ],
  },
  model: 'm',
  promptTokens: 100,
  blockSizeTokens: 16,
  promptBlocks: 6,
  unknownPromptReason: undefined,
  textBlocksReason: undefined,
  overlapWeight: 1,
  temperature: 0,
  worker: DECISION.worker,
  runnerUp: undefined,
  trust: 'exact',
  overlapBlocks: 3,
  candidates: [],
  candidatesLeftOut: 0,
  excluded: [],
  excludedLeftOut: 0,
  guard: undefined,
  decisionMs: 0.1,
  delivery: undefined,
}

export const WORKER: WorkerRecord = {
  id: DECISION.workerId,
  instanceId: 7,
  joinedMs: 1,
  origin: DECISION.origin,
  state: 'up',
  stateReason: 'answers',
  engine: 'vllm',
  engineVersion: '0.32.0',
  models: [
    { name: 'm', base: undefined, root: '/models/m', maxModelTokens: 4096 },
    { name: 'org/poet', base: 'm', root: undefined, maxModelTokens: undefined },
  ],
  blockSizeTokens: { value: 16, source: 'probed' },
  maxBatchedTokens: { value: 8192, source: 'default' },
  kvBlocks: undefined,
  ranks: { value: 1, source: 'default' },
  taints: [],
  canTokenize: true,
  keys: [
    {
      key: DECISION.worker,
      workerSlot: 0,
      dpRank: 0,
      eventsEndpoint: 'tcp://10.0.0.1:5557',
      replayEndpoint: undefined,
      topic: '',
      shard: 0,
      trust: 'exact',
      trustReason: 'complete',
      trustSinceMs: Date.UTC(2026, 0, 1),
      epoch: 1,
    },
  ],
}

export function fleetOf(...workers: readonly WorkerRecord[]): Fleet {
  return { version: 1, workers }
}

export const SHARD: ShardStatus = {
  bytesUsed: 1000,
  bytesLimit: 2000,
  blocksDistinct: 5,
  memberships: 5,
  orphanBlocks: 1,
  eventsApplied: { stored: 1, removed: 0, cleared: 0, transition: 0 },
  eventsSkipped: {
    otherTier: 0,
    remote: 0,
    otherGroup: 0,
    noBlocks: 0,
    unevenTokens: 0,
    unplaced: 0,
    noLayer: 0,
    blockSize: 0,
    tierBlockSize: 0,
    unknownContent: 0,
    unnamedAdapter: 0,
    unopened: 0,
  },
  layersHeld: {},
  labels: undefined,
  guesses: { keys: 0, blocks: 0, bytes: 0, routed: 0, expired: 0, pruned: 0 },
  unclearStores: 0,
  blocksRefused: 0,
  blocksEvicted: 0,
  unknownRemoves: 0,
  blocksHeld: { 0: 5 },
}

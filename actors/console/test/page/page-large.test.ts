/** What the page is told of a fleet of 10,000 workers: bounded, and made in a time that is printed. */

import type { Message } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import type { DirectoryMessage, FleetReport } from '@homing/actors/directory'
import type { IndexerMessage, ShardStatus } from '@homing/actors/indexer'
import type { QueueMessage } from '@homing/actors/queue'
import type { HourReport, RouterMessage } from '@homing/actors/router'
import type { TokenizerMessage } from '@homing/actors/tokenizer'
import type { LoadReport, TrackerMessage, WorkerLoad } from '@homing/actors/tracker'
import { BlockIndex } from '@homing/index'
import { MODEL_LABELS_DEFAULT } from '@homing/metrics'
import { CANDIDATES_SHOWN, DECISIONS_SHOWN, KEYS_SHOWN, MAP_NODES, type PageSections } from '@homing/page'
import type { Receipt } from '@homing/placement'
import type { KeyAudit } from '@homing/selection'
import { MemoryNetwork, transportCapability } from '@homing/transport'
import t from 'tap'
import { operatorConsole } from '../../src/index.ts'

const WORKERS = 10_000
const DOWN_EVERY = 1000
const ASK = { timeout: '1m' } as const
/** Of each section, in characters; what the page costs a tab is bounded by their sum. */
const BYTES_MAX: Readonly<Record<keyof PageSections, number>> = {
  beat: 500,
  fleet: 100_000,
  decisions: 60_000,
  map: 60_000,
  pays: 5000,
  waiting: 5000,
  whatIf: 5000,
  house: 20_000,
}

const slots = Array.from({ length: WORKERS }, (_, slot) => slot)
const idOf = (slot: number): string => `engine-${slot}.inference.example.org:8000`
const keyOf = (slot: number): string => `${idOf(slot)}/0`

const report: FleetReport = {
  fleet: {
    version: 1,
    workers: slots.map(slot => ({
      id: idOf(slot),
      instanceId: slot,
      joinedMs: slot,
      origin: `http://${idOf(slot)}`,
      state: slot % DOWN_EVERY === DOWN_EVERY - 1 ? 'down' : 'up',
      stateReason: 'cannot connect: connection refused by its machine, which is up',
      engine: 'vllm',
      engineVersion: '0.11.0',
      models: [{ name: 'meta-llama/Llama-3.3-70B-Instruct' }],
      blockSizeTokens: { value: 16, source: 'probed' },
      maxBatchedTokens: { value: 8192, source: 'default' },
      kvBlocks: { value: 20_000, source: 'probed' },
      ranks: { value: 1, source: 'default' },
      taints: [],
      canTokenize: true,
      keys: [
        {
          key: keyOf(slot),
          workerSlot: slot,
          dpRank: 0,
          eventsEndpoint: 'tcp://engine:5557',
          replayEndpoint: undefined,
          topic: '',
          shard: 0,
          trust: 'exact',
          trustReason: 'events connected, history replayed, and answers agree with what was predicted',
          trustSinceMs: 0,
          epoch: 0,
        },
      ],
    })) as unknown as FleetReport['fleet']['workers'],
  },
  sources: slots.map(() => ({ events: 123_456, lastEventAgeMs: 1234 })) as unknown as FleetReport['sources'],
}

const cost = { source: 'own', observations: 100, coefficients: [1.5, 0.0123456, 1e-7] }
const loads: LoadReport = {
  rows: slots.map(slot => ({
    worker: keyOf(slot),
    workerSlot: slot,
    activeBlocks: 1000,
    activePrefillTokens: 5000,
    activeRequests: 20,
    reported: undefined,
    learned: { prefill: { ...cost, kneeTokens: 64 }, decode: cost } as unknown as WorkerLoad['learned'],
  })),
  stats: {} as LoadReport['stats'],
}

const audits = slots.map(slot => ({
  worker: keyOf(slot),
  workerSlot: slot,
  state: 'good',
  requests: 1000,
  predictedTokens: 1_000_000,
  deliveredTokens: 990_000,
  errorCounts: [],
  precision: 0.99,
})) as unknown as readonly KeyAudit[]

const receipts = Array.from({ length: DECISIONS_SHOWN }, (_, at) => ({
  id: `decision-${at}`,
  atMs: at,
  model: 'meta-llama/Llama-3.3-70B-Instruct',
  promptTokens: 4096,
  blockSizeTokens: 16,
  promptBlocks: 256,
  worker: keyOf(0),
  runnerUp: keyOf(1),
  cost: { unit: 'ms', rule: 'auto' },
  trust: 'exact',
  overlapBlocks: 200,
  candidates: slots.slice(0, 64).map(slot => ({ worker: keyOf(slot), cost: slot, overlapBlocks: slot })),
  candidatesLeftOut: WORKERS - 64,
})) as unknown as readonly Receipt[]

const hour: HourReport = {
  spanMs: 3_600_000,
  minutes: Array.from({ length: 60 }, () => ({ requests: 60_000, promptTokens: 2e8, cachedTokens: 1e8 })),
  requests: 3_600_000,
  promptTokens: 1.2e10,
  cachedTokens: 6e9,
  sparedTokens: [1e12, 1e12, 1e12, 1e12],
  cachedPairs: 1e13,
  firstTokens: 3_600_000,
  firstTokenMs: { p50: 100, p90: 200, p99: 300 },
  predictionError: 0.1,
  guarded: 3_600_000,
  regretMs: { 'round-robin': -1e9, 'least-loaded': -1e9, product: -1e9 } as HourReport['regretMs'],
}

/** Each holds a prefix that all share, and more of its own than is drawn. */
function fullIndex(): BlockIndex {
  const index = BlockIndex.create({ capacityBytes: 1 << 26, workerSlotsMax: WORKERS })
  for (const slot of slots) {
    const path = [1, 2, 3, 4, 10 + (slot % 100), 200 + slot, 20_000 + slot]
    const engines = Int32Array.from(path.flatMap((name, at) => [name, at]))
    index.store(
      slot,
      undefined,
      engines,
      Int32Array.from(path.flatMap(name => [name, 9])),
      path.length,
      'set',
    )
  }
  return index
}

t.test('of 10,000 workers every section is bounded', async t => {
  const { clock } = createTestSystem()
  const network = new MemoryNetwork({ clock })
  const system = createTestSystem({ clock, provide: [[transportCapability, network.transport()]] })
  t.teardown(() => system.shutdown())
  const index = fullIndex()
  const status = {
    blocksHeld: Object.fromEntries(slots.map(slot => [slot, 7])),
    layersHeld: {},
  } as unknown as ShardStatus
  let isOver = false
  t.teardown(() => {
    isOver = true
  })
  /** An owner that answers all it is asked, by the types of the questions. */
  const owner = <M extends Message>(
    name: string,
    answers: Readonly<Record<string, (asked: never) => unknown>>,
  ) => {
    const probe = system.probe<M>(name)
    void (async () => {
      while (!isOver) {
        const asked = (await probe.next()) as unknown as { type: string; reply: (value: unknown) => void }
        const answer = answers[asked.type]
        if (answer === undefined) throw new Error(`${name} is asked for ${asked.type}`)
        asked.reply(answer(asked as never))
      }
    })().catch((error: unknown) => {
      if (!isOver) throw error
    })
    return probe.ref
  }
  const ref = system.spawn(operatorConsole, {
    name: 'console',
    args: {
      host: '10.0.0.9',
      adminPort: undefined,
      bodyBytesMax: 1000,
      bodySilenceMsMax: 60_000,
      clientStallMsMax: 120_000,
      page: 'local',
      pageTabsMax: 8,
      askMsMax: 1000,
      readMsMax: 5000,
      modelLabels: MODEL_LABELS_DEFAULT,
      relayed: [],
      router: owner<RouterMessage>('router', {
        health: () => [],
        audits: () => audits,
        receipts: () => receipts,
        lastHour: () => hour,
        guard: () => undefined,
      }),
      queue: owner<QueueMessage>('queue', {
        queueStatus: () => ({
          isOn: false,
          requests: 0,
          requestsMax: 1,
          tokens: 0,
          tokensMax: 1,
          models: [],
        }),
      }),
      directory: owner<DirectoryMessage>('directory', { describe: () => report }),
      tracker: owner<TrackerMessage>('tracker', { loads: () => loads }),
      tokenizer: owner<TokenizerMessage>('tokenizer', { tokenizers: () => ({ tokenizers: [] }) }),
      indexers: [
        owner<IndexerMessage>('indexer', {
          status: () => status,
          sampleTree: ({ options }: { readonly options: Parameters<BlockIndex['sampleTree']>[0] }) =>
            index.sampleTree({ ...options, keysMax: WORKERS }),
        }),
      ],
    },
  })
  // The first time, code is compiled.
  for (const round of ['first', 'second']) {
    const startMs = performance.now()
    const { events } = await ref.ask({ type: 'pageUpdate', gateway: 'gateway', isFirst: true }, ASK)
    t.comment(`the ${round} update took ${(performance.now() - startMs).toFixed(0)} ms`)
    const sections = Object.fromEntries(
      events.map(({ event, data }) => [event, JSON.parse(data)]),
    ) as PageSections
    t.strictSame(Object.keys(sections).sort(), Object.keys(BYTES_MAX).sort())
    t.strictSame(sections.beat.silent, [])
    for (const { event, data } of events) {
      t.comment(`${event}: ${data.length} bytes`)
      t.ok(data.length <= BYTES_MAX[event as keyof PageSections], `${event}: ${data.length}`)
    }
    const { fleet, map, decisions } = sections
    t.match(fleet, {
      workers: WORKERS,
      workers_up: WORKERS - WORKERS / DOWN_EVERY,
      keys_total: WORKERS,
      keys_left_out: WORKERS - KEYS_SHOWN,
    })
    t.equal(fleet.keys.length, KEYS_SHOWN)
    t.equal(fleet.keys[0]!.state, 'down', 'what wants attention comes first')
    t.match(map, { workers_total: WORKERS, nodes: { length: MAP_NODES } })
    t.match(map.nodes[0], { parent: -1, length: 4, holders_total: WORKERS })
    t.equal(decisions.decisions.length, DECISIONS_SHOWN)
    for (const { bars, candidates } of decisions.decisions)
      t.strictSame([bars.length, candidates], [CANDIDATES_SHOWN, WORKERS])
  }
})

/**
 * Scripted actors: the tokenizer, router, directory, tracker and indexers of one fixed fleet, which answer
 * what a test wrote down.
 */

import { type ActorRef, defineActor, type Message } from '@homing/actor'
import type { DecisionLogMessage } from '@homing/actors/decision-log'
import type { DirectoryMessage, FleetReport } from '@homing/actors/directory'
import type { IndexerMessage, ShardStatus } from '@homing/actors/indexer'
import type { PlaceResult, QueueMessage, QueueStatus } from '@homing/actors/queue'
import type { ReplicaBridgeMessage } from '@homing/actors/replica-bridge'
import type { RouterMessage } from '@homing/actors/router'
import type { ReadResult, TokenizerMessage, TokenizerStatus } from '@homing/actors/tokenizer'
import type { LoadReport, TrackerMessage } from '@homing/actors/tracker'
import type { WhatIfMessage, WhatIfReport } from '@homing/actors/what-if'
import type { ErrorRecord } from '@homing/base'
import { parseHash } from '@homing/blocks'
import type { IndexedBlock } from '@homing/fleet'
import type { GuardStatus, LegCosts, Measured, Receipt, RoutingRequest } from '@homing/placement'
import type { KeyAudit } from '@homing/selection'
import {
  DECISION,
  fleetOf,
  QUEUE,
  READ,
  RECEIPT,
  SHARD,
  TOKENIZERS,
  WORKER,
  WORKER_DIAGNOSIS,
} from './sample-records.ts'

type Arm<M extends Message, T extends M['type']> = Extract<M, { readonly type: T }>

/** What the scripted actors answer; undefined: nothing, ever. The test may change it at any time. */
export interface Script {
  read: (message: Arm<TokenizerMessage, 'read'>) => ReadResult | undefined
  decide: (request: RoutingRequest, id: string) => PlaceResult | Promise<PlaceResult> | undefined
  measure: (request: RoutingRequest) => Measured | undefined
  /** Undefined: no answer. */
  weighLegs: (request: RoutingRequest) => { readonly costs: LegCosts | undefined } | undefined
  explain: (request: RoutingRequest) => Receipt | ErrorRecord
  receipts: readonly Receipt[]
  report: FleetReport | undefined
  loads: LoadReport | undefined
  shard: ShardStatus | undefined
  blocks: readonly IndexedBlock[]
  audits: readonly KeyAudit[]
  guard: GuardStatus | undefined
  queue: QueueStatus
  tokenizers: TokenizerStatus | undefined
}

type Settled = Arm<RouterMessage, 'settled'>

/** What the router was asked and told. Its decisions are called decision-1, decision-2, …, as they come. */
export class RouterLog {
  readonly asked: RoutingRequest[] = []
  readonly hints: Arm<QueueMessage, 'place'>['hints'][] = []
  /** Whether each request that was asked about can be sent in slices, and its age. */
  readonly maySlice: boolean[] = []
  readonly agesMs: number[] = []
  /** Names of the decisions whose long prompts were computed. */
  readonly computed: string[] = []
  /** Names by id. */
  readonly names = new Map<string, string>()
  readonly settled: Settled[] = []
  readonly firstTokens: Arm<RouterMessage, 'firstToken'>[] = []
  readonly workerFailed: Arm<RouterMessage, 'workerFailed'>[] = []
  readonly gateways: Arm<RouterMessage, 'gatewayStarted'>['gateway'][] = []
  /** Where each slice of a dump began that was asked for, and what was ended early. */
  readonly dumps: (number | 'end')[] = []
}

/** Blocks of a slice of a scripted dump. */
export const DUMP_SLICE_BLOCKS = 1024

const scripts = new Map<string, Script & { readonly log: RouterLog }>()

/**
 * The script of that name, which actors are given. Says that every request is read, and decided for the one
 * worker; but for `change`.
 */
export function writeScript(name: string, change: Partial<Script>): Script & { readonly log: RouterLog } {
  const script = {
    read: () => ({ kind: 'read', request: READ }) as const,
    decide: (_: RoutingRequest, id: string) => ({ kind: 'decided', decision: { ...DECISION, id } }) as const,
    measure: () => undefined,
    weighLegs: () => undefined,
    explain: () => RECEIPT,
    receipts: [],
    report: { fleet: fleetOf(WORKER), sources: {} },
    loads: { rows: [], stats: { expiredTotal: 0 } as LoadReport['stats'] },
    shard: SHARD,
    blocks: [],
    audits: [],
    guard: undefined,
    queue: QUEUE,
    tokenizers: TOKENIZERS,
    ...change,
    log: new RouterLog(),
  }
  scripts.set(name, script)
  return script
}

/** What the gateway asks of tokenizer, router, directory and indexers. */
type Question =
  | Arm<TokenizerMessage, 'read' | 'tokenizers'>
  | Arm<QueueMessage, 'place' | 'prefillComplete'>
  | Arm<RouterMessage, 'settled'>
  | Arm<RouterMessage, 'gatewayStarted'>
  | Arm<RouterMessage, 'explain'>
  | Arm<RouterMessage, 'measure'>
  | Arm<RouterMessage, 'weighLegs'>
  | Arm<RouterMessage, 'receipt'>
  | Arm<RouterMessage, 'receipts'>
  | Arm<RouterMessage, 'audits'>
  | Arm<RouterMessage, 'health'>
  | Arm<RouterMessage, 'workerFailed'>
  | Arm<RouterMessage, 'guard'>
  | Arm<RouterMessage, 'busyRefused'>
  | Arm<QueueMessage, 'queueStatus'>
  | Arm<RouterMessage, 'firstToken'>
  | Arm<DirectoryMessage, 'describe'>
  | Arm<IndexerMessage, 'status'>
  | Arm<IndexerMessage, 'dump'>
  | Arm<IndexerMessage, 'endDump'>

/** Answers as its test has written down. */
export const scripted = defineActor(
  import.meta.url,
  'scripted',
)<Question, { readonly script: string }>({
  setup(_context, { script: name }) {
    const script = scripts.get(name)!
    const answer = <T>(reply: (value: T) => void, value: T | undefined): void => {
      if (value !== undefined) reply(value)
    }
    return {
      read: message => answer(message.reply, script.read(message)),
      tokenizers: ({ reply }) => answer(reply, script.tokenizers),
      prefillComplete: ({ id }) => void script.log.computed.push(script.log.names.get(id)!),
      async place({ request, id, hints, maySlice = false, ageMs, reply }) {
        const { log } = script
        log.maySlice.push(maySlice)
        log.agesMs.push(ageMs)
        log.asked.push(request)
        log.hints.push(hints)
        log.names.set(id, `decision-${log.names.size + 1}`)
        answer(reply, await script.decide(request, log.names.get(id)!))
      },
      settled: message => void script.log.settled.push(message),
      gatewayStarted: ({ gateway: life }) => void script.log.gateways.push(life),
      weighLegs: ({ request, reply }) => {
        const known = script.weighLegs(request)
        if (known !== undefined) reply(known.costs)
      },
      measure: ({ request, reply }) => answer(reply, script.measure(request)),
      explain: ({ request, reply }) => reply(script.explain(request)),
      receipt: ({ id, reply }) => reply(script.receipts.find(receipt => receipt.id === id)),
      audits: ({ reply }) => reply(script.audits),
      health: ({ reply }) => reply([]),
      workerFailed: message => void script.log.workerFailed.push(message),
      guard: ({ reply }) => reply(script.guard),
      busyRefused: ({ reply }) => reply([['m', 1]]),
      queueStatus: ({ reply }) => reply(script.queue),
      firstToken: message => void script.log.firstTokens.push(message),
      receipts: ({ limit, reply }) => reply(script.receipts.slice(0, limit)),
      describe: ({ reply }) => answer(reply, script.report),
      status: ({ reply }) => answer(reply, script.shard),
      // The number of the dump is how far it has come.
      dump({ dump: from = 0, reply }) {
        const dump = from + DUMP_SLICE_BLOCKS
        const { blocks, log } = script
        log.dumps.push(from)
        reply({ dump, words: dumpWords(blocks.slice(from, dump)), isLast: dump >= blocks.length })
      },
      endDump: () => void script.log.dumps.push('end'),
    }
  },
})

/** A decision log that has written one request. */
export const scriptedLog = defineActor(
  import.meta.url,
  'scriptedLog',
)<Arm<DecisionLogMessage, 'status'>, undefined>({
  setup: () => ({
    status: ({ reply }) => reply({ written: 1, dropped: 0, bytes: 500, waitingBytes: 0, fault: undefined }),
  }),
})

/** Knows one other router. */
export const scriptedBridge = defineActor(
  import.meta.url,
  'scriptedBridge',
)<Arm<ReplicaBridgeMessage, 'report'>, undefined>({
  setup: () => ({
    report: ({ reply }) =>
      reply({
        endpoint: 'tcp://10.0.0.1:5800',
        malformed: 0,
        replicas: [
          {
            endpoint: 'tcp://10.0.0.2:5800',
            state: 'live',
            openBookings: 3,
            waitingRequests: 1,
            silentMs: 40,
            batches: 10,
            operations: 12,
            gaps: 1,
            snapshots: 2,
          },
        ],
      }),
  }),
})

/** Answers `loads`, and keeps the rest for the test. */
export const scriptedTracker = defineActor(
  import.meta.url,
  'scriptedTracker',
)<TrackerMessage, { readonly script: string; readonly probe: ActorRef<TrackerMessage> }>({
  setup(_context, { script: name, probe }) {
    const keep = (message: TrackerMessage): void => void probe.tell(message)
    return {
      fleet: keep,
      project: keep,
      book: keep,
      isBooked: keep,
      whereBooked: keep,
      prefillComplete: keep,
      touch: keep,
      watchLoad: keep,
      reportedUsage: keep,
      outputBlocks: keep,
      free: keep,
      gatewayStarted: keep,
      replicate: keep,
      ownBookings: keep,
      replicaOperations: keep,
      replicaBookings: keep,
      replicasKnown: keep,
      flushOperations: keep,
      saveLearned: keep,
      saveLearnedDue: keep,
      sweep: keep,
      loads({ reply }) {
        const { loads } = scripts.get(name)!
        if (loads !== undefined) reply(loads)
      },
    }
  },
})

/** Answers `describe` and changes of the fleet, and keeps the rest for the test. */
export const scriptedDirectory = defineActor(
  import.meta.url,
  'scriptedDirectory',
)<
  Arm<
    DirectoryMessage,
    | 'describe'
    | 'suspect'
    | 'alive'
    | 'lookAgain'
    | 'addWorker'
    | 'removeWorker'
    | 'drainWorker'
    | 'diagnoseWorker'
  >,
  { readonly script: string; readonly probe: ActorRef<DirectoryMessage> }
>({
  setup(_context, { script: name, probe }) {
    return {
      suspect: message => void probe.tell(message),
      lookAgain: message => void probe.tell(message),
      alive() {},
      addWorker: ({ url, reply }) => reply({ id: new URL(url).host }),
      removeWorker: ({ reply }) => reply(true),
      drainWorker: ({ reply }) => reply(true),
      diagnoseWorker: ({ workerId, reply }) =>
        reply(
          workerId === 'busy:1'
            ? 'busy'
            : workerId === WORKER_DIAGNOSIS.worker
              ? WORKER_DIAGNOSIS
              : 'unknown',
        ),
      describe({ reply }) {
        const { report } = scripts.get(name)!
        if (report !== undefined) reply(report)
      },
    }
  },
})

/** Has kept nothing, and answers nothing. */
export const scriptedWhatIf = defineActor(
  import.meta.url,
  'scriptedWhatIf',
)<Arm<WhatIfMessage, 'whatIfReport' | 'askWhatIf' | 'cancelWhatIf'>, undefined>({
  setup: () => ({
    whatIfReport: ({ reply }) => reply(WHAT_IF),
    askWhatIf: ({ reply }) => reply(WHAT_IF),
    cancelWhatIf: ({ reply }) => reply(WHAT_IF),
  }),
})

const WHAT_IF: WhatIfReport = {
  kept: { requests: 0, bytes: 0, bytesMax: 2 ** 24, minutesMax: 15, dropped: 0, oldestMs: undefined },
  cpuShare: 0.25,
  timeMsMax: 300_000,
  run: undefined,
  ended: { done: 0, cancelled: 0, failed: 0 },
  cpuMs: 0,
}

function dumpWords(blocks: readonly IndexedBlock[]): Int32Array {
  const words = (hexadecimal: string): readonly number[] => {
    const { lo, hi } = parseHash(hexadecimal)
    return [lo, hi]
  }
  return Int32Array.from(
    blocks.flatMap(({ engineHash, parentEngineHash, localHash, isReachable }) => [
      (parentEngineHash === undefined ? 0 : 1) | (isReachable ? 2 : 0),
      ...words(engineHash),
      ...words(parentEngineHash ?? '0'.repeat(16)),
      ...words(localHash),
    ]),
  )
}

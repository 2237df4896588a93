/**
 * A gateway on a network in memory, between scripted actors: tokenizer and router answer what the
 * test wrote down, directory, tracker and indexers show one fixed fleet, and the test itself is the dispatcher.
 */

import { type ActorRef, defineActor, type Message } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import type { DirectoryMessage, Fleet, FleetReport, WorkerRecord } from '@homing/directory'
import type { AnswerMessage, DispatcherMessage } from '@homing/dispatcher'
import type { ErrorRecord } from '@homing/errors'
import type { IndexedBlock, IndexerMessage, ShardStatus } from '@homing/indexer'
import type { DecideResult, Decision, Receipt, RouterMessage, RoutingRequest } from '@homing/router'
import type { KeyAudit } from '@homing/selection'
import type { ReadRequest, ReadResult, TokenizerMessage } from '@homing/tokenizer'
import type { LoadReport, TrackerMessage } from '@homing/tracker'
import {
  type HttpCall,
  type HttpExchange,
  type HttpHeaders,
  type HttpTransport,
  MemoryNetwork,
  transportCapability,
} from '@homing/transport'
import type { Test } from 'tap'
import { type GatewayArgs, gateway } from '../src/index.ts'

export const HOST = '10.0.0.9'
export const PORT = 8000
const ORIGIN = `http://${HOST}:${PORT}`

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)
export const textOf = (bytes: Uint8Array | undefined): string => new TextDecoder().decode(bytes)

type Arm<M extends Message, T extends M['type']> = Extract<M, { readonly type: T }>

/** What the scripted actors answer; undefined: nothing, ever. The test may change it at any time. */
export interface Script {
  read: (message: Arm<TokenizerMessage, 'read'>) => ReadResult | undefined
  decide: (request: RoutingRequest) => DecideResult | undefined
  explain: (request: RoutingRequest) => Receipt | ErrorRecord
  receipts: readonly Receipt[]
  report: FleetReport | undefined
  loads: LoadReport | undefined
  shard: ShardStatus | undefined
  blocks: readonly IndexedBlock[]
  audits: readonly KeyAudit[]
}

const scripts = new Map<string, Script>()

/** What the gateway asks of tokenizer, router, directory and indexers. */
type Question =
  | Arm<TokenizerMessage, 'read'>
  | Arm<RouterMessage, 'decide'>
  | Arm<RouterMessage, 'explain'>
  | Arm<RouterMessage, 'receipt'>
  | Arm<RouterMessage, 'receipts'>
  | Arm<RouterMessage, 'audits'>
  | Arm<DirectoryMessage, 'describe'>
  | Arm<IndexerMessage, 'status'>
  | Arm<IndexerMessage, 'dump'>

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
      decide: ({ request, reply }) => answer(reply, script.decide(request)),
      explain: ({ request, reply }) => reply(script.explain(request)),
      receipt: ({ id, reply }) => reply(script.receipts.find(receipt => receipt.id === id)),
      audits: ({ reply }) => reply(script.audits),
      receipts: ({ limit, reply }) => reply(script.receipts.slice(0, limit)),
      describe: ({ reply }) => answer(reply, script.report),
      status: ({ reply }) => answer(reply, script.shard),
      dump: ({ reply }) => reply(script.blocks),
    }
  },
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
      prefillComplete: keep,
      touch: keep,
      free: keep,
      sweep: keep,
      loads({ reply }) {
        const { loads } = scripts.get(name)!
        if (loads !== undefined) reply(loads)
      },
    }
  },
})

/** Takes one message and keeps it until `release` of its test. */
export const stuckDispatcher = defineActor(
  import.meta.url,
  'stuckDispatcher',
)<DispatcherMessage, { readonly until: Promise<void> }>({
  setup(_context, { until }) {
    const wait = (): Promise<void> => until
    return {
      dispatch: wait,
      abort: wait,
      pause: wait,
      resume: wait,
      upstreamHead: wait,
      upstreamData: wait,
      upstreamEnd: wait,
      upstreamFailed: wait,
      flush: wait,
      sweep: wait,
    }
  },
})

export const DECISION: Decision = {
  id: 'decision-1',
  workerId: '10.0.0.1:8001',
  worker: '10.0.0.1:8001/0',
  workerSlot: 0,
  origin: 'http://10.0.0.1:8001',
  dpRank: 0,
  pinRank: false,
  takesUsageOption: true,
  overlapBlocks: 3,
  blockSizeTokens: 16,
  predictedTokens: 48,
  guessedTokens: 0,
  trust: 'exact',
  epoch: 1,
}

export const READ: ReadRequest = {
  model: 'm',
  isStream: false,
  promptTokens: 100,
  blockSizeTokens: 16,
  localHashes: new Int32Array(0),
  sequenceHashes: new Int32Array(0),
  tokenIds: undefined,
  unknownPrompt: undefined,
  textBlocks: undefined,
  tokenizedBy: 'router',
  overlapScoreWeight: undefined,
  temperature: undefined,
  pinnedInstanceId: undefined,
  pinnedRank: undefined,
  annotations: [],
  extraFields: [],
  upstreamBody: undefined,
  usageEdit: undefined,
}

export const RECEIPT: Receipt = {
  id: 'decision-1',
  requestId: 'request-1',
  atMs: Date.UTC(2026, 0, 1),
  mode: 'kv',
  model: 'm',
  promptTokens: 100,
  blockSizeTokens: 16,
  promptBlocks: 6,
  unknownPrompt: undefined,
  textBlocks: undefined,
  overlapScoreWeight: 1,
  temperature: 0,
  worker: DECISION.worker,
  runnerUp: undefined,
  trust: 'exact',
  overlapBlocks: 3,
  candidates: [],
  candidatesLeftOut: 0,
  excluded: [],
  excludedLeftOut: 0,
  decisionMs: 0.1,
  delivery: undefined,
}

export const WORKER: WorkerRecord = {
  id: DECISION.workerId,
  instanceId: 7,
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

const SHARD: ShardStatus = {
  bytesUsed: 1000,
  bytesLimit: 2000,
  blocksDistinct: 5,
  memberships: 5,
  orphanBlocks: 1,
  eventsApplied: { stored: 1, removed: 0, cleared: 0 },
  eventsSkipped: {
    otherTier: 0,
    remote: 0,
    otherGroup: 0,
    noBlocks: 0,
    unevenTokens: 0,
    unplaced: 0,
    noLayer: 0,
    blockSize: 0,
    unknownContent: 0,
    unopened: 0,
  },
  layersHeld: {},
  predictions: { keys: 0, blocks: 0, bytes: 0, routed: 0, expired: 0, pruned: 0 },
  blocksRefused: 0,
  blocksEvicted: 0,
  unknownRemoves: 0,
  blocksHeld: { 0: 5 },
}

/** One request of a client, as far as its answer has come. */
export class ClientCall {
  status: number | undefined
  headers: HttpHeaders = {}
  body = ''
  end: 'open' | 'complete' | 'broken' = 'open'
  call!: HttpCall

  /** The answer as OpenAI's clients read an error: status, type, code, param. */
  get error(): unknown {
    const { error } = JSON.parse(this.body) as { error: { type: string; code: string; param: string | null } }
    return [this.status, error.type, error.code, error.param]
  }
}

export interface RequestOptions {
  readonly headers?: HttpHeaders
  readonly body?: string
  /** Default: where the gateway listens. */
  readonly origin?: string
}

export type World = Awaited<ReturnType<typeof start>>

/** `change`: what the script says instead of: every request is read, and decided for the one worker. */
export async function start(t: Test, settings: Partial<GatewayArgs> = {}, change: Partial<Script> = {}) {
  const name = t.fullname
  const script: Script = {
    read: () => ({ kind: 'read', request: READ }),
    decide: () => ({ kind: 'decided', decision: DECISION }),
    explain: () => RECEIPT,
    receipts: [],
    report: { fleet: fleetOf(WORKER), sources: {} },
    loads: { rows: [], stats: { expiredTotal: 0 } as LoadReport['stats'] },
    shard: SHARD,
    blocks: [],
    audits: [],
    ...change,
  }
  scripts.set(name, script)
  // The network must live on the clock of the system that it is given to.
  const { clock } = createTestSystem()
  const network = new MemoryNetwork({ clock })
  const transport = network.transport()
  const listening: { onExchange: (exchange: HttpExchange) => void } = { onExchange: () => {} }
  const http: HttpTransport = {
    ...transport.http,
    listen(options, onExchange) {
      listening.onExchange = onExchange
      return transport.http.listen(options, onExchange)
    },
  }
  const system = createTestSystem({ clock, provide: [[transportCapability, { ...transport, http }]] })
  t.teardown(async () => {
    const ended = system.shutdown()
    // Who is still waiting is cut on a timer.
    await system.advance('1s')
    await ended
  })
  const actor = <M extends Message>(actorName: string): ActorRef<M> =>
    system.spawn(scripted, { name: actorName, args: { script: name } }) as ActorRef<never> as ActorRef<M>
  const dispatcher = system.probe<DispatcherMessage>('dispatcher')
  const tracker = system.probe<TrackerMessage>('tracker')
  const args: GatewayArgs = {
    host: HOST,
    port: PORT,
    bodyBytesMax: 1000,
    bodiesBytesMax: 10_000,
    bodySilenceMsMax: 60_000,
    clientStallMsMax: 120_000,
    openRequestsMax: 10,
    readMsMax: 5000,
    askMsMax: 1000,
    tokenizer: actor('tokenizer'),
    router: actor('router'),
    dispatcher: dispatcher.ref,
    directory: actor('directory'),
    tracker: system.spawn(scriptedTracker, {
      name: 'scripted-tracker',
      args: { script: name, probe: tracker.ref },
    }),
    indexers: [actor('indexer-0')],
    ...settings,
  }
  const ref = system.spawn(gateway, { name: 'gateway', args })
  ref.tell({ type: 'fleet', fleet: fleetOf(WORKER) })
  await system.settle()

  const client = network.transport().http
  const send = (
    method: string,
    path: string,
    { headers, body, origin = ORIGIN }: RequestOptions = {},
  ): ClientCall => {
    const answer = new ClientCall()
    answer.call = client.call(
      {
        origin,
        method,
        path,
        ...(headers === undefined ? {} : { headers }),
        ...(body === undefined ? {} : { body: utf8(body) }),
      },
      {
        head(status, given) {
          answer.status = status
          answer.headers = given
        },
        data(bytes) {
          answer.body += textOf(bytes)
        },
        end() {
          answer.end = 'complete'
        },
        failed() {
          answer.end = 'broken'
        },
      },
    )
    return answer
  }
  /** Sends, and lets everybody finish what can be done now. */
  const ask = async (method: string, path: string, options?: RequestOptions): Promise<ClientCall> => {
    const answer = send(method, path, options)
    await system.settle()
    return answer
  }
  /** What the gateway dispatched and not looked at yet. */
  const dispatched = (): Arm<DispatcherMessage, 'dispatch'> => {
    const message = dispatcher.waiting.findLast(({ type }) => type === 'dispatch')
    if (message?.type !== 'dispatch') throw new Error('nothing was dispatched')
    return message
  }
  /** The dispatcher's word about the exchange dispatched last. */
  const answer = async (...messages: AnswerBody[]): Promise<void> => {
    const { exchange } = dispatched()
    for (const message of messages) ref.tell({ ...message, exchange } as AnswerMessage)
    await system.settle()
  }
  const freed = (): string[] =>
    tracker.waiting.flatMap(message => (message.type === 'free' ? [message.requestId] : []))
  return { system, network, listening, ref, script, dispatcher, send, ask, dispatched, answer, freed }
}

type Without<M> = M extends AnswerMessage ? Omit<M, 'exchange'> : never
export type AnswerBody = Without<AnswerMessage>

export const head = (status = 200, headers: HttpHeaders = {}): AnswerBody => ({
  type: 'answerHead',
  status,
  headers,
  decision: DECISION,
})
export const data = (text: string): AnswerBody => ({ type: 'answerData', bytes: utf8(text) })
export const end: AnswerBody = { type: 'answerEnd' }

/**
 * A gateway on a network in memory, between scripted actors: tokenizer and router answer what the
 * test wrote down, directory, tracker and indexers show one fixed fleet, and the test itself is the worker.
 */

import { type ActorRef, defineActor, type Message } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import { type ConsoleArgs, type ConsoleMessage, OPERATOR_ROUTES, operatorConsole } from '@homing/console'
import type { DecisionLogMessage } from '@homing/decision-log'
import type { DirectoryMessage, Fleet, FleetReport, WorkerRecord } from '@homing/directory'
import type { ErrorRecord } from '@homing/errors'
import type { IndexedBlock, IndexerMessage, ShardStatus } from '@homing/indexer'
import type {
  DecideResult,
  Decision,
  GuardStatus,
  Receipt,
  RouterMessage,
  RoutingRequest,
} from '@homing/router'
import type { KeyAudit } from '@homing/selection'
import type { ReadRequest, ReadResult, TokenizerMessage, TokenizerStatus } from '@homing/tokenizer'
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
import { type GatewayArgs, gateway, relayedNames } from '../src/index.ts'

export const HOST = '10.0.0.9'
export const PORT = 8000
const ORIGIN = `http://${HOST}:${PORT}`

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text)
export const textOf = (bytes: Uint8Array | undefined): string => new TextDecoder().decode(bytes)

type Arm<M extends Message, T extends M['type']> = Extract<M, { readonly type: T }>

/** What the scripted actors answer; undefined: nothing, ever. The test may change it at any time. */
export interface Script {
  read: (message: Arm<TokenizerMessage, 'read'>) => ReadResult | undefined
  decide: (request: RoutingRequest, id: string) => DecideResult | Promise<DecideResult> | undefined
  explain: (request: RoutingRequest) => Receipt | ErrorRecord
  receipts: readonly Receipt[]
  report: FleetReport | undefined
  loads: LoadReport | undefined
  shard: ShardStatus | undefined
  blocks: readonly IndexedBlock[]
  audits: readonly KeyAudit[]
  guard: GuardStatus | undefined
  tokenizers: TokenizerStatus | undefined
}

type Settled = Arm<RouterMessage, 'settled'>

/** What the router was asked and told. Its decisions are called decision-1, decision-2, …, as they come. */
class RouterLog {
  readonly asked: RoutingRequest[] = []
  /** Names by id. */
  readonly names = new Map<string, string>()
  readonly settled: Settled[] = []
  readonly firstTokens: Arm<RouterMessage, 'firstToken'>[] = []
  readonly gateways: Arm<RouterMessage, 'gatewayStarted'>['gateway'][] = []
}

const scripts = new Map<string, Script & { readonly log: RouterLog }>()

/** What the gateway asks of tokenizer, router, directory and indexers. */
type Question =
  | Arm<TokenizerMessage, 'read' | 'tokenizers'>
  | Arm<RouterMessage, 'decide'>
  | Arm<RouterMessage, 'settled'>
  | Arm<RouterMessage, 'gatewayStarted'>
  | Arm<RouterMessage, 'explain'>
  | Arm<RouterMessage, 'receipt'>
  | Arm<RouterMessage, 'receipts'>
  | Arm<RouterMessage, 'audits'>
  | Arm<RouterMessage, 'guard'>
  | Arm<RouterMessage, 'firstToken'>
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
      tokenizers: ({ reply }) => answer(reply, script.tokenizers),
      async decide({ request, id, reply }) {
        const { log } = script
        log.asked.push(request)
        log.names.set(id, `decision-${log.names.size + 1}`)
        answer(reply, await script.decide(request, log.names.get(id)!))
      },
      settled: message => void script.log.settled.push(message),
      gatewayStarted: ({ gateway: life }) => void script.log.gateways.push(life),
      explain: ({ request, reply }) => reply(script.explain(request)),
      receipt: ({ id, reply }) => reply(script.receipts.find(receipt => receipt.id === id)),
      audits: ({ reply }) => reply(script.audits),
      guard: ({ reply }) => reply(script.guard),
      firstToken: message => void script.log.firstTokens.push(message),
      receipts: ({ limit, reply }) => reply(script.receipts.slice(0, limit)),
      describe: ({ reply }) => answer(reply, script.report),
      status: ({ reply }) => answer(reply, script.shard),
      dump: ({ reply }) => reply(script.blocks),
    }
  },
})

/** A decision log that has written one request. */
const scriptedLog = defineActor(
  import.meta.url,
  'scriptedLog',
)<Arm<DecisionLogMessage, 'status'>, undefined>({
  setup: () => ({
    status: ({ reply }) => reply({ written: 1, dropped: 0, bytes: 500, waitingBytes: 0, fault: undefined }),
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
      prefillComplete: keep,
      touch: keep,
      free: keep,
      gatewayStarted: keep,
      sweep: keep,
      loads({ reply }) {
        const { loads } = scripts.get(name)!
        if (loads !== undefined) reply(loads)
      },
    }
  },
})

export const WORKER_HOST = '10.0.0.1'

/** Answers `describe`, and keeps the rest for the test. */
export const scriptedDirectory = defineActor(
  import.meta.url,
  'scriptedDirectory',
)<
  Arm<DirectoryMessage, 'describe' | 'suspect'>,
  { readonly script: string; readonly probe: ActorRef<DirectoryMessage> }
>({
  setup(_context, { script: name, probe }) {
    return {
      suspect: message => void probe.tell(message),
      describe({ reply }) {
        const { report } = scripts.get(name)!
        if (report !== undefined) reply(report)
      },
    }
  },
})

export const TOKENIZERS: TokenizerStatus = {
  tokenizers: [
    { directory: '/models/m', models: ['m'], path: 'library', reason: 'it has a WordPiece model' },
  ],
  checks: 12,
  differences: 1,
  checksFailed: 2,
  promptCacheBytes: 4096,
  wordTableBytes: 2 ** 20,
  vocabularyBytes: 2 ** 24,
}

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
  guesses: { keys: 0, blocks: 0, bytes: 0, routed: 0, expired: 0, pruned: 0 },
  unclearStores: 0,
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

export interface StartOptions {
  readonly isStarted?: boolean
  readonly hasWorker?: boolean
  /** Where the console listens itself. */
  readonly adminPort?: number
  /** False: it answers nothing, ever. */
  readonly consoleAnswers?: boolean
  /** What calls to workers say of their bodies, once they have ended; by default these are in use for ever. */
  readonly usesBody?: () => boolean
}

/** `change`: what the script says instead of: every request is read, and decided for the one worker. */
export async function start(
  t: Test,
  settings: Partial<GatewayArgs> = {},
  change: Partial<Script> = {},
  {
    isStarted = true,
    hasWorker = true,
    adminPort,
    consoleAnswers = true,
    usesBody = () => true,
  }: StartOptions = {},
) {
  const name = t.fullname
  const script: Script = {
    read: () => ({ kind: 'read', request: READ }),
    decide: (_, id) => ({ kind: 'decided', decision: { ...DECISION, id } }),
    explain: () => RECEIPT,
    receipts: [],
    report: { fleet: fleetOf(WORKER), sources: {} },
    loads: { rows: [], stats: { expiredTotal: 0 } as LoadReport['stats'] },
    shard: SHARD,
    blocks: [],
    audits: [],
    guard: undefined,
    tokenizers: TOKENIZERS,
    ...change,
  }
  const log = new RouterLog()
  scripts.set(name, Object.assign(script, { log }))
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
    call(request, handler) {
      const call = transport.http.call(request, handler)
      return {
        abort: () => call.abort(),
        pause: () => call.pause(),
        resume: () => call.resume(),
        get usesBody() {
          return usesBody()
        },
      }
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
  const directory = system.probe<DirectoryMessage>('suspected')
  const tracker = system.probe<TrackerMessage>('tracker')
  const tokenizer = actor<TokenizerMessage>('tokenizer')
  const shared: Omit<ConsoleArgs, 'adminPort' | 'relayed' | 'indexers'> = {
    tokenizer,
    host: HOST,
    bodyBytesMax: 1000,
    bodySilenceMsMax: 60_000,
    clientStallMsMax: 120_000,
    readMsMax: 5000,
    askMsMax: 1000,
    router: actor('router'),
    directory: system.spawn(scriptedDirectory, {
      name: 'scripted-directory',
      args: { script: name, probe: directory.ref },
    }) as ActorRef<never> as ActorRef<DirectoryMessage>,
    tracker: system.spawn(scriptedTracker, {
      name: 'scripted-tracker',
      args: { script: name, probe: tracker.ref },
    }),
  }
  const consoleArgs = {
    ...shared,
    adminPort,
    relayed: relayedNames(settings.relayRoutes ?? []),
    indexers: [actor<IndexerMessage>('indexer-0')],
    decisionLog: system.spawn(scriptedLog, {
      name: 'decision-log',
      args: undefined,
    }) as ActorRef<never> as ActorRef<DecisionLogMessage>,
  }
  const consoleRef = consoleAnswers
    ? system.spawn(operatorConsole, { name: 'console', args: consoleArgs })
    : system.probe<ConsoleMessage>('console').ref
  const args: GatewayArgs = {
    ...shared,
    port: PORT,
    bodiesBytesMax: 10_000,
    openRequestsMax: 10,
    exchangeLimits: { retriesMax: 0, silenceMsMax: 60_000, requestMsMax: 0 },
    audit: true,
    operators: adminPort === undefined ? { console: consoleRef, routes: OPERATOR_ROUTES } : undefined,
    ...settings,
  }
  const ref = system.spawn(gateway, { name: 'gateway', args })
  consoleRef.tell({ type: 'gateway', gateway: ref })
  if (isStarted) ref.tell({ type: 'started' })
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
  /** Serves as a worker on this port of DECISION's host: what it does with each call. */
  const serve = (port: number, ...acts: ((exchange: HttpExchange) => void)[]) =>
    network.transport().http.listen({ host: WORKER_HOST, port }, exchange => {
      for (const act of acts) act(exchange)
    })
  const calls: WorkerExchange[] = []
  if (hasWorker) {
    await serve(8001, http => {
      const call = new WorkerExchange(http, log.asked.at(-1)!)
      calls.push(call)
      // A client that leaves takes its body with it.
      http.readBody(1_000_000).then(
        body => call.took(body),
        () => {},
      )
      http.onClientGone(() => {
        call.isGone = true
      })
    })
  }
  /** The call that came last. */
  const called = (): WorkerExchange => {
    const call = calls.at(-1)
    if (call === undefined) throw new Error('no worker was called')
    return call
  }
  /** What the worker does with the call that came last. */
  const answer = async (...acts: ((http: HttpExchange) => void)[]): Promise<void> => {
    const { http } = called()
    for (const act of acts) act(http)
    await system.settle()
  }
  /** Names of the decisions that were settled, in order. */
  const settled = (): string[] => log.settled.map(({ id }) => log.names.get(id)!)
  return {
    system,
    network,
    listening,
    ref,
    console: consoleRef,
    script,
    log,
    tracker,
    directory,
    send,
    ask,
    serve,
    calls,
    called,
    answer,
    settled,
  }
}

/** A call that the worker got. */
export class WorkerExchange {
  readonly http: HttpExchange
  readonly routing: RoutingRequest
  body = ''
  /** The gateway has cut it. */
  isGone = false

  constructor(http: HttpExchange, routing: RoutingRequest) {
    this.http = http
    this.routing = routing
  }

  took(body: Uint8Array): void {
    this.body = textOf(body)
  }

  get request() {
    const { method, path, query, headers } = this.http
    return { method, path: query === '' ? path : `${path}?${query}`, headers }
  }
}

export const head =
  (status = 200, headers: HttpHeaders = {}) =>
  (http: HttpExchange): void =>
    http.writeHead(status, headers)
export const data =
  (text: string) =>
  (http: HttpExchange): void =>
    void http.write(utf8(text))
/** The last bytes. */
export const finish =
  (text: string) =>
  (http: HttpExchange): void =>
    http.end(utf8(text))
export const end = (http: HttpExchange): void => http.end()
/** It breaks off. */
export const die = (http: HttpExchange): void => http.destroy()

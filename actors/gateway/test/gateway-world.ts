/**
 * A gateway on a network in memory, between scripted actors: tokenizer and router answer what the
 * test wrote down, directory, tracker and indexers show one fixed fleet, and the test itself is the worker.
 */

import type { ActorRef, Message } from '@homing/actor'
import { createTestSystem, recordingLog } from '@homing/actor/testing'
import {
  type ConsoleArgs,
  type ConsoleMessage,
  OPERATOR_ROUTES,
  operatorConsole,
} from '@homing/actors/console'
import type { DecisionLogMessage } from '@homing/actors/decision-log'
import type { DirectoryMessage } from '@homing/actors/directory'
import type { IndexerMessage } from '@homing/actors/indexer'
import type { QueueMessage } from '@homing/actors/queue'
import type { ReplicaBridgeMessage } from '@homing/actors/replica-bridge'
import type { RouterMessage } from '@homing/actors/router'
import type { TokenizerMessage } from '@homing/actors/tokenizer'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { WhatIfMessage } from '@homing/actors/what-if'
import { AFFINITY_HEADERS } from '@homing/config'
import type { AccessLine } from '@homing/http'
import { MODEL_LABELS_DEFAULT } from '@homing/metrics'
import { type HttpExchange, type HttpTransport, MemoryNetwork, transportCapability } from '@homing/transport'
import type { Test } from 'tap'
import { accessLogs } from '../src/access-notes.ts'
import { type GatewayArgs, gateway, relayedNames } from '../src/index.ts'
import { type ClientCall, clientOf, type RequestOptions } from './client-call.ts'
import { fleetOf, WORKER, WORKER_HOST } from './sample-records.ts'
import {
  type Script,
  scripted,
  scriptedBridge,
  scriptedDirectory,
  scriptedLog,
  scriptedTracker,
  scriptedWhatIf,
  writeScript,
} from './scripted-actors.ts'
import { WorkerExchange } from './worker-exchange.ts'

export const HOST = '10.0.0.9'
export const PORT = 8000
const ORIGIN = `http://${HOST}:${PORT}`

/** As the guardian's. */
const SUPERVISION = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '20ms', max: '5s' },
} as const

export type World = Awaited<ReturnType<typeof start>>

export interface StartOptions {
  readonly isStarted?: boolean
  readonly hasWorker?: boolean
  /** Where the console listens itself. */
  readonly adminPort?: number
  /** Where it serves metrics and health alone. */
  readonly metricsPort?: number
  /** On whichever port they are. */
  readonly openOperatorRequestsMax?: number
  /** False: it answers nothing, ever. */
  readonly consoleAnswers?: boolean
  /**
   * What calls to workers say of their bodies, once they have ended; by default these are in use for ever.
   */
  readonly usesBody?: () => boolean
}

/** `change`: what the script says otherwise. */
export async function start(
  t: Test,
  settings: Partial<GatewayArgs> = {},
  change: Partial<Script> = {},
  {
    isStarted = true,
    hasWorker = true,
    adminPort,
    metricsPort,
    openOperatorRequestsMax = 64,
    consoleAnswers = true,
    usesBody = () => true,
  }: StartOptions = {},
) {
  const name = t.fullname
  const script = writeScript(name, change)
  const { log } = script
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
  const accessLines: AccessLine[] = []
  const accessLog = {
    write: (line: AccessLine) => void accessLines.push(JSON.parse(JSON.stringify(line))),
    get written() {
      return accessLines.length
    },
    dropped: 0,
    fault: undefined,
    release: () => {},
    close: async () => {},
  }
  const logged = recordingLog()
  const system = createTestSystem({
    clock,
    log: logged,
    provide: [
      [transportCapability, { ...transport, http }],
      [accessLogs, () => accessLog],
    ],
  })
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
  const router = actor<RouterMessage>('router')
  const shared: Omit<ConsoleArgs, 'adminPort' | 'relayed' | 'indexers'> = {
    tokenizer,
    host: HOST,
    bodyBytesMax: 1000,
    bodySilenceMsMax: 60_000,
    clientStallMsMax: 120_000,
    page: 'local',
    pageTabsMax: 8,
    openOperatorRequestsMax,
    readMsMax: 5000,
    modelLabels: MODEL_LABELS_DEFAULT,
    askMsMax: 1000,
    router,
    queue: router as ActorRef<never> as ActorRef<QueueMessage>,
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
    metricsPort,
    relayed: relayedNames(settings.relayRoutes ?? []),
    indexers: [actor<IndexerMessage>('indexer-0')],
    decisionLog: system.spawn(scriptedLog, {
      name: 'decision-log',
      args: undefined,
    }) as ActorRef<never> as ActorRef<DecisionLogMessage>,
    replicaBridge: system.spawn(scriptedBridge, {
      name: 'replica-bridge',
      args: undefined,
    }) as ActorRef<never> as ActorRef<ReplicaBridgeMessage>,
    whatIf: system.spawn(scriptedWhatIf, {
      name: 'what-if',
      args: undefined,
    }) as ActorRef<never> as ActorRef<WhatIfMessage>,
  }
  const consoleRef = consoleAnswers
    ? system.spawn(operatorConsole, { name: 'console', args: consoleArgs })
    : system.probe<ConsoleMessage>('console').ref
  const args: GatewayArgs = {
    ...shared,
    port: PORT,
    bodiesBytesMax: 10_000,
    openRequestsMax: 10,
    rememberedResponsesMax: 3,
    affinityHeaders: AFFINITY_HEADERS,
    queueMsMax: 0,
    exchangeLimits: {
      retriesMax: 0,
      retryShare: 0.2,
      stallMsMin: 10_000,
      silenceMsMax: 60_000,
      requestMsMax: 0,
    },
    audit: true,
    operators: adminPort === undefined ? { console: consoleRef, routes: OPERATOR_ROUTES } : undefined,
    ...settings,
  }
  const ref = system.spawn(gateway, { name: 'gateway', args, supervision: SUPERVISION })
  consoleRef.tell({ type: 'gateways', gateways: [ref] })
  if (isStarted) ref.tell({ type: 'started' })
  ref.tell({ type: 'fleet', fleet: fleetOf(WORKER) })
  await system.settle()

  const send = clientOf(network.transport().http, ORIGIN)
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
    /** Of the access log, if it has one. */
    accessLines,
    logged,
    called,
    answer,
    settled,
  }
}

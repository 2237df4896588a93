/**
 * Guardian: starts the router's actors in order, keeps them running, stops them in reverse.
 *
 * In     `whenReady` and `drain` from the program; from the directory, what it wants kept over its lives.
 * Out    spawns everything else. Periodically renews the subscriptions to the fleet, tells the gateway that the start is over, and
 *        tells the console its gateway, so that these survive restarts of either side.
 * Owns   workers and busy thresholds as they were set at run time; the order: indexers, directory, tracker, tokenizer, decision log, router, replica bridge, queue, console, gateway. Each gets the
 *        refs of those before it. Stopping goes the other way, so nobody sends messages to a stopped actor.
 * Fails  a child that fails is restarted under its own budget. A child whose budget is used up fails the
 *        guardian, and with it the process: a router without one of its parts is worse than one that is
 *        restarted. The runtime replaces a thread that dies, with its actors. A gateway or
 *        console that cannot listen at the first start is reported, not retried. The budgets of the console and of the decision log
 *        are practically unlimited, because requests do not need them.
 */

import {
  type ActorContext,
  type ActorRef,
  defineActor,
  isThreadLoss,
  type Reply,
  type Supervision,
  signal,
} from '@homing/actor'
import { type ConsoleArgs, OPERATOR_ROUTES, operatorConsole } from '@homing/console'
import { type DecisionLogMessage, decisionLog } from '@homing/decision-log'
import {
  type DirectoryArgs,
  type DirectoryMessage,
  directory,
  type EventBroker,
  type Fleet,
  type FleetMessage,
  type FleetReport,
  type GivenWorkersFile,
  type Kept,
  type KeySource,
  type RequestBroker,
  type WorkerRecord,
  type WorkerSpec,
} from '@homing/directory'
import { type EngineUsageMessage, engineUsage } from '@homing/engine-usage'
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '@homing/errors'
import { type GatewayArgs, type GatewayMessage, gateway, relayedNames } from '@homing/gateway'
import { createIndexDoor, type ShardMemory } from '@homing/index'
import { indexer, type ShardMessage } from '@homing/indexer'
import { queue } from '@homing/queue-actor'
import { type ReplicaBridgeMessage, type ReplicaPlane, replicaBridge } from '@homing/replica-bridge'
import { type RouterArgs, type RouterMessage, router } from '@homing/router'
import { CustomPolicy } from '@homing/selection'
import type { LoadedTokenizer } from '@homing/tokenization'
import { tokenizer } from '@homing/tokenizer'
import type { LoggedSelection } from '@homing/trace'
import { type ReportedUsageMessage, type TrackerMessage, tracker } from '@homing/tracker'
import { transportCapability } from '@homing/transport'
import { type WhatIfMessage, whatIf } from '@homing/what-if-actor'
import { ActorLostError } from './errors.ts'
import type { GuardianMessage, ReadyReport } from './messages.ts'
import { busyThresholdsOf, type QueueSettings, queueRulesOf } from './queue-rules.ts'

/** Arguments that the guardian gives to the actors; plain data, in the units of the names. See packages/config. */
export interface GuardianArgs extends QueueSettings {
  readonly specs: readonly WorkerSpec[]
  readonly fileWorkers?: GivenWorkersFile | undefined
  /** Where the API key of the engines stands, not the key. */
  readonly engineKey?: KeySource | undefined
  /** Certificates in PEM that are believed besides those of Node and of the system. */
  readonly engineCertificates?: string | undefined
  /** Where workers register themselves; undefined: nowhere. */
  readonly registration?: DirectoryArgs['registration']
  /** Other routers of the same workers; undefined: there are none. */
  readonly replication?:
    | {
        readonly plane: ReplicaPlane
        readonly delayMs: number
        readonly expiryMs: number
        /** 16 hexadecimal digits that no other router has, where random numbers may be equal. */
        readonly salt?: string
      }
    | undefined
  /** Where KV events are published that have no port; undefined: nowhere. */
  readonly broker?: EventBroker | undefined
  /** Over which workers are called that take requests there; undefined: none is. */
  readonly requestBroker?: RequestBroker | undefined
  readonly host: string
  readonly port: number
  /** Port of the operator routes; undefined: they are on `port`. */
  readonly adminPort?: number | undefined
  /** Undefined: only callers on this machine may change workers and thresholds. */
  readonly adminKey?: string | undefined
  readonly drainMsMax?: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
  readonly bodyTimeoutMs: number
  readonly clientStallTimeoutMs: number
  readonly page: ConsoleArgs['page']
  readonly pageTabsMax: number
  readonly openRequestsMax: number
  readonly rememberedResponsesMax: number
  readonly workerSlotsMax: number
  /** Share of the decisions by `auto` that its guard sends by least-loaded. */
  readonly guardShare: number
  readonly overlapCredit: number
  readonly creditDecay: number
  readonly activeRequestWeight: number
  readonly prefillMsPerToken: number
  readonly attentionMsPerMillionPairs: number
  readonly overlapWeight: number
  readonly temperature: number
  readonly activeRequestExpiryMs: number
  /** 0: sessions are not looked at. */
  readonly affinityTtlMs?: number
  readonly affinityMode?: 'soft' | 'hard'
  readonly affinityPrefixBlocks?: number
  readonly affinitiesMax?: number
  readonly trackActiveBlocks?: boolean
  readonly trackPrefillTokens?: boolean
  readonly trackOutputBlocks?: boolean
  readonly assumeKvReuse?: boolean
  readonly decisionsKept: number
  readonly decisionRowsKept: number
  readonly kvEvents: boolean
  readonly guessTtlWithoutEventsMs: number
  readonly guessBlocksMax: number
  readonly pruneTargetRatio: number
  /** 0: what was sent to a worker with events does not count before they say so. */
  readonly guessTtlUntilEventsMs: number
  readonly hostCacheHitWeight: number
  readonly diskCacheHitWeight: number
  readonly blockSizeTokens: number | undefined
  readonly eventThreads: number
  readonly indexBytes: number
  readonly replayTimeoutMs: number
  readonly checkpointDirectory?: string | undefined
  readonly checkpointIntervalMs?: number
  /** Undefined: none is written. */
  readonly decisionLogFile?: string | undefined
  readonly decisionLogBytesMax?: number
  readonly decisionLogFilesMax?: number
  /** 0: requests are not kept. */
  readonly whatIfMinutes?: number
  readonly whatIfBytes?: number
  readonly whatIfCpuShare?: number
  readonly whatIfTimeoutMs?: number
  /** Undefined: there is none. */
  readonly accessLog?: string | undefined
  readonly accessLogSample?: number
  readonly audit: boolean
  readonly probeIntervalMs: number
  readonly probeTimeoutMs: number
  /** 0: engines are not asked for their own figures. */
  readonly engineMetricsIntervalMs?: number
  readonly tokenizers: readonly string[]
  readonly tokenizerThreads: number
  readonly promptCacheBytes: number
  readonly wordTableBytes: number
  readonly inlineBodyBytesMax: number
  readonly tokenizeCheckEvery: number
  /** By directory: tokenizers that are loaded already. */
  readonly loadedTokenizers: ReadonlyMap<string, LoadedTokenizer>
  readonly retries: number
  readonly requestTimeoutMs: number
  readonly silenceTimeoutMs: number
  readonly relayRoutes?: GatewayArgs['relayRoutes']
}

/** Messages that may wait at an actor of the request path: some per open request, and this. */
const MAILBOX_SLACK = 1024
/** The tracker has room for the requests of so many routers as this. */
const REPLICAS_COUNTED = 16
/** Mailbox room per open request. */
const MESSAGES_PER_REQUEST = 4
const ASK_MS_MAX = 10_000
const READ_MS_MAX = 60_000
/** Twice this must be less than what the program waits for beyond the grace. */
const SAVE_MS_MAX = 4000
const TOKENIZE_MS_MAX = 10_000
const RENEW_INTERVAL_MS = 1000
/** How long the first probes may hold up the ready line. */
const FIRST_PROBES_MS_MAX = 30_000
/** How long the first replays may hold it up after that. */
const FIRST_TRUST_MS_MAX = 3000
const TRUST_POLL_MS = 20
const WATCH_AGAIN_MS = 100

const SUPERVISION: Supervision = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '20ms', max: '5s', jitter: 0.2 },
}

/** The backoff keeps it far below that. */
const UNLIMITED: Supervision = { ...SUPERVISION, max: 1000 }

export const guardian = defineActor(
  import.meta.url,
  'guardian',
)<GuardianMessage, GuardianArgs>({
  reentrant: true,
  setup(context, args) {
    if (args.engineCertificates !== undefined)
      context.use(transportCapability).http.trust(args.engineCertificates)
    const children = spawnAll(context, args)
    let ready: ReadyReport | ErrorRecord | undefined
    let kept: Kept = { busyThresholds: new Map(), fleet: undefined }
    const waiting: Reply<ReadyReport | ErrorRecord>[] = []
    const settleReady = (outcome: ReadyReport | ErrorRecord): void => {
      ready = outcome
      for (const reply of waiting.splice(0)) reply(outcome)
    }

    const tellStarted = (): void => {
      if (ready !== undefined && !('code' in ready)) children.started()
    }

    children.renewSubscriptions()
    context.schedule(RENEW_INTERVAL_MS, { type: 'renewSubscriptions' })
    context.pipe(
      children.whenReady(),
      report => ({ type: 'ready', outcome: report }),
      thrown => ({ type: 'ready', outcome: toErrorRecord(thrown) }),
    )

    return {
      whenReady({ reply }) {
        if (ready === undefined) waiting.push(reply)
        else reply(ready)
      },
      ready({ outcome }) {
        // The gateway's own failure says more than the ask that it left unanswered.
        if (ready === undefined) settleReady(outcome)
        // After the program, which tells of it first.
        tellStarted()
      },
      renewSubscriptions() {
        children.renewSubscriptions()
        tellStarted()
        context.schedule(RENEW_INTERVAL_MS, { type: 'renewSubscriptions' })
      },
      keepBusyThresholds({ byModel }) {
        kept = { ...kept, busyThresholds: byModel }
      },
      keepFleet({ fleet }) {
        kept = { ...kept, fleet }
      },
      kept({ reply }) {
        reply(kept)
      },
      watchAgain({ child }) {
        context.watch(child)
      },
      async drain({ graceMs, reply }) {
        reply(await children.drain(graceMs))
      },
      [signal](event) {
        if (event.type !== 'terminated') return
        // Its thread is being replaced, and the actor started there again under the same ref; one that
        // is not is `unreachable` at the next look. Later, since a dead thread answers a watch at once.
        if (isThreadLoss(event.reason)) {
          context.schedule(WATCH_AGAIN_MS, { type: 'watchAgain', child: event.ref })
          return
        }
        const why = event.error ?? new ActorLostError(event.ref.name, event.reason)
        if (ready === undefined) settleReady(toErrorRecord(why))
        else if (!('code' in ready)) throw new ActorLostError(event.ref.name, why.message)
      },
    }
  },
})

interface Children {
  readonly renewSubscriptions: () => void
  readonly whenReady: () => Promise<ReadyReport>
  readonly started: () => void
  readonly drain: (graceMs: number) => Promise<number>
}

function spawnAll(context: ActorContext<GuardianMessage>, args: GuardianArgs): Children {
  const { openRequestsMax, workerSlotsMax } = args
  const mailbox = (perRequest: number) => ({ capacity: openRequestsMax * perRequest + MAILBOX_SLACK })
  const options = <A>(name: string, childArgs: A, perRequest = MESSAGES_PER_REQUEST) => {
    return { name, args: childArgs, supervision: SUPERVISION, mailbox: mailbox(perRequest) }
  }
  const watched = <R extends ActorRef<never>>(ref: R): R => {
    context.watch(ref)
    return ref
  }

  const capacityBytes = Math.floor(args.indexBytes / args.eventThreads)
  const indexMemories: ShardMemory[] = []
  const indexers: ActorRef<ShardMessage>[] = []
  for (let shard = 0; shard < args.eventThreads; shard++) {
    // Made here so that it outlives the indexer: by it readers know when that has begun anew.
    const memory = createIndexDoor()
    indexMemories.push(memory)
    const { pruneTargetRatio } = args
    const shardArgs = { shard, memory, capacityBytes, workerSlotsMax, pruneTargetRatio }
    const thread = `events-${shard}`
    indexers.push(watched(context.spawn(indexer, { ...options(`indexer-${shard}`, shardArgs), thread })))
  }
  const directoryRef: ActorRef<DirectoryMessage> = watched(
    context.spawn(
      directory,
      options('directory', {
        ...args,
        indexers,
        eventPool: 'events',
        busyThresholds: busyThresholdsOf(args),
        keeper: context.self,
      }),
    ),
  )
  const tracking = {
    activeBlocks: args.trackActiveBlocks ?? true,
    prefillTokens: args.trackPrefillTokens ?? true,
    outputBlocks: args.trackOutputBlocks ?? false,
    assumesReuse: args.assumeKvReuse ?? true,
  }
  const trackerRef = watched(
    context.spawn(
      tracker,
      options('tracker', {
        directory: directoryRef,
        workerSlotsMax,
        requestsMax: openRequestsMax * 2 * (args.replication === undefined ? 1 : REPLICAS_COUNTED),
        idleMsMax: args.activeRequestExpiryMs,
        tracking,
        replicationMs: args.replication?.delayMs,
        replicaSalt: args.replication?.salt,
      }),
    ),
  )
  const usageRef = spawnEngineUsage(context, args, trackerRef)
  if (usageRef !== undefined) watched(usageRef)
  const tokenizerRef = watched(
    context.spawn(
      tokenizer,
      options('tokenizer', {
        threads: args.tokenizerThreads,
        promptCacheBytes: args.promptCacheBytes,
        wordTableBytes: args.wordTableBytes,
        inlineBodyBytesMax: args.inlineBodyBytesMax,
        checkEvery: args.tokenizeCheckEvery,
        loaded: args.loadedTokenizers,
        tokenizers: args.tokenizers,
        queueMax: openRequestsMax,
        tokenizeMsMax: TOKENIZE_MS_MAX,
      }),
    ),
  )
  const decisionLogRef = spawnDecisionLog(context, args)
  if (decisionLogRef !== undefined) watched(decisionLogRef)
  const whatIfRef = spawnWhatIf(context, args, trackerRef)
  if (whatIfRef !== undefined) watched(whatIfRef)
  const routerRef = watched(
    context.spawn(
      router,
      options('router', {
        decisionLog: decisionLogRef,
        whatIf: whatIfRef,
        tracker: trackerRef,
        directory: directoryRef,
        indexMemories,
        indexers,
        workerSlotsMax,
        layerWeights: { host: args.hostCacheHitWeight, disk: args.diskCacheHitWeight },
        guesses: {
          ttlWithoutEventsMs: args.guessTtlWithoutEventsMs,
          ttlUntilEventsMs: args.guessTtlUntilEventsMs === 0 ? undefined : args.guessTtlUntilEventsMs,
          blocksMax: args.guessBlocksMax,
        },
        selection: {
          mode: args.routerMode,
          policy: args.routerPolicy,
          custom: args.customSelection === undefined ? undefined : new CustomPolicy(args.customSelection),
          overlapWeight: args.overlapWeight,
          overlapCredit: args.overlapCredit,
          creditDecay: args.creditDecay,
          activeRequestWeight: args.activeRequestWeight,
          prefillMsPerToken: args.prefillMsPerToken,
          attentionMsPerMillionPairs: args.attentionMsPerMillionPairs,
          temperature: args.temperature,
        },
        guard: { share: args.guardShare },
        decisionsKept: args.decisionsKept,
        receiptRowsMax: args.decisionRowsKept,
        openMax: openRequestsMax * 2,
        overloadStatus: args.overloadStatus,
        affinity: affinityOf(args),
        tracking,
        trackerMsMax: ASK_MS_MAX,
      }),
    ),
  )
  const rules = queueRulesOf(args)
  const isQueueOn = rules.threshold !== undefined || rules.classes !== undefined
  const queueRef = watched(
    context.spawn(
      queue,
      options('queue', {
        router: routerRef,
        tracker: trackerRef,
        rules,
        requestsMax: args.queueRequestsMax,
        tokensMax: args.queueTokensMax,
        bytesMax: args.queueBytesMax,
        waitMsMax: args.queueTimeoutMs,
        agingMs: args.queueAgingMs,
        askMsMax: ASK_MS_MAX,
        overloadStatus: args.overloadStatus,
        tenantWeights: args.tenantWeights,
        contentionMs: args.tenantContentionMs,
      }),
    ),
  )
  const { replication } = args
  const bridgeRef =
    replication &&
    watched(
      context.spawn(replicaBridge, {
        ...options('replica-bridge', {
          tracker: trackerRef,
          router: routerRef,
          queue: queueRef,
          plane: replication.plane,
          expiryMs: replication.expiryMs,
          salt: replication.salt,
        }),
        // Requests do not need it.
        supervision: UNLIMITED,
      }),
    )
  const { adminPort } = args
  const relayRoutes = args.relayRoutes ?? []
  const listening = {
    host: args.host,
    bodyBytesMax: args.bodyBytesMax,
    bodySilenceMsMax: args.bodyTimeoutMs,
    clientStallMsMax: args.clientStallTimeoutMs,
    pageTabsMax: args.pageTabsMax,
    readMsMax: READ_MS_MAX,
    askMsMax: ASK_MS_MAX,
    queue: queueRef,
    router: routerRef,
    directory: directoryRef,
    tracker: trackerRef,
    tokenizer: tokenizerRef,
  }
  const relayed = relayedNames(relayRoutes)
  const consoleArgs = {
    ...listening,
    adminKey: args.adminKey,
    page: args.page,
    adminPort,
    relayed,
    indexers,
    decisionLog: decisionLogRef,
    whatIf: whatIfRef,
    replicaBridge: bridgeRef,
  }
  const consoleRef = watched(
    context.spawn(operatorConsole, {
      ...options('console', consoleArgs),
      supervision: UNLIMITED,
    }),
  )
  const gatewayArgs = {
    ...listening,
    port: args.port,
    bodiesBytesMax: args.bodiesBytesMax,
    openRequestsMax,
    rememberedResponsesMax: args.rememberedResponsesMax,
    accessLog:
      args.accessLog === undefined ? undefined : { path: args.accessLog, sample: args.accessLogSample ?? 1 },
    queueMsMax: isQueueOn ? args.queueTimeoutMs : 0,
    exchangeLimits: {
      retriesMax: args.retries,
      silenceMsMax: args.silenceTimeoutMs,
      requestMsMax: args.requestTimeoutMs,
    },
    audit: args.audit,
    relayRoutes,
    operators: adminPort === undefined ? { console: consoleRef, routes: OPERATOR_ROUTES } : undefined,
  }
  const gatewayRef: ActorRef<GatewayMessage> = watched(
    context.spawn(gateway, options('gateway', gatewayArgs)),
  )

  return {
    renewSubscriptions() {
      const subscribers: ActorRef<FleetMessage>[] = [
        trackerRef,
        tokenizerRef,
        routerRef,
        queueRef,
        gatewayRef,
      ]
      if (decisionLogRef !== undefined) subscribers.push(decisionLogRef)
      if (whatIfRef !== undefined) subscribers.push(whatIfRef)
      if (usageRef !== undefined) subscribers.push(usageRef)
      for (const subscriber of subscribers) directoryRef.tell({ type: 'subscribe', subscriber })
      consoleRef.tell({ type: 'gateway', gateway: gatewayRef })
    },
    async whenReady() {
      const serving = async (): Promise<ReadyReport> => {
        const [address, admin] = await Promise.all([
          gatewayRef.ask({ type: 'address' }, { timeout: FIRST_PROBES_MS_MAX }),
          consoleRef.ask({ type: 'address' }, { timeout: FIRST_PROBES_MS_MAX }),
        ])
        if ('code' in address) throw fromErrorRecord(address)
        if (admin !== undefined && 'code' in admin) throw fromErrorRecord(admin)
        const fleet = await directoryRef.ask({ type: 'whenProbed' }, { timeout: FIRST_PROBES_MS_MAX })
        const [settled] = await Promise.all([
          settledFleet(context, directoryRef),
          bridgeRef && knownReplicas(context, bridgeRef),
        ])
        return { ...address, admin, fleet: settled ?? fleet }
      }
      const threads = async (): Promise<void> => {
        const failure = await tokenizerRef.ask({ type: 'whenStarted' }, { timeout: FIRST_PROBES_MS_MAX })
        if (failure !== undefined) throw fromErrorRecord(failure)
      }
      const [report] = await Promise.all([serving(), threads()])
      return report
    },
    started() {
      gatewayRef.tell({ type: 'started' })
      consoleRef.tell({ type: 'started' })
    },
    async drain(graceMs) {
      const drained = gatewayRef.ask({ type: 'drain', graceMs }, { timeout: graceMs + ASK_MS_MAX })
      const cutRequests = await drained.catch((error: unknown) => {
        // One that fails has ended all its requests. What is to be saved is saved all the same.
        context.log.error({ error: toErrorRecord(error) }, 'the gateway failed while it drained')
        return 0
      })
      if (args.checkpointDirectory !== undefined) await lastCheckpoints(context, directoryRef)
      if (decisionLogRef !== undefined) await lastDecisions(context, routerRef)
      return cutRequests
    },
  }
}

function affinityOf(args: GuardianArgs): RouterArgs['affinity'] {
  const { affinityTtlMs: ttlMs = 0, affinityMode, affinityPrefixBlocks = 0, affinitiesMax } = args
  if (ttlMs === 0 || affinitiesMax === undefined) return undefined
  return {
    ttlMs,
    isHard: affinityMode === 'hard',
    prefixBlocks: affinityPrefixBlocks,
    sessionsMax: affinitiesMax,
  }
}

/** Who asks engines for their own figures; undefined: nobody. */
function spawnEngineUsage(
  context: ActorContext<GuardianMessage>,
  { engineMetricsIntervalMs: intervalMs = 0, probeTimeoutMs: timeoutMs, workerSlotsMax }: GuardianArgs,
  trackerRef: ActorRef<ReportedUsageMessage>,
): ActorRef<EngineUsageMessage> | undefined {
  if (intervalMs === 0) return undefined
  return context.spawn(engineUsage, {
    name: 'engine-usage',
    args: { tracker: trackerRef, intervalMs, timeoutMs },
    supervision: UNLIMITED,
    // A few of each worker at most.
    mailbox: { capacity: 4 * workerSlotsMax + MAILBOX_SLACK },
  })
}

/** The decision log, on a thread of its own. */
function spawnDecisionLog(
  context: ActorContext<GuardianMessage>,
  args: GuardianArgs,
): ActorRef<DecisionLogMessage> | undefined {
  const { decisionLogFile, decisionLogBytesMax, decisionLogFilesMax } = args
  if (decisionLogFile === undefined) return undefined
  if (decisionLogBytesMax === undefined || decisionLogFilesMax === undefined)
    throw new Error('a decision log needs the bounds of its files')
  return context.spawn(decisionLog, {
    name: 'decision-log',
    args: {
      path: decisionLogFile,
      fileBytesMax: decisionLogBytesMax,
      filesMax: decisionLogFilesMax,
      selection: loggedSelection(args),
    },
    thread: 'dedicated',
    supervision: UNLIMITED,
    // A line of a long prompt takes milliseconds; this is a few seconds of a busy router.
    mailbox: { capacity: MAILBOX_SLACK },
  })
}

function loggedSelection(args: GuardianArgs): LoggedSelection {
  return {
    mode: args.routerMode,
    policy: args.customSelection?.name ?? args.routerPolicy,
    overlapWeight: args.overlapWeight,
    temperature: args.temperature,
    followsEvents: args.kvEvents,
  }
}

/** Who keeps the requests of the last minutes; undefined: nobody. */
function spawnWhatIf(
  context: ActorContext<GuardianMessage>,
  args: GuardianArgs,
  trackerRef: ActorRef<TrackerMessage>,
): ActorRef<WhatIfMessage> | undefined {
  const { whatIfMinutes: minutesMax = 0, whatIfBytes: bytesMax } = args
  const { whatIfCpuShare: cpuShare, whatIfTimeoutMs: timeMsMax } = args
  if (minutesMax === 0) return undefined
  if (bytesMax === undefined || cpuShare === undefined || timeMsMax === undefined)
    throw new Error('what-if needs the bounds of what it keeps, and of what it may take')
  return context.spawn(whatIf, {
    name: 'what-if',
    args: {
      tracker: trackerRef,
      minutesMax,
      bytesMax,
      cpuShare,
      timeMsMax,
      selection: loggedSelection(args),
    },
    supervision: UNLIMITED,
    mailbox: { capacity: args.openRequestsMax + MAILBOX_SLACK },
  })
}

/** What was settled until now is written, behind what the router has not handled yet. */
async function lastDecisions(
  context: ActorContext<GuardianMessage>,
  routerRef: ActorRef<RouterMessage>,
): Promise<void> {
  const message = { type: 'flushDecisionLog', timeoutMs: SAVE_MS_MAX } as const
  const isWritten = await routerRef.ask(message, { timeout: 2 * SAVE_MS_MAX }).catch(() => false)
  if (!isWritten) context.log.warn({}, 'the end of the decision log could not be written')
}

/** Takes checkpoints when no more requests come: engines can repeat what they publish after this moment. */
async function lastCheckpoints(
  context: ActorContext<GuardianMessage>,
  directoryRef: ActorRef<DirectoryMessage>,
): Promise<void> {
  const message = { type: 'saveCheckpoints', timeoutMs: SAVE_MS_MAX } as const
  try {
    const report = await directoryRef.ask(message, { timeout: 2 * SAVE_MS_MAX })
    context.log.info({ ...report }, 'last checkpoints')
  } catch (thrown) {
    context.log.warn({ error: toErrorRecord(thrown) }, 'the last checkpoints could not be written')
  }
}

/** The fleet once no trust is about to change, or after FIRST_TRUST_MS_MAX; undefined: the directory does not answer. */
async function settledFleet(
  context: ActorContext<GuardianMessage>,
  directoryRef: ActorRef<DirectoryMessage>,
): Promise<Fleet | undefined> {
  const { clock } = context
  const endMs = clock.nowMs() + FIRST_TRUST_MS_MAX
  try {
    // A listener's own report may be ahead of its trust in the fleet, so this is checked twice.
    for (let settled = 0; ; ) {
      const report = await directoryRef.ask({ type: 'describe' }, { timeout: FIRST_TRUST_MS_MAX })
      settled = report.fleet.workers.some(worker => isSettling(worker, report)) ? 0 : settled + 1
      if (settled === 2 || clock.nowMs() >= endMs) return report.fleet
      if (settled === 0) await new Promise<void>(resolve => clock.after(TRUST_POLL_MS, resolve))
    }
  } catch (thrown) {
    // It answered the first probes and is served by load until it answers again: no reason not to start.
    context.log.warn({ error: toErrorRecord(thrown) }, 'trust in the workers is not known yet')
    return undefined
  }
}

/** Resolves when what other routers have open counts here, or that has taken too long. */
async function knownReplicas(
  context: ActorContext<GuardianMessage>,
  bridgeRef: ActorRef<ReplicaBridgeMessage>,
): Promise<void> {
  const isKnown = await bridgeRef
    .ask({ type: 'whenKnown' }, { timeout: ASK_MS_MAX })
    // One that failed learns of them when it is there again.
    .catch(() => false)
  if (!isKnown) context.log.warn({}, 'what other routers have open is not known yet')
}

/** A key of this worker is about to be known better: its listener is connecting, or replays. */
function isSettling(worker: WorkerRecord, { sources }: FleetReport): boolean {
  if (worker.state !== 'up') return false
  return worker.keys.some(({ workerSlot, trust }) => {
    if (trust === 'exact' || trust === 'partial' || !(workerSlot in sources)) return false
    const state = sources[workerSlot]?.state
    return state === undefined || state === 'connecting' || state === 'recovering'
  })
}

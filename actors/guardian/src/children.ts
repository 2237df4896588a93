/**
 * Children: all actors of the router but the guardian, spawned in order, each with the refs of those before it.
 *
 * Here stand their names, mailboxes, budgets of restarts and threads, and what has to be told to them again so that it survives a restart of
 * either side.
 */

import type { ActorContext, ActorRef, Supervision } from '@homing/actor'
import { OPERATOR_ROUTES, operatorConsole } from '@homing/actors/console'
import { type DecisionLogMessage, decisionLog } from '@homing/actors/decision-log'
import { type DirectoryMessage, directory, type FleetMessage } from '@homing/actors/directory'
import { type EngineUsageMessage, engineUsage } from '@homing/actors/engine-usage'
import { type GatewayMessage, gateway, relayedNames } from '@homing/actors/gateway'
import { indexer, type ShardMessage } from '@homing/actors/indexer'
import { queue } from '@homing/actors/queue'
import { replicaBridge } from '@homing/actors/replica-bridge'
import { type RouterArgs, router } from '@homing/actors/router'
import { tokenizer } from '@homing/actors/tokenizer'
import { type ReportedUsageMessage, type TrackerMessage, tracker } from '@homing/actors/tracker'
import { type WhatIfMessage, whatIf } from '@homing/actors/what-if'
import { fromErrorRecord, toErrorRecord } from '@homing/base'
import { createIndexDoor, type ShardMemory } from '@homing/index'
import { CustomPolicy } from '@homing/selection'
import type { LoggedSelection } from '@homing/trace'
import type { GuardianArgs } from './guardian-args.ts'
import type { GuardianMessage, ReadyReport } from './messages.ts'
import { busyThresholdsOf, queueRulesOf } from './queue-rules.ts'
import { knownReplicas, lastCheckpoints, lastDecisions, settledFleet } from './start-and-end.ts'

/** Messages that may wait at an actor of the request path: some per open request, and this. */
const MAILBOX_SLACK = 1024
/** The tracker has room for the requests of so many routers as this. */
const REPLICAS_COUNTED = 16
/** Mailbox room per open request. */
const MESSAGES_PER_REQUEST = 4
const ASK_MS_MAX = 10_000
const READ_MS_MAX = 60_000
const TOKENIZE_MS_MAX = 10_000
/** How long the first probes may hold up the ready line. */
const FIRST_PROBES_MS_MAX = 30_000

const SUPERVISION: Supervision = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '20ms', max: '5s', jitter: 0.2 },
}

/** The backoff keeps it far below that. */
const UNLIMITED: Supervision = { ...SUPERVISION, max: 1000 }

export interface Children {
  readonly renewSubscriptions: () => void
  readonly whenReady: () => Promise<ReadyReport>
  readonly started: () => void
  readonly drain: (graceMs: number) => Promise<number>
}

export function spawnAll(context: ActorContext<GuardianMessage>, args: GuardianArgs): Children {
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
          name: replication.salt ?? Buffer.from(context.random.bytes(8)).toString('hex'),
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

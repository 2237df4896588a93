/**
 * Guardian: starts the router's actors in order, keeps them running, stops them in reverse.
 *
 * In     `whenReady` and `drain` from the program.
 * Out    spawns everything else; renews the subscriptions to the fleet, so that they survive restarts of
 *        either side.
 * Owns   the order: indexers, directory, tracker, tokenizer, router, dispatcher, gateway. Each is given the
 *        refs of those before it. Stopping goes the other way, so nobody speaks to the dead.
 * Fails  a child that fails is restarted under its own budget. One whose budget is spent fails the
 *        guardian, and with it the process: a router with a hole in it is worse than one that is
 *        started again. A thread that dies is replaced by the runtime, its actors with it. A gateway that cannot listen at the first start is reported, not retried.
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
import {
  type DirectoryMessage,
  directory,
  type Fleet,
  type FleetMessage,
  type FleetReport,
  type WorkerRecord,
  type WorkerSpec,
} from '@homing/directory'
import { dispatcher } from '@homing/dispatcher'
import { type ErrorRecord, toErrorRecord } from '@homing/errors'
import { type GatewayMessage, gateway } from '@homing/gateway'
import { createIndexDoor, type ShardMemory } from '@homing/index'
import { indexer, type ShardMessage } from '@homing/indexer'
import { router } from '@homing/router'
import { tokenizer } from '@homing/tokenizer'
import { tracker } from '@homing/tracker'
import { ActorLostError } from './errors.ts'
import type { GuardianMessage, ReadyReport } from './messages.ts'

/** What the guardian gives to the actors; plain data, in the units of the names. See packages/config. */
export interface GuardianArgs {
  readonly specs: readonly WorkerSpec[]
  readonly host: string
  readonly port: number
  readonly bodyBytesMax: number
  readonly bodiesBytesMax: number
  readonly bodyTimeoutMs: number
  readonly clientStallTimeoutMs: number
  readonly openRequestsMax: number
  readonly workerSlotsMax: number
  readonly routerMode: 'kv' | 'random' | 'round-robin' | 'least-loaded'
  readonly overlapScoreWeight: number
  readonly temperature: number
  readonly activeRequestExpiryMs: number
  readonly decisionsKept: number
  readonly decisionRowsKept: number
  readonly kvEvents: boolean
  readonly predictionTtlMs: number
  readonly predictionBlocksMax: number
  readonly pruneTargetRatio: number
  /** 0: what was sent to a worker with events does not count before they say so. */
  readonly predictedTtlMs: number
  readonly hostCacheHitWeight: number
  readonly diskCacheHitWeight: number
  readonly blockSizeTokens: number | undefined
  readonly eventThreads: number
  readonly indexBytes: number
  readonly replayTimeoutMs: number
  readonly checkpointDirectory?: string | undefined
  readonly checkpointIntervalMs?: number
  readonly audit: boolean
  readonly probeIntervalMs: number
  readonly probeTimeoutMs: number
  readonly tokenizers: readonly string[]
  readonly tokenizerThreads: number
  readonly retries: number
  readonly requestTimeoutMs: number
  readonly silenceTimeoutMs: number
}

/** Messages that may wait at an actor of the request path: some per open request, and this. */
const MAILBOX_SLACK = 1024
/** Mailbox room per open request: chunks of answers come in bursts, decisions one by one. */
const ANSWERS_PER_REQUEST = 8
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

export const guardian = defineActor(
  import.meta.url,
  'guardian',
)<GuardianMessage, GuardianArgs>({
  reentrant: true,
  setup(context, args) {
    const children = spawnAll(context, args)
    let ready: ReadyReport | ErrorRecord | undefined
    const waiting: Reply<ReadyReport | ErrorRecord>[] = []
    const settleReady = (outcome: ReadyReport | ErrorRecord): void => {
      ready = outcome
      for (const reply of waiting.splice(0)) reply(outcome)
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
      },
      renewSubscriptions() {
        children.renewSubscriptions()
        context.schedule(RENEW_INTERVAL_MS, { type: 'renewSubscriptions' })
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
    context.spawn(directory, options('directory', { ...args, indexers, eventPool: 'events' })),
  )
  const trackerRef = watched(
    context.spawn(
      tracker,
      options('tracker', {
        workerSlotsMax,
        requestsMax: openRequestsMax * 2,
        idleMsMax: args.activeRequestExpiryMs,
      }),
    ),
  )
  const tokenizerRef = watched(
    context.spawn(
      tokenizer,
      options('tokenizer', {
        threads: args.tokenizerThreads,
        tokenizers: args.tokenizers,
        queueMax: openRequestsMax,
        tokenizeMsMax: TOKENIZE_MS_MAX,
      }),
    ),
  )
  const routerRef = watched(
    context.spawn(
      router,
      options('router', {
        tracker: trackerRef,
        directory: directoryRef,
        indexMemories,
        indexers,
        workerSlotsMax,
        layerWeights: { host: args.hostCacheHitWeight, disk: args.diskCacheHitWeight },
        predictions: {
          ttlMs: args.predictionTtlMs,
          pendingTtlMs: args.predictedTtlMs === 0 ? undefined : args.predictedTtlMs,
          blocksMax: args.predictionBlocksMax,
        },
        mode: args.routerMode,
        overlapScoreWeight: args.overlapScoreWeight,
        temperature: args.temperature,
        decisionsKept: args.decisionsKept,
        receiptRowsMax: args.decisionRowsKept,
        trackerMsMax: ASK_MS_MAX,
      }),
    ),
  )
  const dispatcherRef = watched(
    context.spawn(
      dispatcher,
      options(
        'dispatcher',
        {
          router: routerRef,
          tracker: trackerRef,
          directory: directoryRef,
          retriesMax: args.retries,
          silenceMsMax: args.silenceTimeoutMs,
          requestMsMax: args.requestTimeoutMs,
          decideMsMax: ASK_MS_MAX,
          audit: args.audit,
        },
        ANSWERS_PER_REQUEST,
      ),
    ),
  )
  const gatewayArgs = {
    host: args.host,
    port: args.port,
    bodyBytesMax: args.bodyBytesMax,
    bodiesBytesMax: args.bodiesBytesMax,
    bodySilenceMsMax: args.bodyTimeoutMs,
    clientStallMsMax: args.clientStallTimeoutMs,
    openRequestsMax,
    readMsMax: READ_MS_MAX,
    askMsMax: ASK_MS_MAX,
    tokenizer: tokenizerRef,
    router: routerRef,
    dispatcher: dispatcherRef,
    directory: directoryRef,
    tracker: trackerRef,
    indexers,
  }
  // Not restarted by the runtime: a port that is taken stays taken, and its clients are gone anyway.
  const gatewayRef: ActorRef<GatewayMessage> = watched(
    context.spawn(gateway, { name: 'gateway', args: gatewayArgs, mailbox: mailbox(ANSWERS_PER_REQUEST) }),
  )

  return {
    renewSubscriptions() {
      const subscribers: ActorRef<FleetMessage>[] = [trackerRef, tokenizerRef, routerRef, gatewayRef]
      for (const subscriber of subscribers) directoryRef.tell({ type: 'subscribe', subscriber })
    },
    async whenReady() {
      const address = await gatewayRef.ask({ type: 'address' }, { timeout: FIRST_PROBES_MS_MAX })
      const fleet = await directoryRef.ask({ type: 'whenProbed' }, { timeout: FIRST_PROBES_MS_MAX })
      return { ...address, fleet: (await settledFleet(context, directoryRef)) ?? fleet }
    },
    async drain(graceMs) {
      const cutRequests = await gatewayRef.ask({ type: 'drain', graceMs }, { timeout: graceMs + ASK_MS_MAX })
      if (args.checkpointDirectory !== undefined) await lastCheckpoints(context, directoryRef)
      return cutRequests
    },
  }
}

/** Of a moment when no more requests come: what the engines publish after it is theirs to repeat. */
async function lastCheckpoints(
  context: ActorContext<GuardianMessage>,
  directoryRef: ActorRef<DirectoryMessage>,
): Promise<void> {
  const message = { type: 'saveCheckpoints', timeoutMs: SAVE_MS_MAX } as const
  try {
    const report = await directoryRef.ask(message, { timeout: 2 * SAVE_MS_MAX })
    context.log.info({ ...report }, 'last checkpoints')
  } catch (thrown) {
    context.log.warn({ error: toErrorRecord(thrown) }, 'the last checkpoints are not written')
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
    // What a listener says of itself may be ahead of what the fleet says of its trust: so it is looked at twice.
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

/** A key of this worker is about to be known better: its listener is connecting, or replays. */
function isSettling(worker: WorkerRecord, { sources }: FleetReport): boolean {
  if (worker.state !== 'up') return false
  return worker.keys.some(({ workerSlot, trust }) => {
    if (trust === 'exact' || trust === 'partial' || !(workerSlot in sources)) return false
    const state = sources[workerSlot]?.state
    return state === undefined || state === 'connecting' || state === 'recovering'
  })
}

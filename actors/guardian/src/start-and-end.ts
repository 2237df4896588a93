/**
 * Start and end: the messages to the children at the start, the waits of the start, and the saving at the
 * end. Each has a time limit.
 */

import type { ActorContext, ActorRef } from '@homing/actor'
import type { DirectoryMessage, FleetReport } from '@homing/actors/directory'
import type { GatewayAddress } from '@homing/actors/gateway'
import { savingMs } from '@homing/actors/listener'
import type { ReplicaBridgeMessage } from '@homing/actors/replica-bridge'
import type { RouterMessage } from '@homing/actors/router'
import type { TrackerMessage } from '@homing/actors/tracker'
import { fromErrorRecord, toErrorRecord } from '@homing/base'
import type { Fleet, FleetMessage, WorkerRecord } from '@homing/fleet'
import type { Children } from './children.ts'
import type { GuardianMessage, ReadyReport } from './messages.ts'

const ASK_MS_MAX = 10_000
/** How long the first probes may hold up the ready line. */
const FIRST_PROBES_MS_MAX = 30_000
/** How much later than the saving itself its answer may come; with it, less than the program waits for. */
const SAVED_MS_MAX = 4000
/** How long the first replays may hold up the ready line after the first probes. */
const FIRST_TRUST_MS_MAX = 3000
const TRUST_POLL_MS = 20

/** Tells again what has to survive a restart of either side. */
export function renewSubscriptions(children: Children): void {
  const { tracker, tokenizer, router, queue, gateways, decisionLog, whatIf, usage } = children
  const subscribers: readonly (ActorRef<FleetMessage> | undefined)[] = [
    tracker,
    tokenizer,
    router,
    queue,
    ...gateways,
    decisionLog,
    whatIf,
    usage,
  ]
  for (const subscriber of subscribers)
    if (subscriber !== undefined) children.directory.tell({ type: 'subscribe', subscriber })
  // A gateway that is alone is on the thread of the directory, whose doors it goes through.
  if (gateways.length > 1)
    for (const holder of gateways) children.directory.tell({ type: 'holdsDoors', holder })
  children.console.tell({ type: 'gateways', gateways })
}

export function tellStarted({ gateways, console }: Children): void {
  for (const gateway of gateways) gateway.tell({ type: 'started' })
  console.tell({ type: 'started' })
}

/**
 * Where the router listens and what it found, once it serves. Throws what the gateway, the console or the
 * tokenizer could not do.
 */
export async function whenReady(
  context: ActorContext<GuardianMessage>,
  children: Children,
): Promise<ReadyReport> {
  const { tokenizer } = children
  const threads = async (): Promise<void> => {
    const failure = await tokenizer.ask({ type: 'whenStarted' }, { timeout: FIRST_PROBES_MS_MAX })
    if (failure !== undefined) throw fromErrorRecord(failure)
  }
  const [report] = await Promise.all([whenServing(context, children), threads()])
  return report
}

async function whenServing(
  context: ActorContext<GuardianMessage>,
  { gateways, console, directory, replicaBridge }: Children,
): Promise<ReadyReport> {
  const deadline = { timeout: FIRST_PROBES_MS_MAX }
  const [addresses, admin, metrics] = await Promise.all([
    Promise.all(gateways.map(gateway => gateway.ask({ type: 'address' }, deadline))),
    console.ask({ type: 'address' }, deadline),
    console.ask({ type: 'metricsAddress' }, deadline),
  ])
  for (const address of addresses) if ('code' in address) throw fromErrorRecord(address)
  const address = addresses[0] as GatewayAddress
  if (admin !== undefined && 'code' in admin) throw fromErrorRecord(admin)
  if (metrics !== undefined && 'code' in metrics) throw fromErrorRecord(metrics)
  const fleet = await directory.ask({ type: 'whenProbed', withinMs: FIRST_PROBES_MS_MAX / 2 }, deadline)
  const [settled] = await Promise.all([
    settledFleet(context, directory),
    replicaBridge && knownReplicas(context, replicaBridge),
  ])
  return { ...address, admin, metrics, fleet: settled ?? fleet }
}

/**
 * Takes no more requests, lets open ones end for `graceMs`, and saves what lasts. Resolves with how many
 * requests were cut.
 */
export async function drain(
  context: ActorContext<GuardianMessage>,
  { gateways, directory, decisionLog, router, tracker }: Children,
  graceMs: number,
  kept: { readonly checkpoints: boolean; readonly learned: boolean },
): Promise<number> {
  const graceEndMs = context.clock.nowMs() + graceMs
  const cuts = gateways.map(async gateway => {
    const drained = gateway.ask({ type: 'drain', graceMs }, { timeout: graceMs + ASK_MS_MAX })
    return drained.catch((error: unknown) => {
      // A failed gateway has ended all its requests. The saving below happens anyway.
      context.log.error({ error: toErrorRecord(error) }, 'the gateway failed while it drained')
      return 0
    })
  })
  const cutRequests = (await Promise.all(cuts)).reduce((sum, cut) => sum + cut, 0)
  // Beside the others, which have the whole time of the stop.
  const learned = kept.learned ? lastLearned(context, tracker, graceEndMs) : undefined
  if (kept.checkpoints) await lastCheckpoints(context, directory, graceEndMs)
  if (decisionLog !== undefined) await lastDecisions(context, router, graceEndMs)
  await learned
  return cutRequests
}

/** Writes all decisions settled so far, after the messages that the router has not handled yet. */
async function lastDecisions(
  context: ActorContext<GuardianMessage>,
  routerRef: ActorRef<RouterMessage>,
  graceEndMs: number,
): Promise<void> {
  const timeoutMs = savingMs(graceEndMs, context.clock.nowMs())
  const message = { type: 'flushDecisionLog', timeoutMs } as const
  const isWritten = await routerRef.ask(message, { timeout: timeoutMs + SAVED_MS_MAX }).catch(() => false)
  if (!isWritten) context.log.warn({}, 'the end of the decision log could not be written')
}

/** Writes what was learned. The tracker itself has said why, if it cannot. */
async function lastLearned(
  context: ActorContext<GuardianMessage>,
  trackerRef: ActorRef<TrackerMessage>,
  graceEndMs: number,
): Promise<void> {
  try {
    await trackerRef.ask({ type: 'saveLearned' }, { timeout: savingMs(graceEndMs, context.clock.nowMs()) })
  } catch (thrown) {
    context.log.warn({ error: toErrorRecord(thrown) }, 'what was learned could not be written')
  }
}

/** Takes checkpoints when no more requests come: engines can repeat what they publish after this moment. */
async function lastCheckpoints(
  context: ActorContext<GuardianMessage>,
  directoryRef: ActorRef<DirectoryMessage>,
  graceEndMs: number,
): Promise<void> {
  const timeoutMs = savingMs(graceEndMs, context.clock.nowMs())
  const message = { type: 'saveCheckpoints', timeoutMs } as const
  try {
    const report = await directoryRef.ask(message, { timeout: timeoutMs + SAVED_MS_MAX })
    context.log.info({ ...report }, 'last checkpoints')
  } catch (thrown) {
    context.log.warn({ error: toErrorRecord(thrown) }, 'the last checkpoints could not be written')
  }
}

/**
 * The fleet once no trust is about to change, or after FIRST_TRUST_MS_MAX; undefined: the directory does not
 * answer.
 */
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

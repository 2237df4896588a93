/**
 * Router: chooses a worker key for each request by overlap and load, and writes a receipt for every decision.
 *
 * In     from the queue: `decide`, `measure`; from the gateway: `weighLegs`, `explain` and `potentialLoads`
 *        (without effect), `firstToken`, `workerFailed`, and `settled`, which ends every `decide`; the fleet;
 *        restarts of gateways.
 * Out    to tracker: one projection and one booking per decision, freed when the decision is settled. To
 *        directory: at the start of each life, a subscription to the fleet; later, when answers contradict or
 *        confirm the KV events of a worker key. To its keeper: what the guard knows, which it takes back at
 *        the start of its next life. To the decision log and what-if, if they exist: settled
 *        requests. To indexers: `attach`, every ATTACH_INTERVAL_MS and when a shard has moved (they answer
 *        with its memory); `routed` if sent blocks are to count as held, `unrouted` if they were not sent
 *        after all; `separated` if the blocks of a prompt may look like those of other prompts.
 * Owns   the open decisions, the receipts (the last `decisionsKept`, within `receiptRowsMax`), the audits,
 *        the guard, the health of the workers, the sums of the last hour, the turn of round-robin, its copy
 *        of the fleet.
 * Order  one decision at a time: each decision sees the booking of the one before. The booking exists before
 *        the reply. `settled` comes after `decide`, even if the reply was not awaited, so it finds the
 *        booking, the receipt and the guesses. Decisions that a gateway left open when its life ended are
 *        settled when its next life begins.
 * Reads  every shard of the index, directly. A result was true at some instant of the call; for a shard that
 *        has moved, and until its new memory comes, at the instant of the move.
 */

import { type ActorContext, defineActor } from '@homing/actor'
import type { GatewayLife, TrackerUsage } from '@homing/actors/tracker'
import type { Fleet } from '@homing/fleet'
import { type Decision, type Delivery, Receipts, type RoutingGuardState } from '@homing/placement'
import { Decider } from './decider.ts'
import { KEEP_INTERVAL_MS, KeptGuard, keptGuard } from './kept-guard.ts'
import { LastHour } from './last-hour.ts'
import type { RouterMessage } from './messages.ts'
import type { CountedPrompt, OpenDecision } from './open-decisions.ts'
import type { RouterArgs } from './router-args.ts'
import { SettledLog } from './settled-log.ts'

type WorkerFailed = Extract<RouterMessage, { readonly type: 'workerFailed' }>

const ATTACH_INTERVAL_MS = 1000

export const router = defineActor(
  import.meta.url,
  'router',
)<RouterMessage, RouterArgs>({
  async setup(context, args) {
    const state = new Router(context, args, await keptGuard(context, args))
    const { decider, receipts } = state
    const { guard, audits } = decider
    state.start()
    return {
      attachToShards: () => state.attachToShards(),
      keepGuard: () => state.keptGuard.keep(),
      shardMemory: message => decider.shards.take(message),
      fleet: ({ fleet }) => state.takeFleet(fleet),
      decide: async ({ type: _, reply, ...question }) => reply(await decider.decide(question, receipts)),
      measure: ({ request, reply }) => reply(decider.measure(request)),
      weighLegs: async ({ request, reply }) => reply(await decider.weighLegs(request)),
      firstToken: ({ id, firstTokenMs }) => state.firstToken(id, firstTokenMs),
      workerFailed: message => state.workerFailed(message),
      health: ({ reply }) => reply(decider.health.report(context.clock.nowMs())),
      busyRefused: ({ reply }) => reply([...decider.refusals.counts]),
      boundElsewhere: ({ bindings }) => decider.bindings.boundElsewhere(bindings),
      lastHour: ({ reply }) => reply(state.lastHour.report(context.clock.nowMs())),
      guard: ({ reply }) => reply(decider.usesGuard ? guard.status : undefined),
      explain: async ({ request, reply }) => reply(await decider.explain(request)),
      potentialLoads: async ({ request, reply }) => reply(await decider.potentialLoads(request)),
      settled: ({ id, delivery, wasTaken, isPlacedAgain }) =>
        state.settle(id, delivery, wasTaken, isPlacedAgain),
      gatewayStarted: ({ gateway }) => state.gatewayStarted(gateway),
      flushDecisionLog: async ({ timeoutMs, reply }) =>
        reply((await state.settledLog?.flush(timeoutMs)) ?? true),
      audits: ({ reply }) => reply(audits.report()),
      receipt: ({ id, reply }) => reply(receipts.get(id)),
      receipts: ({ limit, reply }) => reply(receipts.latest(limit)),
    }
  },
})

class Router {
  readonly decider: Decider
  readonly receipts: Receipts
  readonly lastHour: LastHour
  readonly keptGuard: KeptGuard
  /** Undefined: no actor keeps the requests that are over. */
  readonly settledLog: SettledLog | undefined
  readonly #context: ActorContext<RouterMessage>
  readonly #args: RouterArgs
  /** By worker slot: when the directory was last told that blocks were computed. */
  readonly #toldMs = new Map<number, number>()

  constructor(
    context: ActorContext<RouterMessage>,
    args: RouterArgs,
    guardState: RoutingGuardState | undefined,
  ) {
    const { decisionLog, whatIf } = args
    this.#context = context
    this.#args = args
    this.decider = new Decider(context, args)
    this.keptGuard = new KeptGuard(args.keeper, this.decider.guard, guardState)
    this.receipts = new Receipts({ receiptsMax: args.decisionsKept, rowsMax: args.receiptRowsMax })
    this.lastHour = new LastHour(context.clock.nowMs())
    this.settledLog =
      decisionLog === undefined && whatIf === undefined
        ? undefined
        : new SettledLog(decisionLog, whatIf === undefined ? [] : [whatIf], context.clock)
  }

  start(): void {
    const { indexers, directory, guard, keeper } = this.#args
    if (indexers.length > 0) {
      this.decider.shards.ask()
      this.#context.scheduleEvery(ATTACH_INTERVAL_MS, { type: 'attachToShards' })
    }
    // The guardian subscribes the router, too, but only after a second.
    directory.tell({ type: 'subscribe', subscriber: this.#context.self })
    if (this.decider.usesGuard && keeper !== undefined)
      this.#context.scheduleEvery(KEEP_INTERVAL_MS, { type: 'keepGuard' })
    if (this.decider.usesGuard && guard.share === 0) this.#context.log.warn({}, GUARD_OFF)
  }

  attachToShards(): void {
    this.decider.shards.ask()
    this.decider.namespacedPrompts.tellMissed()
  }

  takeFleet(fleet: Fleet): void {
    const keys = fleet.workers.flatMap(worker => worker.keys)
    this.decider.takeFleet(fleet, keys)
    const names = new Map(keys.map(({ workerSlot, key }) => [workerSlot, key]))
    this.decider.audits.keepOnly(names)
    this.decider.guard.keepOnly(names)
    this.decider.promptCounts.keepOnly(new Set(fleet.workers.map(({ id }) => id)))
  }

  gatewayStarted(gateway: GatewayLife): void {
    for (const id of this.decider.open.idsOfOtherLives(gateway)) this.settle(id, CUT, true)
    // Includes bookings of an earlier life of this router.
    this.#args.tracker.tell({ type: 'gatewayStarted', gateway })
  }

  firstToken(id: string, firstTokenMs: number): void {
    const { guard, health, open } = this.decider
    const found = open.get(id)
    const nowMs = this.#context.clock.nowMs()
    guard.firstToken(found?.guarded, firstTokenMs, nowMs)
    this.keptGuard.seen()
    if (found?.decision === undefined) return
    const { workerId } = found.decision
    if (health.progressed(workerId, found.model, found.decidedMs, nowMs)) this.#isBack(workerId)
  }

  workerFailed({ workerId, workerJoinedMs, model, fault, ageMs }: WorkerFailed): void {
    const { fleet, health } = this.decider
    const worker = fleet.workers.find(({ id }) => id === workerId)
    if (worker?.joinedMs !== workerJoinedMs) return
    const nowMs = this.#context.clock.nowMs()
    const decidedMs = nowMs - ageMs
    const hasOthers = worker.models.length > 1
    const isEjected = health.failed(workerId, workerJoinedMs, model, fault, decidedMs, nowMs, hasOthers)
    if (!isEjected) return
    const { reason } = fault
    this.#context.log.warn({ worker: workerId, reason }, 'worker is ejected: it fails the requests it gets')
  }

  #isBack(worker: string): void {
    this.#context.log.info({ worker }, 'worker serves again')
  }

  /** The only place where a decision ends. */
  settle(id: string, delivery: Delivery, wasTaken: boolean, isPlacedAgain = false): void {
    const { decider } = this
    const open = decider.open.take(id)
    const isServed = delivery.outcome === 'ok'
    const usage = isServed ? usageOf(delivery) : undefined
    const session = isServed ? open?.hedgedSession : undefined
    const moved = session === undefined ? {} : { session }
    // Arrives after its booking, even if an earlier life of this router booked it.
    this.#args.tracker.tell({ type: 'free', decisionId: id, isOwn: true, ...usage, ...moved })
    this.receipts.complete(id, delivery)
    if (open === undefined) return
    if (open.decision !== undefined) this.#lookAtHealth(id, open, open.decision, delivery)
    if (open.decision !== undefined && !isPlacedAgain)
      this.lastHour.settled(delivery, open.guard, this.#context.clock.nowMs())
    if (!wasTaken) open.takeBack?.()
    decider.guard.ended(open.guarded, delivery, this.#context.clock.nowMs())
    this.keptGuard.seen()
    if (session !== undefined && open.decision !== undefined)
      decider.bindings.served(session, open.decision, delivery)
    if (open.session !== undefined && open.decision !== undefined)
      decider.bindings.ended(open.session, open.decision, delivery)
    if (open.decision !== undefined && delivery.outcome === 'ok') {
      if (open.counted !== undefined) this.#compareCount(open.counted, open.decision, delivery)
      this.#compare(open, open.decision, delivery)
    }
    if (open.logged !== undefined && !isPlacedAgain)
      this.settledLog?.settled(open, open.logged, delivery, wasTaken)
  }

  #lookAtHealth(
    id: string,
    { model, decidedMs }: OpenDecision,
    { workerId }: Decision,
    { outcome }: Delivery,
  ): void {
    const { health } = this.decider
    health.ended(workerId, id)
    if (outcome === 'ok' && health.served(workerId, model, decidedMs, this.#context.clock.nowMs()))
      this.#isBack(workerId)
  }

  /** Compares the tokens of the prompt as they were counted with those that the engine reports. */
  #compareCount({ kind, tokens }: CountedPrompt, decision: Decision, delivery: Delivery): void {
    const compared = this.decider.promptCounts.add(kind, tokens, delivery)
    if (compared === undefined) return
    if (!compared.isSame) this.decider.audits.promptDiffered(decision)
    if (compared.verdict !== undefined)
      this.#args.directory.tell({ type: 'prompts', ...kind, ...compared.verdict })
  }

  /** Compares what was predicted with what a whole answer delivered. */
  #compare({ guarded }: OpenDecision, decision: Decision, delivery: Delivery): void {
    // Without trust in the key, nothing was predicted.
    if (delivery.promptTokens === undefined) return
    const { directory } = this.#args
    const { worker, workerSlot, epoch, trust, isUnaudited } = decision
    if (trust === 'none' || isUnaudited === true) return
    const { isNewlyUnaudited, verdict } = this.decider.audits.add(decision, delivery.cachedTokens)
    this.decider.guard.audited(guarded, decision.predictedTokens, delivery.cachedTokens)
    if (isNewlyUnaudited) this.#context.log.warn({ worker }, UNAUDITED)
    if (verdict !== undefined) directory.tell({ type: 'audit', workerSlot, epoch, ...verdict })
    // Some blocks may have come into the cache since the decision.
    const cachedTokens = Math.max(decision.predictedTokens, delivery.cachedTokens ?? 0)
    const computedTokens = delivery.promptTokens - cachedTokens
    if (trust !== 'exact' || computedTokens < COMPUTED_BLOCKS_MIN * decision.blockSizeTokens) return
    const { durationMs } = delivery
    const nowMs = this.#context.clock.nowMs()
    if (nowMs - (this.#toldMs.get(workerSlot) ?? Number.NEGATIVE_INFINITY) < COMPUTED_MS_MIN) return
    this.#toldMs.set(workerSlot, nowMs)
    directory.tell({ type: 'computed', workerSlot, epoch, durationMs })
  }
}

/**
 * What the tracker learns from. The cached part of a prompt is a share, because router and engine may count
 * its tokens differently.
 */
function usageOf({ promptTokens, cachedTokens, completionTokens, streamEvents }: Delivery): TrackerUsage {
  const isSaid = cachedTokens !== undefined && promptTokens !== undefined && promptTokens > 0
  return {
    outputTokens: completionTokens,
    streamEvents,
    cachedShare: isSaid ? cachedTokens / promptTokens : undefined,
  }
}

/** A single block may be cached and still be computed: engines always compute the last token. */
const COMPUTED_BLOCKS_MIN = 2
/** The directory is told at most once per this time and worker key. */
const COMPUTED_MS_MIN = 1000

const UNAUDITED =
  'engine reports no cached tokens: its predictions are not audited. Start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report'

const GUARD_OFF =
  'guard is off (--router-guard-share 0): nothing is tried against the policy, so if following the caches does harm, nobody notices'

/** The outcome of a request whose gateway ended before it. */
const CUT: Delivery = {
  outcome: 'aborted',
  status: undefined,
  promptTokens: undefined,
  completionTokens: undefined,
  cachedTokens: undefined,
  waitedMs: 0,
  timeToFirstByteMs: undefined,
  durationMs: 0,
  streamEvents: undefined,
  error: undefined,
}

/**
 * Router: chooses a worker key by overlap and load, and writes a receipt for every decision.
 *
 * In     `decide` from gateways, `explain` without effect; `firstToken`; `settled`, which ends every `decide`; the fleet; new lives of gateways.
 * Out    to tracker: one projection and one booking per decision, freed when it is settled. To directory: when answers contradict or
 *        confirm the events of a worker key. To the decision log, if there is one: what is settled. To indexers: `attach`, every ATTACH_INTERVAL_MS and when a shard turns out
 *        to have moved; they answer with its memory. `routed` if sent blocks are to count as held, `unrouted` if they were not sent
 *        after all; `separated` if the blocks of a prompt may look like those of others.
 * Owns   the open decisions, the receipts (the last `decisionsKept`, within `receiptRowsMax`), the audits, the guard, the turn of round-robin,
 *        its copy of the fleet.
 * Order  one decision at a time: the booking of one is in the load that the next one sees.
 *        The booking exists before the reply. `settled` comes after `decide` from the same gateway, even if the reply was
 *        not awaited, so it finds the booking, the receipt and the guesses. Decisions that a gateway did not settle before its
 *        life ended are settled when its next one begins.
 * Reads  every shard of the index, directly. The result was true at some instant of the call; for a shard that has
 *        moved, until its new memory comes, at the instant of the move.
 */

import { type ActorContext, type ActorRef, defineActor } from '@homing/actor'
import type { DecisionLogMessage } from '@homing/decision-log'
import type { AuditMessage, ComputedMessage, Fleet, WorkerKeyRecord } from '@homing/directory'
import { type ErrorRecord, toErrorRecord } from '@homing/errors'
import type { ShardMemory } from '@homing/index'
import type { IndexerMessage, RoutedMessage, ShardMemoryMessage } from '@homing/indexer'
import { filterProjection } from '@homing/load'
import {
  Audits,
  CustomSelectionError,
  type GuardSettings,
  type SelectionSettings,
  Selector,
} from '@homing/selection'
import type { CandidateLoads, GatewayLife, TrackerMessage, TrackerUsage } from '@homing/tracker'
import { customRandom, urlAlphabet } from 'nanoid'
import { eligible } from './eligible.ts'
import { AllFilteredError, TooManyRequestsError, WorkerNotNamedError } from './errors.ts'
import { inputOf, type Known, selectionRequestOf } from './known-candidates.ts'
import type { DecideResult, Decision, Delivery, Receipt, RouterMessage, RoutingRequest } from './messages.ts'
import { type LoggedDecision, type OpenDecision, OpenDecisions } from './open-decisions.ts'
import { type Candidate, type LayerWeights, OverlapLookup } from './overlap-lookup.ts'
import { Receipts } from './receipts.ts'
import { RoutingGuard } from './routing-guard.ts'
import { SeparatedPrompts } from './separated-prompts.ts'
import { SettledLog } from './settled-log.ts'
import { decisionOf, writeReceipt } from './write-receipt.ts'

export interface RouterArgs {
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<AuditMessage | ComputedMessage>
  /** Undefined: none is written. */
  readonly decisionLog?: ActorRef<DecisionLogMessage> | undefined
  /** One per shard of the index: its door, or its memory. */
  readonly indexMemories: readonly ShardMemory[]
  /** By shard; they say where its memory is. */
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  readonly workerSlotsMax: number
  readonly layerWeights: LayerWeights
  readonly guesses: GuessSettings
  readonly selection: SelectionSettings
  readonly guard: GuardSettings
  readonly decisionsKept: number
  /** Candidates and excluded workers in all receipts together. */
  readonly receiptRowsMax: number
  /** Decisions that are not settled. */
  readonly openMax: number
  /** Longest wait for the tracker, in milliseconds. */
  readonly trackerMsMax: number
}

/** What is taken to be held because it was sent there. */
export interface GuessSettings {
  /** How long, in milliseconds, where no events tell. */
  readonly ttlWithoutEventsMs: number
  /** How long where events do, until they come; undefined: not at all. */
  readonly ttlUntilEventsMs: number | undefined
  /** Most blocks of a worker key; fewer where its engine is known to hold fewer. */
  readonly blocksMax: number
}

const ATTACH_INTERVAL_MS = 1000

export const router = defineActor(
  import.meta.url,
  'router',
)<RouterMessage, RouterArgs>({
  setup(context, args) {
    const decider = new Decider(context, args)
    const receipts = new Receipts({ receiptsMax: args.decisionsKept, rowsMax: args.receiptRowsMax })
    if (args.indexers.length > 0) {
      decider.attachToShards()
      context.scheduleEvery(ATTACH_INTERVAL_MS, { type: 'attachToShards' })
    }
    if (decider.usesGuard && args.guard.share === 0) context.log.warn({}, GUARD_OFF)
    const { audits } = decider
    const settledLog =
      args.decisionLog === undefined ? undefined : new SettledLog(args.decisionLog, context.clock)
    /** When the directory was last told that blocks were computed, by worker slot. */
    const toldMs = new Map<number, number>()

    /** The one place where a decision ends. */
    const settle = (id: string, delivery: Delivery, wasTaken: boolean, isPlacedAgain = false): void => {
      // Behind its booking, also where that was made in an earlier life.
      const usage = delivery.outcome === 'ok' ? usageOf(delivery) : undefined
      args.tracker.tell({ type: 'free', decisionId: id, ...usage })
      receipts.complete(id, delivery)
      const open = decider.open.take(id)
      if (open === undefined) return
      if (!wasTaken) open.takeBack?.()
      decider.guard.ended(open.guarded, delivery)
      if (open.decision !== undefined) compare(open, open.decision, delivery)
      if (open.logged !== undefined && !isPlacedAgain)
        settledLog?.settled(open, open.logged, delivery, wasTaken)
    }

    /** What was predicted with what was delivered. */
    const compare = ({ guarded }: OpenDecision, decision: Decision, delivery: Delivery): void => {
      // An answer that failed says nothing; and where nothing is known, nothing was predicted.
      if (delivery.outcome !== 'ok' || delivery.promptTokens === undefined) return
      const { worker, workerSlot, epoch, trust } = decision
      if (trust === 'none') return
      const { isNewlyUnaudited, verdict } = audits.add(decision, delivery.cachedTokens)
      decider.guard.audited(guarded, decision.predictedTokens, delivery.cachedTokens)
      if (isNewlyUnaudited) context.log.warn({ worker }, UNAUDITED)
      if (verdict !== undefined) args.directory.tell({ type: 'audit', workerSlot, epoch, ...verdict })
      // Some may have come into the cache since the decision.
      const cachedTokens = Math.max(decision.predictedTokens, delivery.cachedTokens ?? 0)
      const computedTokens = delivery.promptTokens - cachedTokens
      if (trust !== 'exact' || computedTokens < COMPUTED_BLOCKS_MIN * decision.blockSizeTokens) return
      const { durationMs } = delivery
      const nowMs = context.clock.nowMs()
      if (nowMs - (toldMs.get(workerSlot) ?? Number.NEGATIVE_INFINITY) < COMPUTED_MS_MIN) return
      toldMs.set(workerSlot, nowMs)
      args.directory.tell({ type: 'computed', workerSlot, epoch, durationMs })
    }

    return {
      attachToShards() {
        decider.attachToShards()
        decider.separatedPrompts.tellMissed()
      },

      shardMemory(message) {
        decider.takeShard(message)
      },

      fleet({ fleet }) {
        const keys = fleet.workers.flatMap(worker => worker.keys)
        decider.takeFleet(fleet, keys)
        audits.keepOnly(new Map(keys.map(({ workerSlot, key }) => [workerSlot, key])))
      },

      async decide({ id, gateway, request, reply }) {
        reply(await decider.decide(id, gateway, request, receipts))
      },

      firstToken({ id, firstTokenMs }) {
        decider.guard.firstToken(decider.open.get(id)?.guarded, firstTokenMs, context.clock.nowMs())
      },

      guard({ reply }) {
        reply(decider.usesGuard ? decider.guard.status : undefined)
      },

      async explain({ request, reply }) {
        const placed = await decider.choose(request)
        reply('code' in placed ? placed : placed.receipt)
      },

      settled({ id, delivery, wasTaken, isPlacedAgain }) {
        settle(id, delivery, wasTaken, isPlacedAgain)
      },

      gatewayStarted({ gateway }) {
        for (const id of decider.open.idsOfOtherLives(gateway)) settle(id, CUT, true)
        // What an earlier life of this router has booked, too.
        args.tracker.tell({ type: 'gatewayStarted', gateway })
      },

      async flushDecisionLog({ timeoutMs, reply }) {
        reply((await settledLog?.flush(timeoutMs)) ?? true)
      },

      audits({ reply }) {
        reply(audits.report())
      },

      receipt({ id, reply }) {
        reply(receipts.get(id))
      },

      receipts({ limit, reply }) {
        reply(receipts.latest(limit))
      },
    }
  },
})

/** What the tracker learns from: of a prompt, the share, because the router may count its tokens otherwise than the engine. */
function usageOf({ promptTokens, cachedTokens, completionTokens }: Delivery): TrackerUsage {
  const isSaid = cachedTokens !== undefined && promptTokens !== undefined && promptTokens > 0
  return { outputTokens: completionTokens, cachedShare: isSaid ? cachedTokens / promptTokens : undefined }
}

/** One may be cached and computed all the same: engines compute the last token always. */
const COMPUTED_BLOCKS_MIN = 2
/** The directory need not know about every answer of a worker key. */
const COMPUTED_MS_MIN = 1000

const UNAUDITED =
  'engine reports no cached tokens: its predictions are not audited. Start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report'

const GUARD_OFF =
  'guard is off (--router-guard-share 0): nothing is tried against the policy, so if following the caches does harm, nobody notices'

interface Placed {
  readonly receipt: Receipt
  readonly winner: Candidate
  /** The guessed part of the winner's overlap. */
  readonly guessedBlocks: number
  readonly prefillTokens: number
  /** Turn of round-robin, once this place is taken. */
  readonly nextTurn: number
}

/** What becomes of a request whose gateway was gone before its end. */
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

/** Id for `explain`, which decides nothing: 21 characters of nanoid's alphabet, drawn from the thread's randomness. */
const ID_LENGTH = 21

class Decider {
  fleet: Fleet = { version: 0, workers: [] }
  readonly audits = new Audits()
  readonly open: OpenDecisions
  readonly guard: RoutingGuard

  readonly #context: ActorContext<RouterMessage>
  readonly #args: RouterArgs
  readonly #lookup: OverlapLookup
  readonly #selector: Selector
  /** For prompts that are not known. */
  readonly #byLoad: SelectionSettings
  /** For requests with a weight of their own, where auto is the policy. */
  readonly #linear: SelectionSettings
  readonly #newId: () => string
  /** By shard: of the memory that is read; undefined before it came. */
  readonly #memoryNumbers: (number | undefined)[]
  readonly separatedPrompts: SeparatedPrompts
  readonly #incarnations: (number | undefined)[] = []
  #turn = 0

  constructor(context: ActorContext<RouterMessage>, args: RouterArgs) {
    this.#context = context
    this.#args = args
    this.open = new OpenDecisions(args.openMax)
    this.guard = new RoutingGuard(args.guard, context.random)
    this.separatedPrompts = new SeparatedPrompts(args.indexers)
    this.#lookup = new OverlapLookup({
      indexMemories: args.indexMemories,
      workerSlotsMax: args.workerSlotsMax,
      weights: args.layerWeights,
      guessesPending: args.guesses.ttlUntilEventsMs !== undefined,
    })
    this.#memoryNumbers = args.indexMemories.map(() => undefined)
    this.#selector = new Selector(args.workerSlotsMax)
    this.#byLoad = { ...args.selection, mode: 'least-loaded' }
    this.#linear = { ...args.selection, policy: 'linear' }
    this.#newId = customRandom(urlAlphabet, ID_LENGTH, count => context.random.bytes(count))
  }

  /** Whether its guard has decisions to look at. */
  get usesGuard(): boolean {
    const { mode, policy, custom } = this.#args.selection
    return mode === 'kv' && policy === 'auto' && custom === undefined
  }

  /** Asks every indexer for its memory, or only one; who has nothing new says nothing. */
  attachToShards(only?: number): void {
    for (const [shard, indexer] of this.#args.indexers.entries()) {
      if (only !== undefined && only !== shard) continue
      const memoryNumber = this.#memoryNumbers[shard]
      indexer.tell({ type: 'attach', memoryNumber, reader: this.#context.self })
    }
  }

  takeShard(message: ShardMemoryMessage): void {
    this.#memoryNumbers[message.shard] = message.memoryNumber
    this.#lookup.takeShard(message)
    const { shard, incarnation } = message
    const before = this.#incarnations[shard]
    this.#incarnations[shard] = incarnation
    if (before === undefined || before === incarnation) return
    this.separatedPrompts.indexerRestarted(shard)
  }

  /** Chooses, books, keeps the receipt. A tracker that does not answer refuses the request, not the router. */
  async decide(
    id: string,
    gateway: GatewayLife,
    request: RoutingRequest,
    receipts: Receipts,
  ): Promise<DecideResult> {
    const placed = await this.choose(request, id)
    if ('code' in placed) return this.#refuse(id, gateway, request, placed)
    const { receipt, winner, guessedBlocks, prefillTokens } = placed
    this.#turn = placed.nextTurn
    const booking = {
      decisionId: id,
      gateway,
      workerSlot: winner.key.workerSlot,
      sequenceHashes: request.sequenceHashes,
      promptTokens: request.promptTokens,
      prefillTokens,
      isStream: request.isStream === true,
      stepTokens: winner.worker.maxBatchedTokens.value,
    }
    try {
      const booked = await this.#args.tracker.ask(
        { type: 'book', booking },
        { timeout: this.#args.trackerMsMax },
      )
      if (booked !== 'booked') throw new TooManyRequestsError(booked)
    } catch (thrown) {
      // It may have been booked although nobody said so: it is settled, too.
      return this.#refuse(id, gateway, request, toErrorRecord(thrown))
    }
    receipts.add(receipt)
    const decision = decisionOf(receipt, winner, guessedBlocks)
    // Before it is sent, so before any event that it causes.
    this.separatedPrompts.sent(request, winner.key)
    const takeBack = this.#guess(request, winner, id)
    const guarded =
      receipt.guard === undefined
        ? undefined
        : this.guard.decided(receipt.guard, request.promptTokens, this.#context.clock.nowMs())
    this.#open(id, { gateway, decision, takeBack, guarded, logged: this.#logged(request) })
    return { kind: 'decided', decision }
  }

  #refuse(id: string, gateway: GatewayLife, request: RoutingRequest, error: ErrorRecord): DecideResult {
    const logged = this.#logged(request)
    if (logged !== undefined)
      this.#open(id, { gateway, decision: undefined, takeBack: undefined, guarded: undefined, logged })
    return { kind: 'refused', error }
  }

  #open(id: string, open: OpenDecision): void {
    this.guard.ended(this.open.add(id, open)?.guarded, undefined)
  }

  /** What the decision log will be told of it. */
  #logged(request: RoutingRequest): LoggedDecision | undefined {
    if (this.#args.decisionLog === undefined) return undefined
    const { mode, policy: fixed, custom } = this.#settingsFor(request)
    const policy = mode === 'kv' ? (custom?.name ?? fixed) : mode
    return { request, policy, decidedMs: this.#context.clock.nowMs() }
  }

  /** The receipt of the best place, or why there is none. Changes nothing. Without an id it is a question only, and so no experiment of the guard. */
  async choose(request: RoutingRequest, decisionId?: string): Promise<Placed | ErrorRecord> {
    const startedMs = this.#context.clock.nowMs()
    if (this.#args.selection.mode === 'direct' && request.pinnedInstanceId === undefined) {
      return toErrorRecord(new WorkerNotNamedError())
    }
    const found = eligible(this.fleet, request)
    if ('code' in found) return found
    const workerSlots = Int32Array.from(found.candidates, candidate => candidate.key.workerSlot)
    const overlaps = this.#lookup.lookUp(request, found.candidates, this.audits)
    if (!overlaps.isComplete) this.#askForStaleShards()
    const load = await this.#load(workerSlots, request.sequenceHashes)
    if ('code' in load) return load
    try {
      const known = this.#filtered({ ...found, workerSlots, overlaps, load }, request)
      return 'code' in known ? known : this.#place(decisionId, request, known, startedMs)
    } catch (thrown) {
      // The code of whoever embeds the router; a bug of ours goes on.
      if (!(thrown instanceof CustomSelectionError)) throw thrown
      this.#context.log.error({ error: thrown }, 'selection failed')
      return toErrorRecord(thrown)
    }
  }

  /** Without the candidates that the filter of a selection of one's own leaves out. */
  #filtered(known: Known, request: RoutingRequest): Known | ErrorRecord {
    const { custom } = this.#args.selection
    const isKept = this.#selector.eligible(inputOf(known), selectionRequestOf(request), this.#args.selection)
    if (custom === undefined || isKept === undefined) return known
    const only = (_: unknown, i: number): boolean => isKept[i] === true
    const candidates = known.candidates.filter(only)
    const leftOut = known.candidates.filter((_, i) => isKept[i] !== true).map(({ key }) => key.key)
    if (leftOut.length === 0) return known
    if (candidates.length === 0) return toErrorRecord(new AllFilteredError(custom.name, leftOut))
    const reason = `the filter of the selection ${custom.name} left it out`
    const { load, preferences, workerSlots } = known
    return {
      candidates,
      excluded: [...known.excluded, ...leftOut.map(worker => ({ worker, reason }))],
      preferences: preferences?.filter(only),
      workerSlots: workerSlots.filter(only),
      overlaps: this.#lookup.lookUp(request, candidates, this.audits),
      load: {
        activeBlocks: load.activeBlocks.filter(only),
        newBlocks: load.newBlocks.filter(only),
        activePrefillTokens: load.activePrefillTokens.filter(only),
        activeRequests: load.activeRequests.filter(only),
        engines: load.engines === undefined ? undefined : filterProjection(load.engines, isKept),
      },
    }
  }

  #place(decisionId: string | undefined, request: RoutingRequest, known: Known, startedMs: number): Placed {
    const { candidates, overlaps } = known
    const { creditFactors } = overlaps
    const settings = this.#settingsFor(request)
    const input = inputOf(known)
    const choice = this.#selector.choose(
      input,
      selectionRequestOf(request),
      settings,
      this.#context.random,
      this.#turn,
    )
    const isReal = decisionId !== undefined
    const guard = this.guard.consider(request, settings.mode, input, choice, this.#selector, isReal)
    const receipt = writeReceipt(
      this.#context.clock,
      decisionId ?? this.#newId(),
      request,
      settings.mode,
      known,
      choice,
      input,
      guard,
      startedMs,
    )
    const creditedTokens = receipt.overlapBlocks * request.blockSizeTokens * creditFactors[choice.winner]!
    const prefillTokens = Math.max(0, Math.round(request.promptTokens - creditedTokens))
    // The choice is overwritten by the next one.
    const { nextTurn } = choice
    const winner = candidates[choice.winner]!
    this.#context.log.debug({ ...receipt, candidates: receipt.candidates.length }, 'worker selected')
    const guessedBlocks = overlaps.guessedBlocks[choice.winner]!
    return { receipt, winner, guessedBlocks, prefillTokens, nextTurn }
  }

  takeFleet(fleet: Fleet, keys: readonly WorkerKeyRecord[]): void {
    this.fleet = fleet
    this.separatedPrompts.keepOnly(keys)
  }

  /** What is sent counts as held for a while, where no events tell, or until they come. Returns what takes that back. */
  #guess(request: RoutingRequest, { worker, key }: Candidate, id: string): (() => void) | undefined {
    const { ttlWithoutEventsMs, ttlUntilEventsMs, blocksMax } = this.#args.guesses
    const isGuess = key.trust === 'approximate' || request.textBlocksReason !== undefined
    const lifeMs = isGuess ? ttlWithoutEventsMs : ttlUntilEventsMs
    if (lifeMs === undefined || key.trust === 'none' || request.localHashes.length === 0) return undefined
    const { workerSlot, epoch, shard } = key
    const { localHashes } = request
    const indexer = this.#args.indexers[shard]
    indexer?.tell({
      type: 'routed',
      id,
      workerSlot,
      epoch,
      localHashes,
      ttlMs: lifeMs,
      blocksMax: Math.min(blocksMax, worker.kvBlocks?.value ?? blocksMax),
    })
    return () => void indexer?.tell({ type: 'unrouted', id, workerSlot, epoch, localHashes })
  }

  /**
   * A prompt that is not known has no cost: every worker would be as cheap. It goes where the fewest
   * requests are, whose number is known of all. A selection of one's own is told. A request that brings a weight or a temperature means
   * the linear rule: auto has none.
   */
  #settingsFor({ unknownPromptReason, override }: RoutingRequest): SelectionSettings {
    const { selection } = this.#args
    if (selection.mode !== 'kv' || selection.custom !== undefined) return selection
    if (unknownPromptReason !== undefined) return this.#byLoad
    const isWeighed = override.overlapWeight !== undefined || override.temperature !== undefined
    return isWeighed && selection.policy === 'auto' ? this.#linear : selection
  }

  async #load(workerSlots: Int32Array, sequenceHashes: Int32Array): Promise<CandidateLoads | ErrorRecord> {
    try {
      return await this.#args.tracker.ask(
        {
          type: 'project',
          workerSlots,
          sequenceHashes,
          wantsEngines: this.#args.selection.policy === 'auto',
        },
        { timeout: this.#args.trackerMsMax },
      )
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }

  /** At once, instead of at the next interval. A shard that is asked for twice answers twice at worst. */
  #askForStaleShards(): void {
    for (let shard = 0; shard < this.#memoryNumbers.length; shard++) {
      if (this.#lookup.isStale(shard)) this.attachToShards(shard)
    }
  }
}

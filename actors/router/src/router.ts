/**
 * Router: overlap and load to a worker key, with a receipt for every decision.
 *
 * In     `decide` from gateway and dispatcher, `explain` without effect; the fleet; what was delivered.
 * Out    to tracker: one projection and one booking per decision. To directory: when answers contradict or confirm what
 *        the events of a worker key say. To indexers: `attach`, every ATTACH_INTERVAL_MS and when a shard turns out
 *        to have moved; they answer with its memory. And `routed`, where what was sent is to count as held.
 * Owns   the receipts (the last `decisionsKept`, within `receiptRowsMax`), the audits, the turn of round-robin, its copy
 *        of the fleet.
 * Order  one decision at a time: the booking of one is in the load that the next one sees.
 *        The booking exists before the reply; a reply that nobody awaits is freed by the dispatcher's
 *        or the tracker's inactivity rule.
 * Reads  every shard of the index, directly. What it reads was true at some instant of the call; of a shard that has
 *        moved, until its new memory comes, at the instant of the move.
 */

import { type ActorContext, type ActorRef, defineActor } from '@homing/actor'
import type { AuditMessage, ComputedMessage, Fleet } from '@homing/directory'
import { type ErrorRecord, toErrorRecord } from '@homing/errors'
import type { ShardMemory } from '@homing/index'
import type { IndexerMessage, RoutedMessage, ShardMemoryMessage } from '@homing/indexer'
import { Audits, type Choice, candidateTerms, type RouterMode, Selector } from '@homing/selection'
import type { LoadProjection, TrackerMessage } from '@homing/tracker'
import { customRandom, urlAlphabet } from 'nanoid'
import { ModelNotFoundError, NoWorkerError, PinnedWorkerError, TooManyRequestsError } from './errors.ts'
import type { DecideResult, Decision, Receipt, RouterMessage, RoutingRequest } from './messages.ts'
import { type Candidate, type LayerWeights, OverlapLookup, type Overlaps } from './overlap-lookup.ts'
import { Receipts } from './receipts.ts'

export interface RouterArgs {
  readonly tracker: ActorRef<TrackerMessage>
  readonly directory: ActorRef<AuditMessage | ComputedMessage>
  /** One per shard of the index: its door, or its memory. */
  readonly indexMemories: readonly ShardMemory[]
  /** By shard; they say where its memory is. */
  readonly indexers: readonly ActorRef<IndexerMessage | RoutedMessage>[]
  readonly workerSlotsMax: number
  readonly layerWeights: LayerWeights
  readonly predictions: PredictionSettings
  readonly mode: RouterMode
  readonly overlapScoreWeight: number
  readonly temperature: number
  readonly decisionsKept: number
  /** Candidates and excluded workers in all receipts together. */
  readonly receiptRowsMax: number
  /** Longest wait for the tracker, in milliseconds. */
  readonly trackerMsMax: number
}

/** What is taken to be held because it was sent there. */
export interface PredictionSettings {
  /** How long, in milliseconds, where no events tell. */
  readonly ttlMs: number
  /** How long where events do, until they come; undefined: not at all. */
  readonly pendingTtlMs: number | undefined
  /** Most blocks of a worker key; fewer where its engine is known to hold fewer. */
  readonly blocksMax: number
}

const ATTACH_INTERVAL_MS = 1000

export const router = defineActor(
  import.meta.url,
  'router',
)<RouterMessage, RouterArgs>({
  setup(context, args) {
    const place = new Placement(context, args)
    const receipts = new Receipts({ receiptsMax: args.decisionsKept, rowsMax: args.receiptRowsMax })
    if (args.indexers.length > 0) {
      place.attachToShards()
      context.scheduleEvery(ATTACH_INTERVAL_MS, { type: 'attachToShards' })
    }
    const { audits } = place
    /** When the directory was last told that blocks were computed, by worker slot. */
    const toldMs = new Map<number, number>()

    return {
      attachToShards() {
        place.attachToShards()
      },

      shardMemory(message) {
        place.takeShard(message)
      },

      fleet({ fleet }) {
        place.fleet = fleet
        const keys = fleet.workers.flatMap(worker => worker.keys)
        audits.keepOnly(new Map(keys.map(({ workerSlot, key }) => [workerSlot, key])))
      },

      async decide({ request, reply }) {
        reply(await place.decide(request, receipts))
      },

      async explain({ request, reply }) {
        const placed = await place.choose(request)
        reply('code' in placed ? placed : placed.receipt)
      },

      delivered({ decision, delivery }) {
        receipts.complete(decision.id, delivery)
        // An answer that failed says nothing; and where nothing is known, nothing was predicted.
        if (delivery.outcome !== 'ok' || delivery.promptTokens === undefined) return
        const { worker, workerSlot, epoch, trust } = decision
        if (trust === 'none') return
        const { isNewlyUnaudited, verdict } = audits.add(decision, delivery.cachedTokens)
        if (isNewlyUnaudited) context.log.warn({ worker }, UNAUDITED)
        if (verdict !== undefined) args.directory.tell({ type: 'audit', workerSlot, epoch, ...verdict })
        const computedTokens = delivery.promptTokens - decision.predictedTokens
        if (trust !== 'exact' || computedTokens < COMPUTED_BLOCKS_MIN * decision.blockSizeTokens) return
        const { durationMs } = delivery
        const nowMs = context.clock.nowMs()
        if (nowMs - (toldMs.get(workerSlot) ?? Number.NEGATIVE_INFINITY) < COMPUTED_MS_MIN) return
        toldMs.set(workerSlot, nowMs)
        args.directory.tell({ type: 'computed', workerSlot, epoch, durationMs })
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

/** One may be cached and computed all the same: engines compute the last token always. */
const COMPUTED_BLOCKS_MIN = 2
/** Of a worker key the directory need not know of every answer. */
const COMPUTED_MS_MIN = 1000

const UNAUDITED =
  'engine reports no cached tokens: its predictions are not audited. Start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report'

interface Placed {
  readonly receipt: Receipt
  readonly winner: Candidate
  /** Of the overlap of the winner, what is predicted. */
  readonly guessedBlocks: number
  readonly prefillTokens: number
  /** Of round-robin, once this place is taken. */
  readonly nextTurn: number
}

/** Ids in receipts and headers: 21 characters of nanoid's alphabet, drawn from the thread's randomness. */
const ID_LENGTH = 21

class Placement {
  fleet: Fleet = { version: 0, workers: [] }
  readonly audits = new Audits()

  readonly #context: ActorContext<RouterMessage>
  readonly #args: RouterArgs
  readonly #lookup: OverlapLookup
  readonly #selector: Selector
  readonly #newId: () => string
  /** By shard: of the memory that is read; undefined before it came. */
  readonly #memoryNumbers: (number | undefined)[]
  #turn = 0

  constructor(context: ActorContext<RouterMessage>, args: RouterArgs) {
    this.#context = context
    this.#args = args
    this.#lookup = new OverlapLookup({
      indexMemories: args.indexMemories,
      workerSlotsMax: args.workerSlotsMax,
      weights: args.layerWeights,
      predictsPending: args.predictions.pendingTtlMs !== undefined,
    })
    this.#memoryNumbers = args.indexMemories.map(() => undefined)
    this.#selector = new Selector(args.workerSlotsMax)
    this.#newId = customRandom(urlAlphabet, ID_LENGTH, count => context.random.bytes(count))
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
  }

  /** Chooses, books, keeps the receipt. A tracker that does not answer refuses the request, not the router. */
  async decide(request: RoutingRequest, receipts: Receipts): Promise<DecideResult> {
    const placed = await this.choose(request)
    if ('code' in placed) return { kind: 'refused', error: placed }
    const { receipt, winner, guessedBlocks, prefillTokens } = placed
    this.#turn = placed.nextTurn
    const booking = {
      requestId: receipt.id,
      workerSlot: winner.key.workerSlot,
      sequenceHashes: request.sequenceHashes,
      promptTokens: request.promptTokens,
      prefillTokens,
    }
    try {
      const booked = await this.#args.tracker.ask(
        { type: 'book', booking },
        { timeout: this.#args.trackerMsMax },
      )
      if (booked !== 'booked') throw new TooManyRequestsError(booked)
    } catch (thrown) {
      // It may have been booked although nobody said so.
      this.#args.tracker.tell({ type: 'free', requestId: receipt.id })
      return { kind: 'refused', error: toErrorRecord(thrown) }
    }
    receipts.add(receipt)
    this.#predict(request, winner)
    return { kind: 'decided', decision: decisionOf(receipt, winner, guessedBlocks) }
  }

  /** The receipt of the best place, or why there is none. Changes nothing. */
  async choose(request: RoutingRequest): Promise<Placed | ErrorRecord> {
    const startedMs = this.#context.clock.nowMs()
    const excluded: { worker: string; reason: string }[] = []
    const candidates = this.#candidates(request, excluded)
    if (!Array.isArray(candidates)) return candidates

    const workerSlots = Int32Array.from(candidates, candidate => candidate.key.workerSlot)
    const overlaps = this.#lookup.lookUp(request, candidates, this.audits)
    if (!overlaps.isComplete) this.#askForStaleShards()
    const { blocks: overlapBlocks, creditFactors } = overlaps
    const load = await this.#load(workerSlots, request.sequenceHashes)
    if ('code' in load) return load
    const mode = this.#modeFor(request)
    const choice = this.#selector.choose(
      { count: candidates.length, workerSlots, overlapBlocks, creditFactors, ...load },
      {
        promptTokens: Math.max(1, request.promptTokens),
        blockSizeTokens: request.blockSizeTokens,
        override: {
          overlapWeight: request.override.overlapScoreWeight,
          temperature: request.override.temperature,
        },
      },
      {
        mode,
        overlapWeight: this.#args.overlapScoreWeight,
        temperature: this.#args.temperature,
      },
      this.#context.random,
      this.#turn,
    )
    const receipt = this.#receipt(
      request,
      mode,
      candidates,
      choice,
      workerSlots,
      overlaps,
      load,
      excluded,
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

  /** What was sent counts as held for a while, where no events tell, or until they come. */
  #predict(request: RoutingRequest, { worker, key }: Candidate): void {
    const { ttlMs, pendingTtlMs, blocksMax } = this.#args.predictions
    const isGuess = key.trust === 'approximate' || request.textBlocks !== undefined
    const lifeMs = isGuess ? ttlMs : pendingTtlMs
    if (lifeMs === undefined || key.trust === 'none' || request.localHashes.length === 0) return
    this.#args.indexers[key.shard]?.tell({
      type: 'routed',
      workerSlot: key.workerSlot,
      epoch: key.epoch,
      localHashes: request.localHashes,
      ttlMs: lifeMs,
      blocksMax: Math.min(blocksMax, worker.kvBlocks?.value ?? blocksMax),
    })
  }

  /**
   * A prompt that is not known has no cost: every worker would be as cheap. It goes where the fewest
   * requests are, whose number is known of all.
   */
  #modeFor(request: RoutingRequest): RouterMode {
    const { mode } = this.#args
    return mode === 'kv' && request.unknownPrompt !== undefined ? 'least-loaded' : mode
  }

  async #load(workerSlots: Int32Array, sequenceHashes: Int32Array): Promise<LoadProjection | ErrorRecord> {
    try {
      return await this.#args.tracker.ask(
        { type: 'project', workerSlots, sequenceHashes },
        { timeout: this.#args.trackerMsMax },
      )
    } catch (thrown) {
      return toErrorRecord(thrown)
    }
  }

  #candidates(
    request: RoutingRequest,
    excluded: { worker: string; reason: string }[],
  ): Candidate[] | ErrorRecord {
    const { model, pinnedInstanceId, pinnedRank, excludedWorkers } = request
    const candidates: Candidate[] = []
    let isModelKnown = model === ''
    let isPinKnown = pinnedInstanceId === undefined && pinnedRank === undefined
    for (const worker of this.fleet.workers) {
      if (model !== '' && !worker.models.some(card => card.name === model)) continue
      isModelKnown = true
      const isPinned =
        (pinnedInstanceId === undefined || worker.instanceId === pinnedInstanceId) &&
        (pinnedRank === undefined || worker.keys.some(key => key.dpRank === pinnedRank))
      if (isPinned) isPinKnown = true
      for (const key of worker.keys) {
        if (worker.state !== 'up')
          excluded.push({ worker: key.key, reason: `${worker.state}: ${worker.stateReason}` })
        else if (excludedWorkers.includes(worker.id))
          excluded.push({ worker: key.key, reason: 'failed this request' })
        else if (!isPinned || (pinnedRank !== undefined && key.dpRank !== pinnedRank)) {
          excluded.push({ worker: key.key, reason: 'the request names another worker' })
        } else candidates.push({ worker, key })
      }
    }
    if (candidates.length > 0) return candidates
    if (!isModelKnown && this.fleet.workers.some(worker => worker.models.length > 0)) {
      return toErrorRecord(new ModelNotFoundError(model, this.#modelNames()))
    }
    if (!isPinKnown) return toErrorRecord(new PinnedWorkerError(pinnedInstanceId, pinnedRank))
    return toErrorRecord(new NoWorkerError(model, excluded))
  }

  #modelNames(): string[] {
    const names = new Set<string>()
    for (const worker of this.fleet.workers) for (const { name } of worker.models) names.add(name)
    return [...names].sort()
  }

  /** At once, instead of at the next interval. A shard that is asked for twice answers twice at worst. */
  #askForStaleShards(): void {
    for (let shard = 0; shard < this.#memoryNumbers.length; shard++) {
      if (this.#lookup.isStale(shard)) this.attachToShards(shard)
    }
  }

  #receipt(
    request: RoutingRequest,
    mode: RouterMode,
    candidates: readonly Candidate[],
    choice: Choice,
    workerSlots: Int32Array,
    { blocks: overlapBlocks, creditFactors, guessedBlocks, layers }: Overlaps,
    load: LoadProjection,
    excluded: readonly { readonly worker: string; readonly reason: string }[],
    startedMs: number,
  ): Receipt {
    const winner = candidates[choice.winner]!
    const view = { count: candidates.length, workerSlots, overlapBlocks, creditFactors, ...load }
    const { clock } = this.#context
    return {
      id: this.#newId(),
      requestId: request.requestId,
      atMs: clock.wallMs(),
      mode,
      model: request.model,
      promptTokens: request.promptTokens,
      blockSizeTokens: request.blockSizeTokens,
      promptBlocks: Math.ceil(request.promptTokens / request.blockSizeTokens),
      unknownPrompt: request.unknownPrompt,
      textBlocks: request.textBlocks,
      overlapScoreWeight: choice.overlapWeight,
      temperature: choice.temperature,
      worker: winner.key.key,
      runnerUp: candidates[choice.runnerUp]?.key.key,
      trust:
        request.unknownPrompt !== undefined
          ? 'none'
          : guessedBlocks[choice.winner]! > 0 || request.textBlocks !== undefined
            ? 'approximate'
            : winner.key.trust,
      overlapBlocks: choice.terms.overlapBlocks[choice.winner]!,
      candidates: candidates.map(({ key }, i) => {
        const terms = candidateTerms(choice, view, i)
        return {
          worker: key.key,
          trust: key.trust,
          overlapBlocks: terms.overlapBlocks,
          creditFactor: terms.creditFactor,
          layers: layers[i]!,
          activePrefillTokens: load.activePrefillTokens[i]!,
          prefillTokens: terms.prefillTokens,
          prefillBlocks: terms.prefillBlocks,
          activeBlocks: load.activeBlocks[i]!,
          newBlocks: load.newBlocks[i]!,
          decodeBlocks: terms.decodeBlocks,
          activeRequests: load.activeRequests[i]!,
          costBlocks: terms.costBlocks,
          probability: terms.probability,
        }
      }),
      candidatesLeftOut: 0,
      excluded,
      excludedLeftOut: 0,
      decisionMs: clock.nowMs() - startedMs,
      delivery: undefined,
    }
  }
}

function decisionOf(receipt: Receipt, { worker, key }: Candidate, guessedBlocks: number): Decision {
  return {
    id: receipt.id,
    workerId: worker.id,
    worker: key.key,
    workerSlot: key.workerSlot,
    origin: worker.origin,
    dpRank: key.dpRank,
    pinRank: worker.keys.length > 1,
    takesUsageOption: worker.engine !== 'unknown',
    overlapBlocks: receipt.overlapBlocks,
    blockSizeTokens: receipt.blockSizeTokens,
    predictedTokens: receipt.overlapBlocks * receipt.blockSizeTokens,
    guessedTokens: guessedBlocks * receipt.blockSizeTokens,
    trust: receipt.trust,
    epoch: key.epoch,
  }
}

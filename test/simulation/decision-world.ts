/**
 * One history given to two routers: to the router actor by messages, to the simulator's router by calls.
 * One seed is one history.
 *
 *   fleet, held prompts, requests,  ──┬─▶ router + tracker + index ─▶ decision, receipt ─┐
 *   first tokens, ends, time          └─▶ SimRouter + its view     ─▶ decision, receipt ─┴─▶ equal
 *
 * Both draw from generators of the same seed, and both see the same time. A prompt is a path in a tree of
 * block ids: the index holds a chain of hashes for it, the simulator the ids. A prompt never ends with its
 * last full block: the simulator's engines reuse that one, the router knows that real ones compute its last
 * token.
 */

import assert from 'node:assert/strict'
import { createTestSystem } from '@homing/actor/testing'
import type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  PromptsMessage,
} from '@homing/actors/directory'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import { router } from '@homing/actors/router'
import { tracker } from '@homing/actors/tracker'
import { type Random, seededRandom } from '@homing/base'
import { chainSequence } from '@homing/blocks'
import type { Fleet, FleetThresholds, WorkerRecord } from '@homing/fleet'
import { BlockIndex, GUESSED_LAYER, layeredOptions, layerSlot } from '@homing/index'
import { NO_BUSY_THRESHOLDS } from '@homing/load'
import type { AffinitySettings, Delivery, QueueReceipt, Receipt, RoutingRequest } from '@homing/placement'
import type { RoomRule } from '@homing/queue'
import { FIXED_POLICY_NAMES, type PolicyName, ROUTER_MODES, selectionSettings } from '@homing/selection'
import type { CellSpec } from '@homing/simulate'
import { EmptyView, type FleetView, GuessView } from '../../packages/simulate/src/fleet-view.ts'
import { HolderTable } from '../../packages/simulate/src/holder-table.ts'
import { newSimRequest, type SimRequest } from '../../packages/simulate/src/sim-request.ts'
import { SimRouter } from '../../packages/simulate/src/sim-router.ts'

const SLOTS = 32
const BLOCK_TOKENS = 16
const STEPS = 40
const ASK = { timeout: 10_000 } as const
const GATEWAY = { name: 'gateway', life: 'one' }
const SECOND_WORD = 7
/** Longer than any history. */
const EVER_MS = 1e9

/** Counts of what a history contained, for coverage. */
export interface DecisionHistory {
  readonly policy: string
  readonly trust: string
  /** What happened in it: 'decided', 'busy', an error code, 'arm control', … */
  readonly events: ReadonlyMap<string, number>
}

interface Open {
  readonly request: SimRequest
  readonly id: string
}

interface Waiting {
  readonly request: SimRequest
  readonly routing: RoutingRequest
  readonly roomRules: readonly RoomRule[]
}

/** Plays the history of a seed. AssertionError at the first decision in which the two routers differ. */
export async function playDecisions(seed: number): Promise<DecisionHistory> {
  const world = new DecisionWorld(seed)
  try {
    await world.play()
  } finally {
    await world.end()
  }
  return world.history
}

class DecisionWorld {
  readonly #random: Random
  readonly #trust: 'exact' | 'approximate' | 'none'
  readonly #spec: CellSpec
  readonly #sim: SimRouter
  readonly #system
  readonly #router
  readonly #tracker
  readonly #indexer
  readonly #index = BlockIndex.create(layeredOptions(1 << 18, SLOTS))
  readonly #table = new HolderTable(SLOTS)
  readonly #affinity: AffinitySettings | undefined
  readonly #events = new Map<string, number>()
  readonly #open: Open[] = []
  readonly #waiting: Waiting[] = []
  readonly #prompts: (readonly number[])[] = []
  #fleet: Fleet
  #simReceipt: Receipt | undefined
  #blocks = 0
  #requests = 0

  constructor(seed: number) {
    const random = seededRandom(seed)
    this.#random = random
    this.#trust = this.#oneOf(['exact', 'exact', 'exact', 'approximate', 'none'])
    this.#fleet = this.#newFleet()
    const kind = { exact: 'exact', approximate: 'guessed', none: 'none' } as const
    const policy = this.#oneOf<PolicyName>(['auto', 'auto', 'auto', ...FIXED_POLICY_NAMES])
    const selection = {
      mode: this.#chance(0.75) ? 'kv' : this.#oneOf(ROUTER_MODES),
      policy,
      temperature: this.#oneOf([0, 0, 0.4]),
      overlapCredit: this.#oneOf([1, 1, 0.8]),
      creditDecay: this.#oneOf([0, 0, 0.2]),
      overlapWeight: this.#oneOf([1, 1, 3]),
      guardShare: this.#oneOf([0, 0.1, 0.5]),
    } as const
    this.#spec = {
      workers: SLOTS,
      profile: 'h100-8b',
      blockTokens: BLOCK_TOKENS,
      routers: 1,
      view: { kind: kind[this.#trust], eventDelayMs: 0, signalDelayMs: 0 },
      selection,
      loadCounts: 'blocks',
      knowsOutput: false,
      speed: 1,
      copies: 1,
      stretch: 1,
      seed,
      warmupShare: 0,
    }
    this.#affinity = this.#chance(0.4)
      ? {
          ttlMs: this.#oneOf([200, 60_000]),
          isHard: this.#chance(0.5),
          prefixBlocks: this.#oneOf([0, 2]),
          sessionsMax: 3,
        }
      : undefined
    const draws = seededRandom(seed + 1)
    this.#sim = new SimRouter({
      spec: this.#spec,
      view: this.#newView(),
      oracle: undefined,
      random: draws,
      guardRandom: draws,
      receipt: receipt => {
        this.#simReceipt = receipt
      },
      ...(this.#affinity !== undefined && { affinity: this.#affinity }),
    })
    const actorDraws = seededRandom(seed + 1)
    this.#system = createTestSystem({ random: actorDraws, byReference: true })
    this.#tracker = this.#system.spawn(tracker, {
      name: 'tracker',
      args: { workerSlotsMax: SLOTS, requestsMax: 1000, idleMsMax: EVER_MS },
    })
    type Subscribe = Extract<DirectoryMessage, { readonly type: 'subscribe' }>
    const directory = this.#system.probe<AuditMessage | ComputedMessage | PromptsMessage | Subscribe>(
      'directory',
    )
    this.#indexer = this.#system.probe<IndexerMessage | RoutedMessage>('indexer')
    const { guardShare, ...settings } = selection
    this.#router = this.#system.spawn(router, {
      name: 'router',
      args: {
        tracker: this.#tracker,
        directory: directory.ref,
        indexMemories: [this.#index.memory],
        indexers: [this.#indexer.ref],
        workerSlotsMax: SLOTS,
        layerWeights: { host: 0.75, disk: 0.25 },
        guesses: { ttlWithoutEventsMs: EVER_MS, ttlUntilEventsMs: undefined, blocksMax: 1 << 20 },
        selection: selectionSettings(settings),
        guard: { share: guardShare },
        decisionsKept: 1000,
        receiptRowsMax: 100_000,
        openMax: 1000,
        affinity: this.#affinity,
        trackerMsMax: 10_000,
      },
    })
  }

  get history(): DecisionHistory {
    const { policy = '' } = this.#spec.selection
    return { policy, trust: this.#trust, events: this.#events }
  }

  async play(): Promise<void> {
    this.#tellFleet()
    for (let step = 0; step < STEPS; step++) {
      const draw = this.#random.below(20)
      if (draw < 8) await this.#arrive()
      else if (draw < 10) for (let i = 0; i < 4; i++) this.#hold()
      else if (draw < 13) this.#firstToken()
      else if (draw < 16) this.#complete()
      else if (draw < 17) this.#changeFleet()
      else await this.#system.advance(1 + this.#random.below(150))
      // The router handles the messages at this time and in this order, as the simulator does.
      await this.#system.settle()
      if (this.#chance(0.3)) await this.#askAgain()
    }
    const status = await this.#router.ask({ type: 'guard' }, ASK)
    const figures = this.#sim.guardFigures
    if (status === undefined || figures === undefined) return
    const { tests, shrinks, calibration } = status
    const { mode, policy } = this.#spec.selection
    if (mode !== 'kv' || policy !== 'auto') return
    assert.deepEqual(
      { tests, shrinks, calibration },
      { tests: figures.tests, shrinks: figures.shrinks, calibration: figures.calibration },
    )
  }

  async end(): Promise<void> {
    await this.#system.shutdown()
  }

  // ── Requests ─────────────────────────────────────────────────────────────────────────────────

  async #arrive(): Promise<void> {
    const index = this.#requests++
    const isUnknown = this.#chance(0.06)
    const ids = isUnknown ? [] : this.#prompt()
    const inputTokens = ids.length * BLOCK_TOKENS + 1 + this.#random.below(BLOCK_TOKENS - 1)
    const outputTokens = 1 + this.#random.below(100)
    // Of some, not even an estimate is known.
    const estimate = index % 2 === 0 ? undefined : { tokensMax: 100_000 }
    const unknown = isUnknown && { unknownPromptReason: 'it has an image', estimate }
    const hints = { ...this.#hints(), ...unknown }
    const trace = { timestampMs: this.#nowMs, inputTokens, outputTokens, hashIds: ids }
    const request = { ...newSimRequest(trace, index, ids, ids.length, 0), hints }
    const localHashes = Int32Array.from(ids.flatMap(id => [id, SECOND_WORD]))
    const routing: RoutingRequest = {
      requestId: String(index),
      model: '',
      promptTokens: inputTokens,
      blockSizeTokens: BLOCK_TOKENS,
      isStream: true,
      localHashes,
      sequenceHashes: chainSequence(localHashes, ids.length),
      unknownPromptReason: undefined,
      textBlocksReason: undefined,
      override: {},
      pinnedInstanceId: undefined,
      pinnedRank: undefined,
      excludedWorkers: [],
      ...hints,
    }
    await this.#decide(request, routing, this.#roomRules())
  }

  /** What has waited is asked about again, as the queue does. */
  async #askAgain(): Promise<void> {
    const at = this.#waiting.findIndex(({ request }) => request.arrivalMs < this.#nowMs)
    if (at < 0) return
    const [{ request, routing, roomRules }] = this.#waiting.splice(at, 1) as [Waiting]
    this.#count('asked again')
    const waitedMs = this.#nowMs - request.arrivalMs
    await this.#decide(request, routing, roomRules, { waitedMs, why: 'busy', expectedMs: undefined })
  }

  async #decide(
    request: SimRequest,
    routing: RoutingRequest,
    roomRules: readonly RoomRule[] | undefined,
    queue?: QueueReceipt,
  ): Promise<void> {
    const id = String(request.index)
    const measured = await this.#router.ask({ type: 'measure', request: routing }, ASK)
    const cachedTokens = this.#sim.cachedTokens(request, this.#fleet, this.#nowMs)
    assert.equal('code' in measured ? 0 : measured.cachedTokens, cachedTokens, `measured of request ${id}`)
    const said = await this.#router.ask(
      { type: 'decide', id, gateway: GATEWAY, request: routing, roomRules, queue },
      ASK,
    )
    this.#simReceipt = undefined
    const simulated = this.#sim.decide(request, this.#fleet, this.#nowMs, roomRules)
    if (said.kind === 'refused') {
      assert.equal(simulated.kind, 'refused', `request ${id} was refused: ${said.error.message}`)
      assert.ok(simulated.kind === 'refused')
      const { code, message } = simulated.error
      assert.deepEqual({ code, message }, { code: said.error.code, message: said.error.message })
      this.#count(code)
    } else if (said.kind === 'busy') {
      const { falls: _, ...busy } = said
      const { falls: __, ...other } = { falls: undefined, ...simulated }
      assert.deepEqual(other, busy, `request ${id} is to wait`)
      this.#count(said.boundWorker === undefined ? 'busy' : 'busy, bound')
      assert.ok(roomRules !== undefined)
      this.#waiting.push({ request, routing, roomRules })
    } else {
      assert.equal(simulated.kind, 'placed', `request ${id} went to ${said.decision.worker}`)
      const receipt = await this.#router.ask({ type: 'receipt', id }, ASK)
      assert.ok(receipt !== undefined)
      assert.deepEqual(comparable(this.#simReceipt!), comparable(receipt), `receipt of request ${id}`)
      const { worker, workerSlot, predictedTokens } = said.decision
      assert.deepEqual(
        [request.worker, request.predictedTokens],
        [workerSlot, predictedTokens],
        `${id} at ${worker}`,
      )
      this.#placed(receipt)
      this.#open.push({ request, id })
      this.#guess()
    }
  }

  #placed({ guard, overlapBlocks, candidates, excluded, queue, mode }: Receipt): void {
    this.#count('decided')
    this.#count(`mode ${mode}`)
    if (overlapBlocks > 0) this.#count('overlap')
    if (candidates.length > 1) this.#count('choice')
    if (guard !== undefined) this.#count('guard')
    if (guard?.arm !== undefined) this.#count(`arm ${guard.arm}`)
    if (queue !== undefined) this.#count('waited')
    if (candidates.some(({ preference }) => preference !== 1)) this.#count('preference')
    for (const { reason } of excluded)
      this.#count(
        `excluded: ${reason.replace(/ worker-.*|:.*|[[].*/, '').replace(/.*(under way|in use).*/, 'past a busy threshold')}`,
      )
  }

  #firstToken(): void {
    const open = this.#open.filter(({ request }) => request.firstTokenMs < 0)
    if (open.length === 0) return
    const { request, id } = this.#oneOf(open)
    request.firstTokenMs = this.#nowMs
    this.#tracker.tell({ type: 'prefillComplete', decisionId: id })
    const firstTokenMs = this.#nowMs - request.arrivalMs - request.waitedMs
    this.#router.tell({ type: 'firstToken', id, firstTokenMs })
    this.#sim.firstToken(request, this.#nowMs)
    this.#count('first token')
  }

  #complete(): void {
    if (this.#open.length === 0) return
    const [{ request, id }] = this.#open.splice(this.#random.below(this.#open.length), 1) as [Open]
    request.reusedTokens = this.#chance(0.5)
      ? request.predictedTokens
      : this.#random.below(request.inputTokens + 1)
    const { inputTokens, outputTokens, reusedTokens } = request
    const delivery: Delivery = {
      outcome: 'ok',
      status: 200,
      promptTokens: inputTokens,
      completionTokens: outputTokens,
      cachedTokens: reusedTokens,
      waitedMs: 0,
      timeToFirstByteMs: 1,
      durationMs: 1,
      streamEvents: 2,
      error: undefined,
    }
    this.#router.tell({ type: 'settled', id, delivery, wasTaken: true })
    this.#sim.completed(request, this.#nowMs, delivery.streamEvents)
    this.#count('completed')
  }

  #prompt(): readonly number[] {
    const known = this.#prompts.length === 0 || this.#chance(0.1) ? [] : this.#oneOf(this.#prompts)
    const kept = this.#chance(0.5) ? known : known.slice(0, this.#random.below(known.length + 1))
    const ids = [...kept, ...Array.from({ length: this.#random.below(6) }, () => ++this.#blocks)]
    this.#prompts.push(ids)
    return ids
  }

  #hints(): Partial<RoutingRequest> {
    const hints: { -readonly [name in keyof RoutingRequest]?: RoutingRequest[name] } = {}
    const { workers } = this.#fleet
    const some = (): WorkerRecord => this.#oneOf(workers)
    if (this.#chance(0.6))
      hints.model = this.#chance(0.04) ? 'nobody serves this' : this.#oneOf(['m', 'm', 'm', 'other'])
    if (this.#chance(0.1)) hints.pinnedInstanceId = this.#random.below(workers.length + 1)
    if (this.#chance(0.08)) hints.pinnedRank = this.#random.below(3)
    if (this.#chance(0.1)) hints.excludedWorkers = [some().id]
    if (this.#chance(0.4)) hints.sessionId = `session ${this.#random.below(3)}`
    if (this.#chance(0.1))
      hints.override = this.#oneOf([{ temperature: 0.5 }, { overlapWeight: 2 }, { overlapCredit: 0.5 }])
    if (this.#chance(0.2))
      hints.constraints = {
        allowedInstanceIds: this.#chance(0.2) ? [some().instanceId, some().instanceId] : undefined,
        requiredTaints: this.#chance(0.2) ? ['fast'] : [],
        preferredTaints: this.#oneOf([{}, { fast: 1 }, { fast: -0.5, large: 0.3 }]),
      }
    return hints
  }

  #roomRules(): readonly RoomRule[] | undefined {
    if (this.#chance(0.5)) return undefined
    const rule = (uncachedTokensMin: number): RoomRule =>
      this.#oneOf<RoomRule>([
        { uncachedTokensMin, byStep: true },
        { uncachedTokensMin, byStep: false, busyFraction: this.#oneOf([0.05, 0.2]) },
        { uncachedTokensMin, byStep: false, busyTokens: this.#oneOf([0, 60]) },
      ])
    return this.#chance(0.3) ? [rule(0), rule(3 * BLOCK_TOKENS)] : [rule(0)]
  }

  // ── What is held ─────────────────────────────────────────────────────────────────────────────

  #newView(): FleetView {
    if (this.#trust === 'none') return new EmptyView()
    if (this.#trust === 'approximate') return new GuessView(SLOTS, EVER_MS, 1 << 20)
    const table = this.#table
    return {
      heldBlocks: table.blocksHeld,
      overlaps: (ids, count, into) => table.overlaps(ids, count, into),
      sent() {},
      clear() {},
    }
  }

  /** A worker key stores the beginning of a prompt, or forgets the end of one. */
  #hold(): void {
    if (this.#trust !== 'exact' || this.#prompts.length === 0) return
    const slot = this.#oneOf(this.#fleet.workers.flatMap(({ keys }) => keys)).workerSlot
    const ids = this.#oneOf(this.#prompts)
    if (ids.length === 0) return
    const count = 1 + this.#random.below(ids.length)
    const local = Int32Array.from(ids.flatMap(id => [id, SECOND_WORD]))
    const sequence = chainSequence(local, ids.length)
    if (this.#chance(0.8)) {
      const outcome = this.#index.store(slot, undefined, sequence, local, count, 'set')
      assert.equal(outcome, 'stored')
      for (let i = 0; i < count; i++) this.#table.add(ids[i]!, slot)
      return
    }
    const from = count - 1
    this.#index.remove(slot, sequence.subarray(2 * from), ids.length - from)
    for (let i = from; i < ids.length; i++) this.#table.remove(ids[i]!, slot)
  }

  /** Tells an indexer the blocks that the router assumes to be held. */
  #guess(): void {
    for (const message of this.#indexer.waiting) {
      if (message.type !== 'routed' || this.#told.has(message.id)) continue
      this.#told.add(message.id)
      const { workerSlot, localHashes } = message
      const count = localHashes.length / 2
      const slot = layerSlot(workerSlot, GUESSED_LAYER, SLOTS)
      const sequence = chainSequence(localHashes, count)
      assert.equal(this.#index.store(slot, undefined, sequence, localHashes, count, 'set'), 'stored')
    }
  }

  readonly #told = new Set<string>()

  // ── Fleet ────────────────────────────────────────────────────────────────────────────────────

  #newFleet(): Fleet {
    let slots = 0
    const workers = Array.from({ length: 2 + this.#random.below(6) }, (_, number): WorkerRecord => {
      const ranks = this.#oneOf([1, 1, 1, 2, 3])
      const id = `worker-${number}`
      return {
        id,
        instanceId: number,
        joinedMs: number,
        origin: `http://${id}`,
        state: 'up',
        stateReason: 'it answers',
        ...(this.#chance(0.2) && { isOnTrial: true }),
        engine: 'vllm',
        engineVersion: '',
        models: (this.#chance(0.8) ? ['m', 'other'] : ['m']).map(name => ({
          name,
          base: undefined,
          root: undefined,
          maxModelTokens: undefined,
        })),
        blockSizeTokens: { value: BLOCK_TOKENS, source: 'given' },
        maxBatchedTokens: { value: this.#oneOf([256, 1024]), source: 'given' },
        kvBlocks: this.#chance(0.3) ? undefined : { value: this.#oneOf([40, 400]), source: 'given' },
        ranks: { value: ranks, source: 'given' },
        taints: this.#oneOf([[], ['fast'], ['large'], ['fast', 'large']]),
        canTokenize: false,
        keys: Array.from({ length: ranks }, (_, dpRank) => ({
          key: `${id}/${dpRank}`,
          workerSlot: slots++,
          dpRank,
          eventsEndpoint: undefined,
          replayEndpoint: undefined,
          topic: '',
          shard: 0,
          trust: this.#trust,
          trustReason: '',
          trustSinceMs: 0,
          epoch: 1,
        })),
      }
    })
    return { version: 1, workers, busyThresholds: this.#thresholds() }
  }

  #thresholds(): FleetThresholds | undefined {
    if (this.#chance(0.6)) return undefined
    const limits = this.#oneOf([
      { decodeBlocksFraction: this.#oneOf([0.02, 0.3]) },
      { prefillTokens: this.#oneOf([20, 200]) },
      { prefillFraction: this.#oneOf([0.1, 0.5]) },
    ])
    return { others: { ...NO_BUSY_THRESHOLDS, ...limits }, byModel: new Map([['other', NO_BUSY_THRESHOLDS]]) }
  }

  /** Workers go down and come back, or are no longer on trial; thresholds change. */
  #changeFleet(): void {
    const { version, workers, busyThresholds } = this.#fleet
    const at = this.#random.below(workers.length)
    this.#fleet = {
      version: version + 1,
      workers: workers.map((worker, number): WorkerRecord => {
        if (number !== at) return worker
        const { isOnTrial: _, ...settled } = worker
        if (this.#chance(0.3)) return settled
        return worker.state === 'up'
          ? { ...worker, state: 'down', stateReason: 'it does not answer' }
          : { ...worker, state: 'up', stateReason: 'it answers' }
      }),
      busyThresholds: this.#chance(0.3) ? this.#thresholds() : busyThresholds,
    }
    this.#tellFleet()
  }

  #tellFleet(): void {
    this.#tracker.tell({ type: 'fleet', fleet: this.#fleet })
    this.#router.tell({ type: 'fleet', fleet: this.#fleet })
  }

  // ── Draws ────────────────────────────────────────────────────────────────────────────────────

  get #nowMs(): number {
    return this.#system.clock.nowMs()
  }

  #oneOf<T>(these: readonly T[]): T {
    return these[this.#random.below(these.length)]!
  }

  #chance(share: number): boolean {
    return this.#random.next() < share
  }

  #count(what: string): void {
    this.#events.set(what, (this.#events.get(what) ?? 0) + 1)
  }
}

/** All of a receipt but when it was written, and what the simulator has no word for. */
function comparable({ atMs: _, queue: __, ...receipt }: Receipt): Omit<Receipt, 'atMs' | 'queue'> {
  return receipt
}

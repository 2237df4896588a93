/**
 * The part `whole` of the bench: a request's whole stay at the router, with real actors: router, tracker and
 * the messages between them.
 *
 *   one request   `decide` asked and answered (lookup, load from the tracker, choice, guard, receipt,
 *                 booking), its first token told to both, then `settled`; OPEN requests are always under way
 *   index         64 prompts, of each of which worker i holds its first (i mod 32) · 64 tokens
 *   arms          linear, auto without and with its guard; linear again with the queue in between, off and
 *                 on. Each has a router and a tracker of its own, and they take turns
 *   queue         `place` and `settled` go to it, and it asks the router; on, its threshold is so high that
 *                 nothing ever waits
 *
 * CPU time of the thread, so that what else the machine does counts less. A ratio, or what the queue adds, is
 * the median over rounds of an arm's time ÷, or −, that of linear in the same round.
 */

import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { type ActorRef, createActorSystem, defineActor } from '@homing/actor'
import type {
  AuditMessage,
  ComputedMessage,
  DirectoryMessage,
  PromptsMessage,
} from '@homing/actors/directory'
import { type QueueMessage, queue, type WaitingHints } from '@homing/actors/queue'
import { type RouterArgs, type RouterMessage, router } from '@homing/actors/router'
import { type TrackerMessage, tracker } from '@homing/actors/tracker'
import { DEFAULT_SEED, hashBlocks } from '@homing/blocks'
import { BlockIndex, layeredOptions } from '@homing/index'
import type { Decision, Delivery, RoutingRequest } from '@homing/placement'
import { GUARD_SHARE_DEFAULT, type SelectionSettings, selectionSettings } from '@homing/selection'
import type { Measure, Measures, Target } from '../harness.ts'
import { median } from '../statistics.ts'
import { BLOCK_TOKENS, fixtureOf, fleetOf, promptOf, SEL_PROMPT_TOKENS } from './fixture.ts'

export const PROMPTS = 64
export const OPEN = 32
/** Requests in one turn of the event loop. */
export const BURST = 16
/** Long enough for the clock of CPU time, which may tick every few milliseconds. */
export const BATCH = 1000
const GATEWAY = { name: 'gateway', life: 'one' }
const TIMEOUT = { timeout: 10_000 } as const

export interface WholeParameters {
  readonly fleets: readonly number[]
  readonly rounds: number
}

export interface Arm {
  readonly name: string
  readonly settings: SelectionSettings
  readonly share: number
  /** Undefined: the router is asked directly. */
  readonly queue?: 'off' | 'on'
}

const ARMS: readonly Arm[] = [
  { name: 'linear', settings: selectionSettings({ policy: 'linear' }), share: 0 },
  { name: 'auto', settings: selectionSettings({ policy: 'auto' }), share: 0 },
  {
    name: 'auto with its guard',
    settings: selectionSettings({ policy: 'auto' }),
    share: GUARD_SHARE_DEFAULT,
  },
  { name: 'linear, queue off', settings: selectionSettings({ policy: 'linear' }), share: 0, queue: 'off' },
  { name: 'linear, queue on', settings: selectionSettings({ policy: 'linear' }), share: 0, queue: 'on' },
]
/** Threshold of the queue, in engine steps; no worker ever exceeds it. */
const THRESHOLD = 1e6
const HINTS: WaitingHints = {
  tenant: 'a',
  policyClass: undefined,
  priorityJumpSeconds: 0,
  strictPriority: 0,
  doNotQueue: false,
  deadlineMs: undefined,
  bytes: 10_000,
}

/** Of an arm with a queue. */
export interface HouseParts {
  readonly router: ActorRef<RouterMessage>
  readonly queue: ActorRef<QueueMessage>
  readonly tracker: ActorRef<TrackerMessage>
}

type DirectoryMailbox =
  | AuditMessage
  | PromptsMessage
  | ComputedMessage
  | Extract<DirectoryMessage, { readonly type: 'subscribe' }>

/** Hears what a router says to the directory. */
const deafDirectory = defineActor(
  import.meta.url,
  'deafDirectory',
)<DirectoryMailbox, undefined>({
  setup: () => ({ audit() {}, prompts() {}, computed() {}, subscribe() {} }),
})

export async function measureWhole({ fleets, rounds }: WholeParameters): Promise<Measures> {
  const measures: Record<string, Measure> = {}
  for (const workers of fleets) {
    const system = await createActorSystem({})
    const houses = ARMS.map(arm => new House(system, arm, workers))
    for (const house of houses) await house.requests(2 * BATCH)
    const times = houses.map((): number[] => [])
    for (let round = 0; round < rounds; round++)
      for (let turn = 0; turn < houses.length; turn++) {
        // The first arm changes: a garbage collection falls on the arm after those that made the garbage.
        const i = (round + turn) % houses.length
        times[i]!.push(await houses[i]!.microsecondsEach())
      }
    for (const house of houses) await house.end()
    await system.shutdown()
    for (const [i, { name }] of ARMS.entries()) {
      measures[`${name}, whole, W=${workers}`] = { value: median(times[i]!), unit: 'µs' }
      if (i === 0) continue
      if (ARMS[i]!.queue !== undefined) {
        const added = median(times[i]!.map((time, round) => time - times[0]![round]!))
        measures[`${name} − linear, whole, W=${workers}`] = { value: added, unit: 'µs' }
        continue
      }
      const ratio = median(times[i]!.map((time, round) => time / times[0]![round]!))
      measures[`${name} ÷ linear, whole, W=${workers}`] = { value: ratio, unit: '×' }
    }
  }
  return measures
}

/**
 * Auto with its guard within 1.5 times linear; the queue adds at most 10 µs to a request that does not wait.
 */
export function wholeTargets(fleets: readonly number[]): Readonly<Record<string, Target>> {
  return Object.fromEntries(
    fleets.flatMap((workers): [string, Target][] => [
      [`auto with its guard ÷ linear, whole, W=${workers}`, { floor: 1.5, goal: 1.2 }],
      [`linear, queue on − linear, whole, W=${workers}`, { floor: 10, goal: 8 }],
    ]),
  )
}

/** A router and a tracker with a policy of their own, and a queue before them if the arm has one. */
export class House {
  readonly #router: ActorRef<RouterMessage>
  /** Undefined: the arm has none. */
  readonly #queue: ActorRef<QueueMessage> | undefined
  readonly #tracker: ActorRef<TrackerMessage>
  readonly #prompts = Array.from({ length: PROMPTS }, (_, seed) =>
    hashBlocks(promptOf(SEL_PROMPT_TOKENS, seed), BLOCK_TOKENS, DEFAULT_SEED),
  )
  readonly #open: Decision[] = []
  readonly #workers: number
  #asked = 0

  constructor(system: Awaited<ReturnType<typeof createActorSystem>>, arm: Arm, workers: number) {
    this.#workers = workers
    const slots = Math.max(64, workers)
    const index = BlockIndex.create(layeredOptions(64 << 20, slots))
    for (const { local, sequence } of this.#prompts) {
      for (const [worker, count] of fixtureOf(workers, SEL_PROMPT_TOKENS).overlapBlocks.entries())
        if (count > 0) assert.equal(index.store(worker, undefined, sequence, local, count), 'stored')
    }
    const name = `${arm.name.replaceAll(/\W+/g, '-')}-${workers}`
    this.#tracker = system.spawn(tracker, {
      name: `tracker-${name}`,
      args: { workerSlotsMax: slots, requestsMax: 10_000, idleMsMax: 600_000 },
    })
    const directory = system.spawn(deafDirectory, { name: `directory-${name}`, args: undefined })
    const args: RouterArgs = {
      tracker: this.#tracker,
      directory,
      indexMemories: [index.memory],
      indexers: [],
      workerSlotsMax: slots,
      layerWeights: { host: 0.75, disk: 0.25 },
      guesses: { ttlWithoutEventsMs: 120_000, ttlUntilEventsMs: undefined, blocksMax: 1 << 20 },
      selection: arm.settings,
      guard: { share: arm.share },
      decisionsKept: 1000,
      receiptRowsMax: 100_000,
      openMax: 10_000,
      trackerMsMax: 10_000,
    }
    this.#router = system.spawn(router, { name: `router-${name}`, args })
    const fleet = fleetOf(workers)
    this.#tracker.tell({ type: 'fleet', fleet })
    this.#router.tell({ type: 'fleet', fleet })
    if (arm.queue === undefined) return
    const threshold = arm.queue === 'on' ? THRESHOLD : undefined
    this.#queue = system.spawn(queue, {
      name: `queue-${name}`,
      args: {
        router: this.#router,
        tracker: this.#tracker,
        rules: { threshold, order: 'fcfs', classes: undefined },
        requestsMax: 10_000,
        tokensMax: 1e9,
        bytesMax: 1e9,
        waitMsMax: 300_000,
        agingMs: 60_000,
        askMsMax: 10_000,
      },
    })
    this.#queue.tell({ type: 'fleet', fleet })
  }

  /** For those who ask it in another way. */
  get parts(): HouseParts {
    return { router: this.#router, queue: this.#queue!, tracker: this.#tracker }
  }

  /** CPU time of this thread for one request of a batch. */
  async microsecondsEach(): Promise<number> {
    const from = process.threadCpuUsage()
    await this.requests(BATCH)
    const { user, system } = process.threadCpuUsage(from)
    return (user + system) / BATCH
  }

  async requests(count: number): Promise<void> {
    for (let i = 0; i < count; i++) {
      // A router gets its requests from sockets, so no burst of microtasks is endless: what is kept until its
      // end stays small.
      if (i % BURST === 0) await nextTurn()
      const decision = await this.#decide()
      const { id } = decision
      this.#open.push(decision)
      this.#tracker.tell({ type: 'prefillComplete', decisionId: id })
      this.#router.tell({ type: 'firstToken', id, firstTokenMs: 10 })
      if (this.#open.length > OPEN) this.#settle(this.#open.shift()!)
    }
  }

  async end(): Promise<void> {
    for (const decision of this.#open) this.#settle(decision)
    // By then its messages have reached the router.
    await this.#queue?.ask({ type: 'queueStatus' }, TIMEOUT)
    await this.#router.ask({ type: 'receipts', limit: 1 }, TIMEOUT)
    const { rows, stats } = await this.#tracker.ask({ type: 'loads' }, TIMEOUT)
    assert.equal(rows.length, this.#workers, 'all workers are known')
    assert.equal(stats.requests, 0, 'nothing is booked any more')
  }

  async #decide(): Promise<Decision> {
    const number = this.#asked++
    const { local, sequence, count } = this.#prompts[number % PROMPTS]!
    const id = `decision-${number}`
    const request: RoutingRequest = {
      requestId: id,
      model: 'm',
      promptTokens: SEL_PROMPT_TOKENS,
      blockSizeTokens: BLOCK_TOKENS,
      isStream: true,
      localHashes: local.subarray(0, 2 * count),
      sequenceHashes: sequence.subarray(0, 2 * count),
      unknownPromptReason: undefined,
      textBlocksReason: undefined,
      override: {},
      pinnedInstanceId: undefined,
      pinnedRank: undefined,
      excludedWorkers: [],
    }
    const question = { id, gateway: GATEWAY, request }
    const answer =
      this.#queue === undefined
        ? await this.#router.ask({ type: 'decide', ...question }, TIMEOUT)
        : await this.#queue.ask({ type: 'place', ...question, ageMs: 0, hints: HINTS }, TIMEOUT)
    assert.ok(answer.kind === 'decided')
    return answer.decision
  }

  /** Its engine delivered what was predicted. */
  #settle({ id, predictedTokens }: Decision): void {
    const delivery = { ...DELIVERED, cachedTokens: predictedTokens }
    const owner = this.#queue ?? this.#router
    owner.tell({ type: 'settled', id, delivery, wasTaken: true })
  }
}

const DELIVERED: Delivery = {
  outcome: 'ok',
  status: 200,
  promptTokens: SEL_PROMPT_TOKENS,
  completionTokens: 100,
  cachedTokens: undefined,
  waitedMs: 1,
  timeToFirstByteMs: 10,
  durationMs: 400,
  streamEvents: 100,
  error: undefined,
}

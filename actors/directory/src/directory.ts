/**
 * Directory: which workers exist, what they are, how they are, and how far their caches are known.
 *
 * In     `suspect` from the dispatcher; `source` from listeners; `shardReset` from indexers; what its own probes
 *        found; subscriptions and questions.
 * Out    `fleet` to its subscribers after every change; a listener per worker key that publishes events.
 * Owns   every `WorkerRecord`, the worker slots, and the listeners (as children).
 * Order  a subscriber sees the versions in order. A worker slot serves another key only after its listener has
 *        ended and its indexer has answered `release`.
 * Fails  a worker that does not answer is a state, not a failure. A listener that fails is restarted;
 *        one that fails for good is started anew after LISTENER_PAUSE_MS. When the directory itself
 *        restarts it begins empty: new slots, new probes, new listeners.
 *
 *   worker      probing ──reached──▶ up ──suspect, or three misses──▶ down ──reached──▶ up
 *   listener    idle ──endpoint known──▶ running ──endpoint changed or useless──▶ stopping ──ended──▶
 *               releasing ──the indexer answered──▶ idle
 *
 * A probe is one of two kinds: `full` asks for everything and is used until a worker is up, after it
 * was down, and every FULL_PROBE_TURNS; the cheap one only asks whether it answers. A slow answer is
 * not death: each miss doubles the time that the next probe may take.
 */

import {
  type ActorContext,
  type ActorRef,
  defineActor,
  type Signal,
  type Supervision,
  signal,
} from '@homing/actor'
import type { IndexerMessage } from '@homing/indexer'
import {
  LISTENER_LIMITS,
  type ListenerArgs,
  type ListenerMessage,
  listener,
  type Trust,
} from '@homing/listener'
import { transportCapability } from '@homing/transport'
import { NoWorkerSlotError } from './errors.ts'
import type {
  DirectoryMessage,
  Fleet,
  FleetMessage,
  FleetReport,
  ProbeOutcome,
  WorkerKeyRecord,
  WorkerRecord,
  WorkerSpec,
  WorkerState,
} from './messages.ts'
import { checkHealth, probeWorker } from './probe.ts'
import {
  eventFlags,
  eventSourceOf,
  factsOf,
  missingOf,
  type ReachedOutcome,
  type WorkerDefaults,
  type WorkerFacts,
} from './worker-facts.ts'

export interface DirectoryArgs {
  readonly specs: readonly WorkerSpec[]
  /** By shard. */
  readonly indexers: readonly ActorRef<IndexerMessage>[]
  /** False: no listeners, every worker is served by load. */
  readonly kvEvents: boolean
  /** The block size of every worker that does not say otherwise in its own parameters. */
  readonly blockSizeTokens: number | undefined
  readonly workerSlotsMax: number
  /** The pool whose thread `<pool>-<shard>` hosts the listeners of a shard; default 'events'. */
  readonly eventPool?: string
  readonly probeIntervalMs: number
  readonly probeTimeoutMs: number
  /** Silence after which a replay has ended. */
  readonly replayTimeoutMs: number
}

/** Misses in a row after which a worker that was up is down. */
const MISSES_MAX = 3
const SLOW_PROBE_MS_MAX = 10_000
/** Every so many probes of a worker that is up ask for everything. */
const FULL_PROBE_TURNS = 5
const RETRY_MS_MIN = 200
const RETRY_MS_MAX = 2000
/** A suspicion within this time of the last one is probed later than the last one. */
const SUSPECT_MEMORY_MS = 10_000
const OBSERVE_INTERVAL_MS = 1000
const LISTENER_PAUSE_MS = 1000
const RELEASE_TIMEOUT_MS = 5000
/** How long the announcement of a worker waits for the trust in it to settle. */
const ANNOUNCE_MS_MAX = 3000
const STATUS_TIMEOUT_MS = 500
const SUBSCRIBERS_MAX = 1024
const WAITERS_MAX = 1024
/** A process whose start moved by more is another one. */
const START_TOLERANCE_SECONDS = 1
/** Replies of one replay may all wait: engines keep 10,000 batches. */
const LISTENER_MAILBOX = 32_768

const LISTENER_SUPERVISION: Supervision = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: '50ms', max: '5s', jitter: 0.2 },
}

type ListenerPhase = 'idle' | 'running' | 'stopping' | 'releasing'

/** A worker key and its listener. */
interface Key {
  readonly name: string
  readonly worker: Worker
  readonly dpRank: number
  readonly workerSlot: number
  readonly shard: number
  phase: ListenerPhase
  listener: ActorRef<ListenerMessage> | undefined
  /** What the running listener was started for. */
  startedFor: string
  /** What the listener last said. */
  heard: { readonly trust: Trust; readonly reason: string }
  trust: Trust
  trustReason: string
  trustSinceMs: number
  /** The worker no longer has this rank: the key ends when its listener has. */
  isGone: boolean
}

interface Worker {
  readonly spec: WorkerSpec
  state: WorkerState
  stateReason: string
  outcome: ReachedOutcome | undefined
  learnedBlockSizeTokens: number | undefined
  keys: Key[]
  wasProbed: boolean
  wasAnnounced: boolean
  misses: number
  /** Cheap probes since the last full one. */
  turnsSinceFull: number
  /** What comes back from a probe of an earlier turn is stale. */
  turn: number
  retryMs: number
  suspectedMs: number
}

export const directory = defineActor(
  import.meta.url,
  'directory',
)<DirectoryMessage, DirectoryArgs>({
  setup(context, args) {
    const state = new Directory(context, args)
    state.start()
    return {
      subscribe: ({ subscriber }) => state.subscribe(subscriber),
      suspect: ({ workerId, reason }) => state.suspect(workerId, reason),
      source: message => state.heard(message),
      shardReset: message => state.shardReset(message),
      describe: ({ reply }) => state.describe(reply),
      whenProbed: ({ reply }) => state.whenProbed(reply),
      observeIndexers: () => state.observeIndexers(),
      probeDue: ({ workerId, turn }) => state.probe(workerId, turn),
      probed: ({ workerId, turn, outcome }) => state.probed(workerId, turn, outcome),
      healthChecked: ({ workerId, turn, fault }) => state.healthChecked(workerId, turn, fault),
      publish: () => state.publish(),
      announce: ({ workerId }) => state.announceNow(workerId),
      listenerDue: ({ key }) => state.listenerDue(key),
      released: ({ key, isReleased }) => state.released(key, isReleased),
      [signal]: received => state.signalled(received),
    }
  },
})

class Directory {
  readonly #context: ActorContext<DirectoryMessage>
  readonly #args: DirectoryArgs
  readonly #defaults: WorkerDefaults
  readonly #workers = new Map<string, Worker>()
  readonly #keys = new Map<string, Key>()
  readonly #keysBySlot = new Map<number, Key>()
  readonly #freeSlots: number[] = []
  #slotsUsed = 0
  readonly #keysPerShard: number[]
  /** By shard; undefined before the indexer answered. */
  readonly #incarnations: (number | undefined)[]
  readonly #subscribers = new Map<string, ActorRef<FleetMessage>>()
  #waiters: ((fleet: Fleet) => void)[] = []
  #fleet: Fleet = { version: 0, workers: [] }
  /** Workers whose record may differ from the one published. */
  readonly #changed = new Set<Worker>()
  #willPublish = false
  /** By worker, the text of its last record: what is equal is not sent again. */
  readonly #published = new Map<string, { readonly text: string; readonly record: WorkerRecord }>()

  constructor(context: ActorContext<DirectoryMessage>, args: DirectoryArgs) {
    this.#context = context
    this.#args = args
    this.#defaults = { blockSizeTokens: args.blockSizeTokens }
    this.#keysPerShard = args.indexers.map(() => 0)
    this.#incarnations = args.indexers.map(() => undefined)
  }

  start(): void {
    for (const spec of this.#args.specs) {
      if (this.#workers.has(spec.id)) {
        this.#context.log.warn({ worker: spec.id }, 'worker is given twice; the first one counts')
        continue
      }
      const worker: Worker = {
        spec,
        state: 'probing',
        stateReason: 'not probed yet',
        outcome: undefined,
        learnedBlockSizeTokens: undefined,
        keys: [],
        wasProbed: false,
        wasAnnounced: false,
        misses: 0,
        turnsSinceFull: 0,
        turn: 0,
        retryMs: RETRY_MS_MIN,
        suspectedMs: Number.NEGATIVE_INFINITY,
      }
      this.#workers.set(spec.id, worker)
      this.#changed.add(worker)
      this.#reconcileKeys(worker)
      this.probe(spec.id, worker.turn)
    }
    this.observeIndexers()
    this.publish()
  }

  // Those who ask.

  subscribe(subscriber: ActorRef<FleetMessage>): void {
    if (!this.#subscribers.has(subscriber.key)) {
      if (this.#subscribers.size >= SUBSCRIBERS_MAX) {
        this.#context.log.error(
          { subscriber: subscriber.name, SUBSCRIBERS_MAX },
          'too many subscribers of the fleet',
        )
        return
      }
      this.#subscribers.set(subscriber.key, subscriber)
      this.#context.watch(subscriber)
    }
    subscriber.tell({ type: 'fleet', fleet: this.#fleet })
  }

  whenProbed(reply: (fleet: Fleet) => void): void {
    if (this.#waiters.length >= WAITERS_MAX) this.#waiters.shift()
    this.#waiters.push(reply)
    this.#answerWaiters()
  }

  describe(reply: (report: FleetReport) => void): void {
    const fleet = this.#fleet
    const running = [...this.#keys.values()].filter(
      key => key.phase === 'running' && key.listener !== undefined,
    )
    const asked = running.map(async key => {
      const status = await key
        .listener!.ask({ type: 'status' }, { timeout: STATUS_TIMEOUT_MS })
        .catch(() => undefined)
      return [key.workerSlot, status] as const
    })
    void Promise.all(asked).then(entries => reply({ fleet, sources: Object.fromEntries(entries) }))
  }

  // Probes.

  probe(workerId: string, turn: number): void {
    const worker = this.#workers.get(workerId)
    if (worker === undefined || worker.turn !== turn) return
    const { http } = this.#context.use(transportCapability)
    const timeoutMs = Math.min(SLOW_PROBE_MS_MAX, this.#args.probeTimeoutMs * 2 ** worker.misses)
    const { origin } = worker.spec
    if (worker.state === 'up' && worker.turnsSinceFull < FULL_PROBE_TURNS) {
      worker.turnsSinceFull++
      this.#context.pipe(
        checkHealth(http, origin, timeoutMs),
        health => ({
          type: 'healthChecked',
          workerId,
          turn,
          fault: health.isHealthy ? undefined : health.reason,
        }),
        error => ({ type: 'healthChecked', workerId, turn, fault: String(error) }),
      )
      return
    }
    worker.turnsSinceFull = 0
    this.#context.pipe(
      probeWorker(http, origin, timeoutMs),
      outcome => ({ type: 'probed', workerId, turn, outcome }),
      error => ({ type: 'probed', workerId, turn, outcome: { reached: false, reason: String(error) } }),
    )
  }

  probed(workerId: string, turn: number, outcome: ProbeOutcome): void {
    const worker = this.#workers.get(workerId)
    if (worker === undefined || worker.turn !== turn) return
    const isFirst = !worker.wasProbed
    worker.wasProbed = true
    this.#touch(worker)
    if (outcome.reached) this.#reached(worker, outcome)
    else this.#missed(worker, outcome.reason)
    if (isFirst && !outcome.reached) {
      this.#context.log.warn(
        { worker: workerId, reason: outcome.reason },
        'worker does not answer; it is probed until it does',
      )
    }
    this.#touch(worker)
  }

  healthChecked(workerId: string, turn: number, fault: string | undefined): void {
    const worker = this.#workers.get(workerId)
    if (worker === undefined || worker.turn !== turn) return
    if (fault !== undefined) this.#missed(worker, fault)
    else {
      worker.misses = 0
      this.#scheduleProbe(worker, this.#args.probeIntervalMs)
    }
    this.#touch(worker)
  }

  suspect(workerId: string, reason: string): void {
    const worker = this.#workers.get(workerId)
    if (worker === undefined || worker.state !== 'up') return
    const nowMs = this.#context.clock.nowMs()
    const isAgain = nowMs - worker.suspectedMs < SUSPECT_MEMORY_MS
    worker.retryMs = isAgain ? Math.min(RETRY_MS_MAX, worker.retryMs * 2) : RETRY_MS_MIN
    worker.suspectedMs = nowMs
    this.#goDown(worker, reason)
    this.#scheduleProbe(worker, worker.retryMs)
    this.#touch(worker)
  }

  #reached(worker: Worker, outcome: ReachedOutcome): void {
    const before = worker.outcome
    const startedBefore = before?.processStartSeconds
    const started = outcome.processStartSeconds
    worker.outcome = outcome
    worker.misses = 0
    if (worker.state !== 'up') {
      if (worker.state === 'down') this.#context.log.info({ worker: worker.spec.id }, 'worker is up')
      worker.state = 'up'
      worker.stateReason = 'answers'
    }
    const isOther =
      startedBefore !== undefined &&
      started !== undefined &&
      Math.abs(started - startedBefore) > START_TOLERANCE_SECONDS
    if (isOther) {
      this.#context.log.info({ worker: worker.spec.id }, 'engine has restarted')
      worker.learnedBlockSizeTokens = undefined
    } else if (before !== undefined && before.blockSizeTokens !== outcome.blockSizeTokens) {
      worker.learnedBlockSizeTokens = undefined
    }
    this.#reconcileKeys(worker)
    if (isOther) for (const key of worker.keys) key.listener?.tell({ type: 'engineRestarted' })
    this.#reconcileAll()
    if (!worker.wasAnnounced) this.#announceLater(worker)
    this.#scheduleProbe(worker, this.#args.probeIntervalMs)
  }

  #missed(worker: Worker, reason: string): void {
    worker.misses++
    if (worker.state === 'up' && worker.misses < MISSES_MAX) {
      worker.turnsSinceFull = FULL_PROBE_TURNS
      this.#scheduleProbe(worker, RETRY_MS_MIN)
      return
    }
    if (worker.state !== 'down') worker.retryMs = RETRY_MS_MIN
    else worker.retryMs = Math.min(RETRY_MS_MAX, worker.retryMs * 2)
    worker.misses = Math.min(worker.misses, MISSES_MAX)
    this.#goDown(worker, reason)
    this.#scheduleProbe(worker, worker.retryMs)
  }

  #goDown(worker: Worker, reason: string): void {
    if (worker.state === 'up') this.#context.log.warn({ worker: worker.spec.id, reason }, 'worker is down')
    worker.state = 'down'
    worker.stateReason = reason
  }

  #scheduleProbe(worker: Worker, delayMs: number): void {
    worker.turn++
    this.#context.schedule(delayMs, { type: 'probeDue', workerId: worker.spec.id, turn: worker.turn })
  }

  // Worker keys.

  /** Makes the keys of a worker match its ranks. */
  #reconcileKeys(worker: Worker): void {
    const { ranks } = this.#facts(worker)
    for (let dpRank = worker.keys.length; dpRank < ranks.value; dpRank++) {
      const key = this.#newKey(worker, dpRank)
      if (key === undefined) break
      worker.keys.push(key)
    }
    while (worker.keys.length > ranks.value) {
      const key = worker.keys.pop()!
      key.isGone = true
      this.#reconcileListener(key)
    }
  }

  #newKey(worker: Worker, dpRank: number): Key | undefined {
    const name = `${worker.spec.id}/${dpRank}`
    // A rank that goes and comes back at once gets its key only after the old one has ended.
    if (this.#keys.has(name)) return undefined
    const workerSlot =
      this.#freeSlots.pop() ?? (this.#slotsUsed < this.#args.workerSlotsMax ? this.#slotsUsed++ : -1)
    if (workerSlot < 0) {
      const error = new NoWorkerSlotError(name, this.#args.workerSlotsMax)
      this.#context.log.error({ code: error.code, ...error.details }, error.message)
      return undefined
    }
    const shard = this.#keysPerShard.indexOf(Math.min(...this.#keysPerShard))
    this.#keysPerShard[shard]!++
    const key: Key = {
      name,
      worker,
      dpRank,
      workerSlot,
      shard,
      phase: 'idle',
      listener: undefined,
      startedFor: '',
      heard: { trust: 'none', reason: 'its events are not heard yet' },
      trust: 'none',
      trustReason: 'not probed yet',
      trustSinceMs: this.#context.clock.wallMs(),
      isGone: false,
    }
    this.#keys.set(name, key)
    this.#keysBySlot.set(workerSlot, key)
    return key
  }

  #endKey(key: Key): void {
    this.#keys.delete(key.name)
    this.#keysBySlot.delete(key.workerSlot)
    this.#keysPerShard[key.shard]!--
    this.#freeSlots.push(key.workerSlot)
    this.#reconcileKeys(key.worker)
    for (const other of key.worker.keys) this.#reconcileListener(other)
  }

  // Listeners.

  /** Brings every listener and every trust in line with what is known; a change may concern other workers. */
  #reconcileAll(): void {
    for (const worker of this.#workers.values()) {
      for (const key of worker.keys) this.#reconcileListener(key)
    }
  }

  #reconcileListener(key: Key): void {
    const wanted = this.#listenerArgs(key)
    if (key.phase === 'idle') {
      if (key.isGone) this.#endKey(key)
      else if (wanted !== undefined) this.#startListener(key, wanted)
    } else if (key.phase === 'running' && (wanted === undefined || startText(wanted) !== key.startedFor)) {
      key.phase = 'stopping'
      this.#context.stop(key.listener!)
    }
    this.#refreshTrust(key)
  }

  #startListener(key: Key, args: ListenerArgs): void {
    key.phase = 'running'
    key.startedFor = startText(args)
    key.heard = { trust: 'none', reason: `no connection to ${args.eventsEndpoint} yet; served by load` }
    key.listener = this.#context.spawn(listener, {
      name: `listener ${key.name}`,
      args,
      thread: `${this.#args.eventPool ?? 'events'}-${key.shard}`,
      supervision: LISTENER_SUPERVISION,
      mailbox: { capacity: LISTENER_MAILBOX },
    })
    this.#context.watch(key.listener)
  }

  /** Undefined: this key is to have no listener. */
  #listenerArgs(key: Key): ListenerArgs | undefined {
    const { worker, workerSlot, dpRank } = key
    const source = eventSourceOf(worker.spec, worker.outcome, dpRank)
    if (!this.#args.kvEvents || key.isGone || worker.outcome === undefined || source === undefined)
      return undefined
    if (this.#blockSizeFault(worker) !== undefined) return undefined
    const probed = worker.outcome.blockSizeTokens
    return {
      workerSlot,
      key: key.name,
      dpRank,
      eventsEndpoint: source.endpoint,
      replayEndpoint: source.replayEndpoint,
      topic: source.topic,
      blockSizeTokens: worker.spec.blockSizeTokens ?? this.#defaults.blockSizeTokens ?? probed,
      indexer: this.#args.indexers[key.shard]!,
      directory: this.#context.self,
      limits: { ...LISTENER_LIMITS, replayTimeoutMs: this.#args.replayTimeoutMs },
    }
  }

  heard(message: Extract<DirectoryMessage, { readonly type: 'source' }>): void {
    const key = this.#keysBySlot.get(message.workerSlot)
    if (key === undefined || key.phase !== 'running') return
    key.heard = { trust: message.trust, reason: message.reason }
    const { worker } = key
    if (message.blockSizeTokens !== undefined && message.blockSizeTokens !== worker.learnedBlockSizeTokens) {
      worker.learnedBlockSizeTokens = message.blockSizeTokens
      this.#reconcileAll()
    }
    this.#refreshTrust(key)
    if (!worker.wasAnnounced && worker.keys.every(isSettled)) this.announceNow(worker.spec.id)
    this.#touch(worker)
  }

  listenerDue(name: string): void {
    const key = this.#keys.get(name)
    if (key === undefined) return
    if (key.phase === 'releasing') this.#release(key)
    else this.#reconcileListener(key)
    if (key.phase === 'running') this.#context.watch(key.listener!)
    this.#touch(key.worker)
  }

  signalled(received: Signal): void {
    if (received.type !== 'terminated') return
    const { ref, reason, error } = received
    if (this.#subscribers.delete(ref.key)) return
    for (const key of this.#keys.values()) {
      if (key.listener?.key !== ref.key) continue
      const why = error?.message ?? reason
      if (key.phase === 'running' && reason === 'threadExit') {
        // It comes back under the same ref; it is watched again when it has had time to.
        key.heard = { trust: 'none', reason: `its event thread has ended (${why}); served by load` }
        this.#context.schedule(LISTENER_PAUSE_MS, { type: 'listenerDue', key: key.name })
        this.#refreshTrust(key)
        return
      }
      if (key.phase === 'running') {
        this.#context.log.error({ key: key.name, reason: why }, 'listener has ended; it is started anew')
        key.heard = { trust: 'none', reason: `its listener has ended (${why}); served by load` }
      }
      key.listener = undefined
      this.#release(key)
      this.#refreshTrust(key)
      return
    }
  }

  #release(key: Key): void {
    key.phase = 'releasing'
    const { name, workerSlot, shard } = key
    this.#context.pipe(
      this.#args.indexers[shard]!.ask({ type: 'release', workerSlot }, { timeout: RELEASE_TIMEOUT_MS }),
      () => ({ type: 'released', key: name, isReleased: true }),
      () => ({ type: 'released', key: name, isReleased: false }),
    )
  }

  released(name: string, isReleased: boolean): void {
    const key = this.#keys.get(name)
    if (key === undefined || key.phase !== 'releasing') return
    if (isReleased) {
      key.phase = 'idle'
      if (key.isGone) this.#endKey(key)
    }
    if (this.#keys.get(name) === key) {
      this.#context.schedule(LISTENER_PAUSE_MS, { type: 'listenerDue', key: name })
      this.#refreshTrust(key)
    }
    this.#touch(key.worker)
  }

  // Indexers.

  observeIndexers(): void {
    this.#args.indexers.forEach((indexer, shard) => {
      const incarnation = this.#incarnations[shard]
      indexer.tell({ type: 'observe', incarnation, observer: this.#context.self })
    })
    this.#context.schedule(OBSERVE_INTERVAL_MS, { type: 'observeIndexers' })
  }

  shardReset({
    shard,
    incarnation,
    openSlots,
  }: Extract<DirectoryMessage, { readonly type: 'shardReset' }>): void {
    const known = this.#incarnations[shard]
    if (known === incarnation) return
    this.#incarnations[shard] = incarnation
    if (known === undefined) return
    this.#context.log.warn({ shard }, 'index shard began anew; its sources are rebuilt')
    for (const key of this.#keys.values()) {
      // Who has opened its slot since is rebuilding already.
      if (key.shard !== shard || openSlots.includes(key.workerSlot)) continue
      key.listener?.tell({ type: 'resync', cause: 'lost', reason: 'the index began anew' })
    }
  }

  // Trust.

  #refreshTrust(key: Key): void {
    const [trust, reason] = this.#trustOf(key)
    if (key.trust === trust && key.trustReason === reason) return
    if (key.trust !== trust) {
      key.trustSinceMs = this.#context.clock.wallMs()
      if (key.worker.wasAnnounced) {
        this.#context.log.info({ key: key.name, trust, reason }, 'trust has changed')
      }
    }
    key.trust = trust
    key.trustReason = reason
    this.#touch(key.worker)
  }

  #trustOf(key: Key): readonly [Trust, string] {
    const { worker } = key
    if (!this.#args.kvEvents) return ['none', 'KV events are switched off (--no-kv-events); served by load']
    if (worker.outcome === undefined) return ['none', 'not probed yet']
    if (eventSourceOf(worker.spec, worker.outcome, key.dpRank) === undefined) {
      return [
        'none',
        `publishes no KV events: start it with ${eventFlags(worker.outcome.engine)}; served by load`,
      ]
    }
    const fault = this.#blockSizeFault(worker)
    if (fault !== undefined) return ['none', `${fault}; served by load`]
    return [key.heard.trust, key.heard.reason]
  }

  /** Why the blocks of a worker cannot be compared with prompts; undefined: they can. */
  #blockSizeFault(worker: Worker): string | undefined {
    const own = this.#facts(worker).blockSizeTokens
    const learned = worker.learnedBlockSizeTokens
    if (own === undefined) return undefined
    if (learned !== undefined && learned !== own.value) {
      return `its events have blocks of ${learned} tokens, ${own.value} were given: correct block_size or --kv-cache-block-size`
    }
    for (const { name } of worker.outcome?.models ?? []) {
      const first = this.#firstOfModel(name)
      if (first === undefined || first === worker) continue
      const size = this.#facts(first).blockSizeTokens!
      if (size.value !== own.value) {
        return `blocks of ${own.value} tokens, but ${first.spec.id} of the same model has ${size.value}: start both with the same block size`
      }
    }
    return undefined
  }

  /** The first worker, in the order given, that serves a model and whose block size is known. */
  #firstOfModel(name: string): Worker | undefined {
    for (const worker of this.#workers.values()) {
      if (worker.outcome === undefined || this.#facts(worker).blockSizeTokens === undefined) continue
      if (this.#facts(worker).models.some(model => model.name === name)) return worker
    }
    return undefined
  }

  #facts(worker: Worker): WorkerFacts {
    return factsOf(worker.spec, worker.outcome, worker.learnedBlockSizeTokens, this.#defaults)
  }

  // Announcements.

  #announceLater(worker: Worker): void {
    if (worker.keys.every(isSettled)) this.announceNow(worker.spec.id)
    else this.#context.schedule(ANNOUNCE_MS_MAX, { type: 'announce', workerId: worker.spec.id })
  }

  /** One line for people about a worker that answered for the first time. */
  announceNow(workerId: string): void {
    const worker = this.#workers.get(workerId)
    if (worker?.outcome === undefined || worker.wasAnnounced) return
    worker.wasAnnounced = true
    const facts = this.#facts(worker)
    const first = worker.keys[0]
    this.#context.log.info(
      {
        worker: workerId,
        engine: `${facts.engine} ${facts.engineVersion}`.trim(),
        models: facts.models.map(model => model.name),
        blockSizeTokens: facts.blockSizeTokens?.value,
        ranks: facts.ranks.value,
        events: eventSourceOf(worker.spec, worker.outcome, 0)?.endpoint,
        trust: first?.trust,
        trustReason: first?.trustReason,
        missing: missingOf(worker.spec, worker.outcome, facts),
      },
      'worker found',
    )
  }

  // The fleet.

  /** The record of this worker may have changed. */
  #touch(worker: Worker): void {
    this.#changed.add(worker)
    this.#publishSoon()
  }

  /** Sends the fleet once what is waiting in the mailbox has been looked at too. */
  #publishSoon(): void {
    if (this.#willPublish) return
    this.#willPublish = true
    if (this.#context.self.tell({ type: 'publish' }) !== 'ok') this.publish()
  }

  publish(): void {
    this.#willPublish = false
    let hasChanged = this.#fleet.version === 0
    for (const worker of this.#changed) {
      const record = this.#record(worker)
      const text = JSON.stringify(record)
      if (this.#published.get(worker.spec.id)?.text === text) continue
      hasChanged = true
      this.#published.set(worker.spec.id, { text, record })
    }
    this.#changed.clear()
    if (hasChanged) {
      const workers = [...this.#workers.keys()].map(id => this.#published.get(id)!.record)
      this.#fleet = { version: this.#fleet.version + 1, workers }
      for (const subscriber of this.#subscribers.values())
        subscriber.tell({ type: 'fleet', fleet: this.#fleet })
    }
    this.#answerWaiters()
  }

  #record(worker: Worker): WorkerRecord {
    const { spec, state, stateReason } = worker
    const { id, instanceId, origin, taints } = spec
    return {
      id,
      instanceId,
      origin,
      state,
      stateReason,
      ...this.#facts(worker),
      taints,
      keys: worker.keys.map(key => this.#keyRecord(key)),
    }
  }

  #keyRecord(key: Key): WorkerKeyRecord {
    const { worker, dpRank, workerSlot, shard, trust, trustReason, trustSinceMs } = key
    const source = eventSourceOf(worker.spec, worker.outcome, dpRank)
    return {
      key: key.name,
      workerSlot,
      dpRank,
      eventsEndpoint: source?.endpoint,
      replayEndpoint: source?.replayEndpoint,
      topic: source?.topic ?? '',
      shard,
      trust,
      trustReason,
      trustSinceMs,
    }
  }

  #answerWaiters(): void {
    for (const worker of this.#workers.values()) if (!worker.wasProbed) return
    const waiters = this.#waiters
    this.#waiters = []
    for (const reply of waiters) reply(this.#fleet)
  }
}

/** What a listener is started for; when it changes, the listener is replaced. */
function startText({ eventsEndpoint, replayEndpoint, topic, dpRank }: ListenerArgs): string {
  return JSON.stringify([eventsEndpoint, replayEndpoint, topic, dpRank])
}

/** Nothing is about to change in the trust of this key, as far as one can see. */
function isSettled(key: Key): boolean {
  return key.phase !== 'running' || key.trust !== 'none'
}

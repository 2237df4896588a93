/**
 * Directory: which workers exist, their facts, their health, and how well their caches are known.
 *
 * In     `suspect` from the gateway; `source` from listeners; `audit` from the router; `shardReset` from
 *        indexers; results of its own probes; subscriptions and questions.
 * Out    `fleet` to its subscribers after every change; a listener per worker key that publishes events. To
 *        indexers: when a worker key has lost what was sent to it.
 * Owns   every `WorkerRecord`, the worker slots, and the listeners (as children). Its modules share `Worker`
 *        and `Key` (worker.ts), where each field has one writer:
 *          worker-probes     whether a worker is up
 *          worker-keys       keys, slots and shards of its ranks
 *          key-listeners     the lives of the listeners
 *          key-trust         the trust that is published to other actors
 *          shard-watch       indexers that were reset
 *          fleet-feed        snapshots, subscribers
 *          door-holders      gateways on other threads, which are told where keys stand
 *          worker-table      all workers together
 *          worker-announcements  a log line for people
 *          key-audits        comparison of answers with events
 *          prompt-audits     whether engines make other tokens of prompts
 *          named-sockets     which sockets keys name: no two may name the same
 *          fleet-changes     workers that join, drain and leave at run time
 *          worker-trials     how long a new worker gets a small share
 *          workers-file-watch  the same, by a file
 *          found-workers     the same, by DNS names or Kubernetes
 *          worker-diagnoses    a fresh look at one worker, for operators
 *        This file passes messages to the modules, and passes results from one module to another.
 * Order  a subscriber sees the versions in order, and on this thread finally the last one. A worker slot
 *        serves another key only after its listener has ended and its indexer has answered `release`.
 * Fails  a worker that does not answer is a state, not a failure. When the directory itself restarts, it
 *        begins empty: new slots, new probes, new listeners. It gets workers and busy thresholds that were
 *        set at run time back from its keeper.
 */

import { isDeepStrictEqual } from 'node:util'
import { type ActorContext, type ActorRef, defineActor, type Signal, signal } from '@homing/actor'
import type { ShardResetMessage } from '@homing/actors/indexer'
import {
  checkpointOptions,
  type ListenerMessage,
  type SourceMessage,
  saveCheckpoints,
} from '@homing/actors/listener'
import { toErrorRecord } from '@homing/base'
import { isOtherProcess, NO_KEYS, outcomeAfter, type ReachedOutcome, socketsOf } from '@homing/fleet'
import { NO_BUSY_THRESHOLDS } from '@homing/load'
import { clashText, SocketClaims } from '@homing/transport'
import type { DirectoryArgs } from './directory-args.ts'
import { DoorHolders } from './door-holders.ts'
import { FleetChanges } from './fleet-changes.ts'
import { FleetFeed } from './fleet-feed.ts'
import { FoundWorkers } from './found-workers.ts'
import { KeyAudits } from './key-audits.ts'
import { KeyListeners } from './key-listeners.ts'
import { KeySilence } from './key-silence.ts'
import { KeyTrust } from './key-trust.ts'
import type { DirectoryMessage, FleetReport, Kept, KeptFleet } from './messages.ts'
import { PromptAudits } from './prompt-audits.ts'
import { RegisteredWorkers } from './registered-workers.ts'
import { ShardWatch } from './shard-watch.ts'
import { StreamSnapshots } from './stream-snapshots.ts'
import type { Key, Worker } from './worker.ts'
import { WorkerAnnouncements } from './worker-announcements.ts'
import { WorkerDiagnoses } from './worker-diagnoses.ts'
import { WorkerKeys } from './worker-keys.ts'
import { WorkerProbes } from './worker-probes.ts'
import { openSource } from './worker-source.ts'
import { WorkerTable } from './worker-table.ts'
import { WorkerTrials } from './worker-trials.ts'
import { WorkersFileWatch } from './workers-file-watch.ts'

const STATUS_TIMEOUT_MS = 500
const KEEPER_MS_MAX = 5000
const WORKER_DRAIN_MS_MAX = 600_000

export const directory = defineActor(
  import.meta.url,
  'directory',
)<DirectoryMessage, DirectoryArgs>({
  async setup(context, args) {
    const kept = await keptOf(context, args)
    const state = new Directory(context, args, kept)
    const { changes, doors, feed, probes, announcements, trials, shards } = state
    state.start(args, kept.fleet)
    return {
      subscribe: ({ subscriber }) => feed.subscribe(subscriber),
      holdsDoors({ holder }) {
        if (doors.add(holder)) holder.tell({ type: 'doors', doors: doors.all, isAll: true })
      },
      doors({ holder, reply }) {
        doors.add(holder)
        reply(doors.all)
      },
      suspect: ({ workerId, reason, isUnreachable }) => probes.suspect(workerId, reason, isUnreachable),
      alive: ({ workerIds }) => probes.alive(workerIds),
      lookAgain: ({ workerId }) => probes.lookAgain(workerId),
      source: message => state.heard(message),
      audit: message => {
        const key = state.keys.ofSlot(message.workerSlot)
        if (key !== undefined) state.audits.heard(key, message)
      },
      churnSeen: ({ audit, churn }) => {
        const key = state.keys.ofSlot(audit.workerSlot)
        if (key !== undefined) state.audits.looked(key, audit, churn)
      },
      computed: message => {
        const key = state.keys.ofSlot(message.workerSlot)
        if (key !== undefined) state.silence.computed(key, message)
      },
      prompts: message => state.prompts.heard(message),
      shardReset: message => state.shardReset(message),
      addWorker: ({ url, reply }) => reply(changes.add(url, args.apiKeys ?? NO_KEYS)),
      removeWorker: ({ workerId, reply }) => reply(changes.remove(workerId)),
      drainWorker: ({ workerId, reply }) => reply(changes.drain(workerId)),
      diagnoseWorker: ({ workerId, reply }) => void state.diagnoses.diagnose(workerId).then(reply),
      drained: ({ workerId }) => changes.drained(workerId),
      workerPresent: ({ life, card }) => state.registered?.present(life, card),
      workerAbsent: ({ life, reason }) => state.registered?.absent(life, reason),
      brokerConnected: () => state.registered?.connected(),
      registrationsDue: ({ connection }) => state.registered?.due(connection),
      foundChanged: () => state.found?.look(),
      workersFileLook: () => state.file?.look(),
      workersFileRead: ({ found }) => state.file?.read(found),
      drainDue: ({ workerId, turn }) => changes.drainDue(workerId, turn),
      setBusyThresholds: ({ model, change, reply }) => reply(feed.setBusyThresholds(model, change)),
      describe: ({ reply }) => state.describe(reply),
      saveCheckpoints: ({ timeoutMs, reply }) => {
        void saveCheckpoints(
          state.running().map(({ listener }) => listener),
          timeoutMs,
          context.clock,
        ).then(reply)
      },
      whenProbed: ({ withinMs, reply }) => feed.whenProbed(withinMs, reply),
      observeIndexers: () => shards.observe(),
      probeDue: ({ workerId, turn }) => probes.probeDue(workerId, turn),
      probed: ({ workerId, turn, outcome }) => probes.probed(workerId, turn, outcome),
      healthChecked: message => probes.healthChecked(message),
      storedSnapshot: ({ workerSlot, reply }) => {
        const stored = state.snapshots?.stored(state.keys.ofSlot(workerSlot)) ?? Promise.resolve(undefined)
        void stored.then(reply)
      },
      snapshotsDue: () => void state.snapshots?.due(),
      publish: () => feed.publish(),
      waitersDue: () => feed.waitersDue(),
      resend: () => feed.resend(),
      announce: ({ workerId, joinedMs }) => {
        const worker = state.workers.get(workerId)
        if (worker?.joinedMs === joinedMs) announcements.announce(worker)
      },
      trialDue: ({ workerId, joinedMs, over }) => {
        const worker = state.workers.get(workerId)
        if (worker?.joinedMs === joinedMs) trials.due(worker, over)
      },
      listenerDue: ({ key: name }) => {
        const key = state.keys.get(name)
        if (key !== undefined) state.listeners.due(key)
      },
      silenceDue: ({ key: name, epoch }) => {
        const key = state.keys.get(name)
        if (key !== undefined) state.silence.due(key, epoch)
      },
      silenceSeen: ({ key: name, epoch, status }) => {
        const key = state.keys.get(name)
        if (key !== undefined) state.silence.seen(key, epoch, status)
      },
      released: ({ key: name, isReleased }) => {
        const key = state.keys.get(name)
        if (key !== undefined) state.listeners.released(key, isReleased)
      },
      [signal]: received => state.signalled(received),
    }
  },
})

/** The run-time settings of earlier lives, from the keeper. */
async function keptOf({ log }: ActorContext<DirectoryMessage>, { keeper }: DirectoryArgs): Promise<Kept> {
  const nothing: Kept = { busyThresholds: new Map(), fleet: undefined }
  if (keeper === undefined) return nothing
  try {
    return await keeper.ask({ type: 'kept' }, { timeout: KEEPER_MS_MAX })
  } catch (error) {
    log.error({ error: toErrorRecord(error) }, 'workers and thresholds that were set at run time are lost')
    return nothing
  }
}

class Directory {
  readonly workers: WorkerTable
  readonly keys: WorkerKeys
  readonly listeners: KeyListeners
  readonly probes: WorkerProbes
  readonly announcements: WorkerAnnouncements
  readonly trials: WorkerTrials
  readonly shards: ShardWatch
  readonly audits: KeyAudits
  readonly prompts: PromptAudits
  readonly silence: KeySilence
  readonly feed: FleetFeed
  readonly doors: DoorHolders
  readonly changes: FleetChanges
  readonly diagnoses: WorkerDiagnoses
  readonly snapshots: StreamSnapshots | undefined
  readonly #context: ActorContext<DirectoryMessage>
  readonly #trust: KeyTrust
  #file: WorkersFileWatch | undefined
  #registered: RegisteredWorkers | undefined
  #found: FoundWorkers | undefined
  #mustReconcile = false
  readonly #claims = new SocketClaims()
  readonly #indexers: DirectoryArgs['indexers']

  constructor(context: ActorContext<DirectoryMessage>, args: DirectoryArgs, kept: Kept) {
    const { indexers, kvEvents, workerSlotsMax, replayTimeoutMs, probeIntervalMs, probeTimeoutMs } = args
    const { log, clock } = context
    const { blockSizeTokens, broker } = args
    const workers = new WorkerTable({ blockSizeTokens, broker })
    const feed = new FleetFeed(context, workers, {
      hasEngineKey: args.engineKey !== undefined,
      requestPlane: args.requestPlane,
      others: args.busyThresholds ?? NO_BUSY_THRESHOLDS,
      byModel: kept.busyThresholds,
      keeper: args.keeper,
    })
    feed.beforePublish = () => this.#reconcileIfDue()
    const changed = (worker: Worker) => feed.touch(worker)
    const ignoresCaches = args.ignoresCaches ?? false
    const promptFault = (worker: Worker) => this.prompts.faultOf(worker)
    const trust = new KeyTrust({
      context,
      workers,
      claims: this.#claims,
      kvEvents,
      ignoresCaches,
      promptFault,
      changed,
    })
    this.prompts = new PromptAudits({
      context,
      workers,
      changed: (touched, isOther) => {
        for (const worker of touched) {
          for (const key of worker.keys) trust.refresh(key)
          feed.touch(worker)
        }
        if (isOther) feed.setEngineTokenized(this.prompts.engineTokenized)
      },
    })
    this.#context = context
    this.#trust = trust
    this.#indexers = indexers
    this.workers = workers
    this.feed = feed
    this.doors = new DoorHolders(log)
    this.audits = new KeyAudits({ context, trust, indexers })
    this.silence = new KeySilence({ context, trust, probeIntervalMs, statusTimeoutMs: STATUS_TIMEOUT_MS })
    this.keys = new WorkerKeys({
      shardCount: indexers.length,
      workerSlotsMax,
      log,
      isRegistered: ({ spec: { id } }) => (this.#registered?.has(id) || this.#found?.has(id)) ?? false,
      wallMs: () => clock.wallMs(),
    })
    this.listeners = new KeyListeners({
      context,
      workers,
      trust,
      indexers,
      eventPool: args.eventPool ?? 'events',
      replayTimeoutMs,
      checkpoints: checkpointOptions(args),
      stream: args.stream,
      hasSnapshots: args.stream !== undefined && args.snapshotThreshold !== undefined,
      ended: key => this.#endKey(key),
      changed,
    })
    this.probes = new WorkerProbes({
      context,
      workers,
      probeIntervalMs,
      probeTimeoutMs,
      engineKey: args.engineKey,
      requestPlane: args.requestPlane,
      doors: this.doors,
      reached: (worker, outcome, wasDown) => this.#reached(worker, outcome, wasDown),
      changed,
    })
    this.announcements = new WorkerAnnouncements(context, workers)
    this.trials = new WorkerTrials(context, changed)
    this.diagnoses = new WorkerDiagnoses({
      context,
      workers,
      timeoutMs: probeTimeoutMs,
      defaults: { blockSizeTokens, broker },
      engineKey: args.engineKey,
    })
    this.shards = new ShardWatch(context, indexers)
    this.snapshots = this.#snapshotsOf(args)
    this.changes = new FleetChanges({
      context,
      workers,
      specs: args.specs,
      drainMsMax: args.drainMsMax ?? WORKER_DRAIN_MS_MAX,
      joined: worker => this.#joined(worker),
      left: (worker, isOverdue) => this.#left(worker, isOverdue),
      changed,
      keep: workers => this.#keep(args.keeper, workers),
    })
  }

  start(
    { specs, fileWorkers, registration, discovery, workerSlotsMax }: DirectoryArgs,
    kept: KeptFleet | undefined,
  ): void {
    if (kept === undefined) this.changes.begin(specs.map(spec => ({ spec, isDraining: false })))
    else this.changes.begin(kept.workers)
    if (fileWorkers !== undefined) {
      this.#file = new WorkersFileWatch(this.#context, this.changes, fileWorkers, kept?.file)
    }
    if (registration !== undefined)
      this.#registered = new RegisteredWorkers(
        this.#context,
        this.changes,
        { ...registration, workersMax: workerSlotsMax },
        kept?.registered,
      )
    if (discovery !== undefined)
      this.#found = new FoundWorkers(
        this.#context,
        this.changes,
        workerSlotsMax,
        handler => openSource(this.#context, discovery, handler),
        kept?.found,
      )
    // Kept even without a run-time change, so that the next life of the directory recognizes workers that
    // stayed.
    this.changes.keep()
    this.shards.observe()
    this.feed.publish()
  }

  get registered(): RegisteredWorkers | undefined {
    return this.#registered
  }

  get found(): FoundWorkers | undefined {
    return this.#found
  }

  get file(): WorkersFileWatch | undefined {
    return this.#file
  }

  /** A listener reports the trust in its source, and the block size that it has seen. */
  heard({ workerSlot, trust, reason, epoch, isSuffix, isCatchingUp, blockSizeTokens }: SourceMessage): void {
    const key = this.keys.ofSlot(workerSlot)
    if (key === undefined || key.phase !== 'running') return
    if (epoch !== key.heard.epoch) {
      key.epoch++
      this.audits.begin(key)
      this.silence.begin(key)
    }
    key.heard = { trust, reason, epoch, isSuffix, ...(isCatchingUp === true ? { isCatchingUp } : {}) }
    const { worker } = key
    if (blockSizeTokens !== undefined && blockSizeTokens !== worker.learnedBlockSizeTokens) {
      this.workers.learned(worker, { learnedBlockSizeTokens: blockSizeTokens })
      this.#reconcileSoon()
    }
    this.#trust.refresh(key)
    this.announcements.tryAnnounce(worker)
    this.trials.look(worker)
    this.feed.touch(worker)
  }

  shardReset(message: ShardResetMessage): void {
    if (!this.shards.isReset(message)) return
    const { shard, openSlots } = message
    this.#context.log.warn({ shard }, 'index shard was reset; its sources are rebuilt')
    for (const key of this.keys.all()) {
      // A listener that has opened its slot since then is rebuilding already.
      if (key.shard !== shard || openSlots.includes(key.workerSlot)) continue
      key.listener?.tell({ type: 'resync', cause: 'lost', reason: 'the index was reset' })
    }
  }

  /** Listeners that run, each with the slot that it writes to. */
  running(): readonly { readonly listener: ActorRef<ListenerMessage>; readonly workerSlot: number }[] {
    return [...this.keys.all()].flatMap(({ phase, listener, workerSlot }) =>
      phase === 'running' && listener !== undefined ? [{ listener, workerSlot }] : [],
    )
  }

  describe(reply: (report: FleetReport) => void): void {
    const { fleet } = this.feed
    const asked = this.running().map(async ({ listener, workerSlot }) => {
      const status = listener.ask({ type: 'status' }, { timeout: STATUS_TIMEOUT_MS })
      return [workerSlot, await status.catch(() => undefined)] as const
    })
    const snapshots = this.snapshots?.counts()
    void Promise.all(asked).then(entries => reply({ fleet, sources: Object.fromEntries(entries), snapshots }))
  }

  signalled(received: Signal): void {
    if (received.type === 'stopped' || received.type === 'beforeRestart') {
      this.#registered?.close()
      this.#found?.close()
      this.snapshots?.close()
    }
    if (received.type !== 'terminated') return
    this.doors.remove(received.ref.key)
    if (this.feed.unsubscribe(received.ref.key)) return
    for (const key of this.keys.all()) {
      if (key.listener?.key !== received.ref.key) continue
      this.listeners.terminated(key, received)
      return
    }
  }

  #snapshotsOf({ broker, stream, snapshotThreshold: thresholdMessages, lockServers }: DirectoryArgs) {
    if (broker === undefined || stream === undefined || thresholdMessages === undefined) return undefined
    const { workers, keys, listeners } = this
    const { servers } = broker
    const context = this.#context
    const parts = { workers, keys, listeners }
    return StreamSnapshots.over({ context, servers, stream, thresholdMessages, lockServers, ...parts })
  }

  #keep(keeper: DirectoryArgs['keeper'], workers: KeptFleet['workers']): void {
    if (
      keeper?.tell({
        type: 'keepFleet',
        fleet: {
          workers,
          file: this.#file?.kept,
          registered: this.#registered?.kept,
          found: this.#found?.kept,
        },
      }) === 'full'
    )
      this.#context.log.warn({}, 'workers as they are now are not kept over a restart of the directory')
  }

  #joined(worker: Worker): void {
    this.#reconcileKeys(worker)
    this.feed.touch(worker)
    this.probes.begin(worker)
  }

  /**
   * The worker leaves the published fleet now. Its slots are free when its listeners have ended and their
   * indexers have forgotten it.
   */
  #left(worker: Worker, isOverdue: boolean): void {
    this.#registered?.left(worker.spec.id)
    this.#found?.left(worker.spec.id)
    this.probes.end(worker)
    this.#shrinkTo(worker, 0)
    this.keys.left(worker)
    this.prompts.left(worker)
    this.feed.left(worker, isOverdue)
    // One that it stood in the way of (a block size, a socket) may have its listener now.
    this.#reconcileSoon()
  }

  #reached(worker: Worker, probed: ReachedOutcome, wasDown: boolean): void {
    const before = worker.outcome
    const after = outcomeAfter(before, probed)
    // Of thousands of workers, each is probed every few seconds: what says nothing new costs the others
    // nothing.
    const outcome = before !== undefined && isDeepStrictEqual(before, after) ? before : after
    if (outcome !== before) this.workers.learned(worker, { outcome })
    const isOther = before !== undefined && isOtherProcess(before, outcome)
    if (isOther) {
      this.#context.log.info({ worker: worker.spec.id }, 'engine has restarted')
      this.workers.learned(worker, { learnedBlockSizeTokens: undefined })
    }
    this.#reconcileKeys(worker)
    const { processStartSeconds: startSeconds } = outcome
    for (const { listener } of worker.keys) {
      if (isOther) listener?.tell({ type: 'engineRestarted', startSeconds })
      else if (startSeconds !== undefined) listener?.tell({ type: 'process', startSeconds })
    }
    // An engine that does not report its start time may have restarted while it did not answer.
    const mayBeOther = wasDown && outcome.processStartSeconds === undefined
    if (isOther || mayBeOther) this.prompts.restarted(worker)
    else this.prompts.reached()
    const hasLostCache = outcome.sleep?.hasCache === false && before?.sleep?.hasCache !== false
    if (isOther || mayBeOther || hasLostCache) for (const key of worker.keys) this.#forgetRouted(key)
    for (const key of worker.keys) this.listeners.reconcile(key)
    if (outcome !== before) this.#reconcileSoon()
    this.announcements.announceSoon(worker)
    this.trials.answered(worker)
  }

  /**
   * Requests sent to a key without events are no longer cached there. A key with events learns this from
   * them.
   */
  #forgetRouted(key: Key): void {
    if (key.trust !== 'approximate') return
    const { workerSlot, shard } = key
    const epoch = ++key.epoch
    this.#indexers[shard]?.tell({ type: 'forgetRouted', workerSlot, epoch })
    this.feed.touch(key.worker)
  }

  /** Makes the keys of a worker match its ranks, and claims the sockets that they name. */
  #reconcileKeys(worker: Worker): void {
    const ranks = this.workers.facts(worker).ranks.value
    this.keys.grow(worker, ranks)
    this.#shrinkTo(worker, ranks)
    for (const key of worker.keys) this.#claimSockets(key)
    for (let giver = this.keys.giver(); giver !== undefined; giver = this.keys.giver()) {
      this.#shrinkTo(giver, giver.keys.length - 1)
      this.feed.touch(giver)
    }
  }

  #shrinkTo(worker: Worker, ranks: number): void {
    for (;;) {
      const key = this.keys.takeSurplus(worker, ranks)
      if (key === undefined) break
      this.#claims.claim(key.name, [])
      this.listeners.reconcile(key)
    }
  }

  #claimSockets({ name, worker, dpRank }: Key): void {
    const source = this.workers.eventSource(worker, dpRank)
    if (!this.#claims.claim(name, socketsOf(source))) return
    const clash = this.#claims.clashOf(name)
    if (clash === undefined) return
    const { endpoint, rival } = clash
    this.#context.log.warn(
      { key: name, rival, endpoint, reason: `${name} names ${clashText(clash)}` },
      'two worker keys name one socket; the events of neither are followed',
    )
  }

  #endKey(key: Key): void {
    this.keys.end(key)
    for (const waiting of this.keys.waiting) {
      this.#reconcileKeys(waiting)
      this.feed.touch(waiting)
    }
    // Not `key.worker`, which may have left: the one that has its id now waits for the name.
    const worker = this.workers.get(key.worker.spec.id)
    if (worker !== undefined) {
      this.#reconcileKeys(worker)
      this.feed.touch(worker)
    }
    this.#reconcileSoon()
  }

  /**
   * A change may concern other workers: before the next fleet is published, every listener and every trust is
   * brought in line with what is known. Once for all that changes in one turn of messages.
   */
  #reconcileSoon(): void {
    this.#mustReconcile = true
    this.feed.publishSoon()
  }

  #reconcileIfDue(): void {
    if (!this.#mustReconcile) return
    this.#mustReconcile = false
    for (const worker of this.workers.all()) for (const key of worker.keys) this.listeners.reconcile(key)
  }
}

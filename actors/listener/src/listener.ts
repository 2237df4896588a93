/**
 * Listener: receives the KV events of one worker key, makes one gapless history of them, and hands it to the
 * indexer of its shard. Owns the trust in its source.
 *
 * In     frames of the SUB socket and of the replay DEALER; `resync` and `learned` from the indexer,
 *        `engineRestarted` and `status` from the directory.
 * Out    `clear` and `apply` to the indexer; `source` to the directory when the trust or the block size
 *        changes.
 * Owns   sequence, epoch and recovery of its source: the states are in sequence-follower.ts.
 * Order  a clear precedes every epoch, so the indexer never mixes two of them. Frames of an earlier
 *        connection are dropped by the number of their connection.
 * Keeps  checkpoints, if a directory is given: before it connects, it reads the one of an earlier life.
 * Full   frames that its own mailbox refuses are asked for again after the waiting ones. The news that the
 *        socket went down is not lost with them: the socket's last state is checked with every message, and
 *        after a refusal.
 * Fails  restarted by the directory; it begins with a clear and rebuilds.
 */

import { type ActorContext, type ActorRef, defineActor, type Reply, signal } from '@homing/actor'
import type { IndexerMessage } from '@homing/actors/indexer'
import { isOtherProcessStart } from '@homing/fleet/process-start'
import {
  type KvEvent,
  MalformedEventFramesError,
  parseEventFrames,
  parseReplayReply,
  parseSnapshotReply,
  replayRequestFrames,
  snapshotRequestFrames,
} from '@homing/protocol'
import {
  type Dealer,
  type EventPath,
  type Frames,
  type MessageTransport,
  parseBrokerEndpoint,
  type StreamOptions,
  type Subscription,
  transportCapability,
} from '@homing/transport'
import { AppliedMarks } from './applied-marks.ts'
import type { Checkpoint } from './checkpoint.ts'
import { type CheckpointOptions, Checkpoints } from './checkpoints.ts'
import { KeySnapshots } from './key-snapshots.ts'
import type { ListenerLimits } from './limits.ts'
import type {
  CheckpointStatus,
  KeySnapshot,
  ListenerMessage,
  SnapshotAnswer,
  SourceMessage,
  SourceStatus,
  SourceTrust,
  StoredSnapshotMessage,
} from './messages.ts'
import type { ReplayQuestion } from './replay.ts'
import { type FollowerEffects, SequenceFollower } from './sequence-follower.ts'
import { ToldEvictions } from './told-evictions.ts'

export interface ListenerArgs {
  readonly workerSlot: number
  /** `<worker id>/<dp rank>`, for logs. */
  readonly key: string
  readonly dpRank: number
  /** 'tcp://host:port' of the engine's PUB socket. */
  readonly eventsEndpoint: string
  /** 'tcp://host:port' of the engine's replay socket; undefined: there is none. */
  readonly replayEndpoint: string | undefined
  /** The topic of the events; '' takes every topic. */
  readonly topic: string
  /** What the worker is assumed to use; undefined: not known before the first store. */
  readonly blockSizeTokens: number | undefined
  /** When the engine's process began, in Unix seconds; undefined: it does not say, or is not asked. */
  readonly processStartSeconds?: number | undefined
  readonly indexer: ActorRef<IndexerMessage>
  /** Those of the other shards, which may know blocks of workers that have left; default: none. */
  readonly otherIndexers?: readonly ActorRef<IndexerMessage>[] | undefined
  readonly directory: ActorRef<SourceMessage>
  /** Has the snapshots beside the stream; undefined: there are none. */
  readonly snapshots?: ActorRef<StoredSnapshotMessage> | undefined
  /** Undefined: none are kept. */
  readonly checkpoints?: CheckpointOptions | undefined
  /** The stream at the broker in which the events may be, too; undefined: they are in none. */
  readonly stream?: StreamOptions | undefined
  readonly limits: ListenerLimits
}

const NO_CHECKPOINTS: CheckpointStatus = Object.freeze({
  resumedSequence: undefined,
  refusal: undefined,
  savedSequence: undefined,
  savedAgeMs: undefined,
  saves: 0,
  failedSaves: 0,
})

/** A snapshot of a million blocks is read in less. */
const STORED_MS_MAX = 20_000
const REPORT_INTERVAL_MS = 10_000
/** An indexer applies what waits for it in less. */
const FENCE_MS_MAX = 30_000
/** Replies of which the dealer is told at once. */
const TOOK_REPLIES = 64

export const listener = defineActor(
  import.meta.url,
  'listener',
)<ListenerMessage, ListenerArgs>({
  setup(context, args) {
    const state = new Listener(context, args)
    const { follower, checkpoints } = state
    state.start()
    return {
      live: ({ connection, frames, number }) => state.live(connection, frames, number ?? 0),
      moved: () => state.moved(),
      look: () => state.look(),
      replayed: ({ attempt, frames }) => state.replayed(attempt, frames),
      wake: ({ wait }) => state.wake(wait),
      fenced: ({ isPassed }) => state.fenced(isPassed),
      resync: ({ cause, reason }) => follower.resync(cause, reason),
      engineRestarted: ({ startSeconds }) => state.engineRestarted(startSeconds),
      process: ({ startSeconds }) => state.processBegan(startSeconds),
      incomplete: ({ reason }) => follower.incomplete(reason),
      audited({ isContradicted }) {
        state.keySnapshots.isContradicted = isContradicted
        if (isContradicted) checkpoints?.contradicted()
        else checkpoints?.confirmed()
      },
      report: () => state.report(),
      learned: ({ blockSizeTokens }) => state.learned(blockSizeTokens),
      status: ({ reply }) => reply(state.status()),
      checkpointRead: ({ checkpoint, problem }) => state.checkpointRead(checkpoint, problem),
      save({ reply }) {
        if (checkpoints === undefined) reply('off')
        else checkpoints.save(follower.point(), reply)
      },
      snapshot: ({ stored, reply }) => state.takeSnapshot(stored, reply),
      snapshotImaged: ({ image }) =>
        state.keySnapshots.imaged(image, follower.point(), state.processStartSeconds),
      storedRead: ({ bytes }) => state.storedRead(bytes),
      saveDue: () => checkpoints?.saveDue(follower.point()),
      imaged: ({ image }) => checkpoints?.imaged(image, follower.point(), state.processStartSeconds),
      saved: ({ problem }) => checkpoints?.saved(problem),
      [signal](received) {
        if (received.type === 'stopped' || received.type === 'beforeRestart') state.close()
      },
    }
  },
})

interface SocketState {
  connection: number
  isUp: boolean
  /** Of the publisher, at a broker. */
  life: string | undefined
}

/** The sockets of a source around its follower, and the reports on it. */
class Listener implements FollowerEffects {
  readonly follower: SequenceFollower
  readonly checkpoints: Checkpoints | undefined
  readonly keySnapshots: KeySnapshots
  readonly #context: ActorContext<ListenerMessage>
  readonly #args: ListenerArgs
  readonly #evictions: ToldEvictions
  readonly #messages: MessageTransport
  /** The block size of the worker, or the assumed one. */
  #blockSizeTokens: number | undefined
  #learnedBlockSizeTokens: number | undefined
  /** Start of the process whose events are followed; undefined: not known. */
  #processStartSeconds: number | undefined
  readonly #marks = new AppliedMarks({
    holdsBack: () => this.follower.holdsBack,
    fence: (passed, lost) => this.#fence(passed, lost),
    done: number => this.#subscriber?.done?.(number),
  })
  #onFence: ((isPassed: boolean) => void) | undefined
  #path: EventPath = 'publisher'
  /** Replies to the attempt under way since the last time that the dealer was told of them. */
  #tookReplies = 0
  /** Said once, whichever publishers there are. */
  #hasToldHashes = false
  #attempt = 0
  #trust: SourceTrust = { trust: 'none', reason: '', epoch: 0, isSuffix: false }
  #foreignTopics = 0
  #lostFrames = 0
  #subscriber: Subscription | undefined
  #dealer: Dealer | undefined
  #wait: { cancel(): void } | undefined

  /** The last state of the socket, kept beside the mailbox, which may be full. Connections count from 1. */
  readonly #socket: SocketState = { connection: 0, isUp: false, life: undefined }
  /** The state that the follower was told. */
  readonly #told: SocketState = { connection: 0, isUp: false, life: undefined }
  /** Which messages found no room in the mailbox since the last look. */
  readonly #refused = { isLive: false, isReplies: false }
  #isLookDue = false

  constructor(context: ActorContext<ListenerMessage>, args: ListenerArgs) {
    const { workerSlot, key, dpRank, eventsEndpoint, replayEndpoint, indexer, limits } = args
    this.#context = context
    this.#args = args
    this.#evictions = new ToldEvictions(args.otherIndexers ?? [])
    this.#messages = context.use(transportCapability).messages
    this.#blockSizeTokens = args.blockSizeTokens
    this.#processStartSeconds = args.processStartSeconds
    const source = `${eventsEndpoint} ${dpRank}`
    this.checkpoints =
      args.checkpoints && new Checkpoints(context, { ...args.checkpoints, key, source, workerSlot, indexer })
    const snapshotSource = `${subjectOf(eventsEndpoint)} ${dpRank}`
    this.keySnapshots = new KeySnapshots(context, {
      ...{ key, source: snapshotSource },
      ...{ workerSlot, dpRank, indexer },
    })
    this.follower = new SequenceFollower(this, { eventsEndpoint, replayEndpoint, dpRank, limits })
    if (args.processStartSeconds !== undefined) this.follower.engineRuns()
  }

  start(): void {
    // Repeats a report that a full mailbox or a broken link has lost.
    this.#context.scheduleEvery(REPORT_INTERVAL_MS, { type: 'report' })
    const { snapshots, workerSlot } = this.#args
    if (snapshots === undefined) this.#begin()
    else
      this.#context.pipe(
        snapshots.ask({ type: 'storedSnapshot', workerSlot }, { timeout: STORED_MS_MAX }),
        bytes => ({ type: 'storedRead', bytes }),
        () => ({ type: 'storedRead', bytes: undefined }),
      )
  }

  /** What is stored beside the stream goes before the checkpoint of this machine: all routers add to it. */
  storedRead(bytes: Uint8Array | undefined): void {
    const point = this.keySnapshots.offer(bytes, this.#processStartSeconds)
    if (point === undefined) {
      this.#begin()
      return
    }
    this.follower.offer(point)
    this.#subscribe()
  }

  takeSnapshot(stored: Omit<KeySnapshot, 'bytes'> | undefined, reply: Reply<SnapshotAnswer>): void {
    const point = this.follower.point()
    const { life } = this.#told
    const keepFrom = point?.isWhole ? point.nextSequence - point.fingerprints.length : undefined
    if (this.follower.isToldByPublisher) reply('ofPublisher')
    else if (stored?.life === life && stored?.keepFrom === keepFrom && keepFrom !== undefined)
      reply('unchanged')
    else this.keySnapshots.take(point, life, reply)
  }

  #begin(): void {
    if (this.checkpoints === undefined) this.#subscribe()
    else this.checkpoints.read()
  }

  close(): void {
    this.#subscriber?.close()
    this.#dealer?.close()
    this.#wait?.cancel()
  }

  status(): SourceStatus {
    return {
      ...this.follower.status(),
      foreignTopics: this.#foreignTopics,
      lostFrames: this.#lostFrames,
      path: this.#path,
      checkpoint: this.#checkpointStatus(),
    }
  }

  #checkpointStatus(): CheckpointStatus {
    const ofFiles = this.checkpoints?.status() ?? NO_CHECKPOINTS
    const { resumedSequence = ofFiles.resumedSequence, refusal = ofFiles.refusal } = this.keySnapshots
    return { ...ofFiles, resumedSequence, refusal }
  }

  /** Tells the directory how far the source may be believed. */
  report(): void {
    this.#marks.look()
    const { directory, key, workerSlot } = this.#args
    const [trust, blockSizeTokens] = [this.#trust, this.#learnedBlockSizeTokens]
    if (directory.tell({ type: 'source', workerSlot, ...trust, blockSizeTokens }) === 'ok') return
    this.#context.log.warn({ key, ...trust }, 'the directory did not take the trust')
  }

  learned(blockSizeTokens: number): void {
    if (blockSizeTokens === this.#learnedBlockSizeTokens) return
    this.#learnedBlockSizeTokens = blockSizeTokens
    this.#blockSizeTokens = blockSizeTokens
    this.report()
  }

  checkpointRead(checkpoint: Checkpoint | undefined, problem: string | undefined): void {
    const point = this.checkpoints?.offer(checkpoint, problem, this.#processStartSeconds)
    // A process that is found later must be the one of the checkpoint, if no probe has asked yet.
    this.#processStartSeconds ??= this.checkpoints?.offeredStartSeconds
    if (point !== undefined) this.follower.offer(point)
    this.#subscribe()
  }

  get processStartSeconds(): number | undefined {
    return this.#processStartSeconds
  }

  /** A probe has found another process; `startSeconds`: when it began, if it says so. */
  engineRestarted(startSeconds: number | undefined): void {
    this.#processStartSeconds = startSeconds
    this.follower.engineRestarted(startSeconds)
  }

  /** A probe has asked the engine since when it runs. */
  processBegan(startSeconds: number): void {
    if (isOtherProcessStart(startSeconds, this.#processStartSeconds)) this.engineRestarted(startSeconds)
    else this.follower.engineRuns()
    this.#processStartSeconds ??= startSeconds
  }

  // The event socket.

  live(ofConnection: number, frames: Frames, number: number): void {
    this.moved()
    const { connection } = this.#socket
    // A batch may come before the report that the first connection is up; on later connections it is stale.
    if (ofConnection === connection || connection === 1) this.#receive(frames)
    this.#marks.handled(number)
  }

  wake(wait: number): void {
    this.follower.wake(wait)
    this.#marks.look()
  }

  fenced(isPassed: boolean): void {
    const passed = this.#onFence
    this.#onFence = undefined
    passed?.(isPassed)
  }

  /** The socket went up or down. */
  moved(): void {
    const [socket, told] = [this.#socket, this.#told]
    if (told.isUp && (!socket.isUp || told.connection !== socket.connection)) {
      told.isUp = false
      this.follower.disconnected()
    }
    if (socket.isUp && !told.isUp) {
      told.isUp = true
      told.connection = socket.connection
      told.life = socket.life
      this.follower.connected()
    }
  }

  /** Messages of the socket found no room in the mailbox. */
  look(): void {
    const refused = this.#refused
    this.#isLookDue = false
    this.moved()
    if (refused.isReplies) this.follower.lostReplies()
    if (refused.isLive) this.follower.lostLive()
    refused.isReplies = false
    refused.isLive = false
  }

  /** The socket's filter matches prefixes and would hide a wrong topic: so all is received, compared here. */
  #subscribe(): void {
    const { self } = this.#context
    const socket = this.#socket
    this.#subscriber = this.#messages.subscribe(
      { endpoint: this.#args.eventsEndpoint, topic: '', stream: this.#args.stream },
      {
        message: (frames, number) => {
          const { connection } = socket
          if (self.tell({ type: 'live', connection, frames, number: number ?? 0 }) === 'ok') return
          this.#lostFrames++
          this.#refused.isLive = true
          this.#lookLater()
        },
        connected: (path, life) => {
          socket.life = life
          this.#path = path ?? 'publisher'
          socket.connection++
          socket.isUp = true
          if (self.tell({ type: 'moved' }) !== 'ok') this.#lookLater()
        },
        disconnected: () => {
          socket.isUp = false
          if (self.tell({ type: 'moved' }) !== 'ok') this.#lookLater()
        },
      },
    )
  }

  #receive(frames: Frames): void {
    const message = tryParse(frames)
    const { topic } = this.#args
    if (message === undefined) this.follower.malformed()
    else if (topic !== '' && message.topic !== topic) {
      this.#foreignTopics++
      this.follower.foreign()
    } else this.follower.live(message.sequence, message.payload)
  }

  /** Timers ignore the bound of the mailbox, and come after what waits there. */
  #lookLater(): void {
    if (this.#isLookDue) return
    this.#isLookDue = true
    this.#context.schedule(0, { type: 'look' })
  }

  // The replay socket.

  replayed(attempt: number, frames: Frames): void {
    this.#reply(attempt, frames)
    this.#marks.look()
    if (attempt !== this.#attempt || ++this.#tookReplies < TOOK_REPLIES) return
    this.#dealer?.took?.(this.#tookReplies)
    this.#tookReplies = 0
  }

  #reply(attempt: number, frames: Frames): void {
    const snapshot = parseSnapshotReply(frames)
    if (snapshot.kind !== 'malformed') {
      this.follower.snapshot(attempt, snapshot)
      return
    }
    const reply = parseReplayReply(frames)
    const { topic } = this.#args
    if (reply.kind !== 'batch' || topic === '' || reply.topic === '' || reply.topic === topic) {
      this.follower.replayed(attempt, reply)
    } else {
      this.#foreignTopics++
      this.follower.foreign()
    }
  }

  #fence(passed: () => void, lost: () => void): void {
    this.#onFence = isPassed => (isPassed ? passed() : lost())
    this.#context.pipe(
      this.#args.indexer.ask({ type: 'fence' }, { timeout: FENCE_MS_MAX }),
      () => ({ type: 'fenced', isPassed: true }),
      () => ({ type: 'fenced', isPassed: false }),
    )
  }

  // What the follower does to the world.

  nowMs(): number {
    return this.#context.clock.nowMs()
  }

  apply(events: readonly KvEvent[]): boolean {
    const { indexer, workerSlot, key } = this.#args
    const { log, self } = this.#context
    const blockSizeTokens = this.#blockSizeTokens
    // First, so that a refusal repeats the whole batch.
    if (!this.#evictions.tell(events)) return false
    if (log.isLevelEnabled('trace')) log.trace({ key, ...countsOf(events) }, 'KV events applied')
    if (indexer.tell({ type: 'apply', workerSlot, blockSizeTokens, events, source: self }) !== 'ok')
      return false
    this.#evictions.reset()
    return true
  }

  clear(isParted: boolean): boolean {
    const { indexer, workerSlot } = this.#args
    this.#evictions.reset()
    return indexer.tell({ type: 'clear', workerSlot, isParted }) === 'ok'
  }

  restore(): boolean {
    const { indexer, workerSlot } = this.#args
    const image = this.keySnapshots.image ?? this.checkpoints?.image
    if (image === undefined) return false
    if (indexer.tell({ type: 'load', workerSlot, image, source: this.#context.self }) !== 'ok') return false
    if (image.blockSizeTokens !== undefined) this.learned(image.blockSizeTokens)
    return true
  }

  hasBase(): boolean {
    return this.keySnapshots.base !== undefined
  }

  restoreBase(): boolean {
    const { indexer, workerSlot } = this.#args
    const image = this.keySnapshots.base
    if (image === undefined) return true
    if (indexer.tell({ type: 'load', workerSlot, image, source: this.#context.self }) !== 'ok') return false
    this.keySnapshots.dropBase()
    return true
  }

  dropBase(): void {
    this.keySnapshots.dropBase()
  }

  checkpointSettled(refusal: string | undefined): void {
    if (!this.keySnapshots.settled(refusal)) this.checkpoints?.settled(refusal)
  }

  hashesFailed(why: string): void {
    if (this.#hasToldHashes) return
    this.#hasToldHashes = true
    const { key, replayEndpoint } = this.#args
    const text = 'a publisher offers snapshots by hashes and none can be used: it is asked by tokens'
    this.#context.log.warn({ key, replayEndpoint, why }, text)
  }

  startReplay(attempt: number, { snapshot, byHashes, fromSequence, isRestLater }: ReplayQuestion): void {
    const { key, replayEndpoint } = this.#args
    this.stopReplay()
    if (replayEndpoint === undefined) return
    this.#attempt = attempt
    this.#tookReplies = 0
    const dealer = this.#messages.dial({ endpoint: replayEndpoint, stream: this.#args.stream }, frames => {
      if (this.#context.self.tell({ type: 'replayed', attempt, frames }) === 'ok') return
      this.#refused.isReplies = true
      this.#lookLater()
    })
    this.#dealer = dealer
    if (snapshot) dealer.send(snapshotRequestFrames(byHashes ? 'hashes' : 'tokens'))
    if (fromSequence !== undefined && !isRestLater) this.askRest(fromSequence)
    this.#context.log.debug({ key, attempt, snapshot, byHashes, fromSequence }, 'replay requested')
  }

  askRest(fromSequence: number): void {
    this.#dealer?.send(replayRequestFrames(fromSequence))
  }

  stopReplay(): void {
    this.#dealer?.close()
    this.#dealer = undefined
  }

  setWait(wait: number, delayMs: number): void {
    this.#wait?.cancel()
    this.#wait = this.#context.schedule(delayMs, { type: 'wake', wait })
  }

  trustChanged(trust: SourceTrust): void {
    const { key } = this.#args
    if (trust.trust !== this.#trust.trust) this.#context.log.debug({ key, ...trust }, 'trust changed')
    this.#trust = trust
    this.report()
  }
}

/** Of a publisher at a broker; '': of a socket. */
function subjectOf(endpoint: string): string {
  return endpoint.startsWith('nats://') ? parseBrokerEndpoint(endpoint).subject : ''
}

/** Undefined when the frames are no event message. */
function tryParse(frames: Frames): ReturnType<typeof parseEventFrames> | undefined {
  try {
    return parseEventFrames(frames)
  } catch (error) {
    if (error instanceof MalformedEventFramesError) return undefined
    throw error
  }
}

/** Blocks stored, removed and moved, and clears, of one batch: a line of constant size. */
function countsOf(events: readonly KvEvent[]) {
  const counts = { stored: 0, removed: 0, cleared: 0, transition: 0 }
  for (const event of events) counts[event.kind] += event.kind === 'cleared' ? 1 : event.hashes.length / 2
  return counts
}

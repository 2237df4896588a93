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
 * Keeps  checkpoints, where a directory is given: before it connects it reads the one of an earlier life.
 * Full   frames that the own mailbox refuses are a gap later, and a gap is replayed. That the socket went
 *        down is not lost with them: what the socket last said is looked at with every message.
 * Fails  restarted by the directory; it begins with a clear and rebuilds.
 */

import { type ActorRef, defineActor, signal } from '@homing/actor'
import type { IndexerMessage } from '@homing/indexer'
import {
  MalformedEventFramesError,
  parseEventFrames,
  parseReplayReply,
  parseSnapshotReply,
  replayRequestFrames,
  snapshotRequestFrames,
} from '@homing/protocol'
import { type Closable, type Dealer, type Frames, transportCapability } from '@homing/transport'
import { type CheckpointOptions, Checkpoints } from './checkpoints.ts'
import type { ListenerLimits } from './limits.ts'
import type { CheckpointStatus, ListenerMessage, SourceMessage, SourceTrust } from './messages.ts'
import { SequenceFollower } from './sequence-follower.ts'

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
  readonly indexer: ActorRef<IndexerMessage>
  readonly directory: ActorRef<SourceMessage>
  /** Undefined: none are kept. */
  readonly checkpoints?: CheckpointOptions | undefined
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

export const listener = defineActor(
  import.meta.url,
  'listener',
)<ListenerMessage, ListenerArgs>({
  setup(context, args) {
    const { self, clock, log, schedule, use } = context
    const { workerSlot, key, eventsEndpoint, replayEndpoint, topic, indexer, directory } = args
    const { messages } = use(transportCapability)
    let blockSizeTokens = args.blockSizeTokens
    let learnedBlockSizeTokens: number | undefined
    let trust: SourceTrust = { trust: 'none', reason: '', epoch: 0, isSuffix: false }
    let foreignTopics = 0
    let lostFrames = 0
    let dealer: Dealer | undefined
    let wait: { cancel(): void } | undefined
    const source = `${eventsEndpoint} ${args.dpRank}`
    const checkpoints =
      args.checkpoints && new Checkpoints(context, { ...args.checkpoints, key, source, workerSlot, indexer })

    const learn = (tokens: number) => {
      if (tokens === learnedBlockSizeTokens) return
      learnedBlockSizeTokens = tokens
      blockSizeTokens = tokens
      reportSource()
    }
    const reportSource = () => {
      const report = {
        type: 'source',
        workerSlot,
        ...trust,
        blockSizeTokens: learnedBlockSizeTokens,
      } as const
      if (directory.tell(report) !== 'ok') log.warn({ key, ...trust }, 'the directory did not take the trust')
    }

    const follower = new SequenceFollower(
      {
        nowMs: () => clock.nowMs(),
        apply: events =>
          indexer.tell({ type: 'apply', workerSlot, blockSizeTokens, events, source: self }) === 'ok',
        clear: () => indexer.tell({ type: 'clear', workerSlot }) === 'ok',
        restore() {
          const image = checkpoints?.image
          if (image === undefined) return false
          if (indexer.tell({ type: 'load', workerSlot, image, source: self }) !== 'ok') return false
          if (image.blockSizeTokens !== undefined) learn(image.blockSizeTokens)
          return true
        },
        checkpointSettled: refusal => checkpoints?.settled(refusal),
        startReplay(attempt, { snapshot, fromSequence }) {
          dealer?.close()
          dealer = undefined
          if (replayEndpoint === undefined) return
          // Replies that the mailbox refuses are a hole in the replay, which is asked for again.
          dealer = messages.dial({ endpoint: replayEndpoint }, frames => {
            self.tell({ type: 'replayed', attempt, frames })
          })
          if (snapshot) dealer.send(snapshotRequestFrames())
          if (fromSequence !== undefined) dealer.send(replayRequestFrames(fromSequence))
          log.debug({ key, attempt, snapshot, fromSequence }, 'replay requested')
        },
        stopReplay() {
          dealer?.close()
          dealer = undefined
        },
        setWait(number, delayMs) {
          wait?.cancel()
          wait = schedule(delayMs, { type: 'wake', wait: number })
        },
        trustChanged(changed) {
          if (changed.trust !== trust.trust) log.debug({ key, ...changed }, 'trust changed')
          trust = changed
          reportSource()
        },
      },
      {
        eventsEndpoint,
        hasReplay: replayEndpoint !== undefined,
        dpRank: args.dpRank,
        limits: args.limits,
      },
    )

    // What the socket last said, beside the mailbox, which may be full.
    let connection = 0
    let isUp = false
    let seenConnection = 0
    let seenUp = false
    const catchUp = (upTo: number) => {
      if (upTo !== seenConnection && upTo === connection) {
        if (seenUp) follower.disconnected()
        seenConnection = upTo
        seenUp = true
        follower.connected()
      }
      if (seenUp && !isUp) {
        seenUp = false
        follower.disconnected()
      }
    }
    const receive = (frames: Frames) => {
      const message = tryParse(frames)
      if (message === undefined) follower.malformed()
      else if (topic !== '' && message.topic !== topic) foreignTopics++
      else follower.live(message.sequence, message.payload)
    }

    // The filter is a prefix, and a wrong topic should show: so everything is received, and compared here.
    const subscribe = () =>
      messages.subscribe(
        { endpoint: eventsEndpoint, topic: '' },
        {
          message(frames) {
            if (self.tell({ type: 'live', connection, frames }) !== 'ok') lostFrames++
          },
          connected() {
            connection++
            isUp = true
            self.tell({ type: 'connected', connection })
          },
          disconnected() {
            isUp = false
            self.tell({ type: 'disconnected', connection })
          },
        },
      )
    let subscriber: Closable | undefined
    if (checkpoints === undefined) subscriber = subscribe()
    else checkpoints.read()
    const close = () => {
      subscriber?.close()
      dealer?.close()
      wait?.cancel()
    }

    return {
      live({ connection: ofConnection, frames }) {
        catchUp(ofConnection)
        // A batch may come before the word that the first connection is up; later it would be a stale one.
        if (ofConnection === connection || connection === 1) receive(frames)
      },
      connected({ connection: number }) {
        catchUp(number)
      },
      disconnected({ connection: number }) {
        catchUp(number)
      },
      replayed({ attempt, frames }) {
        const snapshot = parseSnapshotReply(frames)
        if (snapshot.kind !== 'malformed') {
          follower.snapshot(attempt, snapshot)
          return
        }
        const reply = parseReplayReply(frames)
        if (reply.kind !== 'batch' || topic === '' || reply.topic === '' || reply.topic === topic) {
          follower.replayed(attempt, reply)
        } else {
          foreignTopics++
        }
      },
      wake({ wait: number }) {
        follower.wake(number)
      },
      resync({ cause, reason: why }) {
        follower.resync(cause, why)
      },
      engineRestarted() {
        follower.engineRestarted()
      },
      learned: ({ blockSizeTokens: tokens }) => learn(tokens),
      status({ reply }) {
        const checkpoint = checkpoints?.status() ?? NO_CHECKPOINTS
        reply({ ...follower.status(), foreignTopics, lostFrames, checkpoint })
      },
      checkpointRead({ checkpoint, problem }) {
        const point = checkpoints?.offer(checkpoint, problem)
        if (point !== undefined) follower.offer(point)
        subscriber = subscribe()
      },
      save({ reply }) {
        if (checkpoints === undefined) reply('off')
        else checkpoints.save(follower.point(), reply)
      },
      saveDue: () => checkpoints?.saveDue(follower.point()),
      imaged: ({ image }) => checkpoints?.imaged(image, follower.point()),
      saved: ({ problem }) => checkpoints?.saved(problem),
      [signal](received) {
        if (received.type === 'stopped' || received.type === 'beforeRestart') close()
      },
    }
  },
})

/** Undefined when the frames are no event message. */
function tryParse(frames: Frames): ReturnType<typeof parseEventFrames> | undefined {
  try {
    return parseEventFrames(frames)
  } catch (error) {
    if (error instanceof MalformedEventFramesError) return undefined
    throw error
  }
}

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
 * Full   frames that the own mailbox refuses are asked for again behind what waits there. That the socket went
 *        down is not lost with them: what the socket last said is looked at with every message, and then.
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

const REPORT_INTERVAL_MS = 10_000

export const listener = defineActor(
  import.meta.url,
  'listener',
)<ListenerMessage, ListenerArgs>({
  setup(context, args) {
    const { self, clock, log, schedule, scheduleEvery, use } = context
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

    // What the socket last said, beside the mailbox, which may be full.
    let connection = 0
    let isUp = false
    let seenConnection = 0
    let seenUp = false
    let hasLost = false
    let hasLostReplies = false
    let isLookDue = false
    /** Something of the socket found no room in the mailbox. Timers go past its bound, behind what waits there. */
    const lookLater = () => {
      if (isLookDue) return
      isLookDue = true
      schedule(0, { type: 'look' })
    }
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
    // A word that a full mailbox or a broken link has lost is said again.
    scheduleEvery(REPORT_INTERVAL_MS, { type: 'report' })

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
          dealer = messages.dial({ endpoint: replayEndpoint }, frames => {
            if (self.tell({ type: 'replayed', attempt, frames }) === 'ok') return
            hasLostReplies = true
            lookLater()
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

    const catchUp = () => {
      if (seenUp && (!isUp || seenConnection !== connection)) {
        seenUp = false
        follower.disconnected()
      }
      if (isUp && !seenUp) {
        seenUp = true
        seenConnection = connection
        follower.connected()
      }
    }
    const receive = (frames: Frames) => {
      const message = tryParse(frames)
      if (message === undefined) follower.malformed()
      else if (topic !== '' && message.topic !== topic) {
        foreignTopics++
        follower.foreign()
      } else follower.live(message.sequence, message.payload)
    }

    // The filter is a prefix, and a wrong topic should show: so everything is received, and compared here.
    const subscribe = () =>
      messages.subscribe(
        { endpoint: eventsEndpoint, topic: '' },
        {
          message(frames) {
            if (self.tell({ type: 'live', connection, frames }) === 'ok') return
            lostFrames++
            hasLost = true
            lookLater()
          },
          connected() {
            connection++
            isUp = true
            if (self.tell({ type: 'moved' }) !== 'ok') lookLater()
          },
          disconnected() {
            isUp = false
            if (self.tell({ type: 'moved' }) !== 'ok') lookLater()
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
        catchUp()
        // A batch may come before the word that the first connection is up; later it would be a stale one.
        if (ofConnection === connection || connection === 1) receive(frames)
      },
      moved: catchUp,
      look() {
        isLookDue = false
        catchUp()
        if (hasLostReplies) follower.lostReplies()
        if (hasLost) follower.lostLive()
        hasLostReplies = false
        hasLost = false
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
          follower.foreign()
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
      incomplete: ({ reason: why }) => follower.incomplete(why),
      audited({ isContradicted }) {
        if (isContradicted) checkpoints?.contradicted()
        else checkpoints?.confirmed()
      },
      report: reportSource,
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

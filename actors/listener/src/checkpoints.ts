/**
 * Checkpoints of one listener: reads the one of an earlier life, writes new ones, and reports their state.
 *
 *   idle ──save──▶ imaging ──image of the indexer──▶ writing ──▶ idle
 *                     └── nothing to give, or the history has begun anew ──▶ idle
 *
 * The image shows the index exactly at its point of the history: the indexer is asked for it after the events
 * up to that point, and before those that follow. Another request to save meanwhile gets the answer of the
 * save under way.
 *
 * A disk failure is logged once; saves are then tried half as often each time, until one succeeds.
 */

import type { ActorContext, ActorRef, Reply } from '@homing/actor'
import type { IndexerMessage, KeyImage } from '@homing/actors/indexer'
import { toErrorRecord } from '@homing/base'
import { isOtherProcessStart } from '@homing/fleet/process-start'
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint, type HistoryPoint } from './checkpoint.ts'
import { checkpointFiles } from './checkpoint-files.ts'
import type { CheckpointStatus, ListenerMessage, SaveOutcome } from './messages.ts'

/** Where checkpoints are kept, and how often they are written. */
export interface CheckpointOptions {
  readonly directory: string
  readonly intervalMs: number
}

/** Undefined if no directory is given. */
export function checkpointOptions(settings: {
  readonly checkpointDirectory?: string | undefined
  readonly checkpointIntervalMs?: number
}): CheckpointOptions | undefined {
  const { checkpointDirectory: directory, checkpointIntervalMs: intervalMs } = settings
  return directory === undefined || intervalMs === undefined ? undefined : { directory, intervalMs }
}

export interface KeyCheckpoints extends CheckpointOptions {
  /** For logs. */
  readonly key: string
  /** Identifies the file: the endpoint of the source, and its rank. */
  readonly source: string
  readonly workerSlot: number
  readonly indexer: ActorRef<IndexerMessage>
}

type Point = HistoryPoint & { readonly epoch: number }

/** While the disk fails: most intervals between two tries. */
const BACKOFF_INTERVALS_MAX = 16
/** An indexer that replays much answers late. */
const IMAGE_MS_MAX = 60_000

export class Checkpoints {
  readonly #context: ActorContext<ListenerMessage>
  readonly #options: KeyCheckpoints
  #offered: Checkpoint | undefined
  #underWay: { readonly point: Point; readonly replies: Reply<SaveOutcome>[]; isVoid: boolean } | undefined
  /** Resolves when the disk calls so far are done; they run one after the other. */
  #disk: Promise<unknown> = Promise.resolve()
  #resumedSequence: number | undefined
  #refusal: string | undefined
  #saved: Point | undefined
  #savedMs = 0
  #saves = 0
  #failedSaves = 0
  /** Disk calls that failed since the last success. */
  #diskFaults = 0
  /** Intervals to skip before the next try. */
  #intervalsToSkip = 0
  /** Answers of the engine contradict its events. */
  #isContradicted = false

  constructor(context: ActorContext<ListenerMessage>, options: KeyCheckpoints) {
    this.#context = context
    this.#options = options
  }

  status(): CheckpointStatus {
    const saved = this.#saved
    return {
      resumedSequence: this.#resumedSequence,
      refusal: this.#refusal,
      savedSequence: saved === undefined ? undefined : saved.nextSequence - 1,
      savedAgeMs: saved === undefined ? undefined : this.#context.clock.nowMs() - this.#savedMs,
      saves: this.#saves,
      failedSaves: this.#failedSaves,
    }
  }

  /** Answers `checkpointRead`. */
  read(): void {
    const { directory, source } = this.#options
    const reading = this.#context.use(checkpointFiles).read(directory, source)
    this.#context.pipe(
      reading.then(bytes => (bytes === undefined ? undefined : decodeCheckpoint(bytes))),
      checkpoint => ({ type: 'checkpointRead', checkpoint, problem: undefined }),
      thrown => ({ type: 'checkpointRead', checkpoint: undefined, problem: toErrorRecord(thrown).message }),
    )
  }

  /**
   * Where an earlier life stood; undefined: there is no usable checkpoint. `startSeconds`: when the engine's
   * process began.
   */
  offer(
    checkpoint: Checkpoint | undefined,
    problem: string | undefined,
    startSeconds: number | undefined,
  ): HistoryPoint | undefined {
    const { key, source, directory } = this.#options
    if (problem !== undefined) {
      this.#refusal = problem
      this.#context.log.warn({ key, directory, problem }, 'checkpoint is not used; the index begins empty')
    } else if (checkpoint !== undefined && checkpoint.source !== source) {
      this.#refusal = `it belongs to ${checkpoint.source}`
    } else if (isOtherProcessStart(checkpoint?.processStartSeconds, startSeconds)) {
      this.#refusal = 'the engine runs as another process now'
      const fields = { key, reason: this.#refusal, sequence: checkpoint!.point.nextSequence - 1 }
      this.#context.log.info(fields, 'checkpoint is not used')
    } else {
      this.#offered = checkpoint
    }
    this.#scheduleSave(this.#context.random.next())
    return this.#offered?.point
  }

  /** When the process of the offered checkpoint began; undefined: not known. */
  get offeredStartSeconds(): number | undefined {
    return this.#offered?.processStartSeconds
  }

  /** The content of the offered checkpoint, for the indexer. */
  get image(): KeyImage | undefined {
    return this.#offered?.image
  }

  /**
   * `refusal`: why the offered checkpoint is not used; undefined: the engine has proven it, and it was taken
   * over.
   */
  settled(refusal: string | undefined): void {
    const { key } = this.#options
    const { point, image } = this.#offered!
    const sequence = point.nextSequence - 1
    this.#offered = undefined
    this.#refusal = refusal
    if (refusal !== undefined) {
      this.#context.log.info({ key, sequence, reason: refusal }, 'checkpoint is not used')
      return
    }
    this.#resumedSequence = sequence
    this.#context.log.info({ key, sequence, blocks: image.parents.length }, 'continuing from a checkpoint')
  }

  saveDue(point: Point | undefined): void {
    this.#scheduleSave(1)
    if (this.#intervalsToSkip > 0) this.#intervalsToSkip--
    else this.save(point)
  }

  /** Begins to write a checkpoint. `point`: where the history stands; undefined: it could not be proven. */
  save(point: Point | undefined, reply?: Reply<SaveOutcome>): void {
    if (this.#underWay !== undefined) {
      if (reply !== undefined) this.#underWay.replies.push(reply)
      return
    }
    const saved = this.#saved
    if (point === undefined || this.#isContradicted) reply?.('unsettled')
    else if (saved?.epoch === point.epoch && saved.nextSequence === point.nextSequence) {
      this.#keep()
      reply?.('unchanged')
    } else {
      this.#underWay = { point, replies: reply === undefined ? [] : [reply], isVoid: false }
      const { indexer, workerSlot } = this.#options
      this.#context.pipe(
        indexer.ask({ type: 'image', workerSlot }, { timeout: IMAGE_MS_MAX }),
        image => ({ type: 'imaged', image }),
        () => ({ type: 'imaged', image: undefined }),
      )
    }
  }

  /**
   * `now`: where the history stands now. The epoch may have ended before the indexer answered.
   */
  imaged(image: KeyImage | undefined, now: Point | undefined, processStartSeconds: number | undefined): void {
    const underWay = this.#underWay
    // An earlier life of this listener asked for it.
    if (underWay === undefined) return
    const { point } = underWay
    if (image === undefined || now?.epoch !== point.epoch || underWay.isVoid) {
      this.#ended('unsettled')
      return
    }
    const { directory, source, key } = this.#options
    const { epoch: _, ...history } = point
    const pieces = encodeCheckpoint({ source, key, processStartSeconds, point: history, image })
    const files = this.#context.use(checkpointFiles)
    this.#context.pipe(
      this.#onDisk(() => files.write(directory, source, pieces, () => !underWay.isVoid)),
      () => ({ type: 'saved', problem: undefined }),
      thrown => ({ type: 'saved', problem: toErrorRecord(thrown).message }),
    )
  }

  saved(problem: string | undefined): void {
    if (this.#underWay === undefined) return
    if (problem !== undefined) {
      this.#failedSaves++
      this.#diskFailed(problem, 'checkpoint cannot be written; it is retried at growing intervals')
      this.#ended('failed')
      return
    }
    this.#diskIsWell()
    if (this.#underWay.isVoid) {
      this.#ended('unsettled')
      return
    }
    this.#saves++
    this.#saved = this.#underWay.point
    this.#savedMs = this.#context.clock.nowMs()
    this.#ended('saved')
  }

  /** Written checkpoints may be wrong, the one under way too: none is kept until answers agree again. */
  contradicted(): void {
    this.#isContradicted = true
    this.#saved = undefined
    if (this.#underWay !== undefined) this.#underWay.isVoid = true
    const { directory, source } = this.#options
    const files = this.#context.use(checkpointFiles)
    // Now, because a router that is killed during a write would find the file before; and again after the
    // write, which may have just ended.
    this.#afterwards(files.remove(directory, source))
    this.#afterwards(this.#onDisk(() => files.remove(directory, source)))
  }

  confirmed(): void {
    this.#isContradicted = false
  }

  /** Keeps a valid checkpoint from being removed as a forgotten one. */
  #keep(): void {
    const { directory, source } = this.#options
    const files = this.#context.use(checkpointFiles)
    this.#afterwards(this.#onDisk(() => files.touch(directory, source)))
  }

  #onDisk(work: () => Promise<void>): Promise<void> {
    const done = this.#disk.then(work)
    this.#disk = done.catch(() => undefined)
    return done
  }

  #afterwards(done: Promise<void>): void {
    done.then(
      () => this.#diskIsWell(),
      thrown => {
        const { message } = toErrorRecord(thrown)
        this.#diskFailed(message, 'checkpoint cannot be kept or removed; it is retried at growing intervals')
      },
    )
  }

  #diskFailed(problem: string, text: string): void {
    const { key, directory } = this.#options
    if (this.#diskFaults++ === 0) this.#context.log.warn({ key, directory, problem }, text)
    this.#intervalsToSkip = Math.min(2 ** this.#diskFaults, BACKOFF_INTERVALS_MAX) - 1
  }

  #diskIsWell(): void {
    if (this.#diskFaults === 0) return
    this.#diskFaults = 0
    this.#intervalsToSkip = 0
    const { key, directory } = this.#options
    this.#context.log.info({ key, directory }, 'checkpoints are written again')
  }

  #ended(outcome: SaveOutcome): void {
    const replies = this.#underWay!.replies
    this.#underWay = undefined
    for (const reply of replies) reply(outcome)
  }

  /** Spreads the writes of sources that began together. */
  #scheduleSave(part: number): void {
    this.#context.schedule(part * this.#options.intervalMs, { type: 'saveDue' })
  }
}

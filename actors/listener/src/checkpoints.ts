/**
 * Checkpoints of one listener: reads the one of an earlier life, writes new ones, and says what became of them.
 *
 *   idle ──save──▶ imaging ──image of the indexer──▶ writing ──▶ idle
 *                     └── nothing to give, or the history has begun anew ──▶ idle
 *
 * The image is of the moment at which the history stood at its point: the indexer is asked for it behind the events up
 * to there, and before those that follow. Who asks to save meanwhile gets the answer of the save under way.
 */

import type { ActorContext, ActorRef, Reply } from '@homing/actor'
import { toErrorRecord } from '@homing/errors'
import type { IndexerMessage, KeyImage } from '@homing/indexer'
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint, type HistoryPoint } from './checkpoint.ts'
import { checkpointFiles } from './checkpoint-files.ts'
import type { CheckpointStatus, ListenerMessage, SaveOutcome } from './messages.ts'

/** Where checkpoints are kept, and how often they are written. */
export interface CheckpointOptions {
  readonly directory: string
  readonly intervalMs: number
}

/** Undefined where no directory is given. */
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
  /** What the file is known by: the endpoint of the source, and its rank. */
  readonly source: string
  readonly workerSlot: number
  readonly indexer: ActorRef<IndexerMessage>
}

type Point = HistoryPoint & { readonly epoch: number }

/** An indexer that replays much answers late. */
const IMAGE_MS_MAX = 60_000

export class Checkpoints {
  readonly #context: ActorContext<ListenerMessage>
  readonly #options: KeyCheckpoints
  #offered: Checkpoint | undefined
  #underWay: { readonly point: Point; readonly replies: Reply<SaveOutcome>[] } | undefined
  #resumedSequence: number | undefined
  #refusal: string | undefined
  #saved: Point | undefined
  #savedMs = 0
  #saves = 0
  #failedSaves = 0
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

  /** Where an earlier life stood; undefined: nothing is there that could be used. */
  offer(checkpoint: Checkpoint | undefined, problem: string | undefined): HistoryPoint | undefined {
    const { key, source, directory } = this.#options
    if (problem !== undefined) {
      this.#refusal = problem
      this.#context.log.warn({ key, directory, problem }, 'checkpoint is not used; the index begins empty')
    } else if (checkpoint !== undefined && checkpoint.source !== source) {
      this.#refusal = `it is of ${checkpoint.source}`
    } else {
      this.#offered = checkpoint
    }
    this.#scheduleSave(this.#context.random.next())
    return this.#offered?.point
  }

  /** What is offered, for the indexer. */
  get image(): KeyImage | undefined {
    return this.#offered?.image
  }

  /** `refusal`: why what was offered is of no use; undefined: the engine has proven it, and it was taken over. */
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
    this.#context.log.info({ key, sequence, blocks: image.parents.length }, 'goes on from a checkpoint')
  }

  saveDue(point: Point | undefined): void {
    this.#scheduleSave(1)
    this.save(point)
  }

  /** Begins to write one. `point`: where the history stands; undefined: nowhere that could be proven. */
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
      this.#underWay = { point, replies: reply === undefined ? [] : [reply] }
      const { indexer, workerSlot } = this.#options
      this.#context.pipe(
        indexer.ask({ type: 'image', workerSlot }, { timeout: IMAGE_MS_MAX }),
        image => ({ type: 'imaged', image }),
        () => ({ type: 'imaged', image: undefined }),
      )
    }
  }

  /** `now`: where the history stands now. An epoch that is over may have been told to the indexer before it answered. */
  imaged(image: KeyImage | undefined, now: Point | undefined): void {
    const { point } = this.#underWay!
    if (image === undefined || now?.epoch !== point.epoch || this.#isContradicted) {
      this.#ended('unsettled')
      return
    }
    const { directory, source } = this.#options
    const { epoch: _, ...history } = point
    const pieces = encodeCheckpoint({ source, point: history, image })
    this.#context.pipe(
      this.#context.use(checkpointFiles).write(directory, source, pieces),
      () => ({ type: 'saved', problem: undefined }),
      thrown => ({ type: 'saved', problem: toErrorRecord(thrown).message }),
    )
  }

  saved(problem: string | undefined): void {
    if (problem !== undefined) {
      const { key, directory } = this.#options
      this.#failedSaves++
      this.#context.log.warn({ key, directory, problem }, 'checkpoint cannot be written')
      this.#ended('failed')
      return
    }
    this.#saves++
    this.#saved = this.#underWay!.point
    this.#savedMs = this.#context.clock.nowMs()
    this.#ended('saved')
  }

  /** What was written may be wrong: none is kept until answers agree again. */
  contradicted(): void {
    this.#isContradicted = true
    this.#saved = undefined
    const { directory, source } = this.#options
    this.#afterwards(this.#context.use(checkpointFiles).remove(directory, source))
  }

  confirmed(): void {
    this.#isContradicted = false
  }

  /** One that is true is not to be taken for one that is forgotten. */
  #keep(): void {
    const { directory, source } = this.#options
    this.#afterwards(this.#context.use(checkpointFiles).touch(directory, source))
  }

  #afterwards(done: Promise<void>): void {
    const { key, directory } = this.#options
    done.catch(thrown => {
      const problem = toErrorRecord(thrown).message
      this.#context.log.warn({ key, directory, problem }, 'checkpoint cannot be kept or removed')
    })
  }

  #ended(outcome: SaveOutcome): void {
    const replies = this.#underWay!.replies
    this.#underWay = undefined
    for (const reply of replies) reply(outcome)
  }

  /** Sources that began together are not to be written together. */
  #scheduleSave(part: number): void {
    this.#context.schedule(part * this.#options.intervalMs, { type: 'saveDue' })
  }
}

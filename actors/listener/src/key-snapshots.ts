/**
 * Key snapshots: what one listener gives to the snapshots beside its stream, and what it begins from.
 *
 * A snapshot is a checkpoint (checkpoint.ts) that all routers share. It counts as any checkpoint does: if the
 * stream, or the publisher, repeats the batches that it ends with.
 *
 * One in JSON, as Dynamo's routers write them, is read, too (json-snapshot.ts): it counts only where the
 * first history begins in the middle, and does not make it whole. Once a history has begun, or the engine
 * has restarted, it is dropped: a later history may be of another life.
 *
 *   take ──▶ image of the indexer ──▶ bytes, unless the history has begun anew meanwhile
 */

import type { ActorContext, ActorRef, Reply } from '@homing/actor'
import type { IndexerMessage, KeyImage } from '@homing/actors/indexer'
import { isOtherProcessStart } from '@homing/fleet/process-start'
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint, type HistoryPoint } from './checkpoint.ts'
import { UnusableCheckpointError } from './errors.ts'
import { isJsonSnapshot, readJsonSnapshot } from './json-snapshot.ts'
import type { KeySnapshot, ListenerMessage } from './messages.ts'

type Point = HistoryPoint & { readonly epoch: number }

export interface KeySnapshotsOptions {
  readonly key: string
  /** The same at all routers: subject and rank. */
  readonly source: string
  readonly workerSlot: number
  readonly dpRank: number
  readonly indexer: ActorRef<IndexerMessage>
}

/** An indexer that replays much answers late. */
const IMAGE_MS_MAX = 60_000

export class KeySnapshots {
  readonly #context: ActorContext<ListenerMessage>
  readonly #options: KeySnapshotsOptions
  #offered: Checkpoint | undefined
  /** Blocks of a snapshot in JSON, which nothing proves. */
  #base: KeyImage | undefined
  #underWay:
    | { readonly point: Point; readonly life: string; readonly reply: Reply<KeySnapshot | undefined> }
    | undefined
  /** Answers of the engine contradict its events. */
  isContradicted = false
  #resumedSequence: number | undefined
  #refusal: string | undefined

  constructor(context: ActorContext<ListenerMessage>, options: KeySnapshotsOptions) {
    this.#context = context
    this.#options = options
  }

  get resumedSequence(): number | undefined {
    return this.#resumedSequence
  }

  /** Why the one that was there is not used. */
  get refusal(): string | undefined {
    return this.#refusal
  }

  /** The content of the offered one, for the indexer; undefined: none is offered. */
  get image(): KeyImage | undefined {
    return this.#offered?.image
  }

  /** Where the stored one stood; undefined: it is of no use. */
  offer(bytes: Uint8Array | undefined, startSeconds: number | undefined): HistoryPoint | undefined {
    if (bytes === undefined) return undefined
    try {
      if (isJsonSnapshot(bytes)) {
        this.#base = readJsonSnapshot(bytes, this.#options.dpRank)
        return undefined
      }
      const stored = decodeCheckpoint(bytes)
      if (stored.source !== this.#options.source) this.#refusal = `it belongs to ${stored.source}`
      else if (isOtherProcessStart(stored.processStartSeconds, startSeconds))
        this.#refusal = 'the engine runs as another process now'
      else this.#offered = stored
    } catch (error) {
      if (!(error instanceof UnusableCheckpointError)) throw error
      this.#refusal = error.message
    }
    if (this.#refusal !== undefined)
      this.#context.log.warn(
        { key: this.#options.key, reason: this.#refusal },
        'the snapshot beside the stream is not used',
      )
    return this.#offered?.point
  }

  /** What the first history begins with, if it begins in the middle; undefined: nothing is known of it. */
  get base(): KeyImage | undefined {
    return this.#base
  }

  /** The indexer has taken it, a history has begun without it, or the engine has restarted. */
  dropBase(): void {
    this.#base = undefined
  }

  /** `refusal`: why it is not used; undefined: it was proven, and taken over. False: none was offered. */
  settled(refusal: string | undefined): boolean {
    if (this.#offered === undefined) return false
    const { point, image } = this.#offered
    const { key } = this.#options
    const sequence = point.nextSequence - 1
    this.#offered = undefined
    this.#refusal = refusal
    if (refusal === undefined) {
      this.#resumedSequence = sequence
      this.#context.log.info({ key, sequence, blocks: image.parents.length }, 'continuing from a snapshot')
    } else this.#context.log.info({ key, sequence, reason: refusal }, 'the snapshot is not used')
    return true
  }

  /** Undefined as the answer: the history is not whole, or not at a point that could be proven later. */
  take(point: Point | undefined, life: string | undefined, reply: Reply<KeySnapshot | undefined>): void {
    // Less than all would take from others what the stream still has.
    const isWhole = point?.isWhole === true && !this.isContradicted
    if (!isWhole || life === undefined || this.#underWay !== undefined) {
      reply(undefined)
      return
    }
    this.#underWay = { point, life, reply }
    const { indexer, workerSlot } = this.#options
    this.#context.pipe(
      indexer.ask({ type: 'image', workerSlot }, { timeout: IMAGE_MS_MAX }),
      image => ({ type: 'snapshotImaged', image }),
      () => ({ type: 'snapshotImaged', image: undefined }),
    )
  }

  imaged(image: KeyImage | undefined, now: Point | undefined, processStartSeconds: number | undefined): void {
    const underWay = this.#underWay
    if (underWay === undefined) return
    this.#underWay = undefined
    const { point, life, reply } = underWay
    if (image === undefined || now?.epoch !== point.epoch) {
      reply(undefined)
      return
    }
    const { epoch: _, ...history } = point
    const { source, key } = this.#options
    const pieces = encodeCheckpoint({ source, key, processStartSeconds, point: history, image })
    const keepFrom = point.nextSequence - point.fingerprints.length
    reply({ bytes: new Uint8Array(Buffer.concat(pieces)), life, keepFrom })
  }
}

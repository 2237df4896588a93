/**
 * Snapshots: whether the publisher of a source offers them (then it is not an engine), and how much of one
 * has arrived.
 *
 *   unknown  ──a batch, or the end of a replay──▶  none     an engine drops the request, answers the next one
 *   unknown  ──a part, or a refusal──▶             offered
 *
 * When a probe has found another process of the engine, the publisher may still tell of the process before:
 * it may not have noticed, if something between it and the engine holds the connection. Then its snapshots
 * are **outdated** until it withdraws what it told; unless it has done so since a probe last found the
 * process before, or no probe has. That withdrawal may be of an earlier restart: so what the publisher has
 * told since must not be older than the process is.
 *
 * A publisher that offers the form `hashes` is asked for it, until such a question meets silence, since
 * another one may have come that does not know it, or a part of the answer cannot be read. An attempt that
 * ended otherwise, for whatever reason, says nothing of that.
 *
 * Invariant  the parts of a snapshot are applied in order, from the first on, within one attempt; otherwise
 *            none of it counts.
 */

import type { KvEvent, SnapshotReply } from '@homing/protocol'

export type SnapshotPart = Extract<SnapshotReply, { readonly kind: 'part' }>

export class Snapshots {
  #offer: 'unknown' | 'none' | 'offered' = 'unknown'
  /** The part that comes next; undefined: none is under way. */
  #nextPart: number | undefined
  #due: 'no' | 'later' | 'with its next batch' = 'no'
  /** The publisher told of blocks that no clear or withdrawal has undone. */
  #isHolding = false
  /** When the first of them was told, by the engine's clock; undefined: not known. */
  #heldSinceSeconds: number | undefined
  /** Events of the snapshot under way. */
  #events = 0
  #hasWithdrawn = true
  #publisherId = ''
  #outdatedId: string | undefined
  /** The publisher that is asked by hashes. */
  #hashesOf: string | undefined
  /** The attempt under way asks it, and has no answer yet. */
  #owesHashes = false
  /** It offered hashes, and they were of no use. */
  #vainOf: string | undefined
  /** In this rebuild the question has changed its form once. */
  #hasTurned = false

  get isUnknown(): boolean {
    return this.#offer === 'unknown'
  }

  /** The publisher is not the engine but a process beside it. */
  get isOffered(): boolean {
    return this.#offer === 'offered'
  }

  get isUnderWay(): boolean {
    return this.#nextPart !== undefined
  }

  /**
   * In this rebuild the publisher had no snapshot, or an empty one: it is asked again. `wasHeard`: a live
   * batch came since.
   */
  isDue(wasHeard: boolean): boolean {
    return this.#due === 'later' || (this.#due === 'with its next batch' && wasHeard)
  }

  /** Whether the next attempt asks for one. */
  isWanted(isHistoryEmpty: boolean): boolean {
    return this.isUnknown || (isHistoryEmpty && this.isOffered)
  }

  /** A batch was applied. `seconds`: its time stamp; undefined: it cannot be read. */
  applied(events: readonly KvEvent[], seconds: number | undefined): void {
    const last = events.findLastIndex(({ kind }) => kind === 'cleared')
    if (last >= 0) this.#holdsNothing()
    if (last < 0 || last < events.length - 1) {
      if (!this.#isHolding) this.#heldSinceSeconds = seconds
      this.#isHolding = true
    }
    if (!events.some(isWithdrawal)) return
    this.#hasWithdrawn = true
    this.#outdatedId = undefined
  }

  /** A probe has found the same process of the engine as before. */
  sameProcess(): void {
    this.#hasWithdrawn = false
  }

  /** A probe has found another one. `startSeconds`: when it began; undefined: it does not say. */
  otherProcess(startSeconds: number | undefined): void {
    if (!this.isOffered || !this.#isHolding) return
    const isOlder = startSeconds !== undefined && !(this.#heldSinceSeconds! >= startSeconds)
    if (!this.#hasWithdrawn || isOlder) this.#outdatedId = this.#publisherId
  }

  /** The snapshot may hold blocks of a process of the engine that has ended. */
  isOutdated({ publisherId }: SnapshotPart): boolean {
    return publisherId === this.#outdatedId
  }

  /** A snapshot is asked for. True: by hashes. */
  asked(): boolean {
    this.#owesHashes = this.#hashesOf !== undefined
    return this.#owesHashes
  }

  /** The attempt under way has met silence. True: it asked by hashes; the next one asks by tokens. */
  fellSilent(): boolean {
    if (!this.#owesHashes) return false
    this.useTokens(this.#hashesOf)
    return true
  }

  /** This publisher is asked by tokens from now on. */
  useTokens(publisherId: string | undefined): void {
    this.#owesHashes = false
    this.#hashesOf = undefined
    this.#vainOf = publisherId
  }

  /**
   * Whether this part, the first of several, had better come by hashes. Then the next question, which there
   * must be, says so: once in a rebuild, however many publishers answer.
   */
  prefersHashes({ form, offersHashes, part, parts, publisherId }: SnapshotPart): boolean {
    if (form !== 'tokens' || !offersHashes || part > 0 || parts === 1) return false
    if (this.#hasTurned || publisherId === this.#hashesOf || publisherId === this.#vainOf) return false
    this.#hasTurned = true
    this.#hashesOf = publisherId
    return true
  }

  beginRebuild(): void {
    this.#due = 'no'
    this.#hasTurned = false
  }

  beginAttempt(): void {
    this.#nextPart = undefined
    this.#owesHashes = false
  }

  askAgainLater(): void {
    this.#due = 'later'
  }

  askAgainWithItsNextBatch(): void {
    this.#due = 'with its next batch'
  }

  /** The request for a snapshot got another answer. */
  notOffered(): void {
    if (this.isUnknown) this.#offer = 'none'
  }

  /** True: it was not known before. */
  offered(): boolean {
    const isNews = this.isUnknown
    this.#offer = 'offered'
    this.#owesHashes = false
    return isNews
  }

  isNext(part: number): boolean {
    return part === (this.#nextPart ?? 0)
  }

  /** `events`: how many it has. True: it was the last one. */
  took({ part, parts, publisherId }: SnapshotPart, events: number): boolean {
    this.#publisherId = publisherId
    this.#events = part === 0 ? events : this.#events + events
    this.#nextPart = part + 1 === parts ? undefined : part + 1
    if (this.#nextPart !== undefined) return false
    if (this.#events === 0) this.#holdsNothing()
    else this.#isHolding = true
    return true
  }

  /** Forgets the parts taken over. */
  cut(): void {
    this.#nextPart = undefined
  }

  #holdsNothing(): void {
    this.#isHolding = false
    this.#heldSinceSeconds = undefined
  }
}

function isWithdrawal(event: KvEvent): boolean {
  return event.kind === 'cleared' && event.isWithdrawal
}

/**
 * Stream position: what of a stream is a batch of a publisher, and where in it a batch is.
 *
 * Order   batches of one life are in the stream in their order, but for packs that were refused or not
 *         answered while later ones were stored. Such a pack is behind at most UNDER_WAY_MAX − 1 others
 *         (stream-copy.ts), so a batch is behind at most DISORDER_BATCHES_MAX later ones.
 */

import { parseReplayReply } from '@homing/protocol'
import type { Frames } from '../message-types.ts'
import { decodeFrames, decodePayload, KIND, Parts, type Payload, unpacked } from './payload.ts'
import { type BrokerStreams, PACK_MESSAGES_MAX, type StreamMessage, UNDER_WAY_MAX } from './streams.ts'

/** Later batches that may be before a batch. */
export const DISORDER_BATCHES_MAX = UNDER_WAY_MAX * PACK_MESSAGES_MAX
/** Messages that are no batch, in a row, until a search goes on before them. */
const UNKNOWN_MAX = 8
/** …that are parts of one. */
const UNKNOWN_PARTS_MAX = 256
/** Messages that are looked at, back from the end, for one of ours. */
const BACK_MAX = 1024
const EMPTY = new Uint8Array(0)

export interface SoughtBatch {
  readonly stream: string
  readonly subject: string
  readonly life: string
  /** Its sequence. */
  readonly from: number
}

export interface StreamBatch {
  readonly sequence: number
  /** As they were published. */
  readonly frames: Frames
}

/**
 * Where in the stream all batches of this life from a sequence on are, or are behind. Those of earlier lives
 * are before it, but for the last of the life before. Undefined: the stream has nothing of the subject. Cost:
 * a question for each doubling of the stream, and a few where it has parts of messages, or foreign ones.
 */
export async function positionOf(
  streams: Pick<BrokerStreams, 'next' | 'last'>,
  { stream, subject, life, from }: SoughtBatch,
): Promise<number | undefined> {
  const [first, last] = [await streams.next(stream, subject, 1), await streams.last(stream, subject)]
  if (first === undefined || last === undefined) return undefined
  // Behind a batch that is earlier by this much, no later one is before.
  const sought = from - DISORDER_BATCHES_MAX
  let [low, high] = [first.position, last.position]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const parts = new Parts()
    let found = (await streams.next(stream, subject, middle)) ?? last
    let isBefore = isBeforeBatch(found, life, sought, parts)
    for (let unknown = 1; isBefore === undefined && found.position < high; unknown++) {
      if (unknown >= (livesOf(found).includes(life) ? UNKNOWN_PARTS_MAX : UNKNOWN_MAX)) break
      found = (await streams.next(stream, subject, found.position + 1)) ?? last
      isBefore = isBeforeBatch(found, life, sought, parts)
    }
    // What is not known may be what is sought: so it is looked for before that, too.
    if (isBefore === true) low = found.position + 1
    else high = middle
  }
  return Math.min(low, last.position)
}

/**
 * Before which position all may be purged so that every batch of this life from a sequence on stays.
 * Undefined: nothing may, since a newer life has begun, whose batches cannot be told by halves. Cost: that
 * of `positionOf`, and a question for each message from there on, whose batches are DISORDER_BATCHES_MAX at
 * most.
 */
export async function purgeableBefore(
  streams: Pick<BrokerStreams, 'next' | 'last'>,
  sought: SoughtBatch,
): Promise<number | undefined> {
  const { stream, subject, life, from } = sought
  const last = await streams.last(stream, subject)
  if (last === undefined || (await newestLife(streams, sought, last)) !== life) return undefined
  let at = await positionOf(streams, sought)
  if (at === undefined) return undefined
  const parts = new Parts()
  /** Where a message in parts begins that is not whole yet. */
  let begins: number | undefined
  for (;;) {
    const message = await streams.next(stream, subject, at)
    if (message === undefined) return begins ?? last.position
    const { position, payload } = message
    const batches = batchesOf(payload, life, parts)
    if (batches.some(({ sequence }) => sequence >= from)) return begins ?? position
    begins = batches.length > 0 ? undefined : (begins ?? position)
    if (position >= last.position) return begins ?? last.position
    at = position + 1
  }
}

/** The same of a snapshot; without one, all that is there now. Undefined: nothing may be purged. */
export async function purgeableOf(
  streams: Pick<BrokerStreams, 'next' | 'last'>,
  stream: string,
  subject: string,
  snapshot: { readonly life: string; readonly keepFrom: number } | undefined,
): Promise<number | undefined> {
  if (snapshot !== undefined) {
    const { life, keepFrom: from } = snapshot
    return await purgeableBefore(streams, { stream, subject, life, from })
  }
  const last = await streams.last(stream, subject)
  return last && last.position + 1
}

/** Of the last message that is a publisher's; undefined: it is not near the end. */
async function newestLife(
  streams: Pick<BrokerStreams, 'next' | 'last'>,
  { stream, subject }: SoughtBatch,
  last: StreamMessage,
): Promise<string | undefined> {
  let newest = livesOf(last).at(-1)
  let end = last.position
  for (let back = 1, looked = 0; newest === undefined && end > 1 && looked < BACK_MAX; back *= 2) {
    const from = Math.max(1, last.position - back)
    for (let at = from; at < end && looked < BACK_MAX; looked++) {
      const message = await streams.next(stream, subject, at)
      if (message === undefined || message.position >= end) break
      newest = livesOf(message).at(-1) ?? newest
      at = message.position + 1
    }
    if (looked === BACK_MAX) return undefined
    end = from
  }
  return newest
}

/** Of the publishers of what is in a message, or of which it is a part; none: it is another program's. */
function livesOf({ payload }: StreamMessage): readonly string[] {
  return unpacked(payload).flatMap(one => {
    const read = decodePayload(one)
    return read !== undefined && read !== 'other-version' && isMessage(read) ? [read.life] : []
  })
}

/** The batches of this life in a message of the stream; `parts` puts those together that are in several. */
export function batchesOf(message: Uint8Array, life: string, parts: Parts): readonly StreamBatch[] {
  return unpacked(message)
    .map(payload => batchOf(payload, life, parts))
    .filter(batch => batch !== undefined)
}

/** Undefined: it is no batch of this life, or a part of one. */
function batchOf(payload: Uint8Array, life: string, parts: Parts): StreamBatch | undefined {
  const read = decodePayload(payload)
  if (read === undefined || read === 'other-version' || !isMessage(read) || read.life !== life)
    return undefined
  const body = parts.add(read)
  const frames = body && decodeFrames(body)
  if (frames?.length !== 3) return undefined
  // It never throws, whatever another program has written there.
  const reply = parseReplayReply([EMPTY, ...frames])
  return reply.kind === 'batch' ? { sequence: reply.sequence, frames } : undefined
}

/** Whether a message is of another life, or of batches before this one; undefined: it tells neither. */
function isBeforeBatch(
  message: StreamMessage,
  life: string,
  from: number,
  parts: Parts,
): boolean | undefined {
  const batches = batchesOf(message.payload, life, parts)
  if (batches.length > 0) return batches.every(({ sequence }) => sequence < from)
  const lives = livesOf(message)
  return lives.length === 0 || lives.includes(life) ? undefined : true
}

function isMessage({ kind }: Payload): boolean {
  return kind === KIND.message || kind === KIND.part || kind === KIND.lastPart
}

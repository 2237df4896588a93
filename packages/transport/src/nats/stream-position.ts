/** Stream position: what of a stream is a batch of a publisher, and where in it a batch is. */

import { parseEventFrames } from '@homing/protocol'
import type { Frames } from '../types.ts'
import { decodeFrames, decodePayload, KIND, Parts, type Payload, unpacked } from './payload.ts'
import type { BrokerStreams, StreamMessage } from './streams.ts'

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
 * Where in the stream the first batch of this life from a sequence on is. Those of earlier lives are before
 * it. Undefined: the stream has nothing of the subject. Cost: a question for each doubling of the stream.
 */
export async function positionOf(
  streams: Pick<BrokerStreams, 'next' | 'last'>,
  { stream, subject, life, from }: SoughtBatch,
): Promise<number | undefined> {
  const [first, last] = [await streams.next(stream, subject, 1), await streams.last(stream, subject)]
  if (first === undefined || last === undefined) return undefined
  let [low, high] = [first.position, last.position]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const found = (await streams.next(stream, subject, middle)) ?? last
    if (reaches(found, life, from)) high = middle
    else low = found.position + 1
  }
  return low
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
  if (frames?.length !== 3 || frames[1]!.length !== 8) return undefined
  return { sequence: parseEventFrames(frames).sequence, frames }
}

function reaches({ payload }: StreamMessage, life: string, from: number): boolean {
  return batchesOf(payload, life, new Parts()).some(({ sequence }) => sequence >= from)
}

function isMessage({ kind }: Payload): boolean {
  return kind === KIND.message || kind === KIND.part || kind === KIND.lastPart
}

/**
 * The frames around KV event batches: the published message, and the replay dialogue.
 *
 *   published                [topic] [sequence, 8 bytes] [payload]
 *   replay request           []      [first sequence, 8 bytes]
 *   replay reply, 'plain'    []      [sequence] [payload]            vLLM to 0.25, older SGLang
 *   replay reply, 'topic'    []      [topic] [sequence] [payload]    vLLM from 0.26, SGLang 0.5.23
 *   end of replay            as a reply, topic empty, sequence all ff, payload empty
 *
 * A request or reply is as its DEALER sees it; the ROUTER has the identity in front. Sequences are
 * unsigned, big-endian. Payloads are passed on as they are, not copied.
 */

import { MalformedEventFramesError } from './errors.ts'

type Frames = readonly Uint8Array[]

/** One published message. */
export interface EventMessage {
  readonly topic: string
  /** Grows by one per message of a publisher, from 0 at its start. */
  readonly sequence: number
  /** A KvBatch for `decodeKvBatch`. */
  readonly payload: Uint8Array
}

/** Which framing replies have. */
export type ReplayForm = 'topic' | 'plain'

export type ReplayReply =
  | {
      readonly kind: 'batch'
      /** '' in the plain form. */
      readonly topic: string
      readonly sequence: number
      readonly payload: Uint8Array
    }
  | { readonly kind: 'end' }
  | { readonly kind: 'malformed'; readonly reason: string }

/** Throws MalformedEventFramesError when the frames are not those of a published message. */
export function parseEventFrames(frames: Frames): EventMessage {
  if (frames.length !== 3) throw new MalformedEventFramesError('3 frames expected', frames.length)
  const sequence = trySequence(frames[1]!)
  if (sequence === undefined) {
    throw new MalformedEventFramesError('the sequence is not 8 bytes below 2^53', frames.length)
  }
  return { topic: topicText(frames[0]!), sequence, payload: frames[2]! }
}

export function encodeEventFrames(topic: string, sequence: number, payload: Uint8Array): Uint8Array[] {
  return [topicBytes(topic), sequenceBytes(sequence), payload]
}

/** What a DEALER sends to have everything from `startSequence` on repeated. */
export function replayRequestFrames(startSequence: number): Uint8Array[] {
  return [EMPTY, sequenceBytes(startSequence)]
}

/**
 * The first sequence a request asks for, from the frames after the identity; undefined when it is no
 * request, which engines leave without an answer. Numbers of 1 to 8 bytes are read, as engines do;
 * one past 2^53 − 1 is read as 2^53 − 1: nothing is that new.
 */
export function parseReplayRequest(frames: Frames): number | undefined {
  const number = frames[1]
  if (frames.length !== 2 || frames[0]!.length !== 0 || number === undefined) return undefined
  if (number.length < 1 || number.length > 8) return undefined
  let start = 0
  for (const byte of number) start = start * 256 + byte
  return Math.min(start, Number.MAX_SAFE_INTEGER)
}

/** Reads a reply in either framing. Never throws: a malformed reply ends a replay, not its reader. */
export function parseReplayReply(frames: Frames): ReplayReply {
  if (frames.length !== 3 && frames.length !== 4) return malformed(`${frames.length} frames`)
  if (frames[0]!.length !== 0) return malformed('no empty delimiter')
  const number = frames[frames.length - 2]!
  const payload = frames[frames.length - 1]!
  if (payload.length === 0 && isEndMarker(number)) return { kind: 'end' }
  const sequence = trySequence(number)
  if (sequence === undefined) return malformed('the sequence is not 8 bytes below 2^53')
  const topic = frames.length === 4 ? topicText(frames[1]!) : ''
  return { kind: 'batch', topic, sequence, payload }
}

/** One batch of a replay, from the empty delimiter on. */
export function encodeReplayReply(
  form: ReplayForm,
  topic: string,
  sequence: number,
  payload: Uint8Array,
): Uint8Array[] {
  const number = sequenceBytes(sequence)
  return form === 'topic' ? [EMPTY, topicBytes(topic), number, payload] : [EMPTY, number, payload]
}

/** The end of a replay, from the empty delimiter on; its topic is empty whatever the publisher's is. */
export function encodeReplayEnd(form: ReplayForm): Uint8Array[] {
  const number = new Uint8Array(8).fill(0xff)
  return form === 'topic' ? [EMPTY, EMPTY, number, EMPTY] : [EMPTY, number, EMPTY]
}

const EMPTY = new Uint8Array(0)
const textDecoder = new TextDecoder()
const textEncoder = new TextEncoder()

function topicText(frame: Uint8Array): string {
  return frame.length === 0 ? '' : textDecoder.decode(frame)
}

function topicBytes(topic: string): Uint8Array {
  return topic === '' ? EMPTY : textEncoder.encode(topic)
}

function trySequence(frame: Uint8Array): number | undefined {
  if (frame.length !== 8) return undefined
  let high = 0
  let low = 0
  for (let i = 0; i < 4; i++) {
    high = high * 256 + frame[i]!
    low = low * 256 + frame[i + 4]!
  }
  const sequence = high * 2 ** 32 + low
  return Number.isSafeInteger(sequence) ? sequence : undefined
}

function sequenceBytes(sequence: number): Uint8Array {
  if (!Number.isSafeInteger(sequence) || sequence < 0) {
    throw new RangeError(`cannot use ${sequence} as a sequence: use an integer from 0 to 2^53 − 1`)
  }
  const bytes = new Uint8Array(8)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, Math.floor(sequence / 2 ** 32))
  view.setUint32(4, sequence >>> 0)
  return bytes
}

function isEndMarker(frame: Uint8Array): boolean {
  return frame.length === 8 && frame.every(byte => byte === 0xff)
}

function malformed(reason: string): ReplayReply {
  return { kind: 'malformed', reason }
}

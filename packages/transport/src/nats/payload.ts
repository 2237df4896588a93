/**
 * Payloads at a broker: messages of several frames, whole or in parts, and the words of their publishers.
 *
 *   byte 0        VERSION
 *   byte 1        kind
 *   bytes 2…9     life of the sender; of a question, the life that it is for, or 0
 *   bytes 10…13   number of the sender's connection, from 1, little-endian
 *   then          of a message: length (4 bytes, little-endian) and bytes of every frame; of a part: where it
 *                 begins in that (4 bytes, little-endian) and a piece of it; of a beat: the namespace whose
 *                 stream has all that was published, if one has; of a pack: length (4 bytes, little-endian)
 *                 and bytes of every payload in it
 *
 * A stream gets several payloads of one sender as one message, a pack. A message that is larger than the
 * broker takes goes in parts; those of one sender are never mixed with its other messages.
 */

export const VERSION = 1
export const LIFE_BYTES = 8
const HEAD_BYTES = 14
const PART_HEAD_BYTES = HEAD_BYTES + 4
/** A larger message is dropped, as a ZeroMQ frame of that size is. */
export const MESSAGE_BYTES_MAX = 256 * 2 ** 20

export const KIND = { message: 0, part: 1, lastPart: 2, beat: 3, bye: 4 } as const
export type Kind = (typeof KIND)[keyof typeof KIND]
/** Not among the kinds: what is in a pack is told one by one. */
const PACK = 5

/** The sender of a payload. */
export interface Sender {
  /** 16 hexadecimal digits. */
  readonly life: string
  readonly connection: number
}

export const NO_LIFE = '0'.repeat(2 * LIFE_BYTES)

export interface Payload extends Sender {
  readonly kind: Kind
  readonly body: Uint8Array
}

/** `beat` or `bye`. `storedIn`: of a beat, the namespace whose stream has all that was published. */
export function encodeWord(
  kind: typeof KIND.beat | typeof KIND.bye,
  sender: Sender,
  storedIn = '',
): Uint8Array {
  const payload = headed(kind, sender, storedIn.length)
  payload.set(Buffer.from(storedIn, 'latin1'), HEAD_BYTES)
  return payload
}

/** Of the body of a beat; '': none. */
export function storedIn(body: Uint8Array): string {
  return Buffer.from(body.buffer, body.byteOffset, body.length).toString('latin1')
}

/** The payloads of a message, one unless it is larger than `bytesMax`. */
export function encodeMessage(frames: readonly Uint8Array[], sender: Sender, bytesMax: number): Uint8Array[] {
  let size = 0
  for (const frame of frames) size += 4 + frame.length
  if (HEAD_BYTES + size <= bytesMax) {
    const payload = headed(KIND.message, sender, size)
    fill(payload, HEAD_BYTES, frames)
    return [payload]
  }
  const whole = new Uint8Array(size)
  fill(whole, 0, frames)
  return partsOf(whole, headed(KIND.message, sender, 0), 0, bytesMax, true)
}

/**
 * `head`: of a payload of the sender. `at`: where the piece begins in its message; `isLast`: it ends there.
 */
function partsOf(
  piece: Uint8Array,
  head: Uint8Array,
  at: number,
  bytesMax: number,
  isLast: boolean,
): Uint8Array[] {
  const step = Math.max(1, bytesMax - PART_HEAD_BYTES)
  const parts: Uint8Array[] = []
  for (let from = 0; from < piece.length; from += step) {
    const bytes = piece.subarray(from, from + step)
    const part = new Uint8Array(PART_HEAD_BYTES + bytes.length)
    part.set(head.subarray(0, HEAD_BYTES))
    part[1] = isLast && from + step >= piece.length ? KIND.lastPart : KIND.part
    new DataView(part.buffer).setUint32(HEAD_BYTES, at + from, true)
    part.set(bytes, PART_HEAD_BYTES)
    parts.push(part)
  }
  return parts
}

/**
 * The same payload in parts that are not larger; it is a message, or a part of one. At least as many bytes as
 * a head has, and one, are needed.
 */
export function splitPayload(payload: Uint8Array, bytesMax: number): readonly Uint8Array[] {
  if (payload.length <= bytesMax) return [payload]
  if (payload[1] === KIND.message) return partsOf(payload.subarray(HEAD_BYTES), payload, 0, bytesMax, true)
  const at = new DataView(payload.buffer, payload.byteOffset).getUint32(HEAD_BYTES, true)
  return partsOf(payload.subarray(PART_HEAD_BYTES), payload, at, bytesMax, payload[1] === KIND.lastPart)
}

/** A message without frames, of the sender of another one: parts before it that have no end are forgotten. */
export function tearBefore(payload: Uint8Array): Uint8Array {
  const tear = payload.slice(0, HEAD_BYTES)
  tear[1] = KIND.message
  return tear
}

/** What a pack adds to each payload, and once. */
export const PACK_ITEM_BYTES = 4
export const PACK_HEAD_BYTES = HEAD_BYTES

/** Several payloads of one life as one. */
export function encodePack(payloads: readonly Uint8Array[], life: string): Uint8Array {
  let size = 0
  for (const payload of payloads) size += PACK_ITEM_BYTES + payload.length
  const pack = headed(PACK, { life, connection: 0 }, size)
  fill(pack, HEAD_BYTES, payloads)
  return pack
}

/** The payloads of a pack, as views; of anything else, that alone. */
export function unpacked(bytes: Uint8Array): readonly Uint8Array[] {
  if (bytes.length < HEAD_BYTES || bytes[0] !== VERSION || bytes[1] !== PACK) return [bytes]
  return framesOf(bytes.subarray(HEAD_BYTES)) ?? [bytes]
}

/**
 * 'other-version': another program, or another version of this one. Undefined: nothing of ours. The body is a
 * view.
 */
export function decodePayload(bytes: Uint8Array): Payload | 'other-version' | undefined {
  if (bytes.length < HEAD_BYTES) return undefined
  if (bytes[0] !== VERSION) return 'other-version'
  const kind = bytes[1] as Kind
  if (kind > KIND.bye) return undefined
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  return {
    kind,
    life: Buffer.from(bytes.buffer, bytes.byteOffset + 2, LIFE_BYTES).toString('hex'),
    connection: view.getUint32(2 + LIFE_BYTES, true),
    body: bytes.subarray(HEAD_BYTES),
  }
}

/** Frames of a message's body, with memory of their own; undefined: it is cut or no such body. */
export function decodeFrames(body: Uint8Array): Uint8Array[] | undefined {
  return framesOf(body)?.map(frame => frame.slice())
}

/** Puts the parts of one sender's messages together. */
export class Parts {
  #pieces: Uint8Array[] = []
  #bytes = 0
  #life = ''
  #connection = 0

  /** The body of a message that is whole with this; undefined: not yet, or never. */
  add({ kind, life, connection, body }: Payload): Uint8Array | undefined {
    if (life !== this.#life || connection !== this.#connection) {
      this.forget()
      this.#life = life
      this.#connection = connection
    }
    if (kind === KIND.message) {
      this.forget()
      return body
    }
    const at = body.length < 4 ? -1 : new DataView(body.buffer, body.byteOffset).getUint32(0, true)
    if (at === 0) this.forget()
    // What was before it is lost: so is the message.
    if (at !== this.#bytes) {
      this.forget()
      return undefined
    }
    const piece = body.subarray(4)
    this.#bytes += piece.length
    // One that is too large goes on being counted, so that its end is no message of its own.
    if (this.#bytes <= MESSAGE_BYTES_MAX) this.#pieces.push(piece.slice())
    else this.#pieces = []
    if (kind === KIND.part) return undefined
    const whole = this.#bytes <= MESSAGE_BYTES_MAX ? Buffer.concat(this.#pieces) : undefined
    this.forget()
    return whole
  }

  forget(): void {
    this.#pieces = []
    this.#bytes = 0
  }
}

/** As views; undefined: it is cut or no such body. */
function framesOf(body: Uint8Array): Uint8Array[] | undefined {
  const view = new DataView(body.buffer, body.byteOffset, body.length)
  const frames: Uint8Array[] = []
  for (let at = 0; at < body.length; ) {
    if (at + 4 > body.length) return undefined
    const length = view.getUint32(at, true)
    at += 4
    if (at + length > body.length) return undefined
    frames.push(body.subarray(at, at + length))
    at += length
  }
  return frames.length === 0 ? undefined : frames
}

function headed(kind: Kind | typeof PACK, { life, connection }: Sender, bodyBytes: number): Uint8Array {
  const payload = new Uint8Array(HEAD_BYTES + bodyBytes)
  payload[0] = VERSION
  payload[1] = kind
  if (life !== lastLife.text) lastLife = { text: life, bytes: Buffer.from(life, 'hex') }
  payload.set(lastLife.bytes, 2)
  for (let i = 0; i < 4; i++) payload[2 + LIFE_BYTES + i] = connection >>> (8 * i)
  return payload
}

/** Most payloads are of the life of the one before. */
let lastLife: { readonly text: string; readonly bytes: Uint8Array } = { text: '', bytes: new Uint8Array(0) }

function fill(target: Uint8Array, from: number, frames: readonly Uint8Array[]): void {
  const view = new DataView(target.buffer)
  let at = from
  for (const frame of frames) {
    view.setUint32(at, frame.length, true)
    target.set(frame, at + 4)
    at += 4 + frame.length
  }
}

/**
 * Request wire: an HTTP exchange as payloads at a broker.
 *
 *   byte 0        VERSION
 *   bytes 1…8     the call, a number that its client draws
 *   bytes 9…12    number of the payload among those of its sender in this call, from 0, little-endian
 *   then          frames: kind (1 byte), length (4 bytes, little-endian) and that many bytes
 *
 *   client   says open, and the body if it fits, to the subject of the server; the answer goes to an inbox of
 *            this call. All else it says to the server's inbox, which the reply subject of `accept` names.
 *
 * What the frames say is in requests/frames.ts: open, accept and head are JSON, credit is 4 bytes,
 * little-endian, end 1 byte, failed text; body and data are bytes as they are.
 *
 * Header values are latin1, as on the wire of HTTP. The first byte is the version in every version, so that
 * the other side can name a version that it cannot read.
 */

import { parseJson } from '@homing/base'
import { FRAME, type FrameKind, type FrameSink } from '../requests/frames.ts'
import type { BrokerLink } from './broker.ts'

export const VERSION = 1
export const CALL_BYTES = 8
const HEAD_BYTES = 1 + CALL_BYTES + 4
const FRAME_HEAD_BYTES = 5

export interface Frame {
  readonly kind: FrameKind
  /** A view of what was received. */
  readonly bytes: Uint8Array
}

export interface CallPayload {
  /** 16 hexadecimal digits. */
  readonly call: string
  readonly sequence: number
  readonly frames: readonly Frame[]
}

/** A number: the version of a payload that is not ours to read. Undefined: it is cut, or none of ours. */
export function decodeCallPayload(payload: Uint8Array): CallPayload | number | undefined {
  if (payload.length === 0) return undefined
  if (payload[0] !== VERSION) return payload[0]
  if (payload.length < HEAD_BYTES) return undefined
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length)
  const frames: Frame[] = []
  for (let at = HEAD_BYTES; at < payload.length; ) {
    if (at + FRAME_HEAD_BYTES > payload.length) return undefined
    const kind = payload[at] as FrameKind
    const length = view.getUint32(at + 1, true)
    at += FRAME_HEAD_BYTES
    if (kind > FRAME.failed || at + length > payload.length) return undefined
    // No sender has an empty piece.
    if (length === 0 && (kind === FRAME.body || kind === FRAME.data)) return undefined
    frames.push({ kind, bytes: payload.subarray(at, at + length) })
    at += length
  }
  return {
    call: Buffer.from(payload.buffer, payload.byteOffset + 1, CALL_BYTES).toString('hex'),
    sequence: view.getUint32(1 + CALL_BYTES, true),
    frames,
  }
}

export function jsonFrame(word: unknown): Uint8Array {
  return Buffer.from(JSON.stringify(word))
}

/** Undefined: it is no JSON object. */
export function readJsonFrame(bytes: Uint8Array): Readonly<Record<string, unknown>> | undefined {
  try {
    const word: unknown = parseJson(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString())
    return typeof word === 'object' && word !== null ? (word as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

export function countFrame(count: number): Uint8Array {
  const bytes = new Uint8Array(4)
  new DataView(bytes.buffer).setUint32(0, count, true)
  return bytes
}

/** Undefined: it is no count. */
export function readCountFrame(bytes: Uint8Array): number | undefined {
  if (bytes.length !== 4) return undefined
  return new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true)
}

/** What a frame says; `undefined` of one that cannot be read. */
export function contentOf({ kind, bytes }: Frame): unknown {
  if (kind === FRAME.body || kind === FRAME.data) return bytes
  if (kind === FRAME.credit) return readCountFrame(bytes) ?? 0
  if (kind === FRAME.end) return bytes[0]
  if (kind === FRAME.failed)
    return { reason: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString(), wasSeen: true }
  return readJsonFrame(bytes)
}

function bytesOf(kind: FrameKind, content: unknown): Uint8Array {
  if (content === undefined) return NOTHING
  if (kind === FRAME.body || kind === FRAME.data) return content as Uint8Array
  if (kind === FRAME.credit) return countFrame(content as number)
  if (kind === FRAME.end) return Uint8Array.of(content as number)
  return kind === FRAME.failed ? Buffer.from((content as { reason: string }).reason) : jsonFrame(content)
}

/** Frames of one side of a call, in payloads. */
export class PayloadSink implements FrameSink {
  readonly #link: BrokerLink
  readonly #writer: FrameWriter
  readonly isBlocked = false
  refusal = ''
  /** Something was said since this was set to false. */
  hasSpoken = false

  constructor(link: BrokerLink, writer: FrameWriter) {
    this.#link = link
    this.#writer = writer
  }

  get pieceBytesMax(): number {
    return Math.max(1, this.#link.payloadBytesMax - HEAD_BYTES - FRAME_HEAD_BYTES)
  }

  get alongBytesMax(): number {
    const payloadBytesMax = Math.min(this.#link.payloadBytesMax, ALONG_BYTES_MAX)
    return payloadBytesMax - this.#writer.waitingBytes - FRAME_HEAD_BYTES
  }

  put(kind: FrameKind, content?: unknown): boolean {
    const bytes = bytesOf(kind, content)
    this.hasSpoken = true
    if (this.#writer.put(kind, bytes)) return true
    this.refusal = `they have ${bytes.length} bytes, and the NATS broker takes payloads of ${this.#link.payloadBytesMax} bytes`
    return false
  }

  flush(): void {
    this.#writer.flush()
  }
}

/** Numbers the payloads of one side of a call. Frames of one turn go in one payload, as far as they fit. */
export class FrameWriter {
  readonly #link: BrokerLink
  readonly #call: Uint8Array
  readonly #lost: () => void
  #subject: string | undefined
  #reply: string | undefined
  #sequence = 0
  #frames: Frame[] = []
  #bytes = HEAD_BYTES
  #isDue = false
  /** Nothing goes out any more: what follows a payload that was lost is of no use. */
  #isLost = false

  /** `lost`: a payload found no room; called once. Without a `subject` frames wait for `aim`. */
  constructor(link: BrokerLink, call: string, lost: () => void, subject?: string, reply?: string) {
    this.#link = link
    this.#call = Buffer.from(call, 'hex')
    this.#lost = lost
    this.#subject = subject
    this.#reply = reply
  }

  /** Of the payload that is being filled. */
  get waitingBytes(): number {
    return this.#bytes
  }

  /** Where all goes from now on, without a reply subject. */
  aim(subject: string): void {
    this.#subject = subject
    this.#reply = undefined
  }

  /** False: no payload is large enough for it. `bytes` are copied before the turn ends. */
  put(kind: FrameKind, bytes: Uint8Array = NOTHING): boolean {
    const size = FRAME_HEAD_BYTES + bytes.length
    if (HEAD_BYTES + size > this.#link.payloadBytesMax) return false
    if (this.#bytes + size > this.#link.payloadBytesMax) this.flush()
    this.#frames.push({ kind, bytes })
    this.#bytes += size
    if (!this.#isDue) {
      this.#isDue = true
      queueMicrotask(() => this.flush())
    }
    return true
  }

  flush(): void {
    this.#isDue = false
    const frames = this.#frames
    if (frames.length === 0 || this.#subject === undefined) return
    const payload = new Uint8Array(this.#bytes)
    this.#frames = []
    this.#bytes = HEAD_BYTES
    payload[0] = VERSION
    payload.set(this.#call, 1)
    const view = new DataView(payload.buffer)
    view.setUint32(1 + CALL_BYTES, this.#sequence++, true)
    let at = HEAD_BYTES
    for (const { kind, bytes } of frames) {
      payload[at] = kind
      view.setUint32(at + 1, bytes.length, true)
      payload.set(bytes, at + FRAME_HEAD_BYTES)
      at += FRAME_HEAD_BYTES + bytes.length
    }
    if (this.#isLost || this.#link.publish(this.#subject, payload, this.#reply)) return
    this.#isLost = true
    this.#lost()
  }
}

const NOTHING = new Uint8Array(0)
/** A larger body waits until the server has accepted the request. */
const ALONG_BYTES_MAX = 256 * 1024

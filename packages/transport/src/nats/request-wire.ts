/**
 * Request wire: an HTTP exchange as payloads at a broker.
 *
 *   byte 0        VERSION
 *   bytes 1…8     the call, a number that its client draws
 *   bytes 9…12    number of the payload among those of its sender in this call, from 0, little-endian
 *   then          frames: kind (1 byte), length (4 bytes, little-endian) and that many bytes
 *
 *   client, to the subject of the server; the answer goes to an inbox of this call
 *     open      JSON {method, path, headers, bodyBytes, windowBytes}
 *     body      as much of the body as fits
 *   client, to the server's inbox, which the reply subject of `accept` names
 *     body      more of it, within the server's credit
 *     credit    4 bytes, little-endian: so much more of the answer may come
 *     cancel    the client no longer wants the answer
 *     alive     the client is there, although it has nothing to say
 *   server
 *     accept    JSON {windowBytes}: so much of the body may come
 *     credit    4 bytes: so much more of the body may come
 *     head      JSON {status, headers}
 *     data      a piece of the answer, within the client's credit
 *     end       1 byte: 0, the answer is whole; 1, its source was closed in good order, and its content tells
 *               whether it is whole
 *     failed    text: there will be no whole answer, and why
 *     alive     the server is there, although it has nothing to say
 *
 * A piece of n bytes takes n + PIECE_BYTES of credit, which is what holding it may cost. Header values are
 * latin1, as on the wire of HTTP. The first byte is the version in every version, so that the other side can
 * name a version that it cannot read.
 */

import { parseJson } from '@homing/base'
import { REQUEST_WINDOW_BYTES } from '../limits.ts'
import type { HttpHeaders } from '../types.ts'
import type { BrokerLink } from './broker.ts'

export const VERSION = 1
export const CALL_BYTES = 8
const HEAD_BYTES = 1 + CALL_BYTES + 4
const FRAME_HEAD_BYTES = 5
/** What a piece takes of the credit beside its bytes. */
export const PIECE_BYTES = 64

export const FRAME = {
  open: 0,
  body: 1,
  credit: 2,
  cancel: 3,
  alive: 4,
  accept: 5,
  head: 6,
  data: 7,
  end: 8,
  failed: 9,
} as const
export type FrameKind = (typeof FRAME)[keyof typeof FRAME]

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

/** Names in lower case, with all values of each. Undefined: it holds something that is no header. */
export function headersOf(word: unknown): HttpHeaders | undefined {
  if (typeof word !== 'object' || word === null) return undefined
  const headers: Record<string, string | string[]> = Object.create(null)
  for (const [given, value] of Object.entries(word)) {
    const values: readonly unknown[] = Array.isArray(value) ? value : [value]
    if (!values.every(one => typeof one === 'string')) return undefined
    const name = given.toLowerCase()
    const known = headers[name]
    if (known === undefined) headers[name] = Array.isArray(value) ? [...value] : value
    // Names may differ in case alone, and be many: what is known is not copied for each.
    else if (Array.isArray(known)) for (const one of values) known.push(one)
    else headers[name] = [known, ...values]
  }
  return headers
}

/** Whether a window may have this size. In a window below the minimum not even one piece would fit. */
export function isWindow(bytes: unknown): bytes is number {
  const { min, max } = REQUEST_WINDOW_BYTES
  return Number.isSafeInteger(bytes) && (bytes as number) >= min && (bytes as number) <= max
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

/** Largest piece that fits into a payload of `payloadBytesMax`. */
export function pieceBytesMax(payloadBytesMax: number): number {
  return Math.max(1, payloadBytesMax - HEAD_BYTES - FRAME_HEAD_BYTES)
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

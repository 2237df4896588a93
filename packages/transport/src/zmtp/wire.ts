/**
 * ZMTP 3.0, the wire protocol of ZeroMQ, with the NULL mechanism: bytes to messages and back.
 *
 *   greeting   ff 8×any 7f | 3 0 | "NULL" padded to 20 | 0 | 31×0                      64 bytes, both sides at once
 *   frame      flags | size, 1 byte, or 8 with LONG | body                             flags 1 MORE, 2 LONG, 4 COMMAND
 *   command    name size, 1 byte | name | data                                         READY ends the handshake
 *   message    frames, all but the last with MORE
 *
 * Announcing 3.0 makes newer peers speak 3.0 as well: a subscription is then a message, 1 or 0
 * and the topic.
 *
 * Source: rfc.zeromq.org/spec/23; tested against libzmq, which all engines use.
 */

/** The peer does not speak ZMTP 3 or wants more than we allow; its connection is closed. */
export class ZmtpError extends Error {}

/** Size of a greeting. */
export const GREETING_BYTES = 64

/** A message larger than this closes its connection. Engines send a few megabytes at most. */
const MESSAGE_BYTES_MAX = 256 * 2 ** 20

const FRAMES_MAX = 1024

const MORE = 1
const LONG = 2
const COMMAND = 4

const MECHANISM_AT = 12
const MECHANISM_BYTES = 20
const NULL_MECHANISM = 'NULL'.padEnd(MECHANISM_BYTES, '\0')

/** What each side sends first. */
export function greeting(): Uint8Array {
  const bytes = new Uint8Array(GREETING_BYTES)
  bytes[0] = 0xff
  bytes[8] = 1
  bytes[9] = 0x7f
  bytes[10] = 3
  bytes.set(new TextEncoder().encode(NULL_MECHANISM), MECHANISM_AT)
  return bytes
}

/** Throws ZmtpError when a greeting is not one that we can go on from. */
export function checkGreeting(bytes: Uint8Array): void {
  if (bytes[0] !== 0xff || (bytes[9]! & 1) !== 1) throw new ZmtpError('the peer does not speak ZMTP')
  if (bytes[10]! < 3) throw new ZmtpError(`the peer speaks ZMTP ${bytes[10]}, 3 is needed`)
  const mechanism = new TextDecoder().decode(bytes.subarray(MECHANISM_AT, MECHANISM_AT + MECHANISM_BYTES))
  if (mechanism !== NULL_MECHANISM) {
    throw new ZmtpError(`the peer wants the mechanism ${mechanism.replaceAll('\0', '')}`)
  }
}

export type SocketType = 'PUB' | 'SUB' | 'DEALER' | 'ROUTER'

/** The READY command of a socket. */
export function ready(type: SocketType): Uint8Array {
  const parts = [...property('Socket-Type', type)]
  if (type === 'DEALER' || type === 'ROUTER') parts.push(...property('Identity', ''))
  return encodeCommand('READY', Uint8Array.from(parts))
}

/** Properties of a READY command's data, by name in lower case. Throws ZmtpError when they are cut short. */
export function readProperties(data: Uint8Array): Map<string, Uint8Array> {
  const properties = new Map<string, Uint8Array>()
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  for (let at = 0; at < data.length; ) {
    const nameEnd = at + 1 + data[at]!
    if (nameEnd + 4 > data.length) throw new ZmtpError('the properties are cut short')
    const valueEnd = nameEnd + 4 + view.getUint32(nameEnd)
    if (valueEnd > data.length) throw new ZmtpError('the properties are cut short')
    const name = new TextDecoder().decode(data.subarray(at + 1, nameEnd)).toLowerCase()
    properties.set(name, data.slice(nameEnd + 4, valueEnd))
    at = valueEnd
  }
  return properties
}

export function encodeCommand(name: string, data: Uint8Array): Uint8Array {
  const body = new Uint8Array(1 + name.length + data.length)
  body[0] = name.length
  body.set(new TextEncoder().encode(name), 1)
  body.set(data, 1 + name.length)
  const head = frameHead(COMMAND, body.length)
  const bytes = new Uint8Array(head.length + body.length)
  bytes.set(head)
  bytes.set(body, head.length)
  return bytes
}

/** Frames below this size are copied into one piece; larger ones are written as they are. */
const COPY_BYTES_MAX = 4096

/** The pieces of a message, to be written in order. A message has at least one frame. */
export function encodeMessage(frames: readonly Uint8Array[]): Uint8Array[] {
  const pieces: Uint8Array[] = []
  let small: Uint8Array[] = []
  const flush = (): void => {
    if (small.length > 0) pieces.push(small.length === 1 ? small[0]! : Buffer.concat(small))
    small = []
  }
  for (let i = 0; i < frames.length; i++) {
    const frame = frames[i]!
    small.push(frameHead(i + 1 < frames.length ? MORE : 0, frame.length))
    if (frame.length < COPY_BYTES_MAX) small.push(frame)
    else {
      flush()
      pieces.push(frame)
    }
  }
  flush()
  return pieces
}

function frameHead(flags: number, size: number): Uint8Array {
  if (size < 256) return Uint8Array.of(flags, size)
  const head = new Uint8Array(9)
  head[0] = flags | LONG
  new DataView(head.buffer).setBigUint64(1, BigInt(size))
  return head
}

function property(name: string, value: string): number[] {
  const text = new TextEncoder()
  return [name.length, ...text.encode(name), 0, 0, 0, value.length, ...text.encode(value)]
}

export interface ParserHandler {
  message(frames: Uint8Array[]): void
  command(name: string, data: Uint8Array): void
}

/**
 * Cuts a stream of bytes, after the greeting, into messages and commands. Frames are copies.
 * `push` throws ZmtpError when the stream cannot be followed; memory is bounded by MESSAGE_BYTES_MAX.
 */
export class ZmtpParser {
  readonly #handler: ParserHandler
  readonly #chunks: Uint8Array[] = []
  #chunksBytes = 0
  #isStopped = false
  /** The frame whose body is awaited; undefined while a head is. */
  #body: { readonly flags: number; readonly size: number } | undefined
  #frames: Uint8Array[] = []
  #messageBytes = 0

  constructor(handler: ParserHandler) {
    this.#handler = handler
  }

  /** Nothing is called any more, not even by a `push` that is under way. */
  stop(): void {
    this.#isStopped = true
  }

  push(chunk: Uint8Array): void {
    if (chunk.length > 0) this.#chunks.push(chunk)
    this.#chunksBytes += chunk.length
    while (!this.#isStopped && this.#step()) {}
  }

  /** Reads one head or body; false when more bytes are needed. */
  #step(): boolean {
    if (this.#body === undefined) {
      const flags = this.#chunks[0]?.[0]
      if (flags === undefined) return false
      if ((flags & ~(MORE | LONG | COMMAND)) !== 0)
        throw new ZmtpError(`the peer sent the frame flags ${flags}`)
      const headBytes = (flags & LONG) === 0 ? 2 : 9
      if (this.#chunksBytes < headBytes) return false
      const head = this.#take(headBytes)
      const size = headBytes === 2 ? head[1]! : Number(new DataView(head.buffer).getBigUint64(1))
      this.#messageBytes += size
      if (this.#messageBytes > MESSAGE_BYTES_MAX) {
        throw new ZmtpError(`the peer sent a message of more than ${MESSAGE_BYTES_MAX} bytes`)
      }
      this.#body = { flags, size }
    }
    const { flags, size } = this.#body
    if (this.#chunksBytes < size) return false
    const body = this.#take(size)
    this.#body = undefined
    if ((flags & COMMAND) !== 0) {
      this.#messageBytes -= size
      const nameEnd = 1 + (body[0] ?? 0)
      if (nameEnd > body.length) throw new ZmtpError('a command is cut short')
      this.#handler.command(new TextDecoder().decode(body.subarray(1, nameEnd)), body.subarray(nameEnd))
      return true
    }
    this.#frames.push(body)
    if (this.#frames.length > FRAMES_MAX) throw new ZmtpError(`the peer sent more than ${FRAMES_MAX} frames`)
    if ((flags & MORE) === 0) {
      const frames = this.#frames
      this.#frames = []
      this.#messageBytes = 0
      this.#handler.message(frames)
    }
    return true
  }

  /** Copies the next `size` bytes, which are there. */
  #take(size: number): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(size)
    let filled = 0
    while (filled < size) {
      const chunk = this.#chunks[0]!
      const part = chunk.subarray(0, size - filled)
      bytes.set(part, filled)
      filled += part.length
      if (part.length === chunk.length) this.#chunks.shift()
      else this.#chunks[0] = chunk.subarray(part.length)
    }
    this.#chunksBytes -= size
    return bytes
  }
}

/**
 * TCP link: one connection of the request plane, as either of its sides sees it (tcp-wire.ts).
 *
 *   begun ──hello of the other side──▶ up ──▶ ended (idle, closed, reset, silence, fault, version, full)
 *     └────── none in time ─────────────────▶ ended (connect)
 *
 * Frames of one turn of the event loop go out together. The connection is always read: credit bounds what
 * each call may send, so a call that is read slowly holds no other.
 *
 * Bounds   frames as both sides said. While BLOCKED_BYTES wait for the network, pieces wait for `drained`;
 *          past `bufferBytesMax` the other side reads nothing at all, and the connection is cut. A side that
 *          is not heard for SILENCE_LOOKS looks, one each BEAT_MS, is gone: so half-open connections end.
 *          Looks are counted, not time: if our own thread stood still, the other side does not count as gone.
 */

import type { Socket } from 'node:net'
import type { Clock, Timer } from '@homing/base'
import { callOwner } from '../callback.ts'
import { type FrameKind, type FrameSink, SILENCE_LOOKS } from '../requests/frames.ts'
import type { TcpCounts, TcpEnd } from '../tcp-counts.ts'
import type { TcpLimits } from '../tcp-limits.ts'
import {
  encodeHello,
  encodeTcpFrame,
  LINK,
  readHello,
  type TcpFrame,
  TcpFrameReader,
  type TcpHello,
  tcpPieceBytesMax,
} from './tcp-wire.ts'

export const BEAT_MS = 1000
const BLOCKED_BYTES = 256 * 1024
/** More goes out piece by piece: to put it together would cost more than it saves. */
const JOINED_BYTES_MAX = 64 * 1024

export interface LinkOptions {
  readonly clock: Clock
  readonly limits: TcpLimits
  readonly counts: TcpCounts
  /** What this side says of itself. */
  readonly hello: TcpHello
  /** For errors: 'host:port'. */
  readonly peer: string
}

export interface LinkHandler {
  /** The other side has said what it is. */
  up(hello: TcpHello): void
  /** A text: why this frame cannot be; the connection is cut. */
  frame(frame: TcpFrame): string | undefined
  /** Pieces may go on. */
  drained(): void
  /** Each BEAT_MS. */
  look(): void
  /** Called once. `isLocal`: for want of something of this machine. */
  ended(why: TcpEnd, reason: string): void
}

export class TcpLink {
  readonly #socket: Socket
  readonly #options: LinkOptions
  readonly #handler: LinkHandler
  readonly #reader = new TcpFrameReader()
  #hello: TcpHello | undefined
  #frames: Uint8Array[] = []
  #framesBytes = 0
  #isDue = false
  #isEnded = false
  #needsDrain = false
  #silentLooks = 0
  #hasSpoken = false
  #timer: Timer | undefined
  #bufferedBytes = 0
  #partialBytes = 0

  /** `socket` is connected. */
  constructor(socket: Socket, options: LinkOptions, handler: LinkHandler) {
    this.#socket = socket
    this.#options = options
    this.#handler = handler
    const { counts, clock, limits, peer } = options
    counts.connections++
    counts.connected++
    socket.setNoDelay(true)
    socket.on('data', bytes => this.#heard(bytes))
    socket.on('drain', () => this.#drained())
    socket.on('error', error => this.end('reset', `the connection to ${peer} broke: ${error.message}`))
    socket.on('close', () => this.end('closed', `the connection to ${peer} was closed`))
    this.#write(encodeHello(options.hello))
    this.#timer = clock.after(limits.connectMsMax, () =>
      this.end('connect', `${peer} did not say within ${limits.connectMsMax} ms what it is`),
    )
  }

  get isBlocked(): boolean {
    return this.#framesBytes + this.#socket.writableLength >= BLOCKED_BYTES
  }

  /** What this side says in one stream; the other side has said its hello. */
  sink(stream: number): FrameSink {
    return new StreamSink(this, stream, this.#hello!.frameBytesMax)
  }

  put(kind: TcpFrame['kind'], stream: number, content?: unknown): boolean {
    if (this.#isEnded) return true
    const frame = encodeTcpFrame(kind, stream, content)
    if (frame.length > (this.#hello?.frameBytesMax ?? 0)) return false
    this.#write(frame)
    return true
  }

  flush(): void {
    this.#isDue = false
    if (this.#isEnded || this.#frames.length === 0) return
    const frames = this.#frames
    const bytes = this.#framesBytes
    this.#frames = []
    this.#framesBytes = 0
    let isTaken = true
    if (frames.length === 1) isTaken = this.#socket.write(frames[0]!)
    else if (bytes <= JOINED_BYTES_MAX) isTaken = this.#socket.write(Buffer.concat(frames, bytes))
    else {
      this.#socket.cork()
      for (const frame of frames) isTaken = this.#socket.write(frame)
      this.#socket.uncork()
    }
    if (!isTaken) this.#needsDrain = true
    this.#count()
    const { bufferBytesMax } = this.#options.limits
    if (this.#socket.writableLength > bufferBytesMax)
      this.end('full', `${this.#options.peer} does not read: ${bufferBytesMax} bytes wait for it`)
  }

  /** Ends the connection, at once; what was said goes out if the other side reads. Idempotent. */
  end(why: TcpEnd, reason: string): void {
    if (this.#isEnded) return
    if (why === 'idle' || why === 'version' || why === 'closed') this.flush()
    if (this.#isEnded) return
    this.#isEnded = true
    this.#timer?.cancel()
    this.#reader.clear()
    this.#frames = []
    this.#framesBytes = 0
    const { counts } = this.#options
    counts.connections--
    counts.ends[why]++
    counts.bufferedBytes -= this.#bufferedBytes
    counts.partialBytes -= this.#partialBytes
    this.#bufferedBytes = 0
    this.#partialBytes = 0
    if (why === 'idle' || why === 'version' || why === 'closed') this.#endSoon()
    else this.#socket.destroy()
    callOwner(() => this.#handler.ended(why, reason))
  }

  /** What was said goes out before, if the other side reads it in time. */
  #endSoon(): void {
    const { clock, limits } = this.#options
    const timer = clock.after(limits.connectMsMax, () => this.#socket.destroy())
    this.#socket.once('close', () => timer.cancel())
    this.#socket.destroySoon()
  }

  #write(frame: Uint8Array): void {
    this.#frames.push(frame)
    this.#framesBytes += frame.length
    this.#hasSpoken = true
    if (this.#isDue) return
    this.#isDue = true
    queueMicrotask(() => this.flush())
  }

  #heard(bytes: Uint8Array): void {
    // What still comes is of no use: the socket closes when what was said has gone out.
    if (this.#isEnded) return
    this.#silentLooks = 0
    this.#reader.put(bytes)
    while (!this.#isEnded) {
      const frame = this.#reader.next()
      if (frame === undefined) break
      const fault = typeof frame === 'string' ? frame : this.#frame(frame)
      if (fault !== undefined) this.end('fault', `${this.#options.peer}: ${fault}`)
    }
    this.#count()
  }

  #frame(frame: TcpFrame): string | undefined {
    if (this.#hello === undefined) return this.#began(frame)
    if (frame.kind === LINK.hello) return 'it says twice what it is'
    if (frame.kind === LINK.alive && frame.stream === 0) return undefined
    return this.#handler.frame(frame)
  }

  #began({ kind, content }: TcpFrame): string | undefined {
    if (kind !== LINK.hello) return 'it does not say first what it is'
    const hello = readHello(content)
    if (typeof hello === 'string') {
      this.end('version', `${this.#options.peer}: ${hello}`)
      return undefined
    }
    this.#hello = hello
    this.#reader.frameBytesMax = this.#options.hello.frameBytesMax
    this.#timer?.cancel()
    this.#timer = this.#options.clock.after(BEAT_MS, () => this.#look())
    this.#handler.up(hello)
    return undefined
  }

  #look(): void {
    this.#timer = this.#options.clock.after(BEAT_MS, () => this.#look())
    if (++this.#silentLooks > SILENCE_LOOKS) {
      const { peer } = this.#options
      this.end('silence', `nothing was heard from ${peer} for ${SILENCE_LOOKS * BEAT_MS} ms`)
      return
    }
    if (!this.#hasSpoken) this.put(LINK.alive, 0)
    this.#hasSpoken = false
    this.#handler.look()
  }

  #drained(): void {
    if (!this.#needsDrain || this.#isEnded) return
    this.#needsDrain = false
    this.#count()
    this.#handler.drained()
  }

  #count(): void {
    if (this.#isEnded) return
    const { counts } = this.#options
    const buffered = this.#socket.writableLength
    counts.bufferedBytes += buffered - this.#bufferedBytes
    this.#bufferedBytes = buffered
    const partial = this.#reader.waitingBytes
    counts.partialBytes += partial - this.#partialBytes
    this.#partialBytes = partial
  }
}

class StreamSink implements FrameSink {
  readonly #link: TcpLink
  readonly #stream: number
  readonly #frameBytesMax: number
  readonly pieceBytesMax: number
  /** There is credit for all of it since the hello. */
  readonly alongBytesMax = 0

  constructor(link: TcpLink, stream: number, frameBytesMax: number) {
    this.#link = link
    this.#stream = stream
    this.#frameBytesMax = frameBytesMax
    this.pieceBytesMax = tcpPieceBytesMax(frameBytesMax)
  }

  get isBlocked(): boolean {
    return this.#link.isBlocked
  }

  get refusal(): string {
    return `the other side reads frames of ${this.#frameBytesMax} bytes`
  }

  put(kind: FrameKind, content?: unknown): boolean {
    return this.#link.put(kind, this.#stream, content)
  }

  flush(): void {
    this.#link.flush()
  }
}

/**
 * One ZeroMQ connection over a stream socket: greeting, READY, then messages both ways.
 *
 * Protocol
 *   Both sides send greeting and READY at once. `ready` is called when the peer's READY has come, then
 *   `message` per message, then `closed` once, whatever the reason; after `close` nothing is called.
 *   A peer that is not ready within HANDSHAKE_MS_MAX is cut off.
 */

import type { Socket } from 'node:net'
import type { Clock, Timer } from '@homing/clock'
import { callOwner } from '../callback.ts'
import {
  checkGreeting,
  encodeCommand,
  encodeMessage,
  GREETING_BYTES,
  greeting,
  readProperties,
  ready,
  type SocketType,
  ZmtpError,
  ZmtpParser,
} from './wire.ts'

export interface ConnectionHandler {
  /** `identity` is what the peer calls itself; empty when it does not. */
  ready(identity: Uint8Array): void
  message(frames: Uint8Array[]): void
  /** `error` is given when the peer broke the protocol. */
  closed(error: ZmtpError | undefined): void
}

const HANDSHAKE_MS_MAX = 10_000

/** A dead host is noticed by the kernel's probes: silence is normal between engines and us. */
const TCP_PROBE_AFTER_MS = 15_000

/** What may wait in this process for a peer that reads slowly; a replay of 10 000 batches fits. */
const QUEUED_BYTES_MAX = 128 * 2 ** 20

const PEERS_OF: Readonly<Record<SocketType, readonly string[]>> = {
  PUB: ['SUB', 'XSUB'],
  SUB: ['PUB', 'XPUB'],
  DEALER: ['ROUTER', 'DEALER', 'REP'],
  ROUTER: ['DEALER', 'REQ', 'ROUTER'],
}

export class ZmtpConnection {
  readonly #socket: Socket
  readonly #type: SocketType
  readonly #handler: ConnectionHandler
  readonly #parser: ZmtpParser
  readonly #handshakeTimer: Timer
  #greetingBytes: Uint8Array[] = []
  #greetingCount = 0
  #isReady = false
  #isClosed = false

  /** Takes over a connected socket. */
  constructor(socket: Socket, type: SocketType, handler: ConnectionHandler, clock: Clock) {
    this.#socket = socket
    this.#type = type
    this.#handler = handler
    this.#parser = new ZmtpParser({
      message: frames => this.#onMessage(frames),
      command: (name, data) => this.#onCommand(name, data),
    })
    this.#handshakeTimer = clock.after(HANDSHAKE_MS_MAX, () => this.#fail(new ZmtpError('no handshake')))
    socket.setNoDelay(true)
    socket.setKeepAlive(true, TCP_PROBE_AFTER_MS)
    socket.on('data', chunk => this.#onData(chunk as unknown as Uint8Array))
    // An error is followed by close, which tells all there is to tell: the connection is gone.
    socket.on('error', () => {})
    socket.on('close', () => this.#fail(undefined))
    socket.write(greeting())
    socket.write(ready(type))
  }

  get isReady(): boolean {
    return this.#isReady && !this.#isClosed
  }

  /** False, and nothing is sent, when the connection is not ready or its queue is full. */
  send(frames: readonly Uint8Array[]): boolean {
    if (!this.isReady || this.#socket.writableLength > QUEUED_BYTES_MAX) return false
    const pieces = encodeMessage(frames)
    this.#socket.cork()
    for (const piece of pieces) this.#socket.write(piece)
    this.#socket.uncork()
    return true
  }

  /** Closes at once; what the kernel has taken is still delivered. Idempotent. */
  close(): void {
    this.#isClosed = true
    this.#parser.stop()
    this.#handshakeTimer.cancel()
    this.#socket.destroy()
  }

  #fail(error: ZmtpError | undefined): void {
    if (this.#isClosed) return
    this.close()
    this.#handler.closed(error)
  }

  #onData(chunk: Uint8Array): void {
    try {
      this.#parser.push(this.#greetingCount < GREETING_BYTES ? this.#behindGreeting(chunk) : chunk)
    } catch (error) {
      if (!(error instanceof ZmtpError)) throw error
      this.#fail(error)
    }
  }

  /** What of `chunk` lies behind the peer's greeting. */
  #behindGreeting(chunk: Uint8Array): Uint8Array {
    // Told by the first byte, for a peer of another kind may never send as many as a greeting has.
    if (this.#greetingCount === 0 && chunk[0] !== 0xff) throw new ZmtpError('the peer does not speak ZMTP')
    const missing = GREETING_BYTES - this.#greetingCount
    this.#greetingBytes.push(chunk.subarray(0, missing))
    this.#greetingCount += Math.min(missing, chunk.length)
    if (this.#greetingCount === GREETING_BYTES) {
      checkGreeting(Buffer.concat(this.#greetingBytes))
      this.#greetingBytes = []
    }
    return chunk.subarray(missing)
  }

  #onMessage(frames: Uint8Array[]): void {
    if (!this.#isReady) throw new ZmtpError('the peer sent a message before READY')
    callOwner(() => this.#handler.message(frames))
  }

  #onCommand(name: string, data: Uint8Array): void {
    switch (name) {
      case 'READY': {
        if (this.#isReady) throw new ZmtpError('the peer sent READY twice')
        const properties = readProperties(data)
        const peerType = new TextDecoder().decode(properties.get('socket-type'))
        if (!PEERS_OF[this.#type].includes(peerType)) {
          throw new ZmtpError(`the peer is a ${peerType}, which a ${this.#type} cannot talk to`)
        }
        this.#isReady = true
        this.#handshakeTimer.cancel()
        callOwner(() => this.#handler.ready(properties.get('identity') ?? new Uint8Array(0)))
        break
      }
      case 'ERROR':
        throw new ZmtpError(`the peer refused: ${new TextDecoder().decode(data.subarray(1))}`)
      case 'PING':
        // Two bytes of time to live, then what the peer wants back.
        this.#socket.write(encodeCommand('PONG', data.subarray(2)))
        break
      case 'SUBSCRIBE':
      case 'CANCEL':
        // The form of newer versions; handed on in the form of ours.
        if (this.#isReady) {
          const frame = new Uint8Array(1 + data.length)
          frame[0] = name === 'SUBSCRIBE' ? 1 : 0
          frame.set(data, 1)
          callOwner(() => this.#handler.message([frame]))
        }
        break
      default:
      // Commands of newer versions may be ignored.
    }
  }
}

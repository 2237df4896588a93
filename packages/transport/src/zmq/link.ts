/**
 * One side of the port between a host and a client: sends in batches, and counts what the other side has not
 * yet read.
 *
 * Order   commands and batch entries arrive in the order in which they were given.
 * Bounds  bytes under way are counted from `add` until the other side has handled them; `isFull` says that
 *         UNDER_WAY_BYTES_MAX is passed, and then the caller must hold back.
 */

import type { MessagePort } from 'node:worker_threads'
import { BatchWriter, OP, type Op, readBatch } from './batch.ts'

/** Most bytes that may be under way to a thread that does not read; a replay of 10 000 batches fits. */
const UNDER_WAY_BYTES_MAX = 128 * 2 ** 20

/** A batch that has grown past this is sent at once. */
const BATCH_BYTES_MAX = 2 ** 20

/** Handled bytes are reported to the other side once this many have gathered. */
const REPORT_BYTES_MIN = 2 ** 18

export interface LinkHandler {
  entry(op: Op, socket: number, value: number, frames: Uint8Array[]): void
  command(command: unknown): void
  /** Called once after `isFull` was true, when the bytes under way are within the bound again. */
  drained(): void
}

export class Link {
  readonly #port: MessagePort
  readonly #handler: LinkHandler
  readonly #defer: (flush: () => void) => void
  readonly #batch = new BatchWriter()
  readonly #flush = (): void => this.flush()
  #isFlushing = false
  #sentBytes = 0
  #unreportedBytes = 0
  #wasFull = false
  #isClosed = false

  /** `defer` calls `flush` when a burst of calls is over. */
  constructor(port: MessagePort, handler: LinkHandler, defer: (flush: () => void) => void) {
    this.#port = port
    this.#handler = handler
    this.#defer = defer
    port.on('message', (message: unknown) => this.#onMessage(message))
  }

  /** Read it before adding what can be held back. If it is true, hold back: `drained` follows. */
  get isFull(): boolean {
    const isFull = this.#sentBytes + this.#batch.sizeBytes > UNDER_WAY_BYTES_MAX
    if (isFull) this.#wasFull = true
    return isFull
  }

  add(op: Op, socket: number, value?: number, frames?: readonly Uint8Array[]): void {
    if (this.#isClosed) return
    this.#batch.add(op, socket, value, frames)
    if (this.#batch.sizeBytes > BATCH_BYTES_MAX) this.flush()
    else if (!this.#isFlushing) {
      this.#isFlushing = true
      this.#defer(this.#flush)
    }
  }

  command(command: object): void {
    this.flush()
    if (!this.#isClosed) this.#port.postMessage(command)
  }

  flush(): void {
    this.#isFlushing = false
    if (this.#isClosed || this.#batch.isEmpty) return
    const buffer = this.#batch.take()
    this.#sentBytes += buffer.byteLength
    this.#port.postMessage(buffer, [buffer])
  }

  /** Closes the port after what was added before is sent. */
  close(): void {
    this.flush()
    this.#isClosed = true
    this.#port.close()
  }

  #onMessage(message: unknown): void {
    if (!(message instanceof ArrayBuffer)) {
      this.#handler.command(message)
      return
    }
    const sizeBytes = message.byteLength
    readBatch(message, (op, socket, value, frames) => {
      if (op === OP.done) this.#done(value)
      else this.#handler.entry(op, socket, value, frames)
    })
    this.#unreportedBytes += sizeBytes
    if (this.#unreportedBytes < REPORT_BYTES_MIN) return
    const reported = this.#unreportedBytes
    this.#unreportedBytes = 0
    this.add(OP.done, 0, reported)
  }

  #done(bytes: number): void {
    this.#sentBytes -= bytes
    if (!this.#wasFull || this.isFull) return
    this.#wasFull = false
    this.#handler.drained()
  }
}

/**
 * Request body: the pieces of one that Envoy sends, put together for the reader of an exchange.
 *
 * Bounds   what comes before it is read is EARLY_BYTES_MAX at most; then the reader's own bound and room. A
 *          body that was refused is dropped as it comes.
 */

import type { Clock, Timer } from '@homing/base'
import { BodyTimeoutError, BodyTooLargeError, MalformedHttpError } from '../errors.ts'
import type { BodyRoom } from '../http-types.ts'

/** Windows of HTTP/2 let a few of Envoy's pieces through before the reader is told of the request. */
const EARLY_BYTES_MAX = 4 * 2 ** 20

interface Reader {
  readonly bytesMax: number
  readonly room: BodyRoom | undefined
  readonly resolve: (body: Uint8Array) => void
  readonly reject: (error: unknown) => void
}

export class RequestBody {
  readonly #clock: Clock
  readonly #silenceMsMax: number
  #pieces: Uint8Array[] = []
  #bytes = 0
  /** Of these, those that room was taken for. */
  #roomBytes = 0
  #isWhole = false
  #isRead = false
  #fault: unknown
  #reader: Reader | undefined
  #timer: Timer | undefined
  #lastMs: number

  constructor(clock: Clock, silenceMsMax: number) {
    this.#clock = clock
    this.#silenceMsMax = silenceMsMax
    this.#lastMs = clock.nowMs()
  }

  /** Its reader has all of it. */
  get isRead(): boolean {
    return this.#isRead
  }

  put(bytes: Uint8Array): void {
    if (this.#fault !== undefined || this.#isWhole) return
    this.#lastMs = this.#clock.nowMs()
    // Its memory is that of a whole message, which the next one does not overwrite.
    this.#pieces.push(bytes)
    this.#bytes += bytes.length
    if (this.#reader !== undefined) this.#take(this.#reader)
    else if (this.#bytes > EARLY_BYTES_MAX)
      this.fail(new MalformedHttpError(`${this.#bytes} bytes of its body came before it could be read`))
  }

  whole(): void {
    if (this.#fault !== undefined || this.#isWhole) return
    this.#isWhole = true
    if (this.#reader !== undefined) this.#finish(this.#reader)
  }

  /** There will be no whole body. Only the first call counts. */
  fail(error: unknown): void {
    if (this.#fault !== undefined) return
    this.#fault = error
    this.#pieces = []
    this.#timer?.cancel()
    this.#reader?.reject(error)
  }

  read(bytesMax: number, announced: number, room: BodyRoom | undefined): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#fault !== undefined) return reject(this.#fault)
      const reader = { bytesMax, room, resolve, reject }
      this.#reader = reader
      try {
        if (announced > bytesMax) throw new BodyTooLargeError(bytesMax)
        room?.check(announced)
      } catch (thrown) {
        return this.fail(thrown)
      }
      this.#take(reader)
      if (this.#fault !== undefined) return
      if (this.#isWhole) this.#finish(reader)
      else this.#wait(this.#silenceMsMax)
    })
  }

  #take({ bytesMax, room }: Reader): void {
    try {
      if (this.#bytes > bytesMax) throw new BodyTooLargeError(bytesMax)
      const fresh = this.#bytes - this.#roomBytes
      if (fresh > 0) room?.take(fresh)
      this.#roomBytes = this.#bytes
    } catch (thrown) {
      this.fail(thrown)
    }
  }

  #finish({ room, resolve }: Reader): void {
    this.#timer?.cancel()
    const body = room?.place?.(this.#bytes) ?? new Uint8Array(this.#bytes)
    let at = 0
    for (const piece of this.#pieces) {
      body.set(piece, at)
      at += piece.length
    }
    this.#pieces = []
    this.#isRead = true
    resolve(body)
  }

  #wait(ms: number): void {
    this.#timer = this.#clock.after(ms, () => {
      const leftMs = this.#lastMs + this.#silenceMsMax - this.#clock.nowMs()
      if (leftMs > 0) this.#wait(leftMs)
      else this.fail(new BodyTimeoutError(this.#silenceMsMax, this.#bytes))
    })
  }
}

/** Request body, as its server gets it in pieces. */

import { BodyTimeoutError, BodyTooLargeError, MalformedHttpError } from '../errors.ts'
import type { BodyRoom } from '../http-types.ts'
import { PIECE_BYTES } from './frames.ts'
import { KeptPieces } from './kept-pieces.ts'

/** A body that sends nothing is looked at this often. */
export const BODY_LOOK_MS = 1000

/** The body of a request: what came is kept until its handler reads it, within the window; then all of it. */
export class RequestBody {
  readonly #wholeBytes: number
  readonly #windowBytes: number
  readonly #silenceMsMax: number
  readonly #credit: (bytes: number) => void
  readonly #pieces = new KeptPieces()
  #bytes = 0
  /** Credit of pieces that came, not given back to the client yet. */
  #taken = 0
  #error: Error | undefined
  /** Looks at a reader that waits, since the last piece. */
  #silentLooks = 0
  #reader:
    | {
        readonly resolve: (body: Uint8Array) => void
        readonly reject: (error: Error) => void
        room?: BodyRoom | undefined
      }
    | undefined

  constructor(
    wholeBytes: number,
    { windowBytes, bodySilenceMsMax }: { readonly windowBytes: number; readonly bodySilenceMsMax: number },
    credit: (bytes: number) => void,
  ) {
    this.#wholeBytes = wholeBytes
    this.#windowBytes = windowBytes
    this.#silenceMsMax = bodySilenceMsMax
    this.#credit = credit
  }

  /** `isCredited`: it came within the window, and not with the request. */
  put(bytes: Uint8Array, isCredited: boolean): void {
    if (this.#error !== undefined) return
    this.#silentLooks = 0
    this.#bytes += bytes.length
    if (isCredited) this.#taken += bytes.length + PIECE_BYTES
    const isTooMuch = this.#taken > this.#windowBytes
    if (this.#bytes > this.#wholeBytes || isTooMuch) {
      this.fail(new MalformedHttpError('its body is longer than its client said, or may send'))
      return
    }
    this.#pieces.put(bytes)
    this.#roomFor(bytes.length)
    this.#goOn()
  }

  read(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      if (this.#wholeBytes > maxBytes) this.fail(new BodyTooLargeError(maxBytes))
      if (this.#error !== undefined) return reject(this.#error)
      this.#reader = { resolve, reject, room }
      this.#checkRoom()
      this.#roomFor(this.#bytes)
      this.#goOn()
    })
  }

  /** Every BODY_LOOK_MS: the first look may come at once, so one more is waited for. */
  look(): void {
    if (this.#reader !== undefined && ++this.#silentLooks * BODY_LOOK_MS > this.#silenceMsMax)
      this.fail(new BodyTimeoutError(this.#silenceMsMax, this.#bytes))
  }

  fail(error: Error): void {
    if (this.#error !== undefined) return
    this.#error = error
    this.#pieces.clear()
    this.#reader?.reject(error)
    this.#reader = undefined
  }

  #checkRoom(): void {
    try {
      this.#reader?.room?.check(this.#wholeBytes)
    } catch (error) {
      this.fail(error as Error)
    }
  }

  #roomFor(bytes: number): void {
    try {
      this.#reader?.room?.take(bytes)
    } catch (error) {
      this.fail(error as Error)
    }
  }

  #goOn(): void {
    const reader = this.#reader
    if (reader === undefined) return
    if (this.#bytes === this.#wholeBytes) {
      this.#reader = undefined
      reader.resolve(this.#pieces.take())
    } else if (this.#taken >= this.#windowBytes / 2) {
      this.#credit(this.#taken)
      this.#taken = 0
    }
  }
}

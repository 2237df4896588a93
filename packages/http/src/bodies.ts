/**
 * The memory of request bodies: how many bytes all requests hold, and which request holds how many.
 *
 * A body counts from its first piece until its request has ended and its bytes are released. Only received
 * bytes count: an announced length takes no memory, and if it counted, a few clients that announce much and
 * send nothing could keep all others out.
 */

import { type BodyRoom, ClientGoneError, giveUpBytes, type HttpExchange } from '@homing/transport'
import type { BodyArena, BodyLoan } from './body-arena.ts'
import { BodyDecoders, encodingOf } from './content-encoding.ts'
import { ALONE, type CommonCount } from './gateway-counts.ts'

export class Bodies {
  readonly #bytesMax: number
  readonly #refusal: (bytes: number, bytesMax: number) => Error
  readonly #decoders = new BodyDecoders()
  readonly #arena: BodyArena | undefined
  readonly #common: CommonCount
  #bytes = 0

  /**
   * `refusal`: what is thrown where there is no room. `arena`: for long bodies; undefined: each has memory of
   * its own. `common`: of the bodies of other threads; default: there are none.
   */
  constructor(
    bytesMax: number,
    refusal: (bytes: number, bytesMax: number) => Error,
    arena?: BodyArena,
    common: CommonCount = ALONE,
  ) {
    this.#bytesMax = bytesMax
    this.#common = common
    this.#refusal = refusal
    this.#arena = arena
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes
  }

  /** Bytes of bodies in memory that threads share; some of their requests may have ended. */
  get sharedBytes(): number {
    return this.#arena?.bytes ?? 0
  }

  /** Bytes of memory that threads share, used and kept. */
  get sharedKeptBytes(): number {
    return this.#arena?.keptBytes ?? 0
  }

  /**
   * For the body of one request; its owner calls `release` when the body is not kept any more. `share`: of
   * its tenant; undefined: no other request makes room for it.
   */
  hold(share?: BodyShare): BodyHold {
    const missing = (byteCount: number) => this.#bytes + this.#common.others + byteCount - this.#bytesMax
    return new BodyHold({
      check: byteCount => {
        // Bytes that are only announced displace no request.
        if (missing(byteCount) > 0 && share?.canMakeRoom(missing(byteCount)) !== true)
          throw this.#refusal(this.#bytes, this.#bytesMax)
      },
      take: byteCount => {
        if (missing(byteCount) > 0) share?.makeRoom(missing(byteCount))
        if (missing(byteCount) > 0) throw this.#refusal(this.#bytes, this.#bytesMax)
        this.#add(byteCount)
        share?.holds(byteCount)
      },
      give: byteCount => {
        this.#add(-byteCount)
        share?.holds(-byteCount)
      },
      decoders: this.#decoders,
      arena: this.#arena,
    })
  }

  /**
   * Counts bytes that another part keeps although their request has ended, past the bound: they are there.
   * Answers what ends that; it is to be called once.
   */
  keep(byteCount: number): () => void {
    this.#add(byteCount)
    return () => this.#add(-byteCount)
  }

  #add(byteCount: number): void {
    this.#bytes += byteCount
    this.#common.set(this.#bytes)
  }
}

/** What one request has of the memory that all bodies share. */
export interface BodyShare {
  /** It holds this many bytes more; negative: less. */
  readonly holds: (byteCount: number) => void
  /** Whether requests of other tenants would give up this number of bytes for it. */
  readonly canMakeRoom: (byteCount: number) => boolean
  /** Ends requests of other tenants that hold these bytes, or none if they need not give up as many. */
  readonly makeRoom: (byteCount: number) => void
}

interface Account {
  readonly check: (byteCount: number) => void
  readonly take: (byteCount: number) => void
  readonly give: (byteCount: number) => void
  readonly decoders: BodyDecoders
  readonly arena: BodyArena | undefined
}

export class BodyHold implements BodyRoom {
  readonly #account: Account
  #bytes = 0
  #loan: BodyLoan | undefined
  #isReleased = false

  constructor(account: Account) {
    this.#account = account
  }

  check(byteCount: number): void {
    this.#account.check(byteCount)
  }

  /** Throws also once it is released: its request has ended, and nothing would give that back. */
  take(byteCount: number): void {
    if (this.#isReleased) throw new ClientGoneError('keep more of its request')
    this.#account.take(byteCount)
    this.#bytes += byteCount
  }

  place(byteCount: number): Uint8Array | undefined {
    // What comes after the end is not kept.
    if (this.#isReleased || this.#loan !== undefined) return undefined
    this.#loan = this.#account.arena?.take(byteCount)
    return this.#loan?.bytes
  }

  /**
   * For one more reader of the body, which may read it after `release`; undefined: the body has memory of its
   * own.
   */
  lend(): BodyLoan | undefined {
    return this.#loan?.lend()
  }

  /**
   * The whole body of a request, decoded by its content-encoding. Rejects as `readBody` of the exchange does,
   * with BodyTooLargeError also for a body that is longer than `bytesMax` once it is decoded, and with
   * UnsupportedEncodingError, EncodingRatioError and MalformedEncodingError. Call at most once.
   */
  async readDecoded(exchange: HttpExchange, bytesMax: number): Promise<Uint8Array> {
    const encoding = encodingOf(exchange.headers)
    const body = await exchange.readBody(bytesMax, this)
    if (encoding === undefined) return body
    const encodedBytes = body.length
    const decoded = await this.decode(encoding, body, bytesMax)
    giveUpBytes(body)
    this.#loan?.giveBack()
    this.#loan = undefined
    this.give(encodedBytes)
    return decoded
  }

  /** Takes room for the decoded body, and leaves `body` as it is. Rejects as `readDecoded` does. */
  decode(encoding: string, body: Uint8Array, bytesMax: number): Promise<Uint8Array> {
    return this.#account.decoders.decode(encoding, body, bytesMax, bytes => this.take(bytes))
  }

  /** Gives back a part of what it holds; what is released holds nothing. */
  give(byteCount: number): void {
    if (this.#isReleased) return
    this.#account.give(byteCount)
    this.#bytes -= byteCount
  }

  /** Its bytes in shared memory are others' from now on, unless they are lent. Idempotent. */
  release(): void {
    this.#account.give(this.#bytes)
    this.#bytes = 0
    this.#isReleased = true
    this.#loan?.giveBack()
    this.#loan = undefined
  }
}

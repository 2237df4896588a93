/**
 * The memory of request bodies: how many bytes are held, over all requests, and who holds them.
 *
 * A body is held from its first piece until its request has ended and nobody keeps its bytes any more. Only
 * received bytes count, never announced ones: an announced length takes no memory, and would let a few
 * clients that send nothing keep everybody else out.
 */

import type { BodyRoom } from '@homing/transport'

export class Bodies {
  readonly #bytesMax: number
  readonly #refusal: (bytes: number, bytesMax: number) => Error
  #bytes = 0

  /** `refusal`: what is thrown where there is no room. */
  constructor(bytesMax: number, refusal: (bytes: number, bytesMax: number) => Error) {
    this.#bytesMax = bytesMax
    this.#refusal = refusal
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes
  }

  /** For the body of one request; its owner calls `release` when nobody keeps the body any more. */
  hold(): BodyHold {
    return new BodyHold({
      check: byteCount => {
        if (this.#bytes + byteCount > this.#bytesMax) throw this.#refusal(this.#bytes, this.#bytesMax)
      },
      add: byteCount => {
        this.#bytes += byteCount
      },
    })
  }

  /**
   * Counts bytes that somebody keeps although their request has ended, past the bound: they are there.
   * Answers what ends that; it is to be called once.
   */
  keep(byteCount: number): () => void {
    this.#bytes += byteCount
    return () => {
      this.#bytes -= byteCount
    }
  }
}

interface Account {
  readonly check: (byteCount: number) => void
  readonly add: (byteCount: number) => void
}

export class BodyHold implements BodyRoom {
  readonly #account: Account
  #bytes = 0

  constructor(account: Account) {
    this.#account = account
  }

  check(byteCount: number): void {
    this.#account.check(byteCount)
  }

  take(byteCount: number): void {
    this.#account.check(byteCount)
    this.#account.add(byteCount)
    this.#bytes += byteCount
  }

  /** Idempotent. */
  release(): void {
    this.#account.add(-this.#bytes)
    this.#bytes = 0
  }
}

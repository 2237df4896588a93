/**
 * The memory of request bodies: how many bytes are held, over all requests, and who holds them.
 *
 * A body is held from its first piece until its request has ended: the dispatcher keeps it for another try. What has
 * come is counted, never what is announced: an announced length takes no memory, and would let a few clients that
 * send nothing keep everybody else out.
 */

import type { BodyRoom } from '@homing/transport'
import { NoBodyRoomError } from './errors.ts'

export class Bodies {
  readonly #bytesMax: number
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes
  }

  /** For the body of one request; its owner calls `release` when nobody keeps the body any more. */
  hold(): BodyHold {
    return new BodyHold({
      check: byteCount => {
        if (this.#bytes + byteCount > this.#bytesMax) throw new NoBodyRoomError(this.#bytes, this.#bytesMax)
      },
      add: byteCount => {
        this.#bytes += byteCount
      },
    })
  }
}

interface Account {
  readonly check: (byteCount: number) => void
  readonly add: (byteCount: number) => void
}

export class BodyHold implements BodyRoom {
  readonly #account: Account
  #bytes = 0
  #isPassedOn = false

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

  /** Somebody else releases it, after whoever read the body is done. */
  passOn(): void {
    this.#isPassedOn = true
  }

  get isPassedOn(): boolean {
    return this.#isPassedOn
  }

  /** Idempotent. */
  release(): void {
    this.#account.add(-this.#bytes)
    this.#bytes = 0
  }
}

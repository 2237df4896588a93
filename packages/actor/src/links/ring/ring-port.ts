/**
 * RingPort: the port beside the rings to one life of another thread. It carries the bodies of tokens, many in
 * one post, the message that lets an heir read, and doorbells (any number).
 */

import type { MessagePort, Transferable } from 'node:worker_threads'
import type { LinkCounts } from '../../observe/counts.ts'

const DOORBELL = 0

/** The post that lets an heir read: after the bodies of what waits for it. */
export interface Resumption {
  readonly type: 'resume'
}

/** The number of the first body, then body and patches of each. */
export type BodyBatch = unknown[]

export class RingPort {
  readonly port: MessagePort
  /** This side waits for a doorbell. */
  isParked = false
  readonly #counts: LinkCounts
  #isClosed = false

  constructor(port: MessagePort, counts: LinkCounts) {
    this.port = port
    this.#counts = counts
  }

  /** True once this side has closed it; the other side's end of it is no matter here. */
  get isClosed(): boolean {
    return this.#isClosed
  }

  /** Wakes the other side. */
  ring(): void {
    this.#counts.doorbells++
    this.port.postMessage(DOORBELL)
  }

  /** Throws when something in the post cannot be cloned or transferred. */
  post(post: BodyBatch | Resumption, transfer?: readonly Transferable[]): void {
    this.port.postMessage(post, transfer)
  }

  close(): void {
    this.#isClosed = true
    this.port.close()
  }
}

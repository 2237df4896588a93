/**
 * RingLink: the link to another thread over two rings in shared memory and a port.
 *
 *   ring   every frame, in order. A primitive body is written as itself; for any other body the frame is only
 *          a *token* with a number
 *   port   the bodies of tokens, many in one post, and doorbells (any number)
 *
 * The outbound half outlives the other thread. Bodies are kept until the head of the ring has passed their
 * tokens; `reopen` posts them again to the next life before it reads its first frame. The inbound half and
 * the port belong to one life.
 */

import type { LinkCounts } from '../../observe/counts.ts'
import type { PeerAddress } from '../frames.ts'
import type { Frame, LinkedThread, LinkHandlers, ThreadLink } from '../link.ts'
import { InboundRing } from './inbound-ring.ts'
import { OutboundRing } from './outbound-ring.ts'
import { RingPort } from './ring-port.ts'

export { INFLIGHT_MAX } from './inbound-ring.ts'

/** What belongs to one life of the other thread. */
interface FarLife {
  readonly port: RingPort
  readonly handlers: LinkHandlers
  readonly inbound: InboundRing
}

/** Links `thread` with the (next) life of the thread at `address`. */
export function openRing(thread: LinkedThread, address: PeerAddress): void {
  thread.lives.connect(address.name, address.uid, (handlers, previous) => {
    if (!(previous instanceof RingLink)) return new RingLink(address, thread.uid, handlers, thread.counts)
    previous.reopen(address, handlers)
    return previous
  })
}

export class RingLink implements ThreadLink {
  readonly #counts: LinkCounts
  /** The life that has this end. */
  readonly #ownUid: number
  readonly #outbound: OutboundRing
  #far: FarLife

  constructor(address: PeerAddress, ownUid: number, handlers: LinkHandlers, counts: LinkCounts) {
    this.#ownUid = ownUid
    this.#counts = counts
    this.#far = this.#open(address, handlers)
    this.#outbound = new OutboundRing(address.out, this.#far.port, handlers, counts)
  }

  /** Goes on with the next life of the other thread, which inherits what it was sent and had not taken. */
  reopen(address: PeerAddress, handlers: LinkHandlers): void {
    this.#far = this.#open(address, handlers)
    this.#outbound.reopen(this.#far.port, handlers)
  }

  #open(address: PeerAddress, handlers: LinkHandlers): FarLife {
    const port = new RingPort(address.port, this.#counts)
    const inbound = new InboundRing(address, port, this.#ownUid, handlers, this.#counts)
    const far: FarLife = { port, handlers, inbound }
    address.port.on('message', (post: unknown) => {
      if (port.isClosed) return
      inbound.takePost(post)
      this.#outbound.flushSpill()
      inbound.wake()
    })
    address.port.on('messageerror', handlers.onUnreadable)
    address.port.on('close', () => {
      if (port.isClosed) return
      inbound.drainAll()
      if (!port.isClosed) handlers.onSilent(() => this.#finish(far))
    })
    return far
  }

  offer(frame: Frame): boolean {
    return this.#outbound.offer(frame)
  }

  send(frame: Frame): void {
    this.#outbound.send(frame)
  }

  sendLast(frame: Frame): void {
    this.#outbound.send(frame)
    this.#outbound.flush()
  }

  pause(): void {
    this.#far.inbound.pause()
  }

  untakenAsks(): ReadonlySet<number> {
    return this.#outbound.untakenAsks()
  }

  close(): void {
    this.#outbound.flush()
    this.#finish(this.#far)
  }

  discard(): number {
    this.#finish(this.#far)
    return this.#outbound.discard()
  }

  /** The end of a life: what it had sent is taken first. */
  #finish({ port, handlers, inbound }: FarLife): void {
    if (port.isClosed) return
    inbound.drainAll()
    if (port.isClosed) return
    port.close()
    handlers.onClosed()
  }
}

/**
 * PeerLives: the lives of other threads as they come and go, and the consequences for everything that depends
 * on one.
 *
 *   connecting ──connect──▶ up ──its life ends──▶ down ──connect──▶ up …
 *        └───────────────────┴────────────────────┴─────gone─────▶ gone
 *
 * When a life ends, its link first delivers the frames that the life had sent. How it ended is known by then
 * if the thread reported it (it exits or throws) or if main ended it. Otherwise (a full heap) main reports
 * it, and the link stays open until then. Then the link closes. Asks, watches and children of this thread
 * over there fail; so do the asks, watches and parents of the dead life here. Tells that were not taken stay
 * in the link.
 */

import type { Log } from '@homing/base'
import type { PendingAsks } from '../asks/pending-asks.ts'
import type { Turns } from '../cell/turns.ts'
import type { TerminationReason } from '../contract/types.ts'
import { OP } from '../links/frames.ts'
import type { LinkHandlers, ThreadLink } from '../links/link.ts'
import type { Peer } from '../links/peer.ts'
import type { Counts } from '../observe/counts.ts'
import type { FlightRecorder } from '../observe/flight.ts'
import type { Deadlines } from '../values/deadlines.ts'
import { ThreadDownError } from '../values/errors.ts'
import { uidOf } from '../values/ids.ts'
import { type ThreadEnd, UNEXPLAINED } from '../values/thread-end.ts'
import { describe } from '../values/thrown.ts'
import type { Inbound } from './inbound.ts'
import type { ThreadKinship } from './kinship.ts'
import type { Limbo } from './limbo.ts'
import type { Outbound } from './outbound.ts'
import type { Peers } from './peers.ts'
import type { PoolMap } from './placement.ts'
import type { Watches } from './watches.ts'

/** A link stays open for this long when its thread has ended and the reason is not known yet. */
const SILENCE_MS_MAX = 2000

/** The thread that has these peers, as far as their lives concern it. */
export interface LinkingThread {
  readonly pools: PoolMap
  readonly log: Log
  readonly counts: Counts
  readonly flight: FlightRecorder
  readonly turns: Turns
  readonly deadlines: Deadlines
  readonly peers: Peers
  readonly asks: PendingAsks
  readonly limbo: Limbo
  readonly watches: Watches
  readonly kinship: ThreadKinship
  readonly inbound: Inbound
  readonly outbound: Outbound
  /** The id of the actor that was spawned last on this thread. */
  readonly lastId: number
}

export class PeerLives {
  readonly #thread: LinkingThread

  constructor(thread: LinkingThread) {
    this.#thread = thread
  }

  /** Links this thread with a (new) life of another. `open` builds the link. */
  connect(
    name: string,
    uid: number,
    open: (handlers: LinkHandlers, previous: ThreadLink | undefined) => ThreadLink,
  ): void {
    const { peers, inbound, outbound, turns, kinship, counts, flight, log } = this.#thread
    const peer = peers.get(name) ?? peers.add(name)
    // The end of the life before may not have been noticed yet.
    if (peer.state === 'up') this.lost(name, peer.uid)
    peers.noteLife(uid)
    const { handover } = inbound
    const handlers: LinkHandlers = {
      onFrame: frame => inbound.take(peer, frame),
      onBatch() {
        const isIdle = turns.runNow()
        if (isIdle) handover.clear()
        return isIdle
      },
      handedOver: () => handover.position,
      isHandled: position => handover.isHandled(position),
      onSilent: close => this.#silent(peer, uid, close),
      onClosed: () => this.#closed(peer, uid),
      onUnsendable: (frame, error) => outbound.unsendable(peer, frame, error),
      onUnreadable: error => {
        counts.deadLetter('unreadable')
        log.error({ peer: name, error: describe(error) }, 'frames lost: they could not be read')
      },
    }
    flight.note('linkOpened', 0, name, uid)
    const link = open(handlers, peer.link)
    const isHeir = peer.state === 'down'
    const waited = isHeir ? [...peer.watches.keys()] : []
    peer.attach(uid, link, { op: OP.HELLO, target: this.#thread.lastId, corr: uid, body: 0, patches: 0 })
    if (inbound.isShedding) inbound.tellShedding(peer)
    for (const id of waited) peer.send({ op: OP.WATCH, target: id, corr: 0, body: 0, patches: 0 })
    if (isHeir) kinship.drainAgainOn(peer)
  }

  /** The thread's life `uid` is over. What it had posted is taken first. */
  lost(name: string, uid: number, end: ThreadEnd = UNEXPLAINED): void {
    this.noteEnd(name, uid, end)
    this.#upPeer(name, uid)?.link?.close()
  }

  /**
   * The thread's life `uid` is ending, or has ended. Its own report of an exit tells more than other reports.
   */
  noteEnd(name: string, uid: number, end: ThreadEnd): void {
    const peer = this.#upPeer(name, uid)
    if (peer === undefined) return
    const isOwnWord = end.exitCode !== undefined && peer.end?.reason === 'threadExit'
    if (peer.end === undefined || end.reason !== 'threadExit' || isOwnWord) peer.end = end
    peer.silence?.expire()
  }

  #upPeer(name: string, uid: number): Peer | undefined {
    const peer = this.#thread.peers.get(name)
    return peer !== undefined && peer.uid === uid && peer.state === 'up' ? peer : undefined
  }

  /** The link of a life is silent: it is closed as soon as it is known how the life ended. */
  #silent(peer: Peer, uid: number, close: () => void): void {
    if (peer.uid !== uid || peer.state !== 'up' || peer.end !== undefined) {
      close()
      return
    }
    peer.silence = { dueMs: 0, position: -1, expire: close }
    this.#thread.deadlines.add(peer.silence, SILENCE_MS_MAX)
  }

  /** The thread is not coming back: everything that hangs on it ends. */
  gone(name: string): void {
    const { peers, pools, counts, log, kinship } = this.#thread
    const isPooled = pools.some(pool => pool.threads.includes(name))
    // A thread of a pool is kept as gone even when it was never heard of, so that no key goes there.
    const peer = peers.get(name) ?? (isPooled ? peers.add(name) : undefined)
    if (peer === undefined) return
    if (peer.state === 'up') peer.link!.close()
    const lostTells = peer.giveUp()
    if (lostTells > 0) {
      counts.deadLetter('dead', lostTells)
      log.warn({ peer: name, messages: lostTells }, 'messages lost: their thread is not coming back')
    }
    this.#failPeer(peer, 'unreachable', new ThreadDownError(name, 'it is not coming back'))
    kinship.giveUpChildrenOn(name, new ThreadDownError(name, 'it is not coming back'))
    if (!isPooled) peers.forget(name)
  }

  #closed(peer: Peer, uid: number): void {
    const { flight, kinship, limbo } = this.#thread
    if (peer.uid !== uid || peer.state !== 'up') return
    if (peer.silence !== undefined) this.#thread.deadlines.remove(peer.silence)
    peer.silence = undefined
    peer.lose()
    flight.note('linkClosed', 0, peer.name, uid)
    const error = ThreadDownError.ended(peer.name, peer.lastEnd)
    this.#failPeer(peer, peer.lastEnd.reason, error)
    kinship.endChildrenOn(peer, error)
    limbo.giveUpWhere(id => uidOf(id) === uid)
    kinship.stopChildrenOf(peer.name, uid)
  }

  #failPeer(peer: Peer, reason: TerminationReason, error: ThreadDownError): void {
    // A thread that hung may have gone on since, and taken what it had not.
    const untaken = reason === 'threadHung' ? undefined : peer.link?.untakenAsks?.()
    this.#thread.asks.threadLost(peer.name, error, untaken, peer.end)
    for (const ask of peer.inboundAsks.all()) ask.release()
    peer.inboundAsks.clear()
    this.#thread.watches.threadLost(peer, reason, error)
  }
}

/**
 * Peers: the other threads as this one knows them, and what becomes of everything that hangs on one.
 *
 *   connecting ──connect──▶ up ──its life ends──▶ down ──connect──▶ up …
 *        └───────────────────┴────────────────────┴─────gone─────▶ gone
 *
 * When a life ends, its link hands over what it had sent and says that it is closed; then asks, watches and children over
 * there fail, and so do the asks, watches and parents of that life here. What was told and not taken stays in the link.
 */

import { ThreadDownError } from './errors.ts'
import { type LifeEnd, OP, type SpawnSpec, type ThreadEndReason } from './frames.ts'
import { uidOf } from './ids.ts'
import type { LinkHandlers, ThreadLink } from './link.ts'
import { Peer } from './peer.ts'
import type { Runtime } from './runtime.ts'
import { describe } from './thrown.ts'
import type { TerminationReason } from './types.ts'

export class Peers {
  readonly #runtime: Runtime
  readonly #peers = new Map<string, Peer>()
  /** The latest life that was ever linked. */
  #uidMax = 0

  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  /** The peer of a name, if there is one. */
  get(name: string): Peer | undefined {
    return this.#peers.get(name)
  }

  values(): Iterable<Peer> {
    return this.#peers.values()
  }

  /** The peer of a name; unknown ones are asked about. */
  to(name: string): Peer {
    const known = this.#peers.get(name)
    if (known !== undefined) return known
    const peer = this.add(name)
    this.#runtime.registrar?.resolve(name)
    return peer
  }

  /** A peer that nobody is asked about. */
  add(name: string): Peer {
    const peer = new Peer(name)
    this.#peers.set(name, peer)
    return peer
  }

  /** Links this thread with a (new) life of another. `open` builds the link. */
  connect(
    name: string,
    uid: number,
    open: (handlers: LinkHandlers, previous: ThreadLink | undefined) => ThreadLink,
  ): void {
    const runtime = this.#runtime
    const peer = this.#peers.get(name) ?? this.add(name)
    // The end of the life before may not have been noticed yet.
    if (peer.state === 'up') this.lost(name, peer.uid)
    this.#uidMax = Math.max(this.#uidMax, uid)
    const { handover } = runtime.inbound
    const handlers: LinkHandlers = {
      onFrame: frame => runtime.inbound.take(peer, frame),
      onBatch() {
        const isIdle = runtime.turns.runNow()
        if (isIdle) handover.clear()
        return isIdle
      },
      handedOver: () => handover.position,
      isHandled: position => handover.isHandled(position),
      onClosed: () => this.#closed(peer, uid),
      onUnsendable: (frame, error) => runtime.outbound.unsendable(peer, frame, error),
      onUnreadable: error => {
        runtime.counts.deadLetter('unreadable')
        runtime.log.error({ peer: name, error: describe(error) }, 'frames lost: they could not be read')
      },
    }
    runtime.flight.note('linkOpened', 0, name, uid)
    const link = open(handlers, peer.link)
    const waited = peer.state === 'down' ? [...peer.watches.keys()] : []
    peer.attach(uid, link, { op: OP.HELLO, target: runtime.lastId, corr: uid, body: 0, patches: 0 })
    for (const id of waited) peer.send({ op: OP.WATCH, target: id, corr: 0, body: 0, patches: 0 })
    for (const listener of [...peer.listeners]) listener.onUp()
  }

  /** The thread's life `uid` is over. What it had posted is taken first. */
  lost(name: string, uid: number, reason: ThreadEndReason = 'threadExit', end: LifeEnd = 'ended'): void {
    const peer = this.#peers.get(name)
    if (peer === undefined || peer.uid !== uid) return
    const wasEnding = peer.end === 'ending'
    peer.end = end
    if (peer.state === 'up') {
      peer.endReason = reason
      peer.link!.close()
    } else if (wasEnding && end !== 'ending') for (const listener of [...peer.listeners]) listener.onEnded()
  }

  /** The thread is not coming back: everything that hangs on it ends. */
  gone(name: string): void {
    const runtime = this.#runtime
    const isPooled = runtime.pools.some(pool => pool.threads.includes(name))
    // A thread of a pool is kept as gone even when it was never heard of, so that no key goes there.
    const peer = this.#peers.get(name) ?? (isPooled ? this.add(name) : undefined)
    if (peer === undefined) return
    if (peer.state === 'up') peer.link!.close()
    for (const listener of [...peer.listeners]) listener.onGone()
    const lostTells = peer.giveUp()
    if (lostTells > 0) {
      runtime.counts.deadLetter('dead', lostTells)
      runtime.log.warn({ peer: name, messages: lostTells }, 'messages lost: their thread is not coming back')
    }
    this.#failPeer(peer, 'unreachable', new ThreadDownError(name, 'it is not coming back'))
    runtime.kinship.giveUpChildrenOn(name, new ThreadDownError(name, 'it is not coming back'))
    // Refs keep the object; a new one would have to ask main again.
    if (!isPooled) this.#peers.delete(name)
  }

  #closed(peer: Peer, uid: number): void {
    const runtime = this.#runtime
    if (peer.uid !== uid || peer.state !== 'up') return
    peer.lose()
    runtime.flight.note('linkClosed', 0, peer.name, uid)
    const error = new ThreadDownError(peer.name, 'it has ended')
    this.#failPeer(peer, peer.endReason, error)
    runtime.kinship.endChildrenOn(peer, error)
    runtime.limbo.giveUpWhere(id => uidOf(id) === uid)
    runtime.kinship.stopChildrenOf(peer.name, uid)
    for (const listener of [...peer.listeners]) listener.onDown()
  }

  #failPeer(peer: Peer, reason: TerminationReason, error: ThreadDownError): void {
    // A thread that hung may have gone on since, and taken what it had not.
    const untaken = reason === 'threadHung' ? undefined : peer.link?.untakenAsks?.()
    this.#runtime.asks.threadLost(peer.name, error, untaken)
    for (const ask of peer.inboundAsks.all()) ask.release()
    peer.inboundAsks.clear()
    this.#runtime.watches.threadLost(peer, reason, error)
  }

  /** Closes every link. */
  close(): void {
    for (const peer of [...this.#peers.values()]) peer.link?.close()
  }

  // ── Spawns on their way here ─────────────────────────────────────────────────────────────────

  /** True when a parent on another thread ended with the life of its thread. */
  isOver(parent: SpawnSpec['parent']): boolean {
    const peer = this.#peers.get(parent.thread)
    if (peer === undefined || peer.uid < parent.uid) return false
    return peer.uid > parent.uid || peer.state !== 'up'
  }

  /** True when an actor that is not here may yet come: its spawner has not said otherwise. */
  isAwaited(id: number): boolean {
    const uid = uidOf(id)
    if (uid === this.#runtime.uid) return false
    for (const spawner of this.#peers.values()) {
      if (spawner.uid === uid)
        return spawner.state === 'up' && (spawner.hasSpawnsAtMain || id > spawner.lastSpawnId)
    }
    return uid > this.#uidMax
  }

  /** The first word of a life: spawns over its link have ids above `lastSpawnId`. */
  greeted(peer: Peer, lastSpawnId: number): void {
    peer.lastSpawnId = lastSpawnId
    this.#giveUpAwaited(peer)
  }

  /** This life has just begun: spawns that thread `name` had for earlier ones may come through main. */
  awaitSpawns(name: string): void {
    const peer = this.#peers.get(name)
    if (peer?.state === 'up') peer.hasSpawnsAtMain = true
  }

  /** Main's word that no more of them come. */
  allSpawned(name: string, uid: number): void {
    const peer = this.#peers.get(name)
    if (peer?.uid !== uid) return
    peer.hasSpawnsAtMain = false
    this.#giveUpAwaited(peer)
  }

  /** What waits for actors that were spawned over there, and are not on their way any more. */
  #giveUpAwaited({ uid, lastSpawnId, hasSpawnsAtMain }: Peer): void {
    if (!hasSpawnsAtMain) this.#runtime.limbo.giveUpWhere(id => uidOf(id) === uid && id <= lastSpawnId)
  }
}

/**
 * Peers: the other threads as this one knows them, and which of their spawns may still be on their way here.
 */

import type { SpawnSpec } from '../links/frames.ts'
import { Peer } from '../links/peer.ts'
import { uidOf } from '../values/ids.ts'
import type { Limbo } from './limbo.ts'

/** The thread whose peers these are. */
export interface PeersHost {
  readonly uid: number
  readonly limbo: Limbo
  /** Asks main who a thread is. */
  resolve(name: string): void
}

export class Peers {
  readonly #host: PeersHost
  readonly #peers = new Map<string, Peer>()
  /** The latest life that was ever linked. */
  #uidMax = 0

  constructor(host: PeersHost) {
    this.#host = host
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
    this.#host.resolve(name)
    return peer
  }

  /** A life is linked. */
  noteLife(uid: number): void {
    this.#uidMax = Math.max(this.#uidMax, uid)
  }

  /**
   * Forgets a thread that is not coming back. Refs keep the object; a new one would have to ask main again.
   */
  forget(name: string): void {
    this.#peers.delete(name)
  }

  /** Adds a peer; main is not asked about it. */
  add(name: string): Peer {
    const peer = new Peer(name)
    this.#peers.set(name, peer)
    return peer
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
    if (uid === this.#host.uid) return false
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
    if (!hasSpawnsAtMain) this.#host.limbo.giveUpWhere(id => uidOf(id) === uid && id <= lastSpawnId)
  }
}

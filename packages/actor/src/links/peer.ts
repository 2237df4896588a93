/**
 * Peer: what one thread knows about another: its current life, the link to it, and everything that depends on
 * it.
 *
 *   connecting   known by name, no link yet; frames wait, up to a bound
 *   up           linked
 *   down         died; main is replacing it. Tells wait in the link, for its next life
 *   gone         not coming back
 */

import { AskTable } from '../asks/ask-table.ts'
import type { InboundAsk } from '../asks/asks.ts'
import type { Watcher } from '../cell/watcher.ts'
import type { Deadline } from '../values/deadlines.ts'
import { type ThreadEnd, UNEXPLAINED } from '../values/thread-end.ts'
import { OP } from './frames.ts'
import { type Frame, LINK_FRAMES_MAX, type ThreadLink } from './link.ts'

/** The watchers of this thread of one actor on the peer. */
export interface RemoteWatch {
  readonly name: string
  readonly watchers: Set<Watcher>
}

export class Peer {
  readonly name: string
  /** The life of the thread that is or was linked; 0 when never. */
  uid = 0
  /** Spawns of this life that are still on their way here have higher ids; they arrive in order. */
  lastSpawnId = 0
  /** Until main says that no more come, earlier spawns may also be on their way, through main. */
  hasSpawnsAtMain = false
  state: 'connecting' | 'up' | 'down' | 'gone' = 'connecting'
  link: ThreadLink | undefined = undefined
  /** How the present life ends, or the last one ended, if that was reported. */
  end: ThreadEnd | undefined = undefined
  /** Its link has closed, and main has yet to say why: bounds the wait for that. */
  silence: Deadline | undefined = undefined
  /** Its heap fills: it refuses messages, except to control. */
  isShedding = false
  /** Asks from there, not answered yet, by their number. */
  readonly inboundAsks = new AskTable<InboundAsk>()
  /** Watches of ours over there, by actor id. */
  readonly watches = new Map<number, RemoteWatch>()
  /** Watches of theirs here, by actor id. */
  readonly watchers = new Map<number, Watcher>()
  #waiting: Frame[] = []

  constructor(name: string) {
    this.name = name
  }

  /** How its last life ended. */
  get lastEnd(): ThreadEnd {
    return this.end ?? UNEXPLAINED
  }

  /** Somebody answers, or will. */
  get isReachable(): boolean {
    return this.state === 'connecting' || this.state === 'up'
  }

  /** Somebody takes what it is told, now or in its next life. */
  get canBeTold(): boolean {
    return this.link !== undefined || this.state === 'connecting'
  }

  /**
   * Sends within the bound of the link; false when it is full. While the peer is down only tells may be
   * offered.
   */
  offer(frame: Frame): boolean {
    if (this.link !== undefined) return this.link.offer(frame)
    if (this.state !== 'connecting' || this.#waiting.length >= LINK_FRAMES_MAX) return false
    this.#waiting.push(frame)
    return true
  }

  /** Sends past the bound. Lost when the peer is not reachable, as it would be on the way. */
  send(frame: Frame): void {
    if (this.state === 'up') this.link!.send(frame)
    else if (this.state === 'connecting') this.#waiting.push(frame)
  }

  /** Links a new life; `hello` goes before everything that waited. */
  attach(uid: number, link: ThreadLink, hello: Frame): void {
    this.uid = uid
    this.end = undefined
    this.isShedding = false
    this.lastSpawnId = 0
    this.hasSpawnsAtMain = false
    this.link = link
    this.state = 'up'
    const waiting = this.#waiting
    this.#waiting = []
    link.send(hello)
    for (const frame of waiting) link.send(frame)
  }

  /** The life that was linked has ended. */
  lose(): void {
    this.state = 'down'
    // Messages to it now wait for the next life.
    this.isShedding = false
  }

  /** The thread is not coming back. Returns the number of tells that waited for it. */
  giveUp(): number {
    this.state = 'gone'
    const tells = this.#waiting.filter(frame => frame.op === OP.TELL).length + (this.link?.discard() ?? 0)
    this.link = undefined
    this.#waiting = []
    return tells
  }
}

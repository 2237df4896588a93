/**
 * Limbo: frames for an actor whose spawn is still on its way.
 *
 * A thread A spawns an actor on B and gives its ref to C; what C tells the actor may reach B before the
 * spawn does, because each pair of threads has a link of its own. Spawns of A reach B in the order of
 * their ids, so B can tell an actor that has yet to come from one that has ended. Frames wait here,
 * bounded in number and time.
 */

import type { Deadline, Deadlines } from './deadlines.ts'
import type { Frame } from './link.ts'
import type { Peer } from './peer.ts'

const FRAMES_MAX = 4096
const WAIT_MS_MAX = 5000

export interface HeldFrame {
  readonly peer: Peer
  /** The life of the peer that sent it. */
  readonly uid: number
  readonly frame: Frame
}

interface Held {
  readonly frames: HeldFrame[]
  readonly limit: Deadline
}

export class Limbo {
  readonly #deadlines: Deadlines
  readonly #held = new Map<number, Held>()
  readonly #onGiveUp: (held: readonly HeldFrame[]) => void
  #frameCount = 0

  /** `onGiveUp` gets the frames of an actor that did not come. */
  constructor(deadlines: Deadlines, onGiveUp: (held: readonly HeldFrame[]) => void) {
    this.#deadlines = deadlines
    this.#onGiveUp = onGiveUp
  }

  /** Keeps a frame; false when there is no room. */
  hold(peer: Peer, frame: Frame): boolean {
    if (this.#frameCount >= FRAMES_MAX) return false
    const id = frame.target
    let held = this.#held.get(id)
    if (held === undefined) {
      held = { frames: [], limit: { dueMs: 0, position: -1, expire: () => this.giveUp(id) } }
      this.#held.set(id, held)
      this.#deadlines.add(held.limit, WAIT_MS_MAX)
    }
    held.frames.push({ peer, uid: peer.uid, frame })
    this.#frameCount++
    return true
  }

  /** The frames for an actor that has come, in order. */
  take(id: number): readonly HeldFrame[] {
    const held = this.#held.get(id)
    if (held === undefined) return []
    this.#held.delete(id)
    this.#deadlines.remove(held.limit)
    this.#frameCount -= held.frames.length
    return held.frames
  }

  /** The actor will not come. */
  giveUp(id: number): void {
    const frames = this.take(id)
    if (frames.length > 0) this.#onGiveUp(frames)
  }

  /** Ids of actors that are awaited. */
  get ids(): number[] {
    return [...this.#held.keys()]
  }
}

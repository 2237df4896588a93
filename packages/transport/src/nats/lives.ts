/**
 * Lives: which publisher a subscriber follows, since any process may publish under a subject.
 *
 *   nobody ──heard──▶ followed ──another, never heard of──▶ followed (the newcomer)
 *     ▲                  │  │                                  │
 *     │    silence, bye  │  │ connection of another number     │ the one before is heard again
 *     └──────────────────┘  ▼                                  ▼
 *                      followed, anew                       contested ──one alone for SILENCE_MS──▶ followed
 *
 * A new publisher is followed at once: usually the publisher before it is dead, and its blocks are gone. If
 * the earlier publisher is heard again, two publishers share the subject. The subscriber cannot tell which
 * blocks belong to which, so it follows neither.
 */

/** A publisher says so often that it lives, in milliseconds. */
export const BEAT_MS = 1000
/** A peer that is silent for this long counts as gone. */
export const SILENCE_MS = 5 * BEAT_MS
const LIVES_MAX = 8

/** What a word of a life means for the one who follows. `anew`: what came before is another connection's. */
export type Heard = 'same' | 'anew' | 'contested'

export class Lives {
  /** When each was heard last. */
  readonly #heardMs = new Map<string, number>()
  /** The namespace whose stream has all that the followed life published, by its last beat; '': none. */
  storedIn = ''
  /** The stream lacks batches of the followed life just before this one; 0: that is not known. */
  holeEnd = 0
  #followed: string | undefined
  #connection = 0
  #isContested = false

  /** The life that is followed. */
  get followed(): string | undefined {
    return this.#followed
  }

  get isContested(): boolean {
    return this.#isContested
  }

  heard(life: string, connection: number, nowMs: number): Heard {
    const isKnown = this.#heardMs.has(life)
    this.#heardMs.delete(life)
    this.#heardMs.set(life, nowMs)
    this.#prune(nowMs)
    if (life === this.#followed) {
      if (connection === this.#connection) return 'same'
      this.#connection = connection
      return 'anew'
    }
    if (this.#heardMs.size > 1 && (isKnown || this.#isContested)) {
      this.#isContested = true
      this.#followed = undefined
      return 'contested'
    }
    this.#isContested = false
    this.#followed = life
    this.#connection = connection
    this.storedIn = ''
    this.holeEnd = 0
    return 'anew'
  }

  /** True: it was the one that was followed. */
  gone(life: string): boolean {
    this.#heardMs.delete(life)
    if (life !== this.#followed) return false
    this.#followed = undefined
    return true
  }

  /** True: the one that was followed has been silent for too long. */
  looked(nowMs: number): boolean {
    this.#prune(nowMs)
    if (this.#followed === undefined || this.#heardMs.has(this.#followed)) return false
    this.#followed = undefined
    return true
  }

  /** Nobody can be heard. */
  forget(): void {
    this.#heardMs.clear()
    this.#followed = undefined
    this.#isContested = false
    this.storedIn = ''
  }

  #prune(nowMs: number): void {
    for (const [life, heardMs] of this.#heardMs)
      if (nowMs - heardMs >= SILENCE_MS || this.#heardMs.size > LIVES_MAX) this.#heardMs.delete(life)
  }
}

/**
 * Watches the wire of one engine: since when could anybody know that a block is gone?
 *
 * A removal that was published tells it; for everything else the first sign does that something was not published or was lost:
 * a hole in the sequence, a sequence that goes back, a connection that breaks. Loses nothing itself, since it
 * stands beside the network. An engine may hold several copies of a block, each with its own removal: the last one counts.
 */

import { decodeKvBatch, parseEventFrames } from '@homing/protocol'
import type { Frames, Transport } from '@homing/transport'

export class WireWatch {
  readonly #nowMs: () => number
  readonly #isHeld: (hash: string) => boolean
  readonly #subscriber: { close(): void }
  readonly #stored = new Set<string>()
  readonly #goneMs = new Map<string, number>()
  #nextSequence: number | undefined

  /** `isHeld`: what the engine holds now. */
  constructor(
    transport: Transport,
    endpoint: string,
    { nowMs, isHeld }: { readonly nowMs: () => number; readonly isHeld: (hash: string) => boolean },
  ) {
    this.#nowMs = nowMs
    this.#isHeld = isHeld
    this.#subscriber = transport.messages.subscribe(
      { endpoint, topic: '' },
      {
        message: frames => this.#message(frames),
        connected: () => {
          this.#nextSequence = undefined
        },
        disconnected: () => {
          this.#sign()
        },
      },
    )
  }

  /** When it could first be known that this block, which the engine does not hold, is gone; undefined: not yet. */
  goneSinceMs(hash: string): number | undefined {
    return this.#goneMs.get(hash)
  }

  close(): void {
    this.#subscriber.close()
  }

  #message(frames: Frames): void {
    const nowMs = this.#nowMs()
    const { sequence, payload } = parseEventFrames(frames)
    const expected = this.#nextSequence ?? sequence
    // What comes again or late was known before.
    if (sequence < expected && sequence !== 0) return
    if (sequence !== expected) this.#sign()
    this.#nextSequence = sequence + 1
    for (const event of decodeKvBatch(payload).events) {
      if (event.kind === 'cleared') {
        this.#sign()
        continue
      }
      for (const hash of hashesOf(event.hashes)) {
        if (event.kind === 'removed') {
          if (!this.#isHeld(hash)) this.#goneMs.set(hash, nowMs)
        } else {
          this.#goneMs.delete(hash)
          this.#stored.add(hash)
        }
      }
    }
  }

  /** What is gone by now, whatever was published of it, can be known to be. */
  #sign(): void {
    const nowMs = this.#nowMs()
    for (const hash of this.#stored) {
      if (!this.#isHeld(hash) && !this.#goneMs.has(hash)) this.#goneMs.set(hash, nowMs)
    }
  }
}

/** `[lo, hi]` pairs as 16 hexadecimal digits each. */
function hashesOf(words: Int32Array): string[] {
  const digits = (word: number) => (word >>> 0).toString(16).padStart(8, '0')
  return Array.from({ length: words.length / 2 }, (_, i) => digits(words[2 * i + 1]!) + digits(words[2 * i]!))
}

/**
 * EventCut: takes the event with usage and without choices out of an event stream, to the byte.
 *
 *   chunk   │ data: {…}↵↵ │ data: {"choices":[],"usage":{…}}↵↵ │ data: [DO  ▶ the next chunk
 *             passes        cut: one line, and the empty one      passes
 *
 * Whoever walks the bytes tells where an event begins and ends and what is in it. An event is held back from its first
 * byte until it is clear that it is another one; within a chunk that costs nothing, since positions are kept and no
 * bytes. Only what a chunk leaves undecided at its end is copied, HELD_BYTES_MAX at most: a longer event is no usage.
 */

const HELD_BYTES_MAX = 16_384
const NOTHING = new Uint8Array(0)

export class EventCut {
  #chunk: Uint8Array = NOTHING
  /** Bytes of the chunk before this are decided. */
  #decided = 0
  /** Where in the chunk the undecided event begins (0: in an earlier one); −1: there is none. */
  #eventAt = -1
  #hasUsage = false
  #hasEmptyChoices = false
  /** The last cut ended with a carriage return; a line feed behind it belongs to it. */
  #cutsLineFeed = false
  /** What passes on of this chunk and of those before it. */
  #passing: Uint8Array[] = []
  #held: Uint8Array[] = []
  #heldBytes = 0

  /** A chunk begins; positions are in it until `end`. */
  begin(chunk: Uint8Array): void {
    this.#chunk = chunk
    this.#decided = 0
    if (this.#eventAt >= 0) this.#eventAt = 0
  }

  /** The first byte of an event. */
  eventAt(at: number): void {
    this.#cutsLineFeed = false
    this.#eventAt = at
    this.#hasUsage = false
    this.#hasEmptyChoices = false
  }

  noteUsage(): void {
    this.#hasUsage = true
  }

  noteEmptyChoices(): void {
    this.#hasEmptyChoices = true
  }

  /** The event is not the one to cut. */
  pass(): void {
    this.#eventAt = -1
    if (this.#heldBytes === 0) return
    this.#passing.push(...this.#held)
    this.#forgetHeld()
  }

  /** The last byte of the empty line that ends an event. */
  eventEndsAt(at: number): void {
    this.#cutsLineFeed = false
    if (this.#eventAt < 0) return
    if (!this.#hasUsage || !this.#hasEmptyChoices) {
      this.pass()
      return
    }
    this.#passUpTo(this.#chunk, this.#eventAt)
    this.#forgetHeld()
    this.#eventAt = -1
    this.#decided = at + 1
    this.#cutsLineFeed = true
  }

  /** The line feed of a CR LF. */
  lineFeedAt(at: number): void {
    if (this.#cutsLineFeed) this.#decided = at + 1
    this.#cutsLineFeed = false
  }

  /** The chunk ends; what passes on: the chunk itself where nothing was held or cut. */
  end(): Uint8Array {
    const chunk = this.#chunk
    this.#chunk = NOTHING
    if (this.#eventAt >= 0 && this.#heldBytes + chunk.length - this.#eventAt > HELD_BYTES_MAX) this.pass()
    if (this.#eventAt >= 0) {
      this.#passUpTo(chunk, this.#eventAt)
      // Not `slice`: that of a Buffer shares its memory.
      const undecided = new Uint8Array(chunk.subarray(this.#eventAt))
      this.#held.push(undecided)
      this.#heldBytes += undecided.length
    } else if (this.#decided === 0 && this.#passing.length === 0) {
      return chunk
    } else {
      this.#passUpTo(chunk, chunk.length)
    }
    const passing = this.#passing
    this.#passing = []
    return joined(passing)
  }

  /** What is held back; forgotten here. */
  takeRest(): Uint8Array {
    const rest = joined(this.#held)
    this.#forgetHeld()
    this.#eventAt = -1
    return rest
  }

  #passUpTo(chunk: Uint8Array, at: number): void {
    if (at > this.#decided) this.#passing.push(chunk.subarray(this.#decided, at))
    this.#decided = at
  }

  #forgetHeld(): void {
    this.#held = []
    this.#heldBytes = 0
  }
}

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  if (pieces.length === 0) return NOTHING
  return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
}

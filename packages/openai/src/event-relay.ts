/**
 * EventRelay: passes an event stream on in whole events, and undoes the changes caused by asking for usage.
 *
 *   chunk   │ data: {…}↵↵ │ data: {"choices":[],"usage":{…}}↵↵ │ data: [DO  ▶ the next chunk
 *             passes        cut, where usage was asked for       held
 *
 * Its caller walks the bytes and reports where an event begins and ends and what is in it. An event passes
 * when its empty line has come: no reader can use it before, and an answer that is cut never ends in half an
 * event. Events that end within a chunk cost nothing, because positions are kept and no bytes. Only an event
 * that is open at the end of a chunk is copied, at most HELD_BYTES_MAX: a longer event passes as it comes.
 *
 * According to the form of the engine's unasked streams (stream-form.ts), the event with usage and without
 * choices is cut, and chunks are given that form. The last chunk of a choice may lack members that moved into
 * the event with usage: it waits for that one event.
 */

import { fillChunk, mendChunk, type StreamForm, type UsageMember } from './stream-form.ts'

const HELD_BYTES_MAX = 262_144
const NOTHING = new Uint8Array(0)

export interface EventRelayOptions {
  /** The stream was asked for usage; it is to pass in this form. */
  readonly mendsTo?: StreamForm | undefined
  /** Gets every whole event, line ends included; the bytes are its own only until it returns. */
  readonly observe?: ((event: Uint8Array) => void) | undefined
  /** A choice has a finish reason, or may have one; called before its event passes, and perhaps again. */
  readonly choiceEnds?: (() => void) | undefined
}

export class EventRelay {
  readonly #form: StreamForm | undefined
  readonly #observe: ((event: Uint8Array) => void) | undefined
  readonly #choiceEnds: (() => void) | undefined
  #chunk: Uint8Array = NOTHING
  /** Bytes of the chunk before this are decided. */
  #decided = 0
  /**
   * Where in the chunk the open event begins (0: in an earlier one); −1: there is none, or it is too long to
   * be held.
   */
  #eventAt = -1
  #isInsideEvent = false
  #usage: UsageMember = 'absent'
  #choices: 'absent' | 'empty' | 'some' = 'absent'
  /** It has other fields than one line of data, or an error: none that asking for usage adds or changes. */
  #isForeign = false
  #endsChoice = false
  #learntUsage: UsageMember = 'absent'
  #learntChoices: 'absent' | 'empty' | 'some' = 'absent'
  /** The last cut ended with a carriage return; a line feed behind it belongs to it. */
  #cutsLineFeed = false
  /** The last chunk of a choice, and the members that it lacks. */
  #waiting: { readonly bytes: Uint8Array; readonly missing: readonly string[] } | undefined
  /** What passes on of this chunk and of those before it. */
  #passing: Uint8Array[] = []
  #held: Uint8Array[] = []
  #heldBytes = 0

  constructor({ mendsTo, observe, choiceEnds }: EventRelayOptions = {}) {
    this.#form = mendsTo
    this.#observe = observe
    this.#choiceEnds = choiceEnds
  }

  /** An event has begun and not ended. */
  get isInsideEvent(): boolean {
    return this.#isInsideEvent
  }

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
    this.#isInsideEvent = true
    this.#usage = 'absent'
    this.#choices = 'absent'
    this.#isForeign = false
    this.#endsChoice = false
  }

  noteUsage(isNull: boolean): void {
    this.#usage = isNull ? 'null' : 'value'
  }

  noteChoices(isEmpty: boolean): void {
    this.#choices = isEmpty ? 'empty' : 'some'
  }

  /** A choice has a finish reason, or may have one. */
  noteChoiceEnd(): void {
    this.#endsChoice = true
    this.#choiceEnds?.()
  }

  noteForeign(): void {
    this.#isForeign = true
  }

  /** The last byte of the empty line that ends an event. */
  eventEndsAt(at: number): void {
    this.#cutsLineFeed = false
    this.#isInsideEvent = false
    if (this.#eventAt < 0) return
    this.#observe?.(this.#eventUpTo(at + 1))
    const form = this.#isForeign ? undefined : this.#form
    if (form === undefined || this.#choices === 'absent') this.#pass()
    else if (this.#choices === 'some') this.#mend(form, at)
    else if (this.#usage === 'value') this.#cut(at)
    else this.#pass()
  }

  /** The event has what most have: one line of data, a choice perhaps, and no usage but null. */
  get isUsual(): boolean {
    return !this.#isForeign && !this.#endsChoice && this.#usage !== 'value'
  }

  /** Others are to be like the event that ends now. */
  learn(): void {
    this.#learntUsage = this.#usage
    this.#learntChoices = this.#choices
  }

  /** A whole event that says what the learnt one does; `end`: its last byte. */
  eventLikeLearnt(at: number, end: number): void {
    this.eventAt(at)
    this.#usage = this.#learntUsage
    this.#choices = this.#learntChoices
    this.eventEndsAt(end)
  }

  /** The line feed of a CR LF. */
  lineFeedAt(at: number): void {
    if (this.#cutsLineFeed) {
      this.#decided = at + 1
    } else if (this.#waiting !== undefined && this.#eventAt < 0 && this.#decided === at) {
      const { bytes, missing } = this.#waiting
      this.#waiting = { bytes: joined([bytes, this.#chunk.subarray(at, at + 1)]), missing }
      this.#decided = at + 1
    }
    this.#cutsLineFeed = false
  }

  /** The chunk ends; what passes on: the chunk itself where nothing was held or changed. */
  end(): Uint8Array {
    const chunk = this.#chunk
    if (this.#eventAt >= 0 && this.#heldBytes + chunk.length - this.#eventAt > HELD_BYTES_MAX) this.#pass()
    this.#chunk = NOTHING
    if (this.#eventAt >= 0) {
      this.#passUpTo(chunk, this.#eventAt)
      // Not `slice`: a slice of a Buffer shares its memory.
      const open = new Uint8Array(chunk.subarray(this.#eventAt))
      this.#held.push(open)
      this.#heldBytes += open.length
    } else if (this.#decided === 0 && this.#passing.length === 0) {
      return chunk
    } else {
      this.#passUpTo(chunk, chunk.length)
    }
    const passing = this.#passing
    this.#passing = []
    return joined(passing)
  }

  /** Whole events that are held back; forgotten here. */
  takeWhole(): Uint8Array {
    const whole = this.#waiting?.bytes ?? NOTHING
    this.#waiting = undefined
    return whole
  }

  /** All held bytes, including the beginning of an event; the relay forgets them. */
  takeRest(): Uint8Array {
    const rest = joined([this.takeWhole(), ...this.#held])
    this.#forgetHeld()
    this.#eventAt = -1
    return rest
  }

  /** The open event passes, whole or not, behind the one that waits. */
  #pass(): void {
    if (this.#waiting !== undefined) {
      this.#passUpTo(this.#chunk, this.#eventAt)
      this.#passing.push(this.takeWhole())
    }
    this.#passing.push(...this.#held)
    this.#forgetHeld()
    this.#eventAt = -1
  }

  #mend(form: StreamForm, at: number): void {
    const isInForm = this.#usage === form.usage
    if (isInForm && !this.#endsChoice) {
      this.#pass()
      return
    }
    const { bytes, missing } = mendChunk(this.#eventUpTo(at + 1), form)
    this.#takeOut(at)
    this.#passing.push(this.takeWhole())
    if (missing.length > 0) this.#waiting = { bytes, missing }
    else this.#passing.push(bytes)
  }

  #cut(at: number): void {
    const waiting = this.#waiting
    if (waiting !== undefined) {
      this.#waiting = {
        bytes: fillChunk(waiting.bytes, waiting.missing, this.#eventUpTo(at + 1)),
        missing: [],
      }
    }
    this.#takeOut(at)
    this.#passing.push(this.takeWhole())
    this.#cutsLineFeed = true
  }

  /** What comes before the event that ends here passes; the event itself does not. */
  #takeOut(at: number): void {
    this.#passUpTo(this.#chunk, this.#eventAt)
    this.#forgetHeld()
    this.#eventAt = -1
    this.#decided = at + 1
  }

  #eventUpTo(end: number): Uint8Array {
    const piece = this.#chunk.subarray(this.#eventAt, end)
    return this.#held.length === 0 ? piece : joined([...this.#held, piece])
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
  const filled = pieces.filter(piece => piece.length > 0)
  if (filled.length === 0) return NOTHING
  return filled.length === 1 ? filled[0]! : Buffer.concat(filled)
}

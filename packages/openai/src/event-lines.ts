/**
 * EventLines: finds the events of an event stream and the JSON in their data, and tells the relay of both.
 *
 * The events of a stream differ in their text alone. Nothing is looked for in a text, so an event that is
 * like the one that a template was made of (event-template.ts) says the same, and is not walked.
 */

import type { EventRelay } from './event-relay.ts'
import { type AlikeEvents, EventTemplate, FIELD } from './event-template.ts'
import { type MembersFound, MemberTap } from './member-tap.ts'

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const DONE = Buffer.from('[DONE]')

/** Where the automaton is in a line. */
type LineState = 'field' | 'space' | 'payload' | 'ignored'

/** Finds the payloads of `data:` lines. A line ends with LF, CR or CR LF, an event with an empty line. */
export class EventLines implements AlikeEvents {
  readonly #members: MemberTap
  readonly #relay: EventRelay
  #state: LineState = 'field'
  /** Bytes of FIELD that matched so far. */
  #fieldMatched = 0
  /** Bytes of DONE that matched so far; −1: the payload is something else. */
  #doneMatched = 0
  #isEmptyLine = true
  /** No line since the last empty one. */
  #isFirstLine = true
  #followsCarriageReturn = false
  #hasData = false
  /** Where in the chunk the event under way began; −1: in an earlier one. */
  #eventAt = -1
  readonly template = new EventTemplate()
  /** Of the chunk that came last, its events that are like the learnt one. */
  readonly texts: number[] = []
  #hasOthers = true
  isDone = false
  eventsCount = 0

  constructor(members: MemberTap, relay: EventRelay) {
    this.#members = members
    this.#relay = relay
  }

  /** All of the chunk that came last, if it has events like the learnt one alone. */
  get alike(): AlikeEvents | undefined {
    return this.#hasOthers ? undefined : this
  }

  push(bytes: Uint8Array): void {
    let at = 0
    this.#eventAt = -1
    this.texts.length = 0
    this.#hasOthers = false
    while (at < bytes.length) {
      if (this.#isFirstLine && this.#isEmptyLine && !this.#followsCarriageReturn) {
        const end = this.template.endOf(bytes, at)
        if (end > at) {
          this.eventsCount++
          this.#relay.eventLikeLearnt(at, end - 1)
          this.texts.push(this.template.textFrom, this.template.textTo)
          at = end
          continue
        }
        this.#eventAt = at
      }
      this.#hasOthers = true
      const byte = bytes[at]!
      if (byte === LINE_FEED && this.#followsCarriageReturn) {
        this.#followsCarriageReturn = false
        this.#relay.lineFeedAt(at)
        at++
        continue
      }
      this.#followsCarriageReturn = byte === CARRIAGE_RETURN
      if (byte === LINE_FEED || byte === CARRIAGE_RETURN) {
        this.#endLine(bytes, at)
        at++
        continue
      }
      if (this.#isEmptyLine) {
        this.#isEmptyLine = false
        // An event of several lines is none that asking for usage adds or changes.
        if (this.#isFirstLine) this.#relay.eventAt(at)
        else this.#relay.noteForeign()
        this.#isFirstLine = false
      }
      if (this.#state === 'field') {
        this.#matchField(byte)
        at++
      } else if (this.#state === 'space') {
        this.#state = 'payload'
        if (byte === 0x20) at++
      } else {
        const end = lineEnd(bytes, at)
        if (this.#state === 'payload') this.#payload(bytes, at, end)
        at = end
      }
    }
  }

  #matchField(byte: number): void {
    if (byte !== FIELD[this.#fieldMatched]) {
      this.#state = 'ignored'
      this.#relay.noteForeign()
    } else if (++this.#fieldMatched === FIELD.length) {
      this.#state = 'space'
      // Lines of one event are joined by a line feed, which is white space between JSON tokens.
      this.#doneMatched = this.#hasData ? -1 : 0
      this.#hasData = true
    }
  }

  /** Bytes that may still become [DONE] are withheld from the members until that is decided. */
  #payload(bytes: Uint8Array, from: number, to: number): void {
    let at = from
    while (at < to && this.#doneMatched >= 0) {
      if (bytes[at] !== DONE[this.#doneMatched]) {
        this.#releaseWithheld()
        break
      }
      at++
      if (++this.#doneMatched === DONE.length) {
        this.isDone = true
        this.#hasData = false
        this.#state = 'ignored'
        return
      }
    }
    this.#members.push(bytes, at, to)
  }

  #releaseWithheld(): void {
    this.#members.push(DONE, 0, this.#doneMatched)
    this.#doneMatched = -1
  }

  /** The event that ends here has been walked, and the next ones may be like it. */
  #learn(bytes: Uint8Array, end: number): void {
    const from = this.#eventAt
    if (from < 0 || !this.#relay.isUsual) return
    const text = anyTextAt(bytes, from, end)
    if (text >= 0 && this.template.learn(bytes, from, text, end)) this.#relay.learn()
  }

  #endLine(bytes: Uint8Array, at: number): void {
    if (this.#state === 'payload' && this.#doneMatched > 0) this.#releaseWithheld()
    if (this.#isEmptyLine) {
      if (this.#hasData) {
        this.eventsCount++
        this.#learn(bytes, at + 1)
      }
      this.#hasData = false
      this.#isFirstLine = true
      this.#members.reset()
      this.#relay.eventEndsAt(at)
    }
    this.#isEmptyLine = true
    this.#state = 'field'
    this.#fieldMatched = 0
  }
}

/** What a text may be called; what stands behind the first of these is a text, if it stands in a string. */
const TEXT_NAMES = ['"content":', '"text":', '"delta":'].map(name => Buffer.from(name))
const NOTHING_FOUND: MembersFound = {
  usage: () => undefined,
  error: () => undefined,
  choices: () => undefined,
  choiceEnd: () => undefined,
  type: () => undefined,
  id: () => undefined,
  responseObject: () => undefined,
}

/** Where in the event `bytes[from, to)` a text begins in which nothing is looked for; −1: there is none. */
function anyTextAt(bytes: Uint8Array, from: number, to: number): number {
  const event = Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from)
  for (const name of TEXT_NAMES) {
    let at = event.indexOf(name)
    if (at < 0) continue
    at += name.length
    while (event[at] === 0x20) at++
    if (event[at] !== 0x22) continue
    const walk = new MemberTap(NOTHING_FOUND, false)
    walk.push(event, FIELD.length, at + 1)
    return walk.isInText ? from + at + 1 : -1
  }
  return -1
}

function lineEnd(bytes: Uint8Array, from: number): number {
  let at = from
  while (at < bytes.length && bytes[at] !== LINE_FEED && bytes[at] !== CARRIAGE_RETURN) at++
  return at
}

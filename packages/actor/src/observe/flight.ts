/**
 * Flight recorder: the last things that a thread did, in memory that outlives it.
 *
 *   messages   messages that actors were given. A run of messages of one type for one actor is one record
 *              with their count, cut every RUN_MS_MAX; the count grows when they have been handled
 *   events     everything else, so that a flood of messages does not wash away why an actor failed a minute
 *              ago. Equal ones in a row are one record with their count
 *
 * Everything in a turn has the time of the turn's beginning.
 *
 * Cost       a comparison for each message in a row, a look-up in a Map and seven stores for each row.
 *            Measured: see docs/actor-runtime.md.
 */

import type { Clock } from '@homing/base'
import { DEAD_LETTER_REASONS } from '../values/dead-letters.ts'
import {
  HANDLED_BEFORE,
  IS_IN_TURN,
  NEXT_EVENT,
  NEXT_MESSAGE,
  readLife,
  TURNS,
  TYPE_COUNT,
} from './counts.ts'
import {
  EVENTS_MAX,
  MESSAGES_MAX,
  OTHER_TYPE,
  RECORD_COUNT,
  RECORD_SIZE,
  ThreadMemory,
} from './thread-memory.ts'

/** How long equal messages or events in a row stay one record. */
const RUN_MS_MAX = 10

// A record; see RECORD_SIZE.
const SEQUENCE = 0
const TIME = 1
const ACTOR = 2
const KIND = 3
const DETAIL = 4
const KINDS_MAX = 256

/**
 * What is recorded, and what `detail` says then.
 *
 *   handled        an actor was given messages of `type`
 *   threadStarted  a life of the thread began; its number
 *   threadEnded    it has ended; its number. With what it had in hand then, if it had anything
 *   started        an actor runs; its restarts
 *   failed         an actor failed, with a message of `type` if there was one
 *   restarted      its restarts
 *   stopped        0 as it was told, 1 failed
 *   overflow       a full mailbox or link refused a message, or lost one; 1: the link
 *   deadLetter     its reason, a position in the list of them
 *   askTimedOut    an ask of `type`; its milliseconds. Who asked is not known
 *   linkOpened     to the thread `type`; its life
 *   linkClosed     as above
 *   longTurn       milliseconds of the round of the event loop, other callbacks included
 *   heapPressure   percent of the limit
 *   shed           messages of other threads are refused, at that percentage of the heap limit; 0: no more
 *   recycle        the thread is about to be replaced, at that percentage
 *   hung           noted by main of the thread `type`: milliseconds without a sign of life
 */
const FLIGHT_KINDS = [
  'handled',
  'threadStarted',
  'threadEnded',
  'started',
  'failed',
  'restarted',
  'stopped',
  'overflow',
  'deadLetter',
  'askTimedOut',
  'linkOpened',
  'linkClosed',
  'longTurn',
  'heapPressure',
  'shed',
  'recycle',
  'hung',
] as const
/** What can have happened on a thread; `textOfEvent` says it in words. */
export type FlightKind = (typeof FLIGHT_KINDS)[number]

/** Something that happened on a thread. */
export interface FlightEvent {
  /** Milliseconds since 1970-01-01T00:00Z. */
  readonly atMs: number
  readonly kind: FlightKind
  /** The name of the actor it concerns; undefined: none. */
  readonly actor: string | undefined
  /** The type of the message, or the name of the other thread; undefined: none. */
  readonly type: string | undefined
  /** Its meaning depends on the kind: see the text of the event. */
  readonly detail: number
  /** Times in a row. */
  readonly count: number
  /** The actor had this in hand when the thread ended, or has it now. */
  readonly isInHand: boolean
}

/** The side of the thread. */
export class FlightRecorder {
  readonly #memory: ThreadMemory
  readonly #numbers: Float64Array
  readonly #clock: Clock
  readonly #wallOffsetMs: number
  readonly #types = new Map<string, number>()
  #nowMs: number
  // The last message, and where its count is.
  #actor = -1
  #type = ''
  #typeKind = 0
  #countAt = 0
  // The last event.
  #eventKind = -1
  #eventActor = -1
  #eventType = ''
  #eventDetail = -1
  #eventCountAt = 0
  /** When the records that count what is like them are to be cut. */
  #cutMs = Number.POSITIVE_INFINITY

  constructor(memory: ThreadMemory, clock: Clock) {
    this.#memory = memory
    this.#numbers = memory.numbers
    this.#clock = clock
    this.#wallOffsetMs = clock.wallMs() - clock.nowMs()
    this.#nowMs = clock.nowMs()
    this.#countAt = ThreadMemory.messageAt(this.#numbers[NEXT_MESSAGE]! - 1) + RECORD_COUNT
    // What earlier lives wrote stays readable.
    const typeCount = this.#numbers[TYPE_COUNT]!
    for (let number = 1; number <= typeCount; number++) this.#types.set(memory.typeOf(number), number)
  }

  /** A turn begins: actors run until `endTurn`. */
  beginTurn(nowMs: number): void {
    const numbers = this.#numbers
    numbers[IS_IN_TURN] = 1
    numbers[TURNS]!++
    this.#nowMs = nowMs
    if (nowMs >= this.#cutMs) this.#cut()
  }

  /** What comes next is a record of its own. */
  #cut(): void {
    this.#cutMs = Number.POSITIVE_INFINITY
    this.#actor = -1
    this.#eventKind = -1
  }

  endTurn(): void {
    this.#numbers[IS_IN_TURN] = 0
  }

  /** An actor is about to be given messages of one type. */
  handling(actor: number, type: string): void {
    if (actor !== this.#actor || type !== this.#type) this.#otherMessage(actor, type)
  }

  /** It was given `count` of them, and is done with them but for promises. */
  handled(count: number): void {
    this.#numbers[this.#countAt]! += count
  }

  #otherMessage(actor: number, type: string): void {
    const numbers = this.#numbers
    const sequence = numbers[NEXT_MESSAGE]!
    numbers[HANDLED_BEFORE]! += numbers[this.#countAt]!
    const at = ThreadMemory.messageAt(sequence)
    this.#actor = actor
    if (type !== this.#type) {
      this.#type = type
      this.#typeKind = this.#numberOf(type) * KINDS_MAX
    }
    this.#countAt = at + RECORD_COUNT
    if (this.#cutMs === Number.POSITIVE_INFINITY) this.#cutMs = this.#nowMs + RUN_MS_MAX
    numbers[at + SEQUENCE] = -1
    numbers[at + TIME] = this.#nowMs + this.#wallOffsetMs
    numbers[at + ACTOR] = actor
    numbers[at + KIND] = this.#typeKind
    // What it comes after.
    numbers[at + DETAIL] = numbers[NEXT_EVENT]!
    numbers[at + RECORD_COUNT] = 0
    numbers[at + SEQUENCE] = sequence
    numbers[NEXT_MESSAGE] = sequence + 1
  }

  /** `actor` 0: none; `type` '': none. */
  note(kind: FlightKind, actor: number, type: string, detail = 0): void {
    const kindNumber = FLIGHT_KINDS.indexOf(kind)
    const numbers = this.#numbers
    if (
      kindNumber === this.#eventKind &&
      actor === this.#eventActor &&
      type === this.#eventType &&
      detail === this.#eventDetail
    ) {
      numbers[this.#eventCountAt]!++
      return
    }
    const sequence = numbers[NEXT_EVENT]!
    const at = ThreadMemory.eventAt(sequence)
    this.#eventKind = kindNumber
    this.#eventActor = actor
    this.#eventType = type
    this.#eventDetail = detail
    this.#eventCountAt = at + RECORD_COUNT
    if (numbers[IS_IN_TURN] === 0) this.#nowMs = this.#clock.nowMs()
    if (this.#cutMs === Number.POSITIVE_INFINITY) this.#cutMs = this.#nowMs + RUN_MS_MAX
    numbers[at + SEQUENCE] = -1
    numbers[at + TIME] = this.#nowMs + this.#wallOffsetMs
    numbers[at + ACTOR] = actor
    numbers[at + KIND] = this.#numberOf(type) * KINDS_MAX + kindNumber
    numbers[at + DETAIL] = detail
    numbers[at + RECORD_COUNT] = 1
    numbers[at + SEQUENCE] = sequence
    numbers[NEXT_EVENT] = sequence + 1
  }

  /** The life of the thread has ended; written by main, which reads what it had in hand. */
  noteEnd(life: number): void {
    const numbers = this.#numbers
    const next = numbers[NEXT_MESSAGE]!
    const at = ThreadMemory.messageAt(next - 1)
    const hadMessage = numbers[IS_IN_TURN] === 1 && next > 0
    numbers[IS_IN_TURN] = 0
    if (!hadMessage) this.note('threadEnded', 0, '', life)
    else {
      const type = Math.floor(numbers[at + KIND]! / KINDS_MAX)
      this.note('threadEnded', numbers[at + ACTOR]!, this.#memory.typeOf(type), life)
    }
  }

  /** Keeps the name of an actor of this thread, for those who read. */
  name(actor: number, name: string): void {
    this.#memory.setName(actor, name)
  }

  #numberOf(type: string): number {
    const known = this.#types.get(type)
    if (known !== undefined) return known
    if (type === '') return OTHER_TYPE
    return this.#newType(type)
  }

  #newType(type: string): number {
    const cut = ThreadMemory.cut(type)
    if (cut !== type) return this.#numberOf(cut)
    const number = this.#numbers[TYPE_COUNT]! + 1
    if (!ThreadMemory.hasRoomFor(number)) return OTHER_TYPE
    this.#memory.setType(number, type)
    this.#types.set(type, number)
    this.#numbers[TYPE_COUNT] = number
    return number
  }
}

/** The last `limit` events and messages of a thread, the oldest first. */
export function readFlight(memory: ThreadMemory, limit: number): FlightEvent[] {
  const { numbers } = memory
  const { isInTurn } = readLife(memory)
  const messages = readRing(memory, numbers[NEXT_MESSAGE]!, MESSAGES_MAX, limit, ThreadMemory.messageAt)
  const last = messages.at(-1)
  if (isInTurn && last !== undefined) last.event = { ...last.event, isInHand: true }
  const events = readRing(memory, numbers[NEXT_EVENT]!, EVENTS_MAX, limit, ThreadMemory.eventAt)
  const merged: FlightEvent[] = []
  let at = 0
  for (const { event, detail } of messages) {
    for (; at < events.length && events[at]!.sequence < detail; at++) merged.push(events[at]!.event)
    merged.push(event)
  }
  for (; at < events.length; at++) merged.push(events[at]!.event)
  return limit === 0 ? [] : merged.slice(-limit)
}

interface FlightRecord {
  readonly sequence: number
  readonly detail: number
  event: FlightEvent
}

function readRing(
  memory: ThreadMemory,
  next: number,
  recordsMax: number,
  limit: number,
  positionOf: (sequence: number) => number,
): FlightRecord[] {
  const found: FlightRecord[] = []
  for (let sequence = Math.max(0, next - Math.min(recordsMax, limit)); sequence < next; sequence++) {
    const at = positionOf(sequence)
    const record = memory.numbers.slice(at, at + RECORD_SIZE)
    // The thread may run, and have come round to this record.
    if (record[SEQUENCE] !== sequence || memory.numbers[at + SEQUENCE] !== sequence) continue
    const actor = record[ACTOR]!
    const kind = FLIGHT_KINDS[record[KIND]! % KINDS_MAX]!
    const type = Math.floor(record[KIND]! / KINDS_MAX)
    const detail = record[DETAIL]!
    const event = {
      atMs: record[TIME]!,
      kind,
      actor: actor === 0 ? undefined : memory.nameOf(actor),
      type: type === OTHER_TYPE && kind !== 'handled' ? undefined : memory.typeOf(type),
      detail: kind === 'handled' ? 0 : detail,
      count: record[RECORD_COUNT]!,
      isInHand: false,
    }
    found.push({ sequence, detail, event })
  }
  return found
}

/** What an event says, in words; without its time. */
export function textOfEvent(event: FlightEvent): string {
  const times = event.count > 1 ? ` ×${event.count}` : ''
  const who = event.actor === undefined ? '' : `${event.actor} `
  if (event.kind === 'threadEnded') return endOf(event)
  return `${who}${wordsOf(event)}${times}${event.isInHand ? ' (in hand)' : ''}`
}

function endOf({ actor, type, detail }: FlightEvent): string {
  const inHand = actor === undefined ? 'with nothing in hand' : `while ${actor} had '${type}' in hand`
  return `thread ended, life ${detail}, ${inHand}`
}

function wordsOf({ kind, type, detail }: FlightEvent): string {
  switch (kind) {
    case 'handled':
      return `handled '${type}'`
    case 'threadEnded':
      return `thread ended, life ${detail}`
    case 'threadStarted':
      return `thread started, life ${detail}`
    case 'started':
      return detail === 0 ? 'started' : `started, restart ${detail}`
    case 'failed':
      return type === undefined ? 'failed' : `failed at '${type}'`
    case 'restarted':
      return `restarts, ${detail} so far`
    case 'stopped':
      return detail === 1 ? 'ended: failed' : 'ended'
    case 'overflow':
      return detail === 1 ? `link to ${type} full` : `mailbox full at '${type}'`
    case 'deadLetter':
      return `dead letter '${type}': ${DEAD_LETTER_REASONS[detail] ?? 'lost'}`
    case 'askTimedOut':
      return `ask '${type}' timed out after ${detail} ms`
    case 'linkOpened':
      return `link to ${type} opened, life ${detail}`
    case 'linkClosed':
      return `link to ${type} closed, life ${detail}`
    case 'longTurn':
      return `a round of the event loop with turns of actors took ${detail} ms`
    case 'heapPressure':
      return `heap at ${detail} % of its limit`
    case 'shed':
      return detail === 0 ? 'heap pressure is over' : `messages are shed: heap at ${detail} % of its limit`
    case 'recycle':
      return `thread is recycled: heap at ${detail} % of its limit`
    case 'hung':
      return `thread ${type} hangs: no sign of life for ${detail} ms`
  }
}

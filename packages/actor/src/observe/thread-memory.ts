/**
 * ThreadMemory: what a thread writes about itself, in shared memory that outlives it. Main makes one for each
 * thread and hands it to every life. Any thread may read it at any time, also while its thread is stuck or
 * dead.
 *
 *   figures    counters, gauges, high waters and a histogram            counts.ts
 *   messages   ring of the messages that actors were given              flight.ts
 *   events     ring of everything else that happened                    flight.ts
 *   types      the texts of message types, by number; never forgotten
 *   names      the names of actors, and the lives that had them last, in a slot by id; a later actor takes
 *              the slot of an earlier one
 *   endings    ring of the ids of actors that ended by themselves, negative for those that failed
 *
 * Protocol   The thread is the only writer; it uses plain stores of 64-bit numbers, each of which is one
 *            instruction on the machines that Node runs on. A reader sees every number whole, some a moment
 *            later than others; a record of a ring may be half written, which its sequence number shows,
 *            except for a race that costs a wrong line. Once the thread has ended, all of it is exact.
 * Cost       257 KiB for each thread.
 */

/** Records of each ring; powers of two. */
export const MESSAGES_MAX = 2048
export const EVENTS_MAX = 1024

/** Numbers of a record: sequence, time, actor, kind and type, detail, count. */
export const RECORD_SIZE = 6
/** Position of the count in a record. */
export const RECORD_COUNT = 5
const FIGURES_MAX = 128
/** The last of the figures. */
const BEATS = FIGURES_MAX - 1
const ENDING_COUNT = FIGURES_MAX - 2
/** Endings that are kept; a power of two. */
const ENDINGS_MAX = 2048
/** Message types and other words; the first is for those that found no room. */
const TYPES_MAX = 512
const TYPE_CHARACTERS = 31
const NAMES_MAX = 512
const NAME_CHARACTERS = 55

const MESSAGES_AT = FIGURES_MAX
const EVENTS_AT = MESSAGES_AT + MESSAGES_MAX * RECORD_SIZE
const NAMES_AT = EVENTS_AT + EVENTS_MAX * RECORD_SIZE
// A name: the id of its actor, its length, its characters, the life that had it last; 128 bytes.
const NAME_NUMBERS = 16
const NAME_LIFE = NAME_NUMBERS - 1
const TYPES_AT = NAMES_AT + NAMES_MAX * NAME_NUMBERS
// A type: its length, its characters; 64 bytes.
const TYPE_NUMBERS = 8
const ENDINGS_AT = TYPES_AT + TYPES_MAX * TYPE_NUMBERS
const NUMBERS = ENDINGS_AT + ENDINGS_MAX
const CHARACTERS_PER_NUMBER = 4

/** The number of the text that stands for all that found no room. */
export const OTHER_TYPE = 0

export class ThreadMemory {
  readonly buffer: SharedArrayBuffer
  readonly numbers: Float64Array
  readonly #characters: Uint16Array
  /** Of the thread that writes. */
  #life = 0

  /** Without a buffer: a new one. */
  constructor(buffer: SharedArrayBuffer = new SharedArrayBuffer(NUMBERS * Float64Array.BYTES_PER_ELEMENT)) {
    this.buffer = buffer
    this.numbers = new Float64Array(buffer)
    this.#characters = new Uint16Array(buffer)
  }

  /** A life of the thread begins to write. */
  begin(uid: number): void {
    this.#life = uid
  }

  /** Signs of life: its event loop has gone round this often, as far as a timer saw. */
  get beats(): number {
    return this.numbers[BEATS]!
  }

  beat(): void {
    this.numbers[BEATS]!++
  }

  /** An actor has ended, and not with its thread. */
  noteEnding(id: number, hasFailed: boolean): void {
    const { numbers } = this
    const count = numbers[ENDING_COUNT]!
    numbers[ENDINGS_AT + (count & (ENDINGS_MAX - 1))] = hasFailed ? -id : id
    numbers[ENDING_COUNT] = count + 1
  }

  /** How an actor ended in any life of the thread; undefined: with its thread, or too long ago. */
  endingOf(id: number): 'stopped' | 'failed' | undefined {
    const { numbers } = this
    const count = numbers[ENDING_COUNT]!
    for (let i = count - 1; i >= 0 && i >= count - ENDINGS_MAX; i--) {
      const ending = numbers[ENDINGS_AT + (i & (ENDINGS_MAX - 1))]!
      if (Math.abs(ending) === id) return ending < 0 ? 'failed' : 'stopped'
    }
    return undefined
  }

  /** Index in `numbers` of the record with a sequence number. */
  static messageAt(sequence: number): number {
    return MESSAGES_AT + (sequence & (MESSAGES_MAX - 1)) * RECORD_SIZE
  }

  static eventAt(sequence: number): number {
    return EVENTS_AT + (sequence & (EVENTS_MAX - 1)) * RECORD_SIZE
  }

  /** Keeps the name of an actor that is here now, as much of it as there is room for. */
  setName(id: number, name: string): void {
    const at = NAMES_AT + (id & (NAMES_MAX - 1)) * NAME_NUMBERS
    this.numbers[at] = id
    this.numbers[at + NAME_LIFE] = this.#life
    this.#write(at + 1, name, NAME_CHARACTERS)
  }

  /** The name of an actor; `#id` when another has taken its slot since. */
  nameOf(id: number): string {
    const at = NAMES_AT + (id & (NAMES_MAX - 1)) * NAME_NUMBERS
    return this.numbers[at] === id ? this.#read(at + 1, NAME_CHARACTERS) : `#${id}`
  }

  /** The last life of the thread that had the actor; undefined when another has taken its slot since. */
  lifeOf(id: number): number | undefined {
    const at = NAMES_AT + (id & (NAMES_MAX - 1)) * NAME_NUMBERS
    return this.numbers[at] === id ? this.numbers[at + NAME_LIFE] : undefined
  }

  setType(number: number, type: string): void {
    this.#write(TYPES_AT + number * TYPE_NUMBERS, type, TYPE_CHARACTERS)
  }

  typeOf(number: number): string {
    if (number === OTHER_TYPE || !(number < TYPES_MAX)) return '(other)'
    return this.#read(TYPES_AT + number * TYPE_NUMBERS, TYPE_CHARACTERS)
  }

  /** True while there is a number for one more type. */
  static hasRoomFor(number: number): boolean {
    return number < TYPES_MAX
  }

  /** Types that are told apart by fewer characters than a text has here are the same. */
  static cut(type: string): string {
    return type.length > TYPE_CHARACTERS ? type.slice(0, TYPE_CHARACTERS) : type
  }

  #write(at: number, text: string, charactersMax: number): void {
    const from = at * CHARACTERS_PER_NUMBER
    const length = Math.min(text.length, charactersMax)
    const characters = this.#characters
    for (let i = 0; i < length; i++) characters[from + 1 + i] = text.charCodeAt(i)
    characters[from] = length
  }

  #read(at: number, charactersMax: number): string {
    const from = at * CHARACTERS_PER_NUMBER
    const length = Math.min(this.#characters[from]!, charactersMax)
    return String.fromCharCode(...this.#characters.subarray(from + 1, from + 1 + length))
  }
}

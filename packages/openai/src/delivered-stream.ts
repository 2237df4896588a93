/**
 * Delivered stream: what a client has of a streamed completion, so that another engine can go on with it.
 *
 *   data: {"id":"c","choices":[{"index":0,"delta":{"content":" two"},"finish_reason":null}]}
 *         └───────────── prefix ────────────────────────────┘    └──────── suffix ───────┘
 *
 * The events of a stream differ in their text alone, so an event that begins and ends as the last one that
 * was parsed is only compared, and its text is kept as it is written. All others are parsed.
 *
 * Invariants
 *   I1  `text` is that of all content events that passed, in order; or `unfit` says why it is not known.
 *   I2  The memory is that of the text, doubled at most, and one event.
 *   I3  Whether its end has passed is known in any case, so that a stream that is cut is not taken for whole.
 */

import { isDeepStrictEqual } from 'node:util'
import { parseJson } from '@homing/base'

/** The form of the stream: `choices[0].delta.content`, or `choices[0].text`. */
export type DeliveredForm = 'chat' | 'completions'

/** Why no engine could go on with what was delivered. */
export type UnfitStream = 'choices' | 'logprobs' | 'other_content' | 'form' | 'memory'

/** A chunk of a stream, as far as this project reads it. */
export interface StreamChunk extends Readonly<Record<string, unknown>> {
  readonly choices: readonly StreamChoice[]
  readonly usage?: unknown
}

export interface StreamChoice extends Readonly<Record<string, unknown>> {
  readonly index?: unknown
  readonly text?: unknown
  readonly delta?: unknown
  readonly finish_reason?: unknown
}

export interface Delivered {
  readonly text: string
  /** The last chunk with a choice that passed; undefined: none. */
  readonly sample: StreamChunk | undefined
  /** The chunk with a finish reason has passed. */
  readonly isFinished: boolean
  /** An event with the usage of the whole has passed. */
  readonly hasUsage: boolean
}

/** Memory for what was delivered; false: there is no room. A negative number gives bytes back. */
export type TakeMemory = (bytes: number) => boolean

const LINE_FEED = 0x0a
const CARRIAGE_RETURN = 0x0d
const QUOTE = 0x22
const BACKSLASH = 0x5c
const TEXT_BYTES_FIRST = 256
/** Of one stream. */
const STREAM_TEXT_BYTES_MAX = 4_194_304
/** Some engines write another time into the events of each second: what they have in common is found anew. */
const LEARN_EVERY = 16
/** A choice other than the first, or a finish reason that is not null. A text has its quotes escaped. */
const NOTABLE = /"index"\s*:\s*[1-9]|"finish_reason"\s*:\s*[^\sn]/

export class DeliveredStream {
  readonly #form: DeliveredForm
  readonly #take: TakeMemory
  /** The text as JSON writes it between quotes. */
  #text = Buffer.alloc(0)
  #textBytes = 0
  #prefix = Buffer.alloc(0)
  #suffix = Buffer.alloc(0)
  /** Events that were parsed since the last attempt to find what they have in common. */
  #parsed = 0
  #sample: StreamChunk | undefined
  #isFinished = false
  #hasUsage = false
  /** That have begun, by the largest index, and that have ended; counted whatever else is known. */
  #choices = 0
  #choicesEnded = 0
  #unfit: UnfitStream | undefined

  constructor(form: DeliveredForm, take: TakeMemory) {
    this.#form = form
    this.#take = take
  }

  /** Undefined: it is known what was delivered. */
  get unfit(): UnfitStream | undefined {
    return this.#unfit
  }

  /** The chunk with a finish reason has passed. */
  get isFinished(): boolean {
    return this.#isFinished
  }

  /** A chunk with a finish reason is missing; also known where `unfit` says that the text is not. */
  get isUnfinished(): boolean {
    return this.#unfit === undefined ? !this.#isFinished : this.#choicesEnded < this.#choices
  }

  /** Takes in whole events, which are only read. */
  push(bytes: Uint8Array): void {
    let at = 0
    while (at < bytes.length && this.#unfit === undefined) {
      const behind = this.#likeTheLast(bytes, at)
      if (behind > at) {
        at = behind
        continue
      }
      const end = eventEnd(bytes, at)
      this.#event(bytes.subarray(at, end))
      at = end
    }
    if (at < bytes.length) this.#lookForEnds(bytes.subarray(at))
  }

  /** Throws SyntaxError where the texts of the events are none together. */
  read(): Delivered {
    return {
      text: parseJson(`"${this.#text.toString('utf8', 0, this.#textBytes)}"`) as string,
      sample: this.#sample,
      isFinished: this.#isFinished,
      hasUsage: this.#hasUsage,
    }
  }

  /** Gives its memory back. */
  close(): void {
    this.#giveUp('form')
  }

  /** It cannot be continued, so that its text is not needed any more. */
  #giveUp(why: UnfitStream): void {
    this.#unfit ??= why
    this.#take(-this.#text.length)
    this.#text = Buffer.alloc(0)
    this.#textBytes = 0
  }

  /** The end of an event that differs in its text alone from the last one; `at`: it does not. */
  #likeTheLast(bytes: Uint8Array, at: number): number {
    const [prefix, suffix] = [this.#prefix, this.#suffix]
    if (prefix.length === 0 || !isAt(bytes, at, prefix)) return at
    const from = at + prefix.length
    const to = textEnd(bytes, from)
    if (!isAt(bytes, to, suffix)) return at
    this.#keep(bytes, from, to)
    return to + suffix.length
  }

  #keep(bytes: Uint8Array, from: number, to: number): void {
    const needed = this.#textBytes + to - from
    if (needed > this.#text.length) {
      const length = Math.max(TEXT_BYTES_FIRST, 2 ** Math.ceil(Math.log2(needed)))
      if (length > STREAM_TEXT_BYTES_MAX || !this.#take(length - this.#text.length)) {
        this.#giveUp('memory')
        return
      }
      const grown = Buffer.alloc(length)
      grown.set(this.#text)
      this.#text = grown
    }
    // Few bytes: a loop costs less than a view.
    for (let i = from, j = this.#textBytes; i < to; i++, j++) this.#text[j] = bytes[i]!
    this.#textBytes = needed
  }

  #event(event: Uint8Array): void {
    const payload = payloadOf(event)
    // A comment, or the end.
    if (payload === undefined || payload === '[DONE]') return
    const chunk = tryChunk(payload)
    if (chunk === undefined) this.#giveUp('form')
    else this.#chunk(chunk, event)
  }

  /** Of events whose text is not kept. Those that tell nothing of an end are not parsed. */
  #lookForEnds(bytes: Uint8Array): void {
    if (this.#choices === 1 && !NOTABLE.test(latin1Of(bytes))) return
    for (const event of eventsOf(bytes)) {
      const payload = payloadOf(event)
      const chunk = payload === undefined ? undefined : tryChunk(payload)
      if (chunk !== undefined) this.#count(chunk)
    }
  }

  #count({ choices }: StreamChunk): void {
    for (const { index, finish_reason: reason } of choices) {
      this.#choices = Math.max(this.#choices, typeof index === 'number' ? index + 1 : 1)
      if (reason != null) this.#choicesEnded++
    }
  }

  #chunk(chunk: StreamChunk, event: Uint8Array): void {
    this.#count(chunk)
    const [choice, another] = chunk.choices
    if (choice === undefined) {
      if (chunk.usage != null) this.#hasUsage = true
      return
    }
    if (another !== undefined || (choice.index ?? 0) !== 0) {
      this.#giveUp('choices')
      return
    }
    if (choice['logprobs'] != null) this.#giveUp('logprobs')
    const text = this.#textOf(choice)
    if (this.#unfit !== undefined) return
    this.#sample = chunk
    if (choice.finish_reason != null) {
      this.#isFinished = true
      if (chunk.usage != null) this.#hasUsage = true
    }
    if (text === '') return
    const written = Buffer.from(JSON.stringify(text))
    this.#keep(written, 1, written.length - 1)
    if (choice.finish_reason == null) this.#learn(chunk, event)
  }

  #textOf(choice: StreamChoice): string {
    if (this.#form === 'completions') {
      if (typeof choice.text === 'string') return choice.text
      this.#giveUp('form')
      return ''
    }
    const { delta } = choice
    if (typeof delta !== 'object' || delta === null) {
      this.#giveUp('form')
      return ''
    }
    const { role: _, content, ...others } = delta as Readonly<Record<string, unknown>>
    const isOther = Object.values(others).some(value => value != null && !isEmpty(value))
    if (isOther || (content != null && typeof content !== 'string')) this.#giveUp('other_content')
    return typeof content === 'string' ? content : ''
  }

  /** What events like this one have around their text. */
  #learn(chunk: StreamChunk, event: Uint8Array): void {
    if (this.#prefix.length > 0 && ++this.#parsed < LEARN_EVERY) return
    this.#parsed = 0
    const bytes = Buffer.from(event.buffer, event.byteOffset, event.length)
    const name = Buffer.from(this.#form === 'chat' ? '"content":' : '"text":')
    const nameAt = bytes.indexOf(name)
    const quoteAt = bytes.indexOf(QUOTE, nameAt + name.length)
    if (nameAt < 0 || quoteAt < 0) return
    const prefix = Buffer.from(bytes.subarray(0, quoteAt + 1))
    const suffix = Buffer.from(bytes.subarray(textEnd(bytes, quoteAt + 1)))
    // With another text between them they must be the same chunk with that text.
    const payload = payloadOf(Buffer.concat([prefix, Buffer.from(OTHER_TEXT), suffix]))
    const other = payload === undefined ? undefined : tryChunk(payload)
    if (!isDeepStrictEqual(other, withText(chunk, this.#form, OTHER_TEXT))) return
    this.#prefix = prefix
    this.#suffix = suffix
  }
}

const OTHER_TEXT = 'another text than any before'

/** The chunk with this text in its choice. */
export function withText(chunk: StreamChunk, form: DeliveredForm, text: string): StreamChunk {
  const [choice] = chunk.choices
  const said = form === 'chat' ? { delta: { ...(choice?.delta as object), content: text } } : { text }
  return { ...chunk, choices: [{ ...choice, ...said }] }
}

/** Each event of `bytes`, with the empty line that ends it. */
export function* eventsOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; ) {
    const end = eventEnd(bytes, at)
    yield bytes.subarray(at, end)
    at = end
  }
}

/** The data of an event; undefined: it has none. */
export function payloadOf(event: Uint8Array): string | undefined {
  const lines = Buffer.from(event.buffer, event.byteOffset, event.length)
    .toString()
    .split(/\r\n|\r|\n/)
    .filter(line => line.startsWith('data:'))
  return lines.length === 0
    ? undefined
    : lines
        .map(line => line.slice('data:'.length))
        .join('\n')
        .trim()
}

/** Undefined: it is no chunk of a completion. */
export function tryChunk(payload: string): StreamChunk | undefined {
  try {
    const value: unknown = parseJson(payload)
    const isChunk =
      typeof value === 'object' &&
      value !== null &&
      'choices' in value &&
      Array.isArray(value.choices) &&
      value.choices.every(choice => typeof choice === 'object' && choice !== null)
    return isChunk ? (value as unknown as StreamChunk) : undefined
  } catch {
    return undefined
  }
}

/** Behind the empty line that ends the event at `at`. */
function eventEnd(bytes: Uint8Array, at: number): number {
  let isEmptyLine = false
  for (let i = at; i < bytes.length; i++) {
    const byte = bytes[i]
    if (byte !== LINE_FEED && byte !== CARRIAGE_RETURN) {
      isEmptyLine = false
      continue
    }
    if (byte === CARRIAGE_RETURN && bytes[i + 1] === LINE_FEED) i++
    if (isEmptyLine) return i + 1
    isEmptyLine = true
  }
  return bytes.length
}

/** Where the string ends whose first character is at `from`. */
function textEnd(bytes: Uint8Array, from: number): number {
  let at = from
  while (at < bytes.length && bytes[at] !== QUOTE) at += bytes[at] === BACKSLASH ? 2 : 1
  return at
}

function latin1Of(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1')
}

function isAt(bytes: Uint8Array, at: number, expected: Uint8Array): boolean {
  if (at + expected.length > bytes.length) return false
  for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false
  return true
}

function isEmpty(value: unknown): boolean {
  return value === '' || (Array.isArray(value) && value.length === 0)
}

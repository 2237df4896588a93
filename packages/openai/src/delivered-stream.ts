/**
 * Delivered stream: what a client has of a streamed completion, so that another engine can go on with it.
 *
 *   data: {"id":"c","choices":[{"index":0,"delta":{"content":" two"},"finish_reason":null}]}
 *         └───────────── prefix ────────────────────────────┘    └──────── suffix ───────┘
 *
 * The events of a stream differ in their text alone, so an event that begins and ends as the last one that
 * was parsed is only compared, and its text is kept as it is written. All others are parsed. Of a stream that
 * has the ids of its tokens, those are kept, and not the text: a part of it may still be the engine's, which
 * waits for the end of a character.
 *
 * Invariants
 *   I1  `text` is that of all content events that passed, in order, or `ids` are those of all their tokens;
 *       or `unfit` says why neither is known.
 *   I2  The memory is that of the text or of the ids, doubled at most, and one event.
 */

import { isDeepStrictEqual } from 'node:util'
import { parseJson } from '@homing/base'

/** The form of the stream: `choices[0].delta.content`, or `choices[0].text`. */
export type DeliveredForm = 'chat' | 'completions'

/** Why no engine could go on with what was delivered. */
export type UnfitStream = 'choices' | 'logprobs' | 'other_content' | 'ids' | 'form' | 'memory'

/** A chunk of a stream, as far as this project reads it. */
export interface StreamChunk extends Readonly<Record<string, unknown>> {
  readonly choices: readonly StreamChoice[]
  readonly usage?: unknown
}

export interface StreamChoice extends Readonly<Record<string, unknown>> {
  readonly index?: unknown
  readonly text?: unknown
  readonly delta?: unknown
  readonly token_ids?: unknown
  readonly finish_reason?: unknown
}

export interface Delivered {
  /** Empty where `ids` are known. */
  readonly text: string
  /** Of all tokens that passed, those without a text included; undefined: the stream has none. */
  readonly ids: Int32Array | undefined
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
const TOKEN_ID_MAX = 0xffff_ffff
const KEPT_BYTES_FIRST = 256
/** Of one stream. */
const STREAM_BYTES_MAX = 4_194_304
/** Some engines write another time into the events of each second: what they have in common is found anew. */
const LEARN_EVERY = 16

export class DeliveredStream {
  readonly #form: DeliveredForm
  readonly #take: TakeMemory
  /** The text as JSON writes it between quotes; of a stream with token ids these, 4 bytes each. */
  #kept = Buffer.alloc(0)
  #keptBytes = 0
  #prefix = Buffer.alloc(0)
  #suffix = Buffer.alloc(0)
  /** Events that were parsed since the last attempt to find what they have in common. */
  #parsed = 0
  #sample: StreamChunk | undefined
  #hasIds = false
  #isFinished = false
  #hasUsage = false
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

  /** Takes in whole events, which are only read. */
  push(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length && this.#unfit === undefined; ) {
      const behind = this.#likeTheLast(bytes, at)
      if (behind > at) {
        at = behind
        continue
      }
      const end = eventEnd(bytes, at)
      this.#event(bytes.subarray(at, end))
      at = end
    }
  }

  /** Throws SyntaxError where the texts of the events are none together. */
  read(): Delivered {
    const kept = this.#kept.subarray(0, this.#keptBytes)
    return {
      text: this.#hasIds ? '' : (parseJson(`"${kept.toString()}"`) as string),
      ids: this.#hasIds ? new Int32Array(new Uint8Array(kept).buffer) : undefined,
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
    this.#take(-this.#kept.length)
    this.#kept = Buffer.alloc(0)
    this.#keptBytes = 0
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
    const needed = this.#keptBytes + to - from
    if (needed > this.#kept.length) {
      const length = Math.max(KEPT_BYTES_FIRST, 2 ** Math.ceil(Math.log2(needed)))
      if (length > STREAM_BYTES_MAX || !this.#take(length - this.#kept.length)) {
        this.#giveUp('memory')
        return
      }
      const grown = Buffer.alloc(length)
      grown.set(this.#kept)
      this.#kept = grown
    }
    // Few bytes: a loop costs less than a view.
    for (let i = from, j = this.#keptBytes; i < to; i++, j++) this.#kept[j] = bytes[i]!
    this.#keptBytes = needed
  }

  #event(event: Uint8Array): void {
    const payload = payloadOf(event)
    // A comment, or the end.
    if (payload === undefined || payload === '[DONE]') return
    const chunk = tryChunk(payload)
    if (chunk === undefined) this.#giveUp('form')
    else this.#chunk(chunk, event)
  }

  #chunk(chunk: StreamChunk, event: Uint8Array): void {
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
    const { token_ids: ids } = choice
    if (Array.isArray(ids) && ids.length > 0) this.#keepIds(ids)
    else if (text === '') return
    else if (this.#hasIds) {
      // Text of ids that came before has an empty list.
      if (!Array.isArray(ids)) this.#giveUp('ids')
    } else this.#keepText(text, chunk, event)
  }

  #keepIds(ids: readonly unknown[]): void {
    const hasTextAlone = !this.#hasIds && this.#keptBytes > 0
    if (hasTextAlone || !ids.every(isTokenId)) {
      this.#giveUp('ids')
      return
    }
    this.#hasIds = true
    const bytes = new Uint8Array(Int32Array.from(ids).buffer)
    this.#keep(bytes, 0, bytes.length)
  }

  #keepText(text: string, chunk: StreamChunk, event: Uint8Array): void {
    const written = Buffer.from(JSON.stringify(text))
    this.#keep(written, 1, written.length - 1)
    if (chunk.choices[0]?.finish_reason == null) this.#learn(chunk, event)
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
  const text = Buffer.from(event.buffer, event.byteOffset, event.length).toString()
  // Nearly every event is one line.
  if (text.startsWith('data:') && text.indexOf('\n') === text.length - 2 && !text.includes('\r'))
    return text.slice('data:'.length).trim()
  const lines = text.split(/\r\n|\r|\n/).filter(line => line.startsWith('data:'))
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

function isAt(bytes: Uint8Array, at: number, expected: Uint8Array): boolean {
  if (at + expected.length > bytes.length) return false
  for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false
  return true
}

function isTokenId(id: unknown): id is number {
  return Number.isInteger(id) && (id as number) >= 0 && (id as number) <= TOKEN_ID_MAX
}

function isEmpty(value: unknown): boolean {
  return value === '' || (Array.isArray(value) && value.length === 0)
}

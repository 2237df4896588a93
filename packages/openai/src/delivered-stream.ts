/**
 * Delivered stream: what a client has of a streamed completion, so that another engine can go on with it.
 *
 *   event ─▶ like the one before (event-template.ts)   its text is kept as it is written; it is not even
 *                                                      looked at where the tap has found the same (`alike`)
 *         ─▶ the first, or it has been long since      where its text is looked for, and there is one: it is
 *                                                      kept, and the event waits to be parsed
 *         ─▶ another                                   it waits
 *
 * Most streams end well, so nothing is parsed before the exchange asks, or too much waits: PENDING_BYTES_MAX.
 * Of a stream that has the ids of its tokens, those are kept, and not the text: a part of it may still be the
 * engine's, which waits for the end of a character.
 *
 * Invariants
 *   I1  `text` is that of all content events that passed, in order, or `ids` are those of all their tokens;
 *       or `unfit` says why neither is known.
 *   I2  The memory is that of the text or of the ids, doubled at most, PENDING_BYTES_MAX, and one event.
 *   I3  Whether its end has passed is known in any case, so that a stream that is cut is not taken for whole.
 */

import { parseJson } from '@homing/base'
import { type AlikeEvents, EventTemplate, textAt, textEnd } from './event-template.ts'

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
const TOKEN_ID_MAX = 0xffff_ffff
const KEPT_BYTES_FIRST = 256
/** Of one stream. */
const STREAM_BYTES_MAX = 4_194_304
/** Events that wait to be parsed; a longer one is parsed at once. */
const PENDING_BYTES_MAX = 4096
const TEXT_PATHS: Readonly<Record<DeliveredForm, readonly Buffer[]>> = {
  chat: ['"choices"', '"delta"', '"content"'].map(name => Buffer.from(name)),
  completions: ['"choices"', '"text"'].map(name => Buffer.from(name)),
}
/** A choice other than the first, or a finish reason that is not null. A text has its quotes escaped. */
const NOTABLE = /"index"\s*:\s*[1-9]|"finish_reason"\s*:\s*[^\sn]/

export class DeliveredStream {
  readonly #form: DeliveredForm
  readonly #take: TakeMemory
  /** The text as JSON writes it between quotes; of a stream with token ids these, 4 bytes each. */
  #kept = Buffer.alloc(0)
  #keptBytes = 0
  readonly #template = new EventTemplate()
  /**
   * Others are left for the parser, without a look: behind events like the learnt one comes the end, mostly,
   * and the exchange does not ask of a stream that ends well. Until there are too many, which may be alike
   * themselves.
   */
  #hasLearnt = false
  /** Another template, and whether ours is like it, both as they were when that was looked at. */
  #other: EventTemplate | undefined
  #otherVersion = -1
  #version = -1
  #isOther = false
  /** Events that wait to be parsed. */
  #pending: { readonly event: Uint8Array; readonly hasKeptText: boolean }[] = []
  #pendingBytes = 0
  /** One of them may have a text that is not kept, and that comes before those that pass now. */
  #isTextPending = false
  #sample: StreamChunk | undefined
  #hasIds = false
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
    this.#parsePending()
    return this.#unfit
  }

  /** The chunk with a finish reason has passed. */
  get isFinished(): boolean {
    this.#parsePending()
    return this.#isFinished
  }

  /** A chunk with a finish reason is missing; also known where `unfit` says that the text is not. */
  get isUnfinished(): boolean {
    this.#parsePending()
    return this.#unfit === undefined ? !this.#isFinished : this.#choicesEnded < this.#choices
  }

  /** Takes in whole events, which are only read. `alike`: what is known of them. */
  push(bytes: Uint8Array, alike?: AlikeEvents): void {
    if (alike !== undefined && this.#isLike(alike.template)) {
      this.#keepAlike(bytes, alike.texts)
      return
    }
    let at = 0
    while (at < bytes.length && this.#unfit === undefined) {
      const behind = this.#template.endOf(bytes, at)
      if (behind > at) {
        if (this.#isTextPending) this.#parsePending()
        if (this.#unfit === undefined) this.#keep(bytes, this.#template.textFrom, this.#template.textTo)
        at = behind
        continue
      }
      const end = eventEnd(bytes, at)
      this.#event(bytes, at, end)
      at = end
    }
    if (at < bytes.length) this.#lookForEnds(bytes.subarray(at))
  }

  /** Throws SyntaxError where the texts of the events are none together. */
  read(): Delivered {
    this.#parsePending()
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
    this.#unfit ??= 'form'
    this.#forget()
  }

  /** It cannot be continued, so that its text is not needed any more. */
  #giveUp(why: UnfitStream): void {
    this.#unfit ??= why
    const pending = this.#pending
    this.#forget()
    for (const { event } of pending) this.#lookForEnds(event)
  }

  #forget(): void {
    this.#take(-this.#kept.length)
    this.#kept = Buffer.alloc(0)
    this.#keptBytes = 0
    this.#pending = []
    this.#pendingBytes = 0
  }

  #isLike(template: EventTemplate): boolean {
    const { version } = this.#template
    if (template !== this.#other || template.version !== this.#otherVersion || version !== this.#version) {
      this.#other = template
      this.#otherVersion = template.version
      this.#version = version
      this.#isOther = this.#template.isLike(template)
    }
    return this.#isOther
  }

  /** Texts of events like the learnt one, which have nothing else to tell. */
  #keepAlike(bytes: Uint8Array, texts: readonly number[]): void {
    if (this.#isTextPending) this.#parsePending()
    for (let i = 0; i < texts.length && this.#unfit === undefined; i += 2)
      this.#keep(bytes, texts[i]!, texts[i + 1]!)
  }

  /** An event that is not like the learnt one. */
  #event(bytes: Uint8Array, from: number, to: number): void {
    const isLeft = this.#hasLearnt || hasTokenIds(bytes, from, to)
    const text = isLeft ? -1 : textAt(bytes, from, to, TEXT_PATHS[this.#form])
    if (text >= 0 && this.#isTextPending) this.#parsePending()
    // Not `slice`: a slice of a Buffer shares its memory.
    const event = new Uint8Array(bytes.subarray(from, to))
    if (this.#unfit !== undefined) {
      this.#lookForEnds(event)
      return
    }
    const hasKeptText = text >= 0 && !this.#hasIds
    this.#pending.push({ event, hasKeptText })
    this.#pendingBytes += to - from
    if (!hasKeptText) this.#isTextPending = true
    else {
      this.#keep(bytes, text, textEnd(bytes, text))
      if (!NOTABLE.test(latin1Of(event))) this.#hasLearnt = this.#template.learn(bytes, from, text, to)
    }
    if (this.#pendingBytes <= PENDING_BYTES_MAX) return
    this.#parsePending()
    this.#hasLearnt = false
  }

  #parsePending(): void {
    if (this.#pending.length === 0) return
    const pending = this.#pending
    this.#pending = []
    this.#pendingBytes = 0
    this.#isTextPending = false
    for (const { event, hasKeptText } of pending)
      if (this.#unfit === undefined) this.#parse(event, hasKeptText)
      else this.#lookForEnds(event)
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

  #parse(event: Uint8Array, hasKeptText: boolean): void {
    const payload = payloadOf(event)
    // A comment, or the end.
    if (payload === undefined || payload === '[DONE]') return
    const chunk = tryChunk(payload)
    if (chunk === undefined) this.#giveUp('form')
    else this.#chunk(chunk, hasKeptText)
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

  #chunk(chunk: StreamChunk, hasKeptText: boolean): void {
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
    if (hasKeptText) return
    const { token_ids: ids } = choice
    if (Array.isArray(ids) && ids.length > 0) this.#keepIds(ids)
    else if (text === '') return
    else if (this.#hasIds) {
      // Text of ids that came before has an empty list.
      if (!Array.isArray(ids)) this.#giveUp('ids')
    } else {
      const written = Buffer.from(JSON.stringify(text))
      this.#keep(written, 1, written.length - 1)
    }
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

const TOKEN_IDS = Buffer.from('"token_ids"')

/** Whether the event `bytes[from, to)` has ids; engines write null for none. */
function hasTokenIds(bytes: Uint8Array, from: number, to: number): boolean {
  const event = Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from)
  const at = event.indexOf(TOKEN_IDS)
  return (
    at >= 0 && !event.toString('latin1', at + TOKEN_IDS.length, at + TOKEN_IDS.length + 8).includes('null')
  )
}

function isTokenId(id: unknown): id is number {
  return Number.isInteger(id) && (id as number) >= 0 && (id as number) <= TOKEN_ID_MAX
}

function latin1Of(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1')
}

function isEmpty(value: unknown): boolean {
  return value === '' || (Array.isArray(value) && value.length === 0)
}

/**
 * GenerateStream: one request of `KvRouter.generate`, from its call to the last token.
 *
 *   call ─▶ head ─▶ events of the stream ─▶ outputs, which wait until the program takes them
 *
 * The program's pace reaches the engine: while OUTPUTS_WAITING_MAX outputs wait, the call is paused. It can
 * be iterated once. Leaving the loop, or the signal, aborts the request at the router and at its engine.
 */

import { EventData } from '@homing/base'
import type { HttpCall, HttpHeaders, HttpResponseHandler } from '@homing/transport'
import { type GenerateOutput, type GenerateUsage, readGenerateEvent } from './generate-event.ts'
import { GenerateFailedError, NoTokenIdsError } from './kv-router-errors.ts'

/** Where the request went. */
export interface GeneratePlace {
  /** Worker key. */
  readonly worker: string
  readonly decisionId: string
  /** Leading blocks of the prompt that the worker was believed to hold. */
  readonly overlapBlocks: number
}

/** Beyond them the call is paused; what the router has written ahead, 64 KiB at most, waits behind it. */
const OUTPUTS_WAITING_MAX = 64
/** Of an error, and of an event that is not whole: no token has as many. */
const TEXT_CHARACTERS_MAX = 1_048_576

export class GenerateStream implements AsyncIterableIterator<GenerateOutput, undefined> {
  readonly #signal: AbortSignal | undefined
  readonly #text = new TextDecoder()
  readonly #outputs: GenerateOutput[] = []
  #call: HttpCall | undefined
  #status = 0
  #place: GeneratePlace | undefined
  #usage: GenerateUsage | undefined
  readonly #events = new EventData()
  /** What has come of an error. */
  #refusal = ''
  #isPaused = false
  #isOver = false
  #failure: unknown
  /** Calls of `next` that wait. */
  #waiting: (() => void)[] = []

  /** `start`: begins the call; it is not called for a signal that is aborted already. */
  constructor(start: (handler: HttpResponseHandler) => HttpCall, signal: AbortSignal | undefined) {
    this.#signal = signal
    if (signal?.aborted === true) {
      this.#end(signal.reason)
      return
    }
    signal?.addEventListener('abort', this.#aborted)
    this.#call = start({
      head: (status, headers) => this.#head(status, headers),
      data: bytes => this.#data(this.#text.decode(bytes, { stream: true })),
      end: () => this.#ended(),
      failed: ({ message }) => this.#end(new GenerateFailedError(message, 0, '')),
    })
  }

  /** Where the request went; undefined: nothing of its answer has come yet. */
  get place(): GeneratePlace | undefined {
    return this.#place
  }

  /** Undefined: the answer is not complete, or its engine counts nothing. */
  get usage(): GenerateUsage | undefined {
    return this.#usage
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Rejects with GenerateFailedError, NoTokenIdsError, or the reason of the signal. */
  async next(): Promise<IteratorResult<GenerateOutput, undefined>> {
    for (;;) {
      const value = this.#outputs.shift()
      if (value !== undefined) return { done: false, value }
      if (this.#failure !== undefined) throw this.#failure
      if (this.#isOver) return { done: true, value: undefined }
      this.#resume()
      await new Promise<void>(resolve => {
        this.#waiting.push(resolve)
      })
    }
  }

  /** The program has seen enough. */
  async return(): Promise<IteratorResult<GenerateOutput, undefined>> {
    this.#outputs.length = 0
    this.#end()
    this.#failure = undefined
    return { done: true, value: undefined }
  }

  #head(status: number, headers: HttpHeaders): void {
    this.#status = status
    const worker = headers['x-homing-worker']
    if (worker === undefined) return
    this.#place = {
      worker: String(worker),
      decisionId: String(headers['x-homing-decision']),
      overlapBlocks: Number(headers['x-homing-overlap-blocks']),
    }
  }

  #data(text: string): void {
    if (this.#isOver) return
    if (this.#status === 200) for (const data of this.#events.push(text)) this.#event(data.trim())
    else this.#refusal += text
    if (this.#refusal.length + this.#events.openCharacters > TEXT_CHARACTERS_MAX)
      this.#end(new GenerateFailedError(`an event has more than ${TEXT_CHARACTERS_MAX} characters`, 0, ''))
    if (this.#status !== 200) return
    if (this.#outputs.length >= OUTPUTS_WAITING_MAX && !this.#isPaused) {
      this.#isPaused = true
      this.#call?.pause()
    }
    this.#wakeUp()
  }

  #event(data: string): void {
    if (this.#isOver || data === '[DONE]') return
    const { outputs, usage, lacksTokenIds, error } = readGenerateEvent(data)
    if (error !== undefined) this.#end(new GenerateFailedError(error.message, 0, error.code))
    else if (lacksTokenIds) this.#end(new NoTokenIdsError(this.#place?.worker ?? ''))
    else {
      if (usage !== undefined) this.#usage = usage
      this.#outputs.push(...outputs)
    }
  }

  #ended(): void {
    if (this.#status === 200) {
      for (const data of this.#events.end()) this.#event(data.trim())
      this.#end()
      return
    }
    const refusal = this.#refusal
    const { message, code } = readGenerateEvent(refusal).error ?? { message: refusal, code: '' }
    this.#end(new GenerateFailedError(message, this.#status, code))
  }

  readonly #aborted = (): void => {
    this.#outputs.length = 0
    this.#end(this.#signal?.reason)
  }

  /** Only the first call counts. What has come before is still taken. */
  #end(failure?: unknown): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#failure = failure
    this.#signal?.removeEventListener('abort', this.#aborted)
    this.#call?.abort()
    this.#wakeUp()
  }

  #resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#call?.resume()
  }

  #wakeUp(): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const wake of waiting) wake()
  }
}

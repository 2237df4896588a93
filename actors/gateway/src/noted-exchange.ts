/**
 * Noted exchange: an HTTP exchange that gets a line in the access log when its answer is over or its client
 * has left, however it was answered. It changes nothing else.
 */

import type { BodyRoom, ClientGoneReason, HttpExchange, HttpHeaders } from '@homing/transport'
import { WrappedExchange } from './wrapped-exchange.ts'

/** How it ended. */
export interface NotedEnd {
  /** Undefined: no answer began. */
  readonly status: number | undefined
  /** Undefined: no body was read. */
  readonly requestBytes: number | undefined
  readonly answerBytes: number
  /** Undefined: the answer was complete, or the router cut it. */
  readonly clientGone: ClientGoneReason | undefined
}

export class NotedExchange extends WrappedExchange {
  readonly #ended: (end: NotedEnd) => void
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  #isOver = false
  #status: number | undefined
  #requestBytes: number | undefined
  #answerBytes = 0

  /** `ended` is called once, after all other listeners that the client has gone. */
  constructor(http: HttpExchange, ended: (end: NotedEnd) => void) {
    super(http)
    this.#ended = ended
    http.onClientGone(reason => {
      try {
        for (const callback of this.#onGone.splice(0)) callback(reason)
      } finally {
        this.#end(reason)
      }
    })
  }

  override async readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    const body = await super.readBody(maxBytes, room)
    this.#requestBytes = body.length
    return body
  }

  override onClientGone(callback: (reason: ClientGoneReason) => void): void {
    // The exchange itself calls a listener that is added late.
    if (this.#isOver) super.onClientGone(callback)
    else this.#onGone.push(callback)
  }

  override writeHead(status: number, headers: HttpHeaders): void {
    if (!this.isClosed) this.#status ??= status
    super.writeHead(status, headers)
  }

  override write(bytes: Uint8Array): boolean {
    if (!this.isClosed) this.#answerBytes += bytes.length
    return super.write(bytes)
  }

  override end(bytes?: Uint8Array): void {
    if (!this.isClosed) this.#answerBytes += bytes?.length ?? 0
    super.end(bytes)
    this.#end(undefined)
  }

  override destroy(): void {
    super.destroy()
    this.#end(undefined)
  }

  #end(clientGone: ClientGoneReason | undefined): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#ended({
      status: this.#status,
      requestBytes: this.#requestBytes,
      answerBytes: this.#answerBytes,
      clientGone,
    })
  }
}

/**
 * Noted exchange: an HTTP exchange that gets a line in the access log when its answer is over or its client
 * has left, however it was answered. It changes nothing else.
 */

import type { BodyRoom, ClientGoneReason, HttpExchange, HttpHeaders } from '@homing/transport'

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

export class NotedExchange implements HttpExchange {
  readonly #http: HttpExchange
  readonly #ended: (end: NotedEnd) => void
  readonly #onGone: ((reason: ClientGoneReason) => void)[] = []
  #isOver = false
  #status: number | undefined
  #requestBytes: number | undefined
  #answerBytes = 0

  /** `ended` is called once, after all other listeners that the client has gone. */
  constructor(http: HttpExchange, ended: (end: NotedEnd) => void) {
    this.#http = http
    this.#ended = ended
    http.onClientGone(reason => {
      try {
        for (const callback of this.#onGone.splice(0)) callback(reason)
      } finally {
        this.#end(reason)
      }
    })
  }

  get method(): string {
    return this.#http.method
  }

  get path(): string {
    return this.#http.path
  }

  get query(): string {
    return this.#http.query
  }

  get headers(): HttpHeaders {
    return this.#http.headers
  }

  get peerAddress(): string {
    return this.#http.peerAddress
  }

  get isClosed(): boolean {
    return this.#http.isClosed
  }

  async readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    const body = await this.#http.readBody(maxBytes, room)
    this.#requestBytes = body.length
    return body
  }

  onClientGone(callback: (reason: ClientGoneReason) => void): void {
    // The exchange itself calls a listener that is added late.
    if (this.#isOver) this.#http.onClientGone(callback)
    else this.#onGone.push(callback)
  }

  writeHead(status: number, headers: HttpHeaders): void {
    if (!this.isClosed) this.#status ??= status
    this.#http.writeHead(status, headers)
  }

  write(bytes: Uint8Array): boolean {
    if (!this.isClosed) this.#answerBytes += bytes.length
    return this.#http.write(bytes)
  }

  onDrain(callback: () => void): void {
    this.#http.onDrain(callback)
  }

  end(bytes?: Uint8Array): void {
    if (!this.isClosed) this.#answerBytes += bytes?.length ?? 0
    this.#http.end(bytes)
    this.#end(undefined)
  }

  destroy(): void {
    this.#http.destroy()
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

/**
 * Stream writer: writes text to one client in order, waiting when the client reads slowly.
 *
 * What waits is bounded by the length of the answer. After `end` nothing may be written.
 */

import type { HttpExchange } from '@homing/transport'

export class StreamWriter {
  readonly #exchange: HttpExchange
  readonly #encoder = new TextEncoder()
  #waiting: string[] = []
  #isBlocked = false
  #isEnding = false

  constructor(exchange: HttpExchange) {
    this.#exchange = exchange
  }

  write(text: string): void {
    if (this.#isBlocked) this.#waiting.push(text)
    else if (!this.#exchange.isClosed) this.#isBlocked = !this.#exchange.write(this.#encoder.encode(text))
    if (this.#isBlocked && this.#waiting.length === 0) this.#exchange.onDrain(() => this.#drain())
  }

  end(text: string): void {
    this.#isEnding = true
    if (this.#isBlocked) this.#waiting.push(text)
    else if (!this.#exchange.isClosed) this.#exchange.end(this.#encoder.encode(text))
  }

  #drain(): void {
    if (!this.#isBlocked) return
    this.#isBlocked = false
    const text = this.#waiting.join('')
    this.#waiting = []
    if (this.#exchange.isClosed) return
    if (this.#isEnding) this.#exchange.end(this.#encoder.encode(text))
    else if (text !== '') this.write(text)
  }
}

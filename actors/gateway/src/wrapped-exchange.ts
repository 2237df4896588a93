/** Wrapped exchange: passes everything on to another exchange. What differs is overridden by subclasses. */

import type { BodyRoom, ClientGoneReason, HttpExchange, HttpHeaders } from '@homing/transport'

export class WrappedExchange implements HttpExchange {
  readonly #http: HttpExchange

  constructor(http: HttpExchange) {
    this.#http = http
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

  readBody(maxBytes: number, room?: BodyRoom): Promise<Uint8Array> {
    return this.#http.readBody(maxBytes, room)
  }

  onClientGone(callback: (reason: ClientGoneReason) => void): void {
    this.#http.onClientGone(callback)
  }

  onOver(callback: () => void): void {
    this.#http.onOver(callback)
  }

  writeHead(status: number, headers: HttpHeaders): void {
    this.#http.writeHead(status, headers)
  }

  write(bytes: Uint8Array): boolean {
    return this.#http.write(bytes)
  }

  onDrain(callback: () => void): void {
    this.#http.onDrain(callback)
  }

  end(bytes?: Uint8Array): void {
    this.#http.end(bytes)
  }

  destroy(): void {
    this.#http.destroy()
  }
}

/**
 * The connections of the load to one server: as many as requests are open, each with one request at a time,
 * kept for the next ones.
 */

import { connect, type Socket } from 'node:net'
import { fieldOf, MessageReader } from './wire.ts'

/** One request and its answer. */
export interface Exchange {
  readonly body: Buffer
  /** Called with each piece of the answer's body, if the status is 200. */
  piece(text: string): void
  /** The answer is whole. */
  answered(status: number, head: string): void
  failed(reason: string): void
}

const FAILURE_CHARACTERS_MAX = 200
/** Servers end connections that are idle; this side ends them first. */
const IDLE_MS_MAX = 2000

export class Connections {
  readonly #host: string
  readonly #port: number
  readonly #head: string
  readonly #idle: { readonly connection: Connection; readonly sinceMs: number }[] = []

  constructor(url: string) {
    const { hostname, port } = new URL(url)
    this.#host = hostname
    this.#port = Number(port)
    this.#head = `POST /v1/chat/completions HTTP/1.1\r\nhost: ${hostname}:${port}\r\ncontent-type: application/json\r\ncontent-length: `
  }

  send(exchange: Exchange): { abort(reason: string): void } {
    const oldestMs = performance.now() - IDLE_MS_MAX
    let connection: Connection | undefined
    for (let last = this.#idle.pop(); last !== undefined; last = this.#idle.pop()) {
      if (last.sinceMs >= oldestMs && last.connection.isUsable) {
        connection = last.connection
        break
      }
      last.connection.end()
    }
    connection ??= new Connection(this.#host, this.#port, free =>
      this.#idle.push({ connection: free, sinceMs: performance.now() }),
    )
    connection.send(`${this.#head}${exchange.body.length}\r\n\r\n`, exchange)
    return connection
  }

  close(): void {
    for (const { connection } of this.#idle.splice(0)) connection.end()
  }
}

class Connection {
  readonly #socket: Socket
  #exchange: Exchange | undefined
  #status = 0
  #head = ''
  #failure = ''

  constructor(host: string, port: number, free: (self: Connection) => void) {
    this.#socket = connect({ host, port, noDelay: true })
    const reader = new MessageReader({
      head: head => {
        this.#head = head
        this.#status = Number(head.slice(9, 12))
      },
      body: piece => {
        if (this.#status === 200) this.#exchange?.piece(piece.toString('latin1'))
        else this.#failure = (this.#failure + piece.toString('latin1')).slice(0, FAILURE_CHARACTERS_MAX)
      },
      end: () => {
        const exchange = this.#exchange
        this.#exchange = undefined
        if (fieldOf(this.#head, 'connection')?.toLowerCase() === 'close') this.#socket.end()
        else free(this)
        if (this.#status === 200) exchange?.answered(this.#status, this.#head)
        else exchange?.failed(`${this.#status} ${this.#failure}`)
        this.#failure = ''
      },
    })
    this.#socket.on('data', bytes => reader.push(bytes))
    this.#socket.on('error', error => this.abort(error.message))
    this.#socket.on('close', () => this.abort('the connection ended before the answer'))
  }

  get isUsable(): boolean {
    return this.#socket.readyState === 'open'
  }

  send(head: string, exchange: Exchange): void {
    this.#exchange = exchange
    this.#socket.cork()
    this.#socket.write(head, 'latin1')
    this.#socket.write(exchange.body)
    this.#socket.uncork()
  }

  /** Its request has failed, if it has one. */
  abort(reason: string): void {
    const exchange = this.#exchange
    this.#exchange = undefined
    this.#socket.destroy()
    exchange?.failed(reason)
  }

  end(): void {
    this.#socket.destroy()
  }
}

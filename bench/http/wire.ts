/**
 * HTTP/1.1 messages out of the bytes of a connection, with as little work as can be: load and engines of the
 * bench share a core, and node:http would make them its limit.
 *
 *   head  \r\n\r\n  body of content-length bytes, or chunks until one of 0 bytes, or none
 *
 * Nothing of a trailer, of an interim answer (100 …) or of a body that ends with the connection is supported:
 * `push` throws there.
 */

/** What a reader tells of each message, in this order. */
export interface MessageListener {
  /** The head as it came, latin1, without its last empty line. */
  head(head: string): void
  /** A piece of the body: valid during the call only. */
  body(piece: Buffer): void
  end(): void
}

const HEAD_BYTES_MAX = 65_536
const HEAD_END = Buffer.from('\r\n\r\n')
const LINE_END = Buffer.from('\r\n')
const NOTHING = Buffer.alloc(0)

type State = 'head' | 'length' | 'chunk-size' | 'chunk' | 'chunk-end' | 'last'

export class MessageReader {
  readonly #listener: MessageListener
  #state: State = 'head'
  /** Bytes that are no whole line yet. */
  #rest: Buffer = NOTHING
  /** Bytes of the body or chunk that are still to come. */
  #missing = 0

  constructor(listener: MessageListener) {
    this.#listener = listener
  }

  /** Throws where the bytes are no message of the supported kind. */
  push(bytes: Buffer): void {
    let left = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes])
    this.#rest = NOTHING
    while (left.length > 0) {
      const taken = this.#take(left)
      if (taken === 0) {
        if (left.length > HEAD_BYTES_MAX)
          throw new Error(`a line or head has more than ${HEAD_BYTES_MAX} bytes`)
        this.#rest = Buffer.from(left)
        return
      }
      left = left.subarray(taken)
    }
  }

  /** Bytes that were used up; 0: more are needed. */
  #take(bytes: Buffer): number {
    switch (this.#state) {
      case 'head':
        return this.#takeHead(bytes)
      case 'length':
      case 'chunk': {
        const piece = bytes.length <= this.#missing ? bytes : bytes.subarray(0, this.#missing)
        this.#missing -= piece.length
        this.#listener.body(piece)
        if (this.#missing === 0) {
          if (this.#state === 'length') this.#finish()
          else this.#state = 'chunk-end'
        }
        return piece.length
      }
      case 'chunk-size': {
        const end = bytes.indexOf(LINE_END)
        if (end < 0) return 0
        const line = bytes.toString('latin1', 0, end)
        this.#missing = /^[0-9a-f]{1,8}(;|$)/i.test(line) ? Number.parseInt(line, 16) : Number.NaN
        if (Number.isNaN(this.#missing)) throw new Error(`no size of a chunk: ${line.slice(0, 40)}`)
        this.#state = this.#missing === 0 ? 'last' : 'chunk'
        return end + LINE_END.length
      }
      case 'chunk-end':
      case 'last': {
        if (bytes.length < LINE_END.length) return 0
        if (!bytes.subarray(0, LINE_END.length).equals(LINE_END))
          throw new Error('a chunk does not end where it should, or a trailer follows')
        if (this.#state === 'last') this.#finish()
        else this.#state = 'chunk-size'
        return LINE_END.length
      }
    }
  }

  #takeHead(bytes: Buffer): number {
    const end = bytes.indexOf(HEAD_END)
    if (end < 0) return 0
    const head = bytes.toString('latin1', 0, end)
    const length = fieldOf(head, 'content-length')
    this.#listener.head(head)
    if (length !== undefined) {
      this.#missing = Number(length)
      if (!Number.isSafeInteger(this.#missing)) throw new Error(`no length: ${length.slice(0, 40)}`)
      if (this.#missing === 0) this.#finish()
      else this.#state = 'length'
    } else if (fieldOf(head, 'transfer-encoding') !== undefined) {
      this.#state = 'chunk-size'
    } else if (head.startsWith('HTTP/')) {
      throw new Error(`an answer without a length: ${head.slice(0, 200)}`)
    } else {
      this.#finish()
    }
    return end + HEAD_END.length
  }

  #finish(): void {
    this.#state = 'head'
    this.#listener.end()
  }
}

/** The value of a header field; `name` in lower case. */
export function fieldOf(head: string, name: string): string | undefined {
  return new RegExp(`\\r\\n${name}:[ \\t]*([^\\r]*)`, 'i').exec(head)?.[1]
}

/**
 * EventData: the data of each event of an event stream, from its text as it comes.
 *
 *   data: {"a":↵ data: 1}↵ ↵   ▶   '{"a":\n1}'
 *
 * A line ends with LF, CR or CR LF, an event with an empty line. Comments and other fields are left out, and
 * so are events without data.
 *
 * Source: the WHATWG event stream format.
 */

const FIELD = 'data:'
const LINE_END = /\r\n|\n|\r/
const MARK = '\ufeff'

export class EventData {
  #hasBegun = false
  /** The last text ended with a carriage return; a line feed behind it belongs to it. */
  #followsCarriageReturn = false
  /** The line that has not ended. */
  #line = ''
  /** Of the event that has not ended; undefined: none yet. */
  #data: string | undefined

  /** Characters of an event that has not ended. */
  get openCharacters(): number {
    return this.#line.length + (this.#data?.length ?? 0)
  }

  /** What ends in this text. */
  push(text: string): string[] {
    const lines = this.#behindStart(text).split(LINE_END)
    const events: string[] = []
    lines[0] = this.#line + lines[0]!
    this.#line = lines.pop()!
    for (const line of lines) this.#endLine(line, events)
    return events
  }

  /** The stream ends: its last event, if only its empty line is missing. */
  end(): string[] {
    const events: string[] = []
    this.#endLine(this.#line, events)
    this.#endLine('', events)
    this.#line = ''
    return events
  }

  /** The text without a byte order mark that begins the stream, and without the rest of a line end. */
  #behindStart(text: string): string {
    if (text === '') return text
    const isMarked = !this.#hasBegun && text.startsWith(MARK)
    const isCut = this.#followsCarriageReturn && text.startsWith('\n')
    this.#hasBegun = true
    this.#followsCarriageReturn = text.endsWith('\r')
    return isMarked || isCut ? text.slice(1) : text
  }

  #endLine(line: string, events: string[]): void {
    if (line.startsWith(FIELD)) {
      const value = line.slice(FIELD.length + (line[FIELD.length] === ' ' ? 1 : 0))
      this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`
    } else if (line === '' && this.#data !== undefined) {
      events.push(this.#data)
      this.#data = undefined
    }
  }
}

/**
 * The tokens of a template, as Jinja2 3.1 makes them with `trim_blocks` and `lstrip_blocks`, which is how
 * transformers sets it up.
 *
 *   text {%- if x == 1 %}  data 'text' │ blockBegin │ name if │ name x │ operator == │ integer 1 │ blockEnd
 *
 * Space around tags
 *   `-` takes all space on its side; `+` keeps what the two options would take.
 *   trim_blocks    the newline behind a block, a comment or `{% endraw %}` belongs to it
 *                  (not behind `{% raw %}`)
 *   lstrip_blocks  so does what is before it on its line, if that is space only; not before `{{`
 *
 * What Jinja2 refuses is refused, and so is what JavaScript might read otherwise: control characters
 * (Python and JavaScript differ in which of them are space), names with letters beyond ASCII, surrogates in
 * escapes.
 *
 * Source: jinja2/lexer.py 3.1.6.
 */

import { RenderingRefusedError } from './errors.ts'

/** `value` of a string is what it stands for; of anything else what is written. */
export interface Token {
  readonly type: TokenType
  readonly value: string
}

export type TokenType =
  | 'data'
  | 'blockBegin'
  | 'blockEnd'
  | 'variableBegin'
  | 'variableEnd'
  | 'name'
  | 'string'
  | 'integer'
  | 'float'
  | 'operator'
  | 'end'

const MISREAD = /[^\P{Cc}\t\n]|[\ufeff\u2028\u2029]/u
const SPACE_ONLY = /^\s+$/
const TAG_BEGIN = /\{([%#{])([-+]?)/g
const RAW_BEGIN = /\{%([-+]?)\s*raw\s*(?:-%\}\s*|%\})/y
const RAW_END = /\{%([-+]?)\s*endraw\s*(?:\+%\}|-%\}\s*|%\}\n?)/g
const COMMENT_END = /\+#\}|-#\}\s*|#\}\n?/g
const BLOCK_END = /\+%\}|-%\}\s*|%\}\n?/y
const VARIABLE_END = /-\}\}\s*|\}\}/y
const SPACE = /\s+/y
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy
const NAME = /[a-z_]\w*/iy
const STRING = /'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"/sy
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y
const NAME_GOES_ON = /[^\0-\x7f]/y

const CLOSING: Readonly<Record<string, string>> = { '{': '}', '(': ')', '[': ']' }

/** Throws RenderingRefusedError. The last token is of type `end`. */
export function templateTokens(source: string): readonly Token[] {
  const text = source.replace(/\r\n?/g, '\n').replace(/\n$/, '')
  if (MISREAD.test(text)) throw new RenderingRefusedError('the template holds control characters')
  return new Lexer(text).run()
}

class Lexer {
  readonly #source: string
  readonly #tokens: Token[] = []
  #position = 0
  /** The last thing that was read ended a line. */
  #isLineStart = true

  constructor(source: string) {
    this.#source = source
  }

  run(): readonly Token[] {
    while (this.#position < this.#source.length) this.#data()
    this.#push('end', 'the end of the template')
    return this.#tokens
  }

  #push(type: TokenType, value: string): void {
    this.#tokens.push({ type, value })
  }

  /** Moves behind a match at the position. */
  #take(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#position
    const match = pattern.exec(this.#source)
    if (match === null) return undefined
    this.#moveTo(pattern.lastIndex)
    return match[0]
  }

  #moveTo(position: number): void {
    this.#isLineStart = this.#source[position - 1] === '\n'
    this.#position = position
  }

  /** Text up to a tag, and the tag. */
  #data(): void {
    TAG_BEGIN.lastIndex = this.#position
    const tag = TAG_BEGIN.exec(this.#source)
    if (tag === null) {
      this.#push('data', this.#source.slice(this.#position))
      this.#moveTo(this.#source.length)
      return
    }
    const [, kind, sign = ''] = tag
    this.#text(tag.index, kind === '{' ? '+' : sign, sign === '-')
    this.#position = tag.index
    if (this.#take(RAW_BEGIN) !== undefined) this.#raw()
    else {
      this.#moveTo(TAG_BEGIN.lastIndex)
      if (kind === '#') this.#comment()
      else if (kind === '%') this.#code('blockBegin', 'blockEnd', BLOCK_END)
      else this.#code('variableBegin', 'variableEnd', VARIABLE_END)
    }
  }

  /** The text from the position to `end`, where a tag begins that may take some space before it. */
  #text(end: number, sign: string, takesAll: boolean): void {
    let text = this.#source.slice(this.#position, end)
    if (takesAll) text = text.trimEnd()
    else if (sign !== '+') {
      const lineStart = text.lastIndexOf('\n') + 1
      if ((lineStart > 0 || this.#isLineStart) && SPACE_ONLY.test(text.slice(lineStart)))
        text = text.slice(0, lineStart)
    }
    if (text !== '') this.#push('data', text)
  }

  #raw(): void {
    RAW_END.lastIndex = this.#position
    const end = RAW_END.exec(this.#source)
    if (end === null) throw new RenderingRefusedError('the template has a raw block without an end')
    this.#text(end.index, end[1] ?? '', end[1] === '-')
    this.#moveTo(RAW_END.lastIndex)
  }

  #comment(): void {
    COMMENT_END.lastIndex = this.#position
    if (COMMENT_END.exec(this.#source) === null)
      throw new RenderingRefusedError('the template has a comment without an end')
    this.#moveTo(COMMENT_END.lastIndex)
  }

  #code(begin: TokenType, end: TokenType, endPattern: RegExp): void {
    this.#push(begin, begin)
    const open: string[] = []
    for (;;) {
      if (open.length === 0 && this.#take(endPattern) !== undefined) {
        this.#push(end, end)
        return
      }
      if (this.#take(SPACE) !== undefined) continue
      const token = this.#codeToken(open)
      if (token === undefined) {
        const found = this.#source[this.#position] ?? 'its end'
        throw new RenderingRefusedError(`the template has ${found} in a tag`)
      }
      this.#tokens.push(token)
    }
  }

  #codeToken(open: string[]): Token | undefined {
    const float = this.#take(FLOAT)
    if (float !== undefined) return { type: 'float', value: float.replaceAll('_', '') }
    const integer = this.#take(INTEGER)
    if (integer !== undefined) return { type: 'integer', value: integer.replaceAll('_', '') }
    const name = this.#take(NAME)
    if (name !== undefined) {
      if (this.#take(NAME_GOES_ON) !== undefined)
        throw new RenderingRefusedError(`the template has a name beyond ASCII, ${name}…`)
      return { type: 'name', value: name }
    }
    const written = this.#take(STRING)
    if (written !== undefined) return { type: 'string', value: unescaped(written.slice(1, -1)) }
    const operator = this.#take(OPERATOR)
    if (operator === undefined) return undefined
    if (Object.hasOwn(CLOSING, operator)) open.push(CLOSING[operator]!)
    else if ('})]'.includes(operator) && open.pop() !== operator)
      throw new RenderingRefusedError(`the template has an unexpected ${operator}`)
    return { type: 'operator', value: operator }
  }
}

const ESCAPES: Readonly<Record<string, string>> = {
  '\n': '',
  '\\': '\\',
  "'": "'",
  '"': '"',
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
}

/** Python's codec `unicode-escape`; an escape that it does not know stays as it is written. */
function unescaped(written: string): string {
  if (!written.includes('\\')) return written
  return written.replace(
    /\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|([0-7]{1,3})|([\s\S]))/giu,
    (whole, ...groups: (string | undefined)[]) => {
      const [hex2, hex4, hex8, octal, character = ''] = groups
      const hex = hex2 ?? hex4 ?? hex8
      // The flag for letters of either case is for digits only.
      const isKnown = hex === undefined || whole[1] === (hex2 ? 'x' : hex4 ? 'u' : 'U')
      if (isKnown && (hex !== undefined || octal !== undefined)) {
        const code = hex === undefined ? Number.parseInt(octal!, 8) : Number.parseInt(hex, 16)
        if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
          throw new RenderingRefusedError(`the template has ${whole} in a string`)
        return String.fromCodePoint(code)
      }
      if (!isKnown || /^[xuUN]$/.test(character) || character > '\x7f')
        throw new RenderingRefusedError(`the template has ${whole} in a string`)
      return Object.hasOwn(ESCAPES, character) ? ESCAPES[character]! : whole
    },
  )
}

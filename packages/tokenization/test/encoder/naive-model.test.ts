/**
 * The encoder against a naive model of it: the pattern as a regular expression of JavaScript, bytes, and
 * merging by search. Both get generated texts of characters whose classes JavaScript and the reference agree
 * on.
 */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { buildCharTable, CharTable } from '../../src/encoder/char-table.ts'
import { Encoder } from '../../src/encoder/encoder.ts'
import { buildEncoderTables } from '../../src/encoder/encoder-tables.ts'
import { TokenBuffer } from '../../src/encoder/token-buffer.ts'
import { CLASS_RUNS } from '../../src/encoder/unicode-data.ts'
import { nodeFlagsOf } from './node-classes.ts'

interface Tokenizer {
  readonly model: {
    readonly vocab: Readonly<Record<string, number>>
    readonly merges: readonly string[]
    readonly ignore_merges: boolean
  }
  readonly pre_tokenizer: unknown
  readonly added_tokens: unknown
}

const { tokenizers } = JSON.parse(
  readFileSync(new URL('fixtures/encoder.json', import.meta.url), 'utf8'),
) as {
  tokenizers: { name: string; tokenizer: Tokenizer }[]
}

const S = '\\p{White_Space}'
const NOT_S = '\\P{White_Space}'
const PATTERNS: Readonly<Record<string, readonly string[]>> = {
  gpt2: [`'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${S}\\p{L}\\p{N}]+|${S}+(?!${NOT_S})|${S}+`],
  'llama 3': [
    `(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^${S}\\p{L}\\p{N}]+[\\r\\n]*|${S}*[\\r\\n]+|${S}+(?!${NOT_S})|${S}+`,
  ],
  o200k: [
    `[^\\r\\n\\p{L}\\p{N}]?<U>*<W>+<C>?|[^\\r\\n\\p{L}\\p{N}]?<U>+<W>*<C>?|\\p{N}{1,3}| ?[^${S}\\p{L}\\p{N}]+[\\r\\n\\/]*|${S}*[\\r\\n]+|${S}+(?!${NOT_S})|${S}+`
      .replaceAll('<U>', '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]')
      .replaceAll('<W>', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]')
      .replaceAll('<C>', "(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"),
  ],
  deepseek: [
    '\\p{N}{1,3}',
    '[一-龥\\u3040-\\u30ff]+',
    `[!-\\/:-@\\[-\`\\{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${S}*[\\r\\n]+|${S}+(?!${NOT_S})|${S}+`,
  ],
}

function splitBy(pattern: string, text: string): string[] {
  const pieces: string[] = []
  let at = 0
  for (const match of text.matchAll(new RegExp(pattern, 'gu'))) {
    if (match.index > at) pieces.push(text.slice(at, match.index))
    pieces.push(match[0])
    at = match.index + match[0].length
  }
  if (at < text.length) pieces.push(text.slice(at))
  return pieces
}

const BYTE_UNITS = (() => {
  const isPrinted = (byte: number) =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174
  let other = 256
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrinted(byte) ? byte : other++))
})()

class NaiveModel {
  readonly #tokenizer: Tokenizer
  readonly #patterns: readonly string[]
  readonly #ranks: ReadonlyMap<string, number>

  constructor(tokenizer: Tokenizer, patterns: readonly string[]) {
    this.#tokenizer = tokenizer
    this.#patterns = patterns
    this.#ranks = new Map(tokenizer.model.merges.map((merge, rank) => [merge, rank]))
  }

  encode(text: string): number[] {
    let pieces = [text]
    for (const pattern of this.#patterns) pieces = pieces.flatMap(piece => splitBy(pattern, piece))
    return pieces.flatMap(piece => this.#merge(piece))
  }

  #merge(piece: string): number[] {
    const { vocab, ignore_merges } = this.#tokenizer.model
    const symbols = Array.from(Buffer.from(piece), byte => BYTE_UNITS[byte]!)
    if (ignore_merges && Object.hasOwn(vocab, symbols.join(''))) return [vocab[symbols.join('')]!]
    for (;;) {
      let best = Number.POSITIVE_INFINITY
      let place = -1
      for (let i = 0; i + 1 < symbols.length; i++) {
        const rank = this.#ranks.get(`${symbols[i]} ${symbols[i + 1]}`)
        if (rank !== undefined && rank < best) {
          best = rank
          place = i
        }
      }
      if (place < 0) return symbols.map(symbol => vocab[symbol]!)
      symbols.splice(place, 2, symbols[place]! + symbols[place + 1]!)
    }
  }
}

const classes = new CharTable(buildCharTable(CLASS_RUNS))
function agreesOnClass(text: string): boolean {
  const units = new Uint16Array([text.charCodeAt(0), text.charCodeAt(1)])
  return classes.flagsAt(units, 0) === nodeFlagsOf(text)
}

const points = (low: number, high: number) =>
  fc
    .integer({ min: low, max: high })
    .filter(point => point < 0xd800 || point > 0xdfff)
    .map(point => String.fromCodePoint(point))
    .filter(agreesOnClass)
const parts = fc.oneof(
  points(0, 0x7f),
  points(0x20, 0x7e),
  points(0, 0x6ff),
  points(0x900, 0xdff),
  points(0x2000, 0x31ff),
  points(0x4e00, 0x9fff),
  points(0, 0x1_ffff),
  fc.constantFrom(
    ' ',
    '  ',
    '\n',
    '\r\n',
    '\t',
    ' \n ',
    '\u00a0',
    '\u3000',
    '\u0085',
    '\ufeff',
    "'",
    "'s",
    "'LL",
    "'ſ",
    "'re",
    '\u0301',
  ),
  fc.constantFrom(
    'the',
    ' of',
    'and',
    'fooBar',
    'ABCdef',
    'XMLHttp',
    ' Is',
    'ªº',
    'ʰA',
    '漢字ABc',
    'ǅa',
    '123',
    '1234567',
    '١٢٣',
    '...',
    '/\n/',
  ),
  fc
    .constantFrom('a', 'A', ' ', '你', '1', '!', '\u0301')
    .chain(unit => fc.nat(12).map(count => unit.repeat(count))),
)

for (const [name, patterns] of Object.entries(PATTERNS))
  t.test(`${name}: ids are those of the naive model for any text`, async t => {
    const { tokenizer } = tokenizers.find(entry => entry.name === name)!
    const plain = { ...tokenizer, added_tokens: [] }
    const tables = buildEncoderTables(plain as never)
    if ('refusal' in tables) throw new Error(tables.refusal)
    const encoder = new Encoder(tables, { wordTableBytesMax: 1 << 16 })
    const naive = new NaiveModel(tokenizer, patterns)
    const agrees = fc.property(fc.array(parts, { maxLength: 30 }), list => {
      const text = list.join('')
      const out = new TokenBuffer()
      encoder.encode(text, out)
      assert.deepEqual(Array.from(out.toArray()), naive.encode(text))
    })
    t.doesNotThrow(() => fc.assert(agrees, { numRuns: 1500 }))
  })

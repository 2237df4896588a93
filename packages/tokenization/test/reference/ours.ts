/** Our encoder behind one call, for tests and benches: a text to its ids. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Encoder, type SettledPoint } from '../../src/encoder/encoder.ts'
import { buildEncoderTables, type EncoderTables } from '../../src/encoder/encoder-tables.ts'
import { splitModel } from '../../src/encoder/model-bytes.ts'
import { TokenBuffer } from '../../src/encoder/token-buffer.ts'

/** The tables of a tokenizer.json; makes encoders on them, each with an empty word table. */
export class Ours {
  readonly #tables: EncoderTables
  readonly #wordTableBytesMax: number

  private constructor(tables: EncoderTables, wordTableBytesMax: number) {
    this.#tables = tables
    this.#wordTableBytesMax = wordTableBytesMax
  }

  /** Of a vocabulary's directory. Throws when the encoder refuses it. */
  static load(directory: string, wordTableBytesMax: number): Ours {
    const ours = Ours.ofFile(readFileSync(join(directory, 'tokenizer.json')), wordTableBytesMax)
    if (ours instanceof Ours) return ours
    throw new Error(`cannot encode with ${directory}: ${ours.refusal}`)
  }

  static of(tokenizer: object, wordTableBytesMax: number): Ours | { readonly refusal: string } {
    return Ours.ofFile(Buffer.from(JSON.stringify(tokenizer)), wordTableBytesMax)
  }

  /** Of the bytes of a tokenizer.json. */
  static ofFile(file: Uint8Array, wordTableBytesMax: number): Ours | { readonly refusal: string } {
    const whole = () => JSON.parse(Buffer.from(file).toString())
    const split = splitModel(file)
    const tables =
      split === undefined ? buildEncoderTables(whole()) : buildEncoderTables(split.rest, { ...split, whole })
    return 'refusal' in tables ? tables : new Ours(tables, wordTableBytesMax)
  }

  /** The same tables with word tables of another size. */
  withWordTable(wordTableBytesMax: number): Ours {
    return new Ours(this.#tables, wordTableBytesMax)
  }

  encoder(): OurEncoder {
    return new OurEncoder(new Encoder(this.#tables, { wordTableBytesMax: this.#wordTableBytesMax }))
  }
}

export class OurEncoder {
  readonly #encoder: Encoder
  readonly #out = new TokenBuffer()
  #point: SettledPoint | undefined

  constructor(encoder: Encoder) {
    this.#encoder = encoder
  }

  /** The ids of a text; they hold until the next call. */
  encode(text: string): Int32Array {
    this.#out.truncate(0)
    this.#point = this.#encoder.encode(text, this.#out)
    return this.#out.ids.subarray(0, this.#out.length)
  }

  /** The same for a text that begins with the text of the call before: only what is new is encoded. */
  encodeOn(text: string): Int32Array {
    this.#out.truncate(this.#point?.tokens ?? 0)
    this.#point = this.#encoder.encode(text, this.#out, this.#point)
    return this.#out.ids.subarray(0, this.#out.length)
  }
}

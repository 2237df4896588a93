/**
 * SentencePiece models of the type BPE (`.model` files) to the vocabulary and merges of Hugging Face's form.
 *
 *   ModelProto       field 1, repeated: SentencePiece
 *   SentencePiece    field 1: the piece, UTF-8;  field 2: its score, float;  field 3: its type
 *
 * Merges are every pair of pieces that makes a piece, best score first, as the converter of `transformers`
 * lists them.
 */

export interface Piece {
  readonly text: string
  readonly score: number
  readonly type: number
}

/** Types of pieces that are special tokens. */
export const UNKNOWN = 2
export const CONTROL = 3
const NORMAL = 1

const VARINT = 0
const FIXED64 = 1
const BYTES = 2
const FIXED32 = 5

interface Field {
  readonly number: number
  /** A number for a varint, bytes for everything else. */
  readonly value: number | Buffer
}

/** The pieces in the order of their ids. Throws when the bytes are no such model. */
export function readSentencePieceModel(model: Buffer): readonly Piece[] {
  const pieces: Piece[] = []
  for (const { number, value } of fields(model)) {
    if (number !== 1) continue
    let text = ''
    let score = 0
    let type = NORMAL
    for (const field of fields(value as Buffer)) {
      if (field.number === 1) text = (field.value as Buffer).toString('utf8')
      else if (field.number === 2) score = (field.value as Buffer).readFloatLE()
      else if (field.number === 3) type = field.value as number
    }
    pieces.push({ text, score, type })
  }
  return pieces
}

export function mergesOfPieces(pieces: readonly Piece[]): (readonly [string, string])[] {
  const ids = new Map(pieces.map(({ text }, id) => [text, id]))
  const merges = pieces.flatMap(({ text, score }) => {
    const pairs: { left: string; right: string; score: number }[] = []
    const letters = Array.from(text)
    for (let cut = 1; cut < letters.length; cut++) {
      const [left, right] = [letters.slice(0, cut).join(''), letters.slice(cut).join('')]
      if (ids.has(left) && ids.has(right)) pairs.push({ left, right, score })
    }
    return pairs.sort((a, b) => ids.get(a.left)! - ids.get(b.left)! || ids.get(a.right)! - ids.get(b.right)!)
  })
  const length = (text: string): number => Array.from(text).length
  return merges
    .sort((a, b) => b.score - a.score || length(b.left) - length(a.left) || length(b.right) - length(a.right))
    .map(({ left, right }) => [left, right] as const)
}

function* fields(bytes: Buffer): Generator<Field> {
  let at = 0
  const varint = (): number => {
    let value = 0
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes.readUInt8(at++)
      value += (byte & 0x7f) * scale
      if (byte < 0x80) return value
    }
  }
  const take = (length: number): Buffer => {
    if (at + length > bytes.length) throw new Error('cannot read the SentencePiece model: it ends early')
    at += length
    return bytes.subarray(at - length, at)
  }
  while (at < bytes.length) {
    const key = varint()
    const number = Math.floor(key / 8)
    switch (key % 8) {
      case VARINT:
        yield { number, value: varint() }
        break
      case FIXED64:
        yield { number, value: take(8) }
        break
      case BYTES:
        yield { number, value: take(varint()) }
        break
      case FIXED32:
        yield { number, value: take(4) }
        break
      default:
        throw new Error(
          `cannot read the SentencePiece model: field ${number} has the unknown type ${key % 8}`,
        )
    }
  }
}

/**
 * Decoder steps: how the text of one token becomes bytes, as the `decoder` of a tokenizer.json says.
 *
 *   ByteLevel      each character stands for a byte (GPT-2's table); a token with others is its own text
 *   ByteFallback   `<0x0A>` is the byte 0x0a
 *   Replace        one text for another: SentencePiece writes a space as `▁`
 *   Metaspace      the same; Fuse and Strip change nothing here
 *
 * What follows a prompt is decoded, so the space before the first token stays: engines keep it, too. Steps
 * that look at several tokens (WordPiece, BPEDecoder, CTC) are refused.
 */

import type { JsonObject } from '../json-object.ts'

/** The bytes of the text of a token. */
export type TokenToBytes = (token: string) => Uint8Array

const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/
/** Of nested sequences. */
const STEPS_DEPTH_MAX = 8

/** Or why this decoder cannot be followed token by token. `ofByteLevel`: bytes by GPT-2's table. */
export function decoderSteps(
  decoder: unknown,
  ofByteLevel: (token: string) => Uint8Array | undefined,
): TokenToBytes | { readonly refusal: string } {
  const replaced: ((token: string) => string)[] = []
  let fallsBack = false
  let isByteLevel = false
  const refusal = read(decoder, 0)
  if (refusal !== undefined) return { refusal }
  return token => {
    const byte = fallsBack ? BYTE_TOKEN.exec(token) : null
    if (byte !== null) return Uint8Array.of(Number.parseInt(byte[1]!, 16))
    const text = replaced.reduce((before, replace) => replace(before), token)
    return (isByteLevel ? ofByteLevel(text) : undefined) ?? Buffer.from(text)
  }

  function read(value: unknown, depth: number): string | undefined {
    if (typeof value !== 'object' || value === null) return 'its tokenizer.json has no decoder'
    const { type, decoders, pattern, content, replacement } = value as JsonObject
    switch (type) {
      case 'ByteLevel':
        isByteLevel = true
        return undefined
      case 'ByteFallback':
        fallsBack = true
        return undefined
      case 'Fuse':
      case 'Strip':
        return undefined
      case 'Metaspace':
        replaced.push(token => token.replaceAll(String(replacement ?? '▁'), ' '))
        return undefined
      case 'Replace': {
        const text = (pattern as JsonObject | undefined)?.['String']
        if (typeof text !== 'string' || typeof content !== 'string')
          return 'its decoder replaces by a regular expression'
        replaced.push(token => token.replaceAll(text, () => content))
        return undefined
      }
      case 'Sequence': {
        if (!Array.isArray(decoders) || depth >= STEPS_DEPTH_MAX) return 'its decoder is no sequence of steps'
        for (const step of decoders) {
          const fault = read(step, depth + 1)
          if (fault !== undefined) return fault
        }
        return undefined
      }
      default:
        return `its decoder has a step ${JSON.stringify(type)}, which is not known for single tokens`
    }
  }
}

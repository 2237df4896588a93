/**
 * Prompt cache: the beginnings of prompt texts that this thread has encoded, with their token ids, so that
 * only the new part of a conversation is encoded.
 *
 *   text      <|im_start|>system … <|im_end|>\n<|im_start|>user\n …
 *   windows   |           |           |           |  rest
 *   settled            ^            ^          ^            ids before it are the same whatever follows
 *
 * A window carries the ids between the settled point before it and the last one in it. Encoding goes on from
 * the last settled point whose windows are all equal.
 *
 * Invariants
 *   I1  The ids are those of encoding the whole text: windows are compared, never guessed by hash
 *       (./prefix-tree.ts), and an id before a settled point depends on nothing behind it
 *       (./encoder/encoder.ts).
 *   I2  Where no point settles over a long stretch, encoding is tried again only after as much text once
 *       more, so that a text costs at most three times what it would cost without the cache.
 *
 * Bounds   `bytesMax`, over all tokenizers of the thread.
 */

import type { SettledPoint } from './encoder/encoder.ts'
import { TokenBuffer } from './encoder/token-buffer.ts'
import { beginningOf, type LongText, type ReadableText } from './long-text.ts'
import { type PrefixNode, PrefixTree, TextWindows } from './prefix-tree.ts'

interface KnownTokens {
  /** Ids from the point before to `point`. */
  readonly ids: Int32Array
  /** Undefined: nothing has settled yet. */
  readonly point: SettledPoint | undefined
}

/** What the cache needs of an encoder. */
export interface ResumableEncoder {
  encode(text: ReadableText, out: TokenBuffer, from?: SettledPoint): SettledPoint
}

const CACHE_WINDOW_UNITS = 2048
/** Longer answers are not kept: 4 MiB. */
const KEPT_IDS = 2 ** 20
/** An array of ids and a point beside the ids themselves. */
const KNOWN_BYTES = 300

export class PromptCache {
  readonly #bytesMax: number
  readonly #tree: PrefixTree<string, KnownTokens>
  /** Of the last answer; kept, since arrays of this size made anew each time keep the collector busy. */
  #out = new TokenBuffer()
  #scopes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
    this.#tree = new PrefixTree(bytesMax)
  }

  /** Bytes held. */
  get bytes(): number {
    return this.#tree.bytes
  }

  /** A number for one tokenizer; texts of different scopes share no windows. */
  newScope(): number {
    return this.#scopes++
  }

  /** The ids of a well-formed text, valid until the next call. Throws what the encoder throws. */
  encode(scope: number, encoder: ResumableEncoder, text: string | LongText): TokenBuffer {
    if (this.#out.ids.length > KEPT_IDS) this.#out = new TokenBuffer()
    const out = this.#out
    out.length = 0
    if (this.#bytesMax === 0 || text.length < CACHE_WINDOW_UNITS) {
      encoder.encode(text, out)
      return out
    }
    const windows = new TextWindows(text, CACHE_WINDOW_UNITS)
    const path = this.#tree.find(scope, windows)
    for (const { payload } of path) out.pushAll(payload.ids)
    const added = encodeWindows(encoder, text, windows.windows, path, out)
    const point = added.at(-1)?.point ?? path.at(-1)?.payload.point
    out.truncate(point?.tokens ?? 0)
    encoder.encode(text, out, point)
    this.#tree.grow(scope, path, windows, number => {
      const payload = added[number - path.length]!
      return { payload, bytes: payload.ids.byteLength + KNOWN_BYTES }
    })
    return out
  }
}

/** What each window behind `path` adds. */
function encodeWindows(
  encoder: ResumableEncoder,
  text: string | LongText,
  count: number,
  path: readonly PrefixNode<KnownTokens>[],
  out: TokenBuffer,
): readonly KnownTokens[] {
  const added: KnownTokens[] = []
  let point = path.at(-1)?.payload.point
  let triedTo = path.length * CACHE_WINDOW_UNITS
  for (let number = path.length; number < count; number++) {
    const end = wholeEnd(text, (number + 1) * CACHE_WINDOW_UNITS)
    const settledAt = point?.at ?? 0
    const tokens = point?.tokens ?? 0
    if (end - triedTo < triedTo - settledAt - CACHE_WINDOW_UNITS) {
      added.push({ ids: new Int32Array(0), point })
      continue
    }
    out.truncate(tokens)
    point = encoder.encode(beginningOf(text, end), out, point)
    triedTo = end
    added.push({ ids: out.ids.slice(tokens, point.tokens), point })
  }
  return added
}

/** The end, or one unit less where it would halve a character. */
function wholeEnd(text: ReadableText, end: number): number {
  const last = text.slice(end - 1, end).charCodeAt(0)
  return last >= 0xd800 && last < 0xdc00 ? end - 1 : end
}

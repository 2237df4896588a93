/**
 * The simulated engine's requirements for a tokenizer, and the ids that it may emit.
 *
 * An engine emits *words*: ids whose text is a space and letters, and which come out of the tokenizer again
 * when that text is tokenized. So an answer that a client sends back as part of the next turn tokenizes to
 * the very ids whose blocks the engine has cached, as it mostly does with a real model. Without such words in
 * the vocabulary, any ordinary ids are emitted and a next turn may miss the cache in the blocks of the
 * answer.
 */

export interface EngineTokenizer {
  /** Ids of plain text. */
  encodeText(text: string, addSpecialTokens: boolean): Int32Array
  /**
   * Ids of a chat after its template. `body` is the parsed request, `bytes` its text as it came. Throws when
   * the chat cannot be rendered.
   */
  encodeChat(body: Readonly<Record<string, unknown>>, bytes: Uint8Array): Int32Array
  /** Text of ids; special tokens are left out. */
  decode(tokenIds: Int32Array): string
  /** Ids 0 … vocabularySize − 1 exist. */
  readonly vocabularySize: number
}

/**
 * Words that an engine picks from at most; finding them costs two tokenizer calls per candidate, once per
 * engine.
 */
const WORDS_MAX = 2048
const CANDIDATES_MAX = 20_000

/** The ids an engine with this tokenizer may emit; never empty. */
export function outputVocabulary(tokenizer: EngineTokenizer): Int32Array {
  const words: number[] = []
  const ordinary: number[] = []
  const idsMax = Math.min(tokenizer.vocabularySize, CANDIDATES_MAX)
  for (let id = 0; id < idsMax && words.length < WORDS_MAX; id++) {
    const text = tokenizer.decode(Int32Array.of(id))
    if (text === '') continue
    if (ordinary.length < WORDS_MAX && !text.includes('\ufffd')) ordinary.push(id)
    if (!/^ [A-Za-z]{2,}$/.test(text)) continue
    const twice = tokenizer.encodeText(text + text, false)
    if (twice.length === 2 && twice[0] === id && twice[1] === id) words.push(id)
  }
  if (words.length >= 16) return Int32Array.from(words)
  if (ordinary.length > 0) return Int32Array.from(ordinary)
  throw new RangeError('cannot generate output: the tokenizer has no id that decodes to text')
}

/** The text that each generated id adds; ids are turned into text one by one, as a stream needs it. */
export class TokenTexts {
  readonly #tokenizer: EngineTokenizer
  readonly #texts = new Map<number, string>()

  constructor(tokenizer: EngineTokenizer) {
    this.#tokenizer = tokenizer
  }

  /** Bounded by the output vocabulary. */
  textOf(tokenId: number): string {
    let text = this.#texts.get(tokenId)
    if (text === undefined) {
      // Between two others: some decoders drop the space of a first token.
      const around = this.#tokenizer.decode(Int32Array.of(tokenId, tokenId))
      const single = this.#tokenizer.decode(Int32Array.of(tokenId))
      text = around.length > single.length ? around.slice(single.length) : single
      this.#texts.set(tokenId, text)
    }
    return text
  }
}

/**
 * A tokenizer without files: one id per UTF-8 byte, ChatML around messages with the three special ids 256 …
 * 258, and `BYTE_WORDS` four-letter words as ids of their own after them. For tests and for engines that are
 * given no directory.
 */
export function byteTokenizer(): EngineTokenizer {
  const words = new Map<string, number>()
  const wordTexts: string[] = []
  for (const [i, word] of BYTE_WORDS.entries()) {
    words.set(` ${word}`, FIRST_WORD_ID + i)
    wordTexts.push(` ${word}`)
  }
  const encodeText = (text: string): Int32Array => {
    const ids: number[] = []
    for (const piece of text.split(/(?= )/)) {
      const word = words.get(piece)
      if (word !== undefined) ids.push(word)
      else ids.push(...encoder.encode(piece))
    }
    return Int32Array.from(ids)
  }
  return {
    vocabularySize: FIRST_WORD_ID + BYTE_WORDS.length,
    encodeText,
    encodeChat(body) {
      const ids: number[] = []
      const messages = body['messages'] as readonly Readonly<Record<string, unknown>>[]
      const continues = body['continue_final_message'] === true
      for (const [i, message] of messages.entries()) {
        ids.push(START_ID, ...encodeText(`${String(message['role'])}\n${contentText(message['content'])}`))
        if (!continues || i < messages.length - 1) ids.push(END_ID, 10)
      }
      if (body['add_generation_prompt'] !== false && !continues)
        ids.push(START_ID, ...encodeText('assistant\n'))
      return Int32Array.from(ids)
    },
    decode(tokenIds) {
      let text = ''
      let bytes: number[] = []
      for (const id of tokenIds) {
        if (id < 256) {
          bytes.push(id)
          continue
        }
        text += decoder.decode(Uint8Array.from(bytes))
        bytes = []
        text += wordTexts[id - FIRST_WORD_ID] ?? ''
      }
      return text + decoder.decode(Uint8Array.from(bytes))
    },
  }
}

const START_ID = 256
const END_ID = 257
const FIRST_WORD_ID = 259
const SYLLABLES = [
  'ba',
  'de',
  'fi',
  'go',
  'ku',
  'la',
  'me',
  'ni',
  'po',
  'ru',
  'sa',
  'te',
  'vi',
  'wo',
  'xu',
  'ya',
]
const BYTE_WORDS: readonly string[] = SYLLABLES.flatMap(first => SYLLABLES.map(second => first + second))
const encoder = new TextEncoder()
const decoder = new TextDecoder()

function contentText(content: unknown): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.map(part => String((part as { text?: unknown } | null)?.text ?? '')).join('')
}

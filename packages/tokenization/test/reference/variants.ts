/**
 * Tokenizers drawn at random: every setting of a tokenizer.json of the type BPE that models use, and some
 * that none does, with small vocabularies learnt from hostile text. An encoder may refuse one; what it takes,
 * it must encode as the reference.
 *
 * Merges are learnt from unsplit text by joining neighbours at random, so they reach over the cuts of every
 * pattern: a wrong cut shows. Ids are shuffled, because nothing may lean on their order.
 */

import type { Random } from '@homing/base'
import { byteLetters } from '../../scripts/rank-file.ts'
import { PATTERN_NAMES, preTokenizer } from '../../scripts/split-patterns.ts'
import { hostileText, LITERAL_TOKENS } from './texts.ts'

const LEARNT_TEXTS = 40
const LEARNT_LETTERS_MAX = 6000
const MERGES_MAX = 600
const METASPACE = '▁'

type Json = Readonly<Record<string, unknown>>
type Vocab = Readonly<Record<string, number>>

/** A tokenizer.json that the reference loads, as a value. */
export function randomTokenizer(random: Random): Json {
  const text = learntText(random)
  const isByteLevel = random.below(4) > 0
  const model = isByteLevel ? byteLevelModel(random, text) : letterModel(random, text)
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: addedTokens(random, text, model['vocab'] as Vocab),
    normalizer: isByteLevel ? byteLevelNormalizer(random) : letterNormalizer(random),
    pre_tokenizer: isByteLevel ? byteLevelSplit(random) : letterSplit(random),
    post_processor: null,
    decoder: null,
    model,
  }
}

function learntText(random: Random): string {
  let text = ''
  for (let i = 0; i < LEARNT_TEXTS; i++) text += hostileText(random).slice(0, 300)
  return text.isWellFormed() ? text : text.toWellFormed()
}

function byteLevelModel(random: Random, text: string): Json {
  const letters = byteLetters()
  const symbols = Array.from(Buffer.from(text).subarray(0, LEARNT_LETTERS_MAX), byte => letters[byte]!)
  const { tokens, merges } = learn(random, symbols, letters)
  // A few words that no merge makes: they count only where `ignore_merges` is set.
  for (let i = random.below(20); i > 0; i--) {
    const at = random.below(symbols.length)
    tokens.add(symbols.slice(at, at + 2 + random.below(4)).join(''))
  }
  return bpe(random, tokens, merges, {
    unk_token: null,
    byte_fallback: random.below(8) === 0,
    fuse_unk: random.below(8) === 0,
    ignore_merges: random.below(3) === 0,
  })
}

function letterModel(random: Random, text: string): Json {
  const letters = Array.from(text.replaceAll(' ', METASPACE)).slice(0, LEARNT_LETTERS_MAX)
  const unknown = '<unk>'
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
  )
  const hasBytes = random.below(4) > 0
  // Without some letters, so that bytes and the unknown token are needed.
  const known = [...new Set(letters)].filter(() => random.below(5) > 0)
  const { tokens, merges } = learn(
    random,
    letters.filter(letter => known.includes(letter)),
    known,
  )
  const all = new Set([...(random.below(6) > 0 ? [unknown] : []), ...(hasBytes ? bytes : []), ...tokens])
  return bpe(random, all, merges, {
    unk_token: all.has(unknown) ? unknown : null,
    byte_fallback: hasBytes && random.below(8) > 0,
    fuse_unk: random.below(3) > 0,
    ignore_merges: random.below(5) === 0,
  })
}

function bpe(
  random: Random,
  tokens: ReadonlySet<string>,
  merges: readonly (readonly [string, string])[],
  flags: Json,
): Json {
  const shuffled = [...tokens]
  for (let i = shuffled.length - 1; i > 0; i--) {
    const j = random.below(i + 1)
    ;[shuffled[i], shuffled[j]] = [shuffled[j]!, shuffled[i]!]
  }
  const nothing = [null, null, null, ''] as const
  return {
    type: 'BPE',
    dropout: null,
    ...flags,
    continuing_subword_prefix: pick(random, nothing),
    end_of_word_suffix: pick(random, nothing),
    vocab: Object.fromEntries(shuffled.map((token, id) => [token, id])),
    merges: random.below(2) === 0 ? merges : merges.map(([left, right]) => `${left} ${right}`),
  }
}

/** Joins neighbours drawn at random, everywhere they stand beside each other, again and again. */
function learn(random: Random, text: readonly string[], letters: readonly string[]) {
  const tokens = new Set(letters)
  const merges: [string, string][] = []
  const known = new Set<string>()
  let symbols = [...text]
  for (let i = 0; i < MERGES_MAX && symbols.length > 2; i++) {
    const at = random.below(symbols.length - 1)
    const [left, right] = [symbols[at]!, symbols[at + 1]!]
    const key = `${left} ${right}`
    if (known.has(key) || /\s/.test(left + right)) continue
    known.add(key)
    merges.push([left, right])
    tokens.add(left + right)
    const joined: string[] = []
    for (let j = 0; j < symbols.length; j++) {
      if (symbols[j] === left && symbols[j + 1] === right) {
        joined.push(left + right)
        j++
      } else joined.push(symbols[j]!)
    }
    symbols = joined
  }
  return { tokens, merges }
}

/**
 * A content that is a token of the vocabulary has the id of that; the ids of the others follow without a gap.
 */
function addedTokens(random: Random, text: string, vocabulary: Vocab): readonly Json[] {
  const contents = new Set<string>()
  for (let count = random.below(8); count > 0; count--) contents.add(addedContent(random, text))
  let nextId = Object.keys(vocabulary).length
  return [...contents].map(content => ({
    id: Object.hasOwn(vocabulary, content) ? vocabulary[content] : nextId++,
    content,
    single_word: random.below(4) === 0,
    lstrip: random.below(4) === 0,
    rstrip: random.below(4) === 0,
    normalized: random.below(3) === 0,
    special: random.below(2) === 0,
  }))
}

function addedContent(random: Random, text: string): string {
  const letters = Array.from(text)
  const at = random.below(letters.length - 8)
  switch (random.below(6)) {
    case 0:
      return letters.slice(at, at + 1 + random.below(6)).join('')
    case 1:
      return ` ${pick(random, LITERAL_TOKENS)}`
    case 2:
      return pick(random, [
        'é',
        'e\u0301',
        'Å',
        '\u212b',
        'ﬁ',
        'the',
        'a',
        "'s",
        '12',
        '1',
        '\n',
        '  ',
        '▁',
        '▁the',
        'ſ',
        '\u0301',
        '가',
      ])
    default:
      return pick(random, LITERAL_TOKENS)
  }
}

function byteLevelNormalizer(random: Random): Json | null {
  const forms = ['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents', 'Nmt'].map(type => ({ type }))
  switch (random.below(6)) {
    case 0:
      return pick(random, forms)
    case 1:
      return { type: 'NFC' }
    case 2:
      return { type: 'Sequence', normalizers: random.below(2) === 0 ? [] : [{ type: 'NFC' }] }
    default:
      return null
  }
}

function byteLevelSplit(random: Random): Json {
  const byteLevel = {
    type: 'ByteLevel',
    add_prefix_space: random.below(3) === 0,
    trim_offsets: random.below(2) === 0,
    use_regex: random.below(2) === 0,
  }
  switch (random.below(8)) {
    case 0:
      return byteLevel
    case 1:
      return { type: 'Sequence', pretokenizers: [oddSplit(random), byteLevel] }
    case 2:
      return { type: 'Sequence', pretokenizers: [preTokenizer(pick(random, PATTERN_NAMES)), byteLevel] }
    default:
      return preTokenizer(pick(random, PATTERN_NAMES), pick(random, ['isolated', 'matches'])) as Json
  }
}

/** Splits that some models use and that an encoder may refuse. */
function oddSplit(random: Random): Json {
  const behavior = pick(random, ['Isolated', 'Removed', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'])
  return pick<Json>(random, [
    { type: 'Digits', individual_digits: random.below(2) === 0 },
    { type: 'Punctuation', behavior },
    { type: 'Whitespace' },
    { type: 'WhitespaceSplit' },
    { type: 'UnicodeScripts' },
    {
      type: 'Split',
      pattern: { String: pick(random, [' ', '\n', 'a', '12']) },
      behavior,
      invert: random.below(4) === 0,
    },
    {
      type: 'Split',
      pattern: { Regex: pick(random, ['\\d', '\\p{N}{1,3}', '[^\\S\\n]+|\\n', '\\p{Han}']) },
      behavior,
      invert: random.below(4) === 0,
    },
  ])
}

function letterNormalizer(random: Random): Json | null {
  const prepend = { type: 'Prepend', prepend: METASPACE }
  const replace = { type: 'Replace', pattern: { String: ' ' }, content: METASPACE }
  switch (random.below(6)) {
    case 0:
      return null
    case 1:
      return { type: 'Sequence', normalizers: [replace] }
    case 2:
      return replace
    case 3:
      return { type: 'Sequence', normalizers: [{ type: 'NFC' }, prepend, replace] }
    default:
      return { type: 'Sequence', normalizers: [prepend, replace] }
  }
}

function letterSplit(random: Random): Json | null {
  if (random.below(2) === 0) return null
  return {
    type: 'Metaspace',
    replacement: METASPACE,
    prepend_scheme: pick(random, ['first', 'first', 'always', 'never']),
    split: random.below(3) === 0,
  }
}

function pick<T>(random: Random, of: readonly T[]): T {
  return of[random.below(of.length)]!
}

/**
 * Differences that the search has found, as small as they became. Each is refused or encoded as the reference
 * does.
 */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { byteLetters } from '../../scripts/rank-file.ts'
import { type PatternName, preTokenizer } from '../../scripts/split-patterns.ts'
import { nativeEncoderOf } from './native.ts'
import { Ours } from './ours.ts'

const BYTES = Array.from(
  { length: 256 },
  (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`,
)

interface Found {
  readonly title: string
  readonly tokenizer: object
  readonly texts: readonly string[]
}

/** A model of characters, as SentencePiece's: no words, bytes for what it lacks. */
function letterTokenizer(tokens: readonly string[], model: object): object {
  const vocabulary = ['<unk>', ...BYTES, ...tokens]
  return {
    version: '1.0',
    added_tokens: [],
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    pre_tokenizer: null,
    post_processor: null,
    decoder: null,
    model: {
      type: 'BPE',
      unk_token: '<unk>',
      fuse_unk: true,
      byte_fallback: true,
      vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      merges: [],
      ...model,
    },
  }
}

/** An added token with none of its flags set but these. */
function added(content: string, flags: object): object {
  const none = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: false }
  return { content, ...none, ...flags }
}

/** A byte-level model that joins any two bytes, in an order drawn at random, so that most cuts show. */
function pairTokenizer(pattern: PatternName, added: readonly object[] = []): object {
  const letters = byteLetters()
  const random = seededRandom(1)
  const pairs = letters
    .flatMap(left => letters.map(right => [left, right] as const))
    .map(pair => ({ pair, order: random.next() }))
    .sort((a, b) => a.order - b.order)
    .map(({ pair }) => pair)
  const tokens = [...letters, ...pairs.map(pair => pair.join(''))]
  return {
    version: '1.0',
    added_tokens: added.map((token, i) => ({ id: tokens.length + i, ...token })),
    normalizer: null,
    pre_tokenizer: preTokenizer(pattern),
    post_processor: null,
    decoder: null,
    model: { type: 'BPE', vocab: Object.fromEntries(tokens.map((token, id) => [token, id])), merges: pairs },
  }
}

const FOUND: readonly Found[] = [
  {
    title:
      'a text that is a token which no merges make, where merges are ignored (seed 20155 of the variants)',
    tokenizer: letterTokenizer(['a', 'b', 'ab'], { ignore_merges: true }),
    texts: ['ab', 'aab', '<0x0A>', 'a<0x0A>', ''],
  },
  {
    title:
      "DeepSeek's third split cuts inside what its second took: signs between kana (bench tokenize, text 8 of seed 2)",
    tokenizer: pairTokenizer('deepseek'),
    texts: [
      'バ・',
      'ア・イ',
      'か゛',
      '゠ア',
      '\u3040ア',
      'ア\u3040\u3097・',
      '中・国12・',
      ' ・ア',
      '・\n・',
      'a・',
    ],
  },
  {
    title:
      'a text taken up right before a single word that was refused for the letter before it (seed 403883383 of the variants)',
    tokenizer: pairTokenizer('qwen', [added('\n', { single_word: true, lstrip: true, normalized: true })]),
    texts: ['y\n|a|', 'y\nb', '\n', 'a \n\n b', 'é\n😀\n', '\n\n1\n'],
  },
]

for (const { title, tokenizer, texts } of FOUND) {
  t.test(title, async t => {
    const native = await nativeEncoderOf(tokenizer)
    if (native === undefined) {
      t.pass('no reference', { skip: 'the registry has no native binding for this platform' })
      return
    }
    const ours = Ours.of(tokenizer, 1 << 16)
    if ('refusal' in ours) {
      t.ok(ours.refusal.length > 0, ours.refusal)
      return
    }
    const encoder = ours.encoder()
    for (const text of texts) {
      const expected = await native(text)
      t.strictSame([...encoder.encode(text)], expected, JSON.stringify(text))
      for (let cut = 0; cut <= text.length; cut++) {
        encoder.encode(text.slice(0, cut))
        t.strictSame([...encoder.encodeOn(text)], expected, `${JSON.stringify(text)} cut at ${cut}`)
      }
    }
  })
}

/** Ids become the text that the native library recorded, token by token, and no piece ends in a character. */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Tokenizer } from '@huggingface/tokenizers'
import fc from 'fast-check'
import t from 'tap'
import { buildDecoderTables, loadDecoder, TokenDecoder, TokenTexts } from '../../src/index.ts'
import { readTokenizerFiles } from '../../src/tokenizer-files.ts'

const TINY = fileURLToPath(new URL('../../fixtures/tiny', import.meta.url))
const RECORDED = JSON.parse(readFileSync(new URL('../fixtures/parity.json', import.meta.url), 'utf8')) as {
  readonly encodings: readonly (readonly [string, number[]])[]
  readonly decodings: readonly string[]
}

function decoded(texts: TokenTexts, ids: readonly number[], skipsSpecial: boolean): string {
  const decoder = new TokenDecoder(texts, { skipsSpecial })
  return ids.map(id => decoder.push(id)).join('')
}

/** A tokenizer.json whose vocabulary is these tokens, in order. */
function tokenizer(decoder: unknown, tokens: readonly string[], more: object = {}) {
  return {
    tokenizer: {
      decoder,
      model: { vocab: Object.fromEntries(tokens.map((token, i) => [token, i])) },
      ...more,
    },
    modelBytes: undefined,
    tokenizerFile: new Uint8Array(0),
    config: {},
    templates: undefined,
    specialTokens: new Map<string, string>(),
    hazard: undefined,
    isHarmony: false,
  } as never
}

t.test('the text of recorded ids is the one that the native library gives', async t => {
  const texts = new TokenTexts(await loadDecoder(TINY))
  for (const [i, [, ids]] of RECORDED.encodings.entries())
    t.equal(decoded(texts, ids, false), RECORDED.decodings[i], `text ${i}`)
})

t.test('special tokens are left out, and the end of answers is known', async t => {
  const tables = await loadDecoder(TINY)
  const texts = new TokenTexts(tables)
  const hello = RECORDED.encodings.find(([text]) => text.startsWith('<|im_start|>'))!
  t.equal(decoded(texts, hello[1], true), 'user\nhi\n')
  t.strictSame(tables.endIds, [1458])
  t.equal(decoded(texts, [5_000_000], true), '', 'an id that is padding of the model has no text')
})

t.test('any ids give the text of the library, and no piece ends inside a character', async t => {
  const files = await readTokenizerFiles(TINY)
  const library = new Tokenizer(JSON.parse(Buffer.from(files.tokenizerFile).toString()), files.config)
  const texts = new TokenTexts(await loadDecoder(TINY))
  const agree = fc.property(fc.array(fc.nat(1455), { minLength: 1, maxLength: 40 }), ids => {
    const decoder = new TokenDecoder(texts, { skipsSpecial: false })
    const pieces = ids.map(id => decoder.push(id))
    const whole = library.decode(ids, { skip_special_tokens: false })
    // The library says of an unfinished character at the end that it is one.
    const own = pieces.join('')
    assert.equal(own, whole.slice(0, own.length))
    assert.match(whole.slice(own.length), /^\ufffd{0,3}$/)
    for (const piece of pieces) assert.doesNotMatch(piece, /[\ud800-\udbff]$/)
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 300 }))
})

t.test('bytes that SentencePiece falls back to, and its mark of spaces, become text', async t => {
  const steps = [
    { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
    { type: 'ByteFallback' },
    { type: 'Fuse' },
    { type: 'Strip', content: ' ', start: 1, stop: 0 },
  ]
  const tokens = ['▁Hi', '<0xE4>', '<0xBD>', '<0xA0>', '▁▁a', '<s>']
  const more = { added_tokens: [{ id: 5, content: '<s>', special: true }] }
  const built = buildDecoderTables(tokenizer({ type: 'Sequence', decoders: steps }, tokens, more), {
    eos_token_id: [5, 7],
  })
  if ('refusal' in built) throw new Error(built.refusal)
  t.equal(decoded(new TokenTexts(built), [5, 0, 1, 2, 3, 4], true), ' Hi你  a')
  t.strictSame(built.endIds, [5, 7])
})

t.test('a decoder that looks at several tokens is refused with its name', async t => {
  for (const [decoder, why] of [
    [null, 'its tokenizer.json has no decoder'],
    [{ type: 'WordPiece' }, 'its decoder has a step "WordPiece", which is not known for single tokens'],
    [
      { type: 'Replace', pattern: { Regex: 'a' }, content: '' },
      'its decoder replaces by a regular expression',
    ],
  ] as const)
    t.strictSame(buildDecoderTables(tokenizer(decoder, ['a']), undefined), { refusal: why })
})

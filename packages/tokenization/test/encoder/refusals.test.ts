/**
 * What the encoder does not do exactly as the reference, it refuses by name; what makes no difference, it
 * takes.
 */

import { readFileSync } from 'node:fs'
import t from 'tap'
import { buildEncoderTables } from '../../src/encoder/encoder-tables.ts'

type Json = Record<string, unknown>
type Change = (tokenizer: Json) => unknown

const { tokenizers } = JSON.parse(
  readFileSync(new URL('fixtures/encoder.json', import.meta.url), 'utf8'),
) as {
  tokenizers: { name: string; tokenizer: Json }[]
}

function refusalOf(name: string, change: Change): string | undefined {
  const { tokenizer } = tokenizers.find(entry => entry.name === name)!
  const changed = structuredClone(tokenizer)
  change(changed)
  const tables = buildEncoderTables(changed)
  return 'refusal' in tables ? tables.refusal : undefined
}

const model = (tokenizer: Json) => tokenizer['model'] as Json
const added = (tokenizer: Json) => tokenizer['added_tokens'] as Json[]
const split = (pattern: string, behavior = 'Isolated', invert = false) => ({
  type: 'Sequence',
  pretokenizers: [
    { type: 'Split', pattern: { Regex: pattern }, behavior, invert },
    { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
  ],
})
const set = (key: string, value: unknown) => (tokenizer: Json) => Object.assign(tokenizer, { [key]: value })
const setModel = (key: string, value: unknown) => (tokenizer: Json) =>
  Object.assign(model(tokenizer), { [key]: value })
const LLAMA3 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

t.test('steps that are not known are refused', async t => {
  const cases: readonly (readonly [base: string, change: Change, refusal: RegExp])[] = [
    ['gpt2', setModel('type', 'Unigram'), /the model is Unigram/],
    ['gpt2', setModel('dropout', 0.1), /dropout/],
    ['gpt2', setModel('continuing_subword_prefix', '##'), /continuing_subword_prefix/],
    ['gpt2', setModel('end_of_word_suffix', '</w>'), /end_of_word_suffix/],
    ['gpt2', tokenizer => delete (setModel('merges', [])(tokenizer)['vocab'] as Json)['a'], /lacks byte 97/],
    [
      'gpt2',
      tokenizer => Object.assign(model(tokenizer)['vocab'] as Json, { new: 3 }),
      /two tokens have id 3/,
    ],
    [
      'gpt2',
      tokenizer => Object.assign(model(tokenizer)['vocab'] as Json, { new: 1.5 }),
      /the id of token "new"/,
    ],
    ['gpt2', setModel('merges', ['a b c']), /a merge is no pair/],
    ['gpt2', setModel('merges', [['a', '']]), /a merge is no pair/],
    ['gpt2', setModel('merges', ['a ☃']), /a merge names what is no token/],
    ['gpt2', setModel('merges', undefined), /no merges/],
    ['gpt2', setModel('vocab', []), /no vocabulary/],
    ['gpt2', set('model', null), /no model/],
    ['gpt2', set('truncation', { max_length: 9 }), /truncates/],
    ['gpt2', set('padding', { strategy: 'BatchLongest' }), /pads/],
    ['gpt2', set('normalizer', { type: 'Lowercase' }), /the normalizer has a step Lowercase/],
    [
      'gpt2',
      set('normalizer', { type: 'Sequence', normalizers: [{ type: 'NFC' }, { type: 'NFKC' }] }),
      /two forms/,
    ],
    [
      'gpt2',
      set('normalizer', { type: 'Replace', pattern: { Regex: ' ' }, content: '▁' }),
      /the normalizer replaces/,
    ],
    ['gpt2', set('normalizer', { type: 'Prepend', prepend: '▁' }), /byte-level model marks spaces/],
    ['gpt2', set('pre_tokenizer', { type: 'Whitespace' }), /the pre-tokenizer is Whitespace/],
    ['gpt2', set('pre_tokenizer', split(`${LLAMA3}|x`)), /a pattern that is not known/],
    ['gpt2', set('pre_tokenizer', split('\\p{N}')), /a pattern that is not known/],
    ['gpt2', set('pre_tokenizer', split(LLAMA3, 'MergedWithNext')), /behavior MergedWithNext/],
    ['gpt2', set('pre_tokenizer', split(LLAMA3, 'Removed')), /behavior Removed/],
    ['gpt2', set('pre_tokenizer', { type: 'ByteLevel', use_regex: false }), /splits nothing/],
    ['gpt2', set('post_processor', { type: 'RobertaProcessing' }), /the post-processor is RobertaProcessing/],
    ['gpt2', tokenizer => Object.assign(added(tokenizer)[0]!, { id: 9999 }), /the id of added token/],
    [
      'gpt2',
      tokenizer => added(tokenizer).push({ ...added(tokenizer)[0] }),
      /the id of added token|two added tokens/,
    ],
    [
      'gpt2',
      tokenizer => Object.assign(added(tokenizer)[0]!, { content: ' x' }),
      /takes white space that another begins with/,
    ],
    [
      'qwen, NFC',
      tokenizer => Object.assign(added(tokenizer)[0]!, { single_word: true, normalized: true }),
      /matches single words only/,
    ],
    ['llama 2', setModel('byte_fallback', false), /no bytes for characters/],
    ['llama 2', tokenizer => delete (model(tokenizer)['vocab'] as Json)['<0x0A>'], /lacks <0x0A>/],
    [
      'llama 2',
      set('normalizer', {
        type: 'Sequence',
        normalizers: [{ type: 'NFC' }, { type: 'Prepend', prepend: '▁' }],
      }),
      /mixes NFC/,
    ],
    ['llama 2', setModel('ignore_merges', true), /ignores merges/],
    [
      'metaspace at first',
      tokenizer => Object.assign(tokenizer['pre_tokenizer'] as Json, { replacement: '_' }),
      /marks spaces by/,
    ],
    [
      'metaspace at first',
      tokenizer => Object.assign(tokenizer['pre_tokenizer'] as Json, { prepend_scheme: 'last' }),
      /scheme last/,
    ],
    [
      'llama 2',
      tokenizer =>
        (tokenizer['post_processor'] as { single: unknown[] }).single.push({
          Sequence: { id: 'A', type_id: 0 },
        }),
      /the text 2 times/,
    ],
  ]
  for (const [base, change, refusal] of cases)
    t.match(refusalOf(base, change) ?? 'taken', refusal, String(refusal))
})

t.test('what makes no difference is taken', async t => {
  const cases: readonly (readonly [base: string, change: Change])[] = [
    ['gpt2', () => undefined],
    ['gpt2', setModel('dropout', 0)],
    ['gpt2', setModel('unk_token', '<|endoftext|>')],
    ['gpt2', set('normalizer', { type: 'Sequence', normalizers: [] })],
    ['gpt2', set('pre_tokenizer', split(LLAMA3, 'Removed', true))],
    ['gpt2', set('pre_tokenizer', split(LLAMA3.replaceAll('\\r\\n', '\r\n')))],
    ['gpt2', set('post_processor', { type: 'ByteLevel', trim_offsets: true })],
  ]
  for (const [base, change] of cases) t.equal(refusalOf(base, change), undefined)
})

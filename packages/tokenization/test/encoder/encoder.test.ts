/**
 * The encoder against what the reference made of hostile texts (fixtures/record_encoder.py), for every
 * pattern that it knows; and against itself when the texts grow.
 */

import { readFileSync } from 'node:fs'
import t from 'tap'
import { Encoder, type SettledPoint } from '../../src/encoder/encoder.ts'
import { buildEncoderTables, type EncoderTables } from '../../src/encoder/encoder-tables.ts'
import { TokenBuffer } from '../../src/encoder/token-buffer.ts'

interface Recorded {
  readonly texts: readonly string[]
  readonly tokenizers: readonly {
    readonly name: string
    readonly tokenizer: Readonly<Record<string, unknown>>
    /** By text: ids joined by blanks. */
    readonly ids: readonly string[]
  }[]
}

const recorded: Recorded = JSON.parse(readFileSync(new URL('fixtures/encoder.json', import.meta.url), 'utf8'))
const wordTableBytesMax = 1 << 20

function tablesOf(tokenizer: Readonly<Record<string, unknown>>): EncoderTables {
  const tables = buildEncoderTables(tokenizer)
  if ('refusal' in tables) throw new Error(tables.refusal)
  return tables
}

function idsOf(encoder: Encoder, text: string): string {
  const out = new TokenBuffer()
  encoder.encode(text, out)
  return out.toArray().join(' ')
}

for (const { name, tokenizer, ids } of recorded.tokenizers) {
  t.test(`${name}: ids are the reference's for every recorded text`, async t => {
    const encoder = new Encoder(tablesOf(tokenizer), { wordTableBytesMax })
    for (const [i, text] of recorded.texts.entries()) {
      const found = idsOf(encoder, text)
      if (found !== ids[i]) t.equal(found, ids[i], JSON.stringify(text))
    }
    for (const [i, text] of recorded.texts.entries())
      if (idsOf(encoder, text) !== ids[i]) t.fail(`from a filled table: ${JSON.stringify(text)}`)
    t.ok(encoder.stats.wordsLookedUp > encoder.stats.wordsMerged)
  })

  t.test(`${name}: a text that is taken up at any settled point has the ids of the whole`, async t => {
    const encoder = new Encoder(tablesOf(tokenizer), { wordTableBytesMax })
    let settled = 0
    for (const [i, text] of recorded.texts.entries()) {
      if (text.length > 90) continue
      let point: SettledPoint | undefined
      const growing = new TokenBuffer()
      for (let length = 1; length <= text.length; length++) {
        const part = text.slice(0, length)
        if (!part.isWellFormed()) continue
        const out = new TokenBuffer()
        const direct = encoder.encode(part, out)
        out.truncate(direct.tokens)
        encoder.encode(text, out, direct)
        const found = out.toArray().join(' ')
        if (found !== ids[i])
          t.equal(found, ids[i], `${JSON.stringify(part)} | ${JSON.stringify(text.slice(length))}`)
        // Also in many steps, each from the point of the one before.
        growing.truncate(point?.tokens ?? 0)
        point = encoder.encode(part, growing, point)
        if (point.at < (direct.at === 0 ? 0 : 1)) t.fail('a step lost what was settled')
        settled += point.at / length
      }
      growing.truncate(point?.tokens ?? 0)
      encoder.encode(text, growing, point)
      const found = growing.toArray().join(' ')
      if (found !== ids[i]) t.equal(found, ids[i], `in steps: ${JSON.stringify(text)}`)
    }
    t.ok(settled > 0)
  })
}

t.test('tables are used by another thread as they were sent', async t => {
  const { tokenizer, ids } = recorded.tokenizers.find(({ name }) => name === 'qwen, NFC')!
  const tables = tablesOf(tokenizer)
  const description = structuredClone(tables.description)
  const encoder = new Encoder({ memory: tables.memory, description }, { wordTableBytesMax })
  for (const [i, text] of recorded.texts.entries()) if (idsOf(encoder, text) !== ids[i]) t.fail(text)
  t.strictSame(structuredClone(encoder.encode('One. Two. Three.', new TokenBuffer())).at > 0, true)
})

t.test('the ids of tokens are found by the text in the file', async t => {
  for (const { name, tokenizer } of recorded.tokenizers) {
    const encoder = new Encoder(tablesOf(tokenizer), { wordTableBytesMax })
    const { vocab } = tokenizer['model'] as { vocab: Record<string, number> }
    for (const [token, id] of Object.entries(vocab))
      if (encoder.idOf(token) !== id) t.equal(encoder.idOf(token), id, `${name}: ${token}`)
    t.equal(encoder.idOf('<|im_end|>'), Object.keys(vocab).length + 1)
    t.equal(encoder.idOf('no such token'), undefined)
  }
})

t.test('what the post-processor adds is told apart from the text', async t => {
  const { tokenizer } = recorded.tokenizers.find(({ name }) => name === 'llama 2')!
  const encoder = new Encoder(tablesOf(tokenizer), { wordTableBytesMax })
  t.strictSame([encoder.prefixIds, encoder.suffixIds], [[1], []])
})

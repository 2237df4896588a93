/** Prompts encoded with a memory of earlier ones have the ids that they have without. */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { Encoder } from '../src/encoder/encoder.ts'
import { buildEncoderTables } from '../src/encoder/encoder-tables.ts'
import { TokenBuffer } from '../src/encoder/token-buffer.ts'
import { LongText } from '../src/long-text.ts'
import { PromptCache } from '../src/prompt-cache.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const tables = buildEncoderTables(
  JSON.parse(readFileSync(new URL('../fixtures/tiny/tokenizer.json', import.meta.url), 'utf8')),
)
if ('refusal' in tables) throw new Error(tables.refusal)
const encoder = new Encoder(tables, { wordTableBytesMax: 1e6 })

function plainIds(text: string): Int32Array {
  const out = new TokenBuffer()
  encoder.encode(text, out)
  return out.toArray()
}

const piece = fc.oneof(
  { weight: 4, arbitrary: fc.integer({ min: 1, max: 400 }).map(count => 'and the answer, '.repeat(count)) },
  { weight: 3, arbitrary: fc.string({ unit: 'grapheme', maxLength: 600 }) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 3000 }).map(count => ' '.repeat(count)) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 3000 }).map(count => '\u{1f54a}'.repeat(count)) },
  { weight: 1, arbitrary: fc.integer({ min: 1, max: 9000 }).map(count => 'a'.repeat(count)) },
  {
    weight: 2,
    arbitrary: fc.constantFrom('<|im_start|>', '<|im_end|>\n', '<|im_', "don't", 'e\u0301', '\u0301', '\r\n'),
  },
)
const turn = fc.record({ cut: fc.nat(4), pieces: fc.array(piece, { minLength: 1, maxLength: 6 }) })

t.test(`growing, edited and forking texts, whatever the bound (seed ${SEED})`, async t => {
  let held = 0
  fc.assert(
    fc.property(
      fc.array(turn, { minLength: 2, maxLength: 15 }),
      fc.constantFrom(0, 30_000, 1e9),
      (turns, bytesMax) => {
        const cache = new PromptCache(bytesMax)
        const scopes = [cache.newScope(), cache.newScope()]
        let text = ''
        for (const [i, { cut, pieces }] of turns.entries()) {
          // Most turns go on; some take back the end of what was said.
          const start = cut === 0 ? text.slice(0, Math.floor(text.length / 2)) : text
          text = ((start.isWellFormed() ? start : '') + pieces.join('')).toWellFormed()
          // As a template prints it, or whole.
          const middle = Math.floor(text.length / 3)
          const given = i % 2 === 0 ? text : LongText.of([text.slice(0, middle), '', text.slice(middle)])
          assert.deepEqual(
            cache.encode(scopes[i % 5 === 4 ? 1 : 0]!, encoder, given).toArray(),
            plainIds(text),
          )
          assert.ok(cache.bytes <= bytesMax)
          held = Math.max(held, cache.bytes)
        }
      },
    ),
    { seed: SEED, numRuns: 150 },
  )
  t.ok(held > 100_000, `${held} bytes were held`)
})

t.test('of a text that grows only the new end reaches the encoder', async t => {
  const cache = new PromptCache(1e9)
  const scope = cache.newScope()
  let units = 0
  const counting = {
    encode(...[text, out, from]: Parameters<Encoder['encode']>) {
      units += text.length - (from?.at ?? 0)
      return encoder.encode(text, out, from)
    },
  }
  let text = 'and the answer, '.repeat(20_000)
  cache.encode(scope, counting, text)
  t.ok(units < 1.2 * text.length, `${units} units for ${text.length} new ones`)
  units = 0
  text += 'what is it then? '
  t.strictSame(cache.encode(scope, counting, text).toArray(), plainIds(text))
  t.ok(units < 5000, `${units} units for 17 new ones`)
})

t.test('a text in which nothing settles costs no more than three times itself', async t => {
  const cache = new PromptCache(1e9)
  let units = 0
  const never = {
    encode(text: string, out: TokenBuffer) {
      units += text.length
      out.push(1)
      return { at: 0, tokens: 0, inside: 0 } as const
    },
  }
  const text = 'a'.repeat(2_000_000)
  cache.encode(cache.newScope(), never, text)
  t.ok(units <= 3 * text.length + 4096, `${units} units`)
})

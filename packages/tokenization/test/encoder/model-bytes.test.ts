/**
 * Vocabulary and merges that are read from the bytes of a file are those that JSON.parse gives; what is in no
 * plain form JSON.parse reads.
 */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { vocabularyAtHand } from '../../scripts/vocabularies.ts'
import { buildEncoderTables, type EncoderTables } from '../../src/encoder/encoder-tables.ts'
import {
  type ModelBytes,
  readMergesBytes,
  readVocabBytes,
  splitModel,
} from '../../src/encoder/model-bytes.ts'
import { int32Section, uint8Section } from '../../src/encoder/shared-sections.ts'
import { Vocabulary } from '../../src/encoder/vocabulary.ts'
import { randomTokenizer } from '../reference/variants.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const CASES = 60
const TINY = fileURLToPath(new URL('../../fixtures/tiny', import.meta.url))
const NUMBERS = ['merges', 'mergeSlots', 'byteRanks', 'byteIds', 'seamPairs'] as const

type Outcome = EncoderTables | { readonly refusal: string } | { readonly error: string }

function outcomeOf(build: () => EncoderTables | { readonly refusal: string }): Outcome {
  try {
    return build()
  } catch (error) {
    return { error: (error as Error).message }
  }
}

/** By bytes; `wholes` counts how often JSON.parse was needed for vocabulary and merges. */
function byBytes(file: Buffer): { readonly outcome: Outcome; readonly wholes: number } {
  let wholes = 0
  const whole = () => {
    wholes++
    return JSON.parse(file.toString())
  }
  const split = splitModel(file)
  const build = () =>
    split === undefined ? buildEncoderTables(whole()) : buildEncoderTables(split.rest, { ...split, whole })
  return { outcome: outcomeOf(build), wholes }
}

const byParsing = (file: Buffer): Outcome => outcomeOf(() => buildEncoderTables(JSON.parse(file.toString())))

function assertSame(ours: Outcome, parsed: Outcome): void {
  if (!('memory' in ours) || !('memory' in parsed)) {
    assert.deepEqual(ours, parsed)
    return
  }
  const { sections: _ours, ...description } = ours.description
  const { sections: _parsed, ...expected } = parsed.description
  assert.deepEqual(description, expected)
  const section = (tables: EncoderTables, name: (typeof NUMBERS)[number] | 'ids') =>
    int32Section(tables.memory, tables.description.sections[name])
  for (const name of NUMBERS) assert.deepEqual(section(ours, name), section(parsed, name), name)
  assert.deepEqual(tokensOf(ours), tokensOf(parsed))
}

/** Each token's bytes with its id and whether it is whole, in the order of ids. */
function tokensOf({ memory, description: { sections } }: EncoderTables): readonly string[] {
  const starts = int32Section(memory, sections.starts)
  const bytes = uint8Section(memory, sections.bytes)
  const ids = int32Section(memory, sections.ids)
  const vocabulary = new Vocabulary({ slots: int32Section(memory, sections.slots), starts, bytes, ids })
  return Array.from(ids, (id, i) => {
    const slot = vocabulary.findSlot(bytes, starts[i]!, starts[i + 1]!)
    assert.equal(vocabulary.idOfSlot(slot), id)
    return `${id} ${vocabulary.wholeOfSlot(slot)} ${Buffer.from(bytes.subarray(starts[i]!, starts[i + 1]!)).toString('hex')}`
  }).sort()
}

t.test('of real tokenizers, all tables are the same, and nothing but the small rest is parsed', async t => {
  for (const name of ['tiny', 'gpt2', 'cl100k-32k', 'llama3']) {
    const found = name === 'tiny' ? { directory: TINY } : vocabularyAtHand(name)
    if ('missing' in found) continue
    const file = readFileSync(join(found.directory, 'tokenizer.json'))
    const { outcome, wholes } = byBytes(file)
    assertSame(outcome, byParsing(file))
    t.equal(wholes, 0, name)
  }
})

/** The same JSON written otherwise: white space, escapes, members in another order. */
function written(random: Random, value: unknown): string {
  const space = () => ' \n\t\r'.slice(random.below(4), 4).slice(0, random.below(3))
  if (typeof value === 'string') {
    const letters = Array.from(value, letter =>
      random.below(500) === 0 && letter.length === 1
        ? `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`
        : JSON.stringify(letter).slice(1, -1),
    )
    return `"${letters.join('')}"`
  }
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value))
    return `[${space()}${value.map(item => written(random, item)).join(`${space()},${space()}`)}]`
  const members = Object.entries(value).map(
    ([key, item]) => `${written(random, key)}${space()}:${space()}${written(random, item)}`,
  )
  return `{${space()}${members.join(`${space()},${space()}`)}${space()}}`
}

t.test('tokenizers drawn at random give the same tables, however their JSON is written', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  let plain = 0
  for (let seed = SEED; seed < SEED + CASES; seed++) {
    const random = seededRandom(seed)
    const tokenizer = randomTokenizer(random)
    const file = Buffer.from(written(random, tokenizer))
    assert.deepEqual(JSON.parse(file.toString()), tokenizer, `HOMING_SEED=${seed}: written wrongly`)
    const { outcome, wholes } = byBytes(file)
    if (wholes === 0) plain++
    try {
      assertSame(outcome, byParsing(file))
    } catch (error) {
      throw new Error(`HOMING_SEED=${seed}: ${(error as Error).message}`)
    }
  }
  t.ok(plain > 0, `${plain} of ${CASES} without JSON.parse`)
})

t.test('bytes that are changed or cut at random have the fate that JSON.parse gives them', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  const random = seededRandom(SEED)
  const file = readFileSync(join(TINY, 'tokenizer.json'))
  for (let i = 0; i < 150; i++) {
    let changed: Buffer = Buffer.from(file)
    const at = random.below(file.length)
    if (random.below(8) === 0) changed = changed.subarray(0, at)
    else
      for (let k = 0; k <= random.below(3); k++)
        changed[Math.min(at + k, file.length - 1)] =
          random.below(3) === 0 ? random.below(256) : '"\\{}[],: 09a'.charCodeAt(random.below(12))
    assertSame(byBytes(changed).outcome, byParsing(changed))
  }
})

const VOCAB = '{"a":0,"b":1,"ab":2}'
const MERGES = '["a b"]'

t.test('what is in no plain form is not read by bytes', async t => {
  const vocabulary = readVocabBytes(Buffer.from(VOCAB))!.vocabulary
  t.equal(vocabulary.find(Buffer.from('ab'), 0, 2), 2)
  t.match(
    readMergesBytes(Buffer.from(MERGES), vocabulary, () => {}),
    { left: Int32Array.of(0), made: Int32Array.of(2) },
  )
  t.match(
    readMergesBytes(Buffer.from('[["a", "b"]]'), vocabulary, () => {}),
    { right: Int32Array.of(1) },
  )
  for (const bad of [
    '{"a":0,"a":1}',
    '{"a":0,"b":0}',
    '{"a":-1}',
    '{"a":1.0}',
    '{"a":1e1}',
    '{"a":01}',
    '{"a":"0"}',
    '{"a":0,}',
    '{"a" 0}',
    '{"\\ud83d":0}',
    '{"\\u00g0":0}',
    '{"\\x":0}',
    '{"a\n":0}',
    '{"東":0,"東":1}',
    '{"a":9999999999}',
    '[]',
    '{"a":0',
    '{}',
  ])
    t.equal(readVocabBytes(Buffer.from(bad)), undefined, bad)
  for (const bad of [
    '["a"]',
    '["a b c"]',
    '[" ab"]',
    '["ab "]',
    '["a c"]',
    '["b a"]',
    '[["a"]]',
    '[["a","b","a"]]',
    '["a b",]',
    '[["a",1]]',
    '["#version: 0.2","a b"]',
    '[["","ab"]]',
    '["a b"',
    '{}',
    '[]',
    `["a ${'b'.repeat(70_000)}"]`,
  ])
    t.equal(
      readMergesBytes(Buffer.from(bad), vocabulary, () => {}),
      undefined,
      bad,
    )
  const model = (members: string) => Buffer.from(`{"x":[{"model":1}],"model":{${members}},"y":"}\\"{"}`)
  t.match(splitModel(model(`"vocab":${VOCAB},"merges":${MERGES}`)), {
    rest: { model: { vocab: {}, merges: [] }, y: '}"{' },
    vocab: Buffer.from(VOCAB),
    merges: Buffer.from(MERGES),
  } satisfies { rest: object } & Partial<ModelBytes>)
  for (const bad of [
    `"vocab":${VOCAB}`,
    `"vocab":${VOCAB},"merges":${MERGES},"vocab":{}`,
    `"v\\u006fcab":${VOCAB},"merges":${MERGES}`,
    `"vocab":[],"merges":${MERGES}`,
    `"vocab":${VOCAB},"merges":{}`,
    `"vocab":${VOCAB},"merges":${MERGES},`,
  ])
    t.equal(splitModel(model(bad)), undefined, bad)
  t.equal(splitModel(Buffer.from([0x7b, 0xff, 0x7d])), undefined, 'no UTF-8')
})

t.test('a guess where a token may be changes nothing but the time', async t => {
  const tokens = ['a', 'b', 'ab', 'abc']
  const bytes = Buffer.from(tokens.join(''))
  const starts = Int32Array.of(0, 1, 2, 4, 7)
  const vocabulary = Vocabulary.build(starts, bytes, Int32Array.of(5, 6, 7, 8))
  for (const [entry, token] of tokens.entries())
    for (const guess of [-1, 0, 1, 2, 3, 4, 99])
      t.equal(vocabulary.findNear(guess, Buffer.from(token), 0, token.length), entry)
  t.equal(vocabulary.findNear(2, Buffer.from('x'), 0, 1), -1)
})

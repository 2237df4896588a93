/**
 * The encoder gives the ids of the reference, token for token: on every vocabulary those recorded, live those
 * of the native binding on further texts, on tokenizers drawn at random, and however a text grows.
 *
 * Runs for HOMING_FUZZ_SECONDS beyond the recording (4; `.ci/run` takes 45). For minutes run it as a program,
 * since `pnpm test` bounds a file. Each case has a seed of its own; a failure says which, and
 * HOMING_SEED=<that> runs it first.
 */

import { join } from 'node:path'
import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { VOCABULARIES, vocabularyAtHand } from '../../scripts/vocabularies.ts'
import { EncodeError } from '../../src/errors.ts'
import { type Encode, nativeEncoder, nativeEncoderOf } from './native.ts'
import { Ours } from './ours.ts'
import { digestAt, digestOf, type RecordedVocabulary, readRecorded, recordedTexts } from './recorded.ts'
import { hostileText, longHostileText } from './texts.ts'
import { randomTokenizer } from './variants.ts'

const SECONDS = Number(process.env['HOMING_FUZZ_SECONDS'] ?? 4)
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const WORD_TABLE_BYTES = 1 << 20
/** So few that words are thrown out all the time. */
const WORD_TABLE_BYTES_FEW = 1 << 14
const TEXTS_OF_A_CASE = 10
/** The first case has a long text, and then every so many. */
const LONG_EVERY = 20
const SHOWN_CHARS = 2000
/** Two parts for each vocabulary, in two thirds of the time. */
const SECONDS_OF_A_PART = SECONDS / 3 / VOCABULARIES.length
const NO_BINDING = 'the registry has no native binding for this platform'

// The time of all is bounded by SECONDS, and by the limit of a test file.
t.setTimeout(0)

const recorded = readRecorded()
const texts = recordedTexts(recorded)

for (const { name, sha256 } of VOCABULARIES) {
  const found = vocabularyAtHand(name)
  const skip = 'missing' in found ? found.missing : false
  t.test(
    `${name}: the ids of the reference, recorded and live, and of a text that grows`,
    { skip },
    async t => {
      if ('missing' in found) return
      t.comment(`HOMING_SEED=${SEED}`)
      const large = Ours.load(found.directory, WORD_TABLE_BYTES)
      const small = large.withWordTable(WORD_TABLE_BYTES_FEW)
      const vocabulary = recorded.vocabularies[name]!
      t.equal(vocabulary.sha256, sha256, 'the recording is of this tokenizer.json')
      for (const ours of [large, small]) {
        const encoder = ours.encoder()
        const different = await differing(text => encoder.encode(text), vocabulary)
        t.strictSame(different, [], 'no recorded text differs')
        for (const [i, ids] of vocabulary.first.entries()) t.strictSame([...encoder.encode(texts[i]!)], ids)
      }
      const native = await nativeEncoder(join(found.directory, 'tokenizer.json'))
      if (native === undefined) t.pass('live', { skip: NO_BINDING })
      else {
        t.strictSame(await differing(native, vocabulary), [], 'the native binding is the reference too')
        t.comment(await sameLive(name, small, native))
      }
      t.comment(await sameGrowing(name, large))
    },
  )
}

/** The recorded texts to which `encode` gives other ids. */
async function differing(
  encode: (text: string) => Int32Array | Promise<readonly number[]>,
  vocabulary: RecordedVocabulary,
): Promise<readonly string[]> {
  const different: string[] = []
  for (const [i, text] of texts.entries()) {
    if (digestOf(await encode(text)) !== digestAt(vocabulary, i)) different.push(text)
  }
  return different
}

/** Further texts, as the native binding encodes them. */
async function sameLive(name: string, ours: Ours, native: Encode): Promise<string> {
  const encoder = ours.encoder()
  let tokens = 0
  const cases = await forSeconds(SECONDS_OF_A_PART, async seed => {
    const random = seededRandom(seed)
    for (let i = 0; i < TEXTS_OF_A_CASE; i++) {
      const text = i === 0 && isLong(seed) ? longHostileText(random) : hostileText(random)
      const expected = await native(text)
      tokens += expected.length
      mustEqual(encoder.encode(text), expected, `HOMING_SEED=${seed}: ${name}: ${shown(text)}`)
    }
  })
  return `live: ${cases * TEXTS_OF_A_CASE} texts, ${tokens} tokens`
}

/** A text that grows, taken up where it was settled, has the ids of the whole. */
async function sameGrowing(name: string, ours: Ours): Promise<string> {
  const [growing, whole] = [ours.encoder(), ours.encoder()]
  const cases = await forSeconds(SECONDS_OF_A_PART, async seed => {
    const random = seededRandom(seed)
    const text = isLong(seed)
      ? longHostileText(random)
      : Array.from({ length: 3 }, () => hostileText(random)).join('')
    const cuts = cutsOf(random, text)
    growing.encode(text.slice(0, cuts[0]))
    for (const cut of cuts.slice(1)) {
      const part = text.slice(0, cut)
      const what = `HOMING_SEED=${seed}: ${name}: ${shown(text)} cut at ${cuts}`
      mustEqual(growing.encodeOn(part), whole.encode(part), what)
    }
  })
  return `growing: ${cases} texts`
}

function isLong(seed: number): boolean {
  return (seed - SEED) % LONG_EVERY === 0
}

/** Runs cases, each with a seed of its own, for so long; returns how many. */
async function forSeconds(seconds: number, run: (seed: number) => Promise<void>): Promise<number> {
  const endsAt = performance.now() + seconds * 1000
  let cases = 0
  for (let seed = SEED; cases === 0 || performance.now() < endsAt; seed++) {
    try {
      await run(seed)
    } catch (error) {
      // Only a long text may be refused: for thousands of characters in a row that a normal form changes.
      if (!(error instanceof EncodeError && isLong(seed))) throw error
    }
    cases++
  }
  return cases
}

t.test('tokenizers drawn at random are refused, or encode as the native binding does', async t => {
  t.comment(`HOMING_SEED=${SEED}`)
  if ((await nativeEncoderOf(randomTokenizer(seededRandom(SEED)))) === undefined) {
    t.pass('no reference', { skip: NO_BINDING })
    return
  }
  let refused = 0
  const cases = await forSeconds(SECONDS / 3, async seed => {
    const random = seededRandom(seed)
    const tokenizer = randomTokenizer(random)
    const ours = Ours.of(tokenizer, pick(random, [WORD_TABLE_BYTES, WORD_TABLE_BYTES_FEW]))
    if ('refusal' in ours) {
      refused++
      return
    }
    const native = (await nativeEncoderOf(tokenizer))!
    const [encoder, growing] = [ours.encoder(), ours.encoder()]
    for (let i = 0; i < TEXTS_OF_A_CASE; i++) {
      const text = hostileText(random)
      const expected = await native(text)
      mustEqual(encoder.encode(text), expected, `HOMING_SEED=${seed}: ${shown(text)}`)
      const cuts = cutsOf(random, text)
      growing.encode(text.slice(0, cuts[0]))
      for (const cut of cuts.slice(1, -1)) growing.encodeOn(text.slice(0, cut))
      mustEqual(growing.encodeOn(text), expected, `HOMING_SEED=${seed}: ${shown(text)} cut at ${cuts}`)
    }
  })
  t.comment(`${cases} tokenizers, of which ${refused} were refused`)
  t.ok(refused < cases || cases < 10, 'not all are refused')
})

function shown(text: string): string {
  const json = JSON.stringify(text)
  return json.length <= SHOWN_CHARS ? json : `${json.slice(0, SHOWN_CHARS)} … (${text.length} characters)`
}

/** Two to five places in growing order, the end last; none inside a pair of surrogates. */
function cutsOf(random: Random, text: string): readonly number[] {
  const cuts = Array.from({ length: 1 + random.below(4) }, () => random.below(text.length + 1))
  return [...cuts.filter(cut => text.slice(0, cut).isWellFormed()), 0]
    .sort((a, b) => a - b)
    .concat(text.length)
}

/** Throws, because a fuzz that goes on after a difference reports it a thousand times. */
function mustEqual(ids: Int32Array, expected: ArrayLike<number>, what: string): void {
  let at = 0
  while (at < ids.length && ids[at] === expected[at]) at++
  if (at === ids.length && at === expected.length) return
  const eight = (list: ArrayLike<number>): string =>
    Array.from(list)
      .slice(at, at + 8)
      .join(' ')
  throw new Error(
    `${what}: from token ${at} on it gives ${eight(ids)} … and should give ${eight(expected)} …`,
  )
}

function pick<T>(random: Random, of: readonly T[]): T {
  return of[random.below(of.length)]!
}

/**
 * Compares two tokenizers on hostile texts, and prints how many differ, with the shortest texts that do.
 *
 *   pnpm exec node packages/tokenization/test/reference/compare.ts \
 *     SUBJECT REFERENCE [TEXTS] [SEED] [VOCABULARY …]
 *
 * SUBJECT and REFERENCE are `ours`, `native`, `library` or `python` (HOMING_PYTHON); exit code 1 when any
 * text differs.
 */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { seededRandom } from '@homing/base'
import { Tokenizer } from '@huggingface/tokenizers'
import { VOCABULARIES, vocabularyAtHand } from '../../scripts/vocabularies.ts'
import { nativeEncoder } from './native.ts'
import { Ours } from './ours.ts'
import { pythonIds } from './recorded.ts'
import { shrinkText } from './shrink.ts'
import { hostileText, longHostileText } from './texts.ts'

type Encode = (text: string) => string | Promise<string>

const TEXTS = 10_000
const SHOWN_MAX = 5
/** Every how many texts a long one comes. */
const LONG_EVERY = 100
const WORD_TABLE_BYTES = 1 << 22

/** The ids of a text, as one string; of `python` undefined: it takes texts as a stream. */
async function encoderOf(who: string, directory: string): Promise<Encode | undefined> {
  const path = join(directory, 'tokenizer.json')
  switch (who) {
    case 'python':
      return undefined
    case 'ours': {
      const encoder = Ours.load(directory, WORD_TABLE_BYTES).encoder()
      return text => encoder.encode(text).join(' ')
    }
    case 'library': {
      const tokenizer = new Tokenizer(JSON.parse(readFileSync(path, 'utf8')), {})
      return text => tokenizer.encode(text, { add_special_tokens: false }).ids.join(' ')
    }
    case 'native': {
      const encode = await nativeEncoder(path)
      if (encode === undefined)
        throw new Error('cannot compare: the native binding has no binary for this platform')
      return async text => (await encode(text)).join(' ')
    }
    default:
      throw new Error(`cannot compare: ${who} is unknown; known: ours, native, library, python`)
  }
}

async function* idsOf(
  encode: Encode | undefined,
  directory: string,
  texts: () => Iterable<string>,
): AsyncGenerator<string> {
  if (encode !== undefined) {
    for (const text of texts()) yield await encode(text)
    return
  }
  const lines = pythonIds(join(directory, 'tokenizer.json'), texts())
  await lines.next()
  yield* lines
}

async function compare(
  [subject, reference]: readonly [string, string],
  directory: string,
  texts: () => Generator<string>,
): Promise<{ tokens: number; different: number; shown: readonly string[] }> {
  const encoders = [await encoderOf(subject, directory), await encoderOf(reference, directory)]
  const [ours, theirs] = encoders.map(encode => idsOf(encode, directory, texts)) as [
    AsyncGenerator<string>,
    AsyncGenerator<string>,
  ]
  const shown: string[] = []
  let [tokens, different] = [0, 0]
  for (const text of texts()) {
    const [a, b] = [await ours.next(), await theirs.next()]
    tokens += b.value === '' ? 0 : b.value.split(' ').length
    if (a.value === b.value) continue
    different++
    if (shown.length >= SHOWN_MAX) continue
    const [first, second] = encoders
    shown.push(
      first === undefined || second === undefined
        ? text
        : await shrinkText(text, async part => (await first(part)) !== (await second(part))),
    )
  }
  return { tokens, different, shown }
}

if (import.meta.main) {
  const [subject = 'ours', reference = 'native', count = TEXTS, seed = 1, ...names] = process.argv.slice(2)
  for (const { name } of VOCABULARIES) {
    if (names.length > 0 && !names.includes(name)) continue
    const found = vocabularyAtHand(name)
    if ('missing' in found) {
      console.log(found.missing)
      continue
    }
    const texts = function* (): Generator<string> {
      const random = seededRandom(Number(seed))
      for (let i = 0; i < Number(count); i++)
        yield i % LONG_EVERY === LONG_EVERY - 1 ? longHostileText(random) : hostileText(random)
    }
    const { tokens, different, shown } = await compare([subject, reference], found.directory, texts)
    console.log(`${name}: ${different} of ${count} texts differ (${tokens} tokens)`)
    for (const text of [...shown].sort((a, b) => a.length - b.length)) {
      console.log(
        `  ${JSON.stringify(text)}  ${Array.from(text, c => c.codePointAt(0)!.toString(16)).join(' ')}`,
      )
    }
    if (different > 0) process.exitCode = 1
  }
}

/**
 * What the reference made of hostile texts, recorded, so that tests compare without it.
 *
 * Of each text a digest of its ids is kept, of the first few the ids themselves. The texts are made again
 * from the seed; a digest over all of them tells when the generator has changed since the recording.
 *
 * `HOMING_PYTHON=PYTHON pnpm exec node packages/tokenization/test/reference/recorded.ts` records anew, where
 * PYTHON has the package `tokenizers`; vocabularies that are not at hand keep what was recorded of them.
 */

import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { seededRandom } from '@homing/base'
import { VOCABULARIES, vocabularyAtHand } from '../../scripts/vocabularies.ts'
import { hostileText } from './texts.ts'

export interface RecordedVocabulary {
  /** Of the tokenizer.json. */
  readonly sha256: string
  /** Eight hexadecimal digits for each text. */
  readonly digests: string
  /** The ids of the first texts. */
  readonly first: readonly (readonly number[])[]
}

export interface Recorded {
  readonly reference: string
  readonly seed: number
  readonly texts: number
  readonly textsSha256: string
  readonly vocabularies: Readonly<Record<string, RecordedVocabulary>>
}

const PATH = fileURLToPath(new URL('../fixtures/reference.json', import.meta.url))
const SCRIPT = fileURLToPath(new URL('reference.py', import.meta.url))
const SEED = 1
const TEXTS = 500
const FIRST = 4
const DIGEST_DIGITS = 8

export function readRecorded(): Recorded {
  return JSON.parse(readFileSync(PATH, 'utf8'))
}

/** The texts of the recording. Throws when the generator makes others by now. */
export function recordedTexts({ seed, texts: count, textsSha256 }: Recorded): readonly string[] {
  const texts = hostileTexts(seed, count)
  if (sha256(JSON.stringify(texts)) !== textsSha256) {
    throw new Error('cannot compare with the recording: the texts of its seed have changed; record anew')
  }
  return texts
}

export function digestOf(ids: readonly number[] | Int32Array): string {
  return sha256(Int32Array.from(ids)).slice(0, DIGEST_DIGITS)
}

/** The digest recorded of text number `i`. */
export function digestAt({ digests }: RecordedVocabulary, i: number): string {
  return digests.slice(i * DIGEST_DIGITS, (i + 1) * DIGEST_DIGITS)
}

/** The version of the reference, then the ids of each text, from the Python package. */
export async function* pythonIds(tokenizerPath: string, texts: Iterable<string>): AsyncGenerator<string> {
  const python = process.env['HOMING_PYTHON'] ?? 'python3'
  const child = spawn(python, [SCRIPT, tokenizerPath], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, PYTHONIOENCODING: 'utf-8', TOKENIZERS_PARALLELISM: 'false' },
  })
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('close', resolve)
    child.once('error', reject)
  })
  const write = async (): Promise<void> => {
    for (const text of texts) {
      if (!child.stdin.write(`${JSON.stringify(text)}\n`)) {
        await new Promise(resolve => child.stdin.once('drain', resolve))
      }
    }
    child.stdin.end()
  }
  const written = write()
  yield* createInterface({ input: child.stdout })
  await written
  const status = await ended
  if (status !== 0) throw new Error(`cannot ask the reference: ${python} ended with ${status}`)
}

function hostileTexts(seed: number, count: number): readonly string[] {
  const random = seededRandom(seed)
  return Array.from({ length: count }, () => hostileText(random))
}

function sha256(bytes: string | Int32Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

async function record(): Promise<Recorded> {
  const texts = hostileTexts(SEED, TEXTS)
  const textsSha256 = sha256(JSON.stringify(texts))
  const before = tryReadRecorded()
  const keeps = before?.textsSha256 === textsSha256 ? before.vocabularies : {}
  const vocabularies: Record<string, RecordedVocabulary> = {}
  let reference = ''
  for (const { name, sha256 } of VOCABULARIES) {
    const found = vocabularyAtHand(name)
    if ('missing' in found) {
      console.error(found.missing)
      if (keeps[name] !== undefined) vocabularies[name] = keeps[name]
      continue
    }
    const all: number[][] = []
    let version: string | undefined
    for await (const line of pythonIds(join(found.directory, 'tokenizer.json'), texts)) {
      if (version === undefined) version = line
      else all.push(line === '' ? [] : line.split(' ').map(Number))
    }
    reference = `tokenizers ${version}`
    vocabularies[name] = { sha256, digests: all.map(digestOf).join(''), first: all.slice(0, FIRST) }
    console.log(`${name}: ${all.length} texts, ${all.reduce((sum, ids) => sum + ids.length, 0)} tokens`)
  }
  return { reference, seed: SEED, texts: TEXTS, textsSha256, vocabularies }
}

function tryReadRecorded(): Recorded | undefined {
  try {
    return readRecorded()
  } catch {
    return undefined // nothing was recorded yet
  }
}

if (import.meta.main) writeFileSync(PATH, `${JSON.stringify(await record(), null, 1)}\n`)

/**
 * Question   What does it cost to turn text into token ids, beside the JavaScript library and the native
 *            binding?
 * Workload   Texts of four kinds (corpora.ts) of `sizes` tokens, on real vocabularies, which `pnpm
 *            vocabularies` makes:
 *              new    tables are empty at the start of each text
 *              warm   tables are filled by other text of the same kind, and this text was never seen
 *              turn   warm, and all of the text but its last quarter (at most `turnTokens`) was encoded a
 *                     moment ago
 * Arms       ours       the encoder of this checkout, its word table bounded by `wordTableMb`
 *            library    @huggingface/tokenizers in JavaScript, its caches filled by other text
 *            native     Hugging Face's Rust library by its native binding, likewise; left out where it has no
 *                       binary
 * Loop       one text at a time; each arm goes through half of the texts, then the other half in the opposite
 *            order of arms. Where arms took turns on each text, the library's work threw our tables out of
 *            the processor's caches before each text of 1 k, and not the other way round: 0.35 ms instead of
 *            0.20.
 * Checked    Every text gives the same ids in all arms and states, or the bench fails; the JavaScript library
 *            alone may differ (it does on some vocabularies), and is counted. Part equality: `tokens` tokens
 *            of hostile and of plain text for each of `vocabularies`, ours beside the native binding; texts
 *            that ours refuses (too many marks on one character) are counted. Part memory: ./memory.ts, for
 *            `minutes`; fails when words or what is remembered take more than their settings.
 * Read it    CPU time (user and system) for a text; a process for each row, so that no text was seen before.
 *            Ratios within one run only. library and native always get the whole text: they have no way to go
 *            on.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { vocabularyAtHand } from '../../packages/tokenization/scripts/vocabularies.ts'
import { EncodeError } from '../../packages/tokenization/src/errors.ts'
import { type OurEncoder, Ours } from '../../packages/tokenization/test/reference/ours.ts'
import { hostileText, longHostileText } from '../../packages/tokenization/test/reference/texts.ts'
import { isSmoke, type Measures, parameter, runBench, Skip, say, type Target, usage } from '../harness.ts'
import { type Arm, type Encode, libraryArm, nativeArm } from './arms.ts'
import { type Corpus, corpusOf, KINDS, type Kind } from './corpora.ts'
import { measureMemory } from './memory.ts'

const vocabularies = listOf('vocabularies', { smoke: 'cl100k-32k', full: 'cl100k-32k,llama3' })
const kinds = listOf('kinds', { smoke: 'english,mixed', full: KINDS.join(',') }) as readonly Kind[]
const sizes = listOf('sizes', { smoke: '1000', full: '1000,12000,100000' }).map(Number)
const part = parameter('part', { smoke: '', full: '' })
const texts = parameter('texts', { smoke: 2, full: 16 })
const turnTokens = parameter('turnTokens', { smoke: 1000, full: 1000 })
/** As routers have it by default. */
const wordTableMb = parameter('wordTableMb', { smoke: 4, full: 8 })
const equalityTokens = parameter('tokens', { smoke: 10_000, full: 300_000 })
const minutes = parameter('minutes', { smoke: 0.01, full: 1 })
const threads = parameter('threads', { smoke: 1, full: 2 })
const promptCacheMb = parameter('promptCacheMb', { smoke: 4, full: 64 })
const seed = parameter('seed', { smoke: 1, full: 1 })

for (const kind of kinds) {
  if (!KINDS.includes(kind)) usage(`kinds=${kind}: unknown; known: ${KINDS.join(', ')}`)
}
for (const size of sizes) {
  if (!(size >= 1 && size <= 100_000)) usage(`sizes=${size}: not 1 … 100000`)
}

const EQUALITY = 'equality'
const MEMORY = 'memory'
/** What a vocabulary may take, once for all threads. */
const MEMORY_MB_MAX = 40
const STATES = ['new', 'warm', 'turn'] as const
type State = (typeof STATES)[number]
/** Texts of a size are so many that they have about as many tokens as the largest has. */
const TOKENS_PER_SIZE_MAX = 100_000
const SAMPLE_CHARS = 50_000
const OTHER_CHARS = isSmoke ? 50_000 : 1_000_000
const SHOWN_CHARS = 200
/** Every how many hostile texts a piece of plain text is compared. */
const PLAIN_EVERY = 8
const PLAIN_CHARS = 2000
/** And a long hostile one. */
const LONG_EVERY = 1000

const parts = [
  ...vocabularies.flatMap(name => kinds.flatMap(kind => sizes.map(size => `${name} ${kind} ${size}`))),
  ...vocabularies.flatMap(name => [`${name} ${EQUALITY}`, `${name} ${MEMORY}`]),
].filter(name => part === '' || name.includes(part))
if (parts.length === 0) usage(`part=${part}: no part of this run has it in its name`)

async function run(name: string): Promise<Measures | Skip> {
  const [vocabulary, what, size] = name.split(' ') as [string, string, string | undefined]
  const found = vocabularyAtHand(vocabulary)
  if ('missing' in found) return new Skip(found.missing)
  if (what === MEMORY) {
    const settings = {
      minutes,
      threads,
      wordTableBytes: wordTableMb << 20,
      promptCacheBytes: promptCacheMb << 20,
      seed,
    }
    return measureMemory(vocabulary, found.directory, settings)
  }
  const native = await nativeArm(found.directory)
  if (native === undefined) say('  native is left out: its registry has no binary for this platform')
  if (what === EQUALITY) {
    if (native === undefined) return new Skip('equality needs the native binding')
    return equality(vocabulary, found.directory, native)
  }
  const library = libraryArm(found.directory)
  const peers = native === undefined ? [library] : [library, native]
  const row = `${vocabulary} ${what} ${Number(size) / 1000} k`
  return measure(row, Ours.load(found.directory, wordTableMb << 20), peers, what as Kind, Number(size))
}

async function measure(
  row: string,
  ours: Ours,
  peers: readonly Arm[],
  kind: Kind,
  size: number,
): Promise<Measures> {
  const corpus = corpusOf(kind)
  const other = corpus.other.slice(0, OTHER_CHARS)
  const sample = other.slice(0, SAMPLE_CHARS)
  const charsPerToken = sample.length / (await peers[0]!.encode(sample)).length
  const list = textsOf(corpus, size, charsPerToken)
  for (const arm of peers) await arm.encode(other)
  const warm = ours.encoder()
  warm.encode(other)
  const cpuMs = new Map<string, number>()
  const ids = list.map(() => new Map<string, ArrayLike<number>>())
  // What a text needs before the clock runs is made for each text anew; what it has filled must not be left
  // to another.
  const contestants: readonly (readonly [string, (text: string) => Encode])[] = [
    [
      'new' satisfies State,
      () => {
        const empty = ours.encoder()
        return text => empty.encode(text)
      },
    ],
    ...peers.map(arm => [arm.name, () => arm.encode] as const),
    ['warm' satisfies State, () => text => warm.encode(text)],
    [
      'turn' satisfies State,
      text => {
        const start = text.length - Math.round(Math.min(text.length / 4, turnTokens * charsPerToken))
        const turn = ours.encoder()
        turn.encode(other)
        turn.encode(wellFormed(text.slice(0, start)))
        return whole => turn.encodeOn(whole)
      },
    ],
  ]
  const half = (list.length + 1) >> 1
  for (const [from, to, order] of [
    [0, half, contestants],
    [half, list.length, contestants.toReversed()],
  ] as const) {
    for (const [name, prepare] of order) {
      // The native binding works on another thread; of the others, what V8's own threads do is left out.
      const cpuMsNow = name === 'native' ? processCpuMs : threadCpuMs
      for (let i = from; i < to; i++) {
        const text = list[i]!
        const encode = prepare(text)
        const before = cpuMsNow()
        const answer = encode(text)
        const given = answer instanceof Promise ? await answer : answer
        cpuMs.set(name, (cpuMs.get(name) ?? 0) + cpuMsNow() - before)
        ids[i]!.set(name, Array.from(given))
      }
    }
  }
  let different = 0
  for (const [i, text] of list.entries()) {
    const expected = ids[i]!.get('native') ?? ids[i]!.get('warm')!
    for (const state of STATES) assertEqual(ids[i]!.get(state)!, expected, `${state}: ${shown(text)}`)
    if (!isEqual(ids[i]!.get('library')!, expected)) different++
  }
  const perText = (name: string): number => cpuMs.get(name)! / list.length
  const raw = Object.fromEntries(peers.map(({ name }) => [name, perText(name)]))
  return {
    ...Object.fromEntries(
      STATES.map(state => [`${row} ${state}`, { value: perText(state), unit: 'ms CPU', raw }]),
    ),
    ...(different > 0 ? { [`${row} library differs`]: { value: different, unit: 'texts' } } : {}),
  }
}

function processCpuMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

/**
 * Linux brings the time of a running thread up to date when it is asked for that of the process, else every
 * few milliseconds.
 */
function threadCpuMs(): number {
  process.cpuUsage()
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1000
}

/** Compares until `tokens` tokens were compared; a difference fails the bench. */
async function equality(vocabulary: string, directory: string, native: Arm): Promise<Measures> {
  const encoder = Ours.load(directory, wordTableMb << 20).encoder()
  let count = 0
  let refused = 0
  let tokens = 0
  for (const text of equalityTexts()) {
    const ids = idsOrRefusal(encoder, text)
    if (ids === undefined) {
      refused++
      continue
    }
    const expected = await native.encode(text)
    assertEqual(ids, expected, `${vocabulary}, text ${count} of seed ${seed}: ${shown(text)}`)
    count++
    tokens += expected.length
    if (tokens >= equalityTokens) break
  }
  return {
    ...(refused > 0 ? { [`${vocabulary} texts refused`]: { value: refused, unit: 'texts' } } : {}),
    [`${vocabulary} ${EQUALITY}`]: { value: 0, unit: 'differences' },
    [`${vocabulary} compared`]: { value: tokens, unit: 'tokens' },
    [`${vocabulary} texts compared`]: { value: count, unit: 'texts' },
  }
}

/** Undefined: the encoder says that it cannot encode the text exactly, so that an engine is asked. */
function idsOrRefusal(encoder: OurEncoder, text: string): Int32Array | undefined {
  try {
    return encoder.encode(text)
  } catch (error) {
    if (error instanceof EncodeError) return undefined
    throw error
  }
}

/** Hostile texts without end, and pieces of the plain ones. */
function* equalityTexts(): Generator<string, never> {
  const random = seededRandom(seed)
  const corpora = kinds.map(kind => corpusOf(kind).measured)
  for (let i = 0; ; i++) {
    if (i % PLAIN_EVERY !== 0) {
      yield i % LONG_EVERY === LONG_EVERY - 1 ? longHostileText(random) : hostileText(random)
      continue
    }
    const corpus = corpora[random.below(corpora.length)]!
    const at = random.below(corpus.length - PLAIN_CHARS)
    yield wellFormed(corpus.slice(at, at + PLAIN_CHARS))
  }
}

/** Texts of about `size` tokens, one behind the other in what is measured, so that none was seen before. */
function textsOf({ measured }: Corpus, size: number, charsPerToken: number): readonly string[] {
  const count = Math.max(1, Math.min(texts, Math.floor(TOKENS_PER_SIZE_MAX / size)))
  const chars = Math.min(Math.round(size * charsPerToken), Math.floor(measured.length / count))
  return Array.from({ length: count }, (_, i) => wellFormed(measured.slice(i * chars, (i + 1) * chars)))
}

/** A cut may fall inside a pair of surrogates. */
function wellFormed(text: string): string {
  return text.isWellFormed() ? text : text.replaceAll(/^[\udc00-\udfff]|[\ud800-\udbff]$/g, '')
}

function isEqual(a: ArrayLike<number>, b: ArrayLike<number>): boolean {
  if (a.length !== b.length) return false
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return true
}

function assertEqual(ids: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  if (!isEqual(ids, expected)) assert.deepEqual(Array.from(ids), Array.from(expected), what)
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, SHOWN_CHARS))
}

function listOf(
  name: string,
  defaults: { readonly smoke: string; readonly full: string },
): readonly string[] {
  return parameter(name, defaults)
    .split(',')
    .filter(word => word !== '')
}

/**
 * A vocabulary has at most 40 MB. English and code: 25 and 8 times as fast as the library; the others 5 and 3
 * times. A next turn has no bar here.
 */
function targets(): Readonly<Record<string, Target>> {
  const bars = { english: [25, 8], code: [25, 8], mixed: [5, 3], cjk: [5, 3] } as const
  const memory = vocabularies.map(
    name => [`${name} memory once`, { floor: MEMORY_MB_MAX, goal: MEMORY_MB_MAX / 2 }] as const,
  )
  const speed = vocabularies.flatMap(vocabulary =>
    kinds.flatMap(kind =>
      sizes.flatMap(size =>
        (['warm', 'new'] as const).map((state, i) => {
          const floor = 1 / bars[kind][i]!
          return [
            `${vocabulary} ${kind} ${size / 1000} k ${state}`,
            { floor, goal: floor / 2, timesRaw: 'library' },
          ]
        }),
      ),
    ),
  )
  return Object.fromEntries([...memory, ...speed])
}

await runBench(
  {
    name: 'tokenize',
    question:
      'what does it cost to turn text into token ids, beside the JavaScript library and the native binding?',
    parts,
    targets: targets(),
  },
  run,
)

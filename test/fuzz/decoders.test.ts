/**
 * A fuzzer over every reader of what others have written: each input is read, or refused with an error of
 * that reader, and takes memory in proportion to its size.
 *
 * Runs for HOMING_FUZZ_SECONDS, 5 unless given. Each case has a seed of its own; a failure says which, and
 * HOMING_SEED=<that> runs it first.
 */

import assert from 'node:assert/strict'
import { join } from 'node:path'
import process from 'node:process'
import { type Random, seededRandom } from '@homing/base'
import t from 'tap'
import { readRepository, withoutComments } from '../repository.ts'
import type { Decoder } from './decoder.ts'
import { textOf } from './decoder.ts'
import { DECODERS } from './decoders.ts'
import { mutated, mutatedJson, mutatedText, pick, stretched } from './mutations.ts'
import { undeclaredReaders } from './undeclared.ts'

const SECONDS = Number(process.env['HOMING_FUZZ_SECONDS'] ?? 5)
const SEED = Number(process.env['HOMING_SEED'] ?? 1)
/** Bytes of what is made of one byte of an input; a nil in a list of lists becomes two arrays. */
const WEIGHT_PER_BYTE = 512
const WEIGHT_FIXED = 4096
/** CPU time for an input of some 100 KiB: what the machine does besides is not counted. */
const CASE_MS_MAX = 5000
/** Over the process as it is when it begins; garbage that is not collected yet counts. */
const GROWN_BYTES_MAX = 512 * 2 ** 20

/** About what a value takes in memory. */
function weightOf(value: unknown): number {
  let weight = 0
  const pending = [value]
  while (pending.length > 0) {
    const one = pending.pop()
    if (typeof one === 'string') weight += 16 + 2 * one.length
    else if (ArrayBuffer.isView(one)) weight += 64 + one.byteLength
    else if (typeof one !== 'object' || one === null) weight += 8
    else {
      weight += 64
      const parts = one instanceof Map || one instanceof Set ? one.values() : Object.values(one)
      for (const part of parts) pending.push(part)
    }
  }
  return weight
}

/** Reads, or throws what may be thrown; true when it could be read. */
async function mayRefuse(decoder: Decoder, input: Uint8Array): Promise<boolean> {
  const { read, refusals = [], isUnweighed, caseMsMax = CASE_MS_MAX } = decoder
  const startedAt = process.cpuUsage()
  let result: unknown
  let isRead = true
  try {
    result = await read(input)
  } catch (error) {
    assert.ok(
      refusals.some(refusal => error instanceof refusal),
      `${error instanceof Error ? error.stack : error}`,
    )
    isRead = false
  }
  const { user, system } = process.cpuUsage(startedAt)
  const tookMs = (user + system) / 1000
  assert.ok(tookMs < caseMsMax, `${input.length} bytes take ${Math.round(tookMs)} ms`)
  if (isUnweighed === true) return isRead
  const weight = weightOf(result)
  const most = WEIGHT_FIXED + WEIGHT_PER_BYTE * input.length
  assert.ok(weight <= most, `${weight} bytes are made of an input of ${input.length}`)
  return isRead
}

function seedsOf({ seeds }: Decoder): readonly Uint8Array[] {
  return seeds.map(seed => (typeof seed === 'string' ? Buffer.from(seed) : seed))
}

function inputOf(random: Random, decoder: Decoder): Uint8Array {
  const seeds = seedsOf(decoder)
  const seed = pick(random, seeds)
  if (decoder.form === 'bytes') return mutated(random, seed, seeds)
  const kind = random.below(60)
  if (kind === 0) return Buffer.from(stretched(random, textOf(seed)))
  if (kind < 12) return mutated(random, seed, seeds)
  const json = decoder.form === 'json' && kind < 45 ? mutatedJson(random, textOf(seed)) : undefined
  return Buffer.from(json ?? mutatedText(random, textOf(seed)))
}

/** One case, all of it from its seed; true when it could be read. */
async function fuzzOnce(seed: number): Promise<boolean> {
  const random = seededRandom(seed)
  const decoder = pick(random, DECODERS)
  try {
    return await mayRefuse(decoder, inputOf(random, decoder))
  } catch (error) {
    const why = error instanceof Error ? error.message : error
    throw new Error(`case HOMING_SEED=${seed} of ${decoder.functions[0]}: ${why}`, { cause: error })
  }
}

const unhandled: unknown[] = []
process.on('unhandledRejection', reason => unhandled.push(reason))

t.test('every reader reads what is right', async t => {
  for (const decoder of DECODERS) {
    const read = await Promise.all(seedsOf(decoder).map(seed => mayRefuse(decoder, seed)))
    t.ok(read.includes(true), `${decoder.functions.join(', ')}: some of ${read.length} seeds`)
  }
})

t.test('nothing of what is always tried ends a reader', async t => {
  const deep = 20_000
  const nested = '['.repeat(deep) + ']'.repeat(deep)
  const fixed: readonly (readonly [string, Uint8Array | string])[] = [
    ['nothing', ''],
    ['zeros', new Uint8Array(65_536)],
    ['ones', new Uint8Array(65_536).fill(0xff)],
    ['arrays within arrays', new Uint8Array(65_536).fill(0x91)],
    ['claims', Buffer.from(`9f01${'dd01000000'.repeat(28)}`, 'hex')],
    ['brackets', nested],
    ['braces', '{"a":'.repeat(deep)],
    ['yaml', '- '.repeat(1000)],
    ['tags', '{%'.repeat(deep)],
    ['parentheses', `{{ ${'('.repeat(deep)}`],
  ]
  for (const decoder of DECODERS) {
    const names = decoder.form === 'json' ? namesIn(decoder) : []
    const members = names.map(name => [name, `{"${name}":${nested}}`] as const)
    const first = seedsOf(decoder).map(textOf)
    const inside = decoder.form !== 'json' ? [] : first.flatMap(text => deepIn(text, nested))
    for (const [name, input] of [...fixed, ...members, ...inside]) {
      try {
        await mayRefuse(decoder, typeof input === 'string' ? Buffer.from(input) : input)
      } catch (error) {
        t.fail(`${decoder.functions[0]}, ${name}: ${String((error as Error).message).slice(0, 600)}`)
      }
    }
  }
  t.strictSame(unhandled, [])
})

function namesIn(decoder: Decoder): readonly string[] {
  return [
    ...new Set(
      decoder.seeds.flatMap(seed => [...String(seed).matchAll(/"(\w+)":/g)].map(([, name]) => name!)),
    ),
  ]
}

/** The JSON with each value of it deep. */
function deepIn(text: string, nested: string): readonly (readonly [string, string])[] {
  return [...text.matchAll(/"(\w+)":(?:"[^"]*"|-?\d[\d.]*|null|true|false)/g)].map(match => [
    `${match[1]} deep`,
    `${text.slice(0, match.index)}"${match[1]}":${nested}${text.slice(match.index + match[0].length)}`,
  ])
}

t.test('every reader of what others have written is in the list', async t => {
  const repository = readRepository(join(import.meta.dirname, '../..'))
  t.strictSame(undeclaredReaders(repository, DECODERS), [])
  const faultsIn = (text: string) =>
    undeclaredReaders(
      { ...repository, files: [{ path: 'packages/fleet/src/x.ts', text, code: withoutComments(text) }] },
      DECODERS,
    ).filter(fault => fault.startsWith('packages/fleet/src/x.ts'))
  t.equal(faultsIn('export function decodeCard(bytes: Uint8Array) {}').length, 1)
  t.equal(faultsIn('const card = JSON.parse(text)').length, 2, 'it is bare, and not in the list')
  t.equal(faultsIn('const card = parseJson(text)').length, 1)
  t.equal(faultsIn("import { decode } from '@msgpack/msgpack'").length, 1)
  t.equal(faultsIn("import { encode } from '@msgpack/msgpack'\nexport function readMetrics() {}").length, 0)
})

t.test(`whatever comes, it is read or refused (${SECONDS} s)`, { timeout: 0 }, async t => {
  t.comment(`HOMING_SEED=${SEED}, ${DECODERS.length} readers`)
  const before = process.resourceUsage().maxRSS * 1024
  let read = 0
  const endsAt = performance.now() + SECONDS * 1000
  let cases = 0
  do {
    for (let i = 0; i < 200; i++, cases++) {
      if (await fuzzOnce((SEED + cases) % 2 ** 31)) read++
    }
    await new Promise(resolve => setImmediate(resolve))
  } while (performance.now() < endsAt)
  const grown = process.resourceUsage().maxRSS * 1024 - before
  t.comment(`${cases} cases, of which ${read} could be read; ${Math.round(grown / 2 ** 20)} MiB more at most`)
  t.ok(grown < GROWN_BYTES_MAX, `${grown} bytes more than before`)
  t.strictSame(unhandled, [], 'no rejection is unhandled')
  t.ok(read > 0 && read < cases, `some of ${cases} cases can be read, and some cannot`)
})

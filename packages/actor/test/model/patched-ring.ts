/**
 * Patched ring: ring.ts with a stated change, as a module of its own. The model checker must find the faults
 * of such copies; production code does not use them.
 *
 * A change names the text it replaces; a text that ring.ts does not contain exactly once is an error, so
 * that a variant cannot silently become the original.
 */

import assert from 'node:assert/strict'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { RingModule } from './ring-programs.ts'

export type Change = readonly [from: string, to: string]

const SOURCE = join(import.meta.dirname, '../../src/links/ring/ring.ts')

/** A writer that goes on where the memory is, so that a model can begin anywhere. */
export const WRITER_FROM_MEMORY: Change = [
  `    this.#mask = capacityWords - 1
  }

  get hasUnpublished`,
  `    this.#mask = capacityWords - 1
    this.#head = words.load(HEAD)
    this.#tail = words.load(TAIL)
    this.#published = this.#tail
  }

  get hasUnpublished`,
]

/** Broken variants, named by their fault. */
export const MISTAKES = {
  'publish looks at the reader before it stores the tail': [
    [
      `    words.store(TAIL, this.#tail)
    this.#published = this.#tail
    return words.load(READER) === PARKED &&`,
      `    const isParked = words.load(READER) === PARKED
    words.store(TAIL, this.#tail)
    this.#published = this.#tail
    return isParked &&`,
    ],
  ],
  'park without a second look at the tail': [
    [
      `    if (words.load(TAIL) === this.#head) return true`,
      `    if (words.load(READER) === PARKED) return true`,
    ],
  ],
  'the tail is a plain store': [[`    words.store(TAIL, this.#tail)`, `    words.write(TAIL, this.#tail)`]],
  'a frame is published before its words are written': [
    [
      `    this.#words.write(index, size)
    this.#tail = (this.#tail + size) | 0`,
      `    this.#tail = (this.#tail + size) | 0
    this.#words.store(TAIL, this.#tail)
    this.#words.write(index, size)`,
    ],
  ],
  'the writer loads and stores in place of an exchange': [
    [`words.exchange(READER, RUNNING) === PARKED`, `(words.store(READER, RUNNING), true)`],
  ],
  'the reader loads and stores in place of an exchange': [
    [`words.exchange(WRITER, RUNNING) === WAITING`, `(words.store(WRITER, RUNNING), true)`],
  ],
  'the writer waits for space without a second look at the head': [
    [
      `    if (words.load(HEAD) === this.#head) return true`,
      `    if (words.load(WRITER) === WAITING) return true`,
    ],
  ],
  'the reader looks for a waiting writer before it stores the head': [
    [
      `    words.store(HEAD, this.#head)
    if (words.load(WRITER) !== WAITING) return false`,
      `    const isWaiting = words.load(WRITER) === WAITING
    words.store(HEAD, this.#head)
    if (!isWaiting) return false`,
    ],
  ],
  'the reader wakes the writer only when more than everything is free': [
    [`> this.#capacity >> 1) return false`, `> -1) return false`],
  ],
  'the head is a plain store': [[`    words.store(HEAD, this.#head)`, `    words.write(HEAD, this.#head)`]],
  'room for a frame is counted one word too large': [
    [
      `      if (needed > this.#capacity - ((this.#tail - this.#head) | 0)) return -1`,
      `      if (needed > this.#capacity + 1 - ((this.#tail - this.#head) | 0)) return -1`,
    ],
  ],
  'the words left out at the end are not counted as needed': [
    [`isWrapping ? toEnd + size : size`, `isWrapping ? size : size`],
  ],
  'the writer subtracts positions without wrapping': [
    [
      `    if (needed > this.#capacity - ((this.#tail - this.#head) | 0)) {`,
      `    if (needed > this.#capacity - (this.#tail - this.#head)) {`,
    ],
  ],
  'the reader adds to its position without wrapping': [
    [
      `    this.#head = (this.#head + this.#words.read(index)) | 0`,
      `    this.#head = this.#head + this.#words.read(index)`,
    ],
  ],
  'a new reader begins at the tail': [
    [
      `    this.#head = words.load(HEAD)
    this.#tail = this.#head`,
      `    this.#head = words.load(TAIL)
    this.#tail = this.#head`,
    ],
  ],
} satisfies Readonly<Record<string, readonly Change[]>>

/** ring.ts with these changes. Throws when the text of one is not in it exactly once. */
export async function patchedRing(...changes: readonly Change[]): Promise<RingModule> {
  let source = await readFile(SOURCE, 'utf8')
  for (const [from, to] of changes) {
    const found = source.split(from).length - 1
    assert.equal(found, 1, `ring.ts contains ${found} times, not once: ${from}`)
    source = source.replace(from, () => to)
  }
  const folder = await mkdtemp(join(tmpdir(), 'patched-ring-'))
  try {
    const file = join(folder, 'ring.ts')
    await writeFile(file, source)
    return (await import(pathToFileURL(file).href)) as RingModule
  } finally {
    await rm(folder, { recursive: true })
  }
}

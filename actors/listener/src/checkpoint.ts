/**
 * Checkpoint: the blocks that a worker key held at one point of its source's history, converted to bytes and
 * back. Pure; checkpoint-files.ts stores them.
 *
 *   "HOMINGCP", version u32, bytes of the body u32, CRC-32 of the body u32, body: a map in MessagePack
 *
 * Little-endian. A checkpoint records its position in the history and the last batches. It counts only if the
 * engine repeats these batches when asked: then it is the same life of the engine, and nothing is missing
 * between the checkpoint and the next batch. If both the checkpoint and the engine know when its process
 * began, these times must agree too: engines whose batches contain no time may begin two lives with the same
 * batches.
 */

import { crc32 } from 'node:zlib'
import type { KeyImage } from '@homing/actors/indexer'
import { GUESSED_LAYER, HELD_WORDS, KEY_LAYERS, ORPHAN_WORDS } from '@homing/index'
import { type CacheReadingRecord, decodeMessagePack, HELD_TIERS, type KvTier } from '@homing/protocol'
import { encode } from '@msgpack/msgpack'
import { UnusableCheckpointError } from './errors.ts'

/** Where in the history of a source something was true. */
export interface HistoryPoint {
  /** Sequence of the batch that comes next; those before it are the proof. */
  readonly nextSequence: number
  /** Fingerprints of the consecutive batches before it, as in SeenBatches; at least one. */
  readonly fingerprints: readonly number[]
  /** The history begins with an empty cache. */
  readonly isWhole: boolean
  /** …because the engine cleared it. */
  readonly wasCleared: boolean
  /** Where it does not: why. */
  readonly gapReason: string
}

export interface Checkpoint {
  /** The source: its endpoint and rank. */
  readonly source: string
  /** `<worker id>/<dp rank>` */
  readonly key: string
  /** When the engine's process began; undefined: it does not say. */
  readonly processStartSeconds: number | undefined
  readonly point: HistoryPoint
  readonly image: KeyImage
}

const MAGIC = 'HOMINGCP'
const VERSION = 3
const HEADER_BYTES = MAGIC.length + 12
/**
 * Blocks are four texts of bytes, whatever their number, so the values are few: salts and fingerprints. A
 * million salts fit; the bytes are those that the header says.
 */
const BODY_BOUNDS = { bytesMax: 2 ** 32, valuesMax: 4 * 2 ** 20, depthMax: 8 }
const TIERS: readonly KvTier[] = [...HELD_TIERS, 'unknown']

export function encodeCheckpoint(checkpoint: Checkpoint): Uint8Array[] {
  const { image } = checkpoint
  const { localHashes, parents, held, orphans, reading } = image
  const words = { localHashes, parents, held, orphans }
  const columns = Object.entries(words).map(([name, column]) => [name, bytesOf(column)])
  const written = {
    ...image,
    ...Object.fromEntries(columns),
    reading: { ...reading, left: bytesOf(reading.left) },
  }
  const body = encode({ ...checkpoint, image: written }, { ignoreUndefined: true })
  const header = new Uint8Array(HEADER_BYTES)
  header.set(new TextEncoder().encode(MAGIC))
  const view = new DataView(header.buffer)
  for (const [i, word] of [VERSION, body.length, crc32(body)].entries())
    view.setUint32(MAGIC.length + 4 * i, word, true)
  return [header, body]
}

/** Throws UnusableCheckpointError, with the fault. */
export function decodeCheckpoint(bytes: Uint8Array): Checkpoint {
  if (bytes.length < HEADER_BYTES)
    throw new UnusableCheckpointError('truncated', `it has ${bytes.length} bytes`)
  const magic = new TextDecoder('latin1').decode(bytes.subarray(0, MAGIC.length))
  if (magic !== MAGIC) throw new UnusableCheckpointError('version', 'it does not begin as a checkpoint does')
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const [version, length, stated] = [0, 4, 8].map(at => view.getUint32(MAGIC.length + at, true)) as [
    number,
    number,
    number,
  ]
  if (version !== VERSION) {
    throw new UnusableCheckpointError('version', `it has version ${version}, not ${VERSION}`)
  }
  const body = bytes.subarray(HEADER_BYTES)
  if (body.length < length) {
    throw new UnusableCheckpointError('truncated', `${body.length} bytes of ${length} are there`)
  }
  if (body.length > length) throw new UnusableCheckpointError('altered', 'something follows its end')
  const computed = crc32(body)
  if (computed !== stated) {
    throw new UnusableCheckpointError('altered', `the checksum is ${computed}, not ${stated}`)
  }
  let value: unknown
  try {
    value = decodeMessagePack(body, BODY_BOUNDS)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new UnusableCheckpointError('altered', `its body cannot be read: ${why}`)
  }
  const root = new Fields(value, 'checkpoint')
  const point = root.fields('point')
  return {
    source: root.text('source'),
    key: root.text('key'),
    processStartSeconds: root.has('processStartSeconds') ? root.number('processStartSeconds') : undefined,
    point: {
      nextSequence: point.integer('nextSequence', 1),
      fingerprints: point.integers('fingerprints', -(2 ** 31)),
      isWhole: point.flag('isWhole'),
      wasCleared: point.flag('wasCleared'),
      gapReason: point.text('gapReason'),
    },
    image: readImage(root.fields('image')),
  }
}

function readImage(image: Fields): KeyImage {
  const localHashes = image.words('localHashes', 2)
  const parents = image.words('parents', 1)
  const held = image.words('held', HELD_WORDS)
  const orphans = image.words('orphans', ORPHAN_WORDS)
  const blocks = parents.length
  image.require(localHashes.length === 2 * blocks, 'every block has a hash')
  for (const [i, parent] of parents.entries()) image.require(parent >= 0 && parent <= i, 'parents come first')
  let last = 0
  for (let at = 0; at < held.length; at += HELD_WORDS) {
    const [block, layer, copies] = held.subarray(at, at + 3) as unknown as [number, number, number]
    image.require(block >= Math.max(1, last) && block <= blocks, 'what is held is a block')
    image.require(isLayer(layer) && copies >= 1, 'what is held is held by a layer')
    last = block
  }
  for (let at = 0; at < orphans.length; at += ORPHAN_WORDS) {
    image.require(isLayer(orphans[at]!) && orphans[at + 1]! >= 1, 'an orphan is of a layer')
  }
  return {
    blockSizeTokens: image.has('blockSizeTokens') ? image.integer('blockSizeTokens', 1) : undefined,
    salts: image.list('salts').map(entry => {
      const salt = new Fields(entry, 'salts')
      const name = salt.has('2') ? salt.text('2') : null
      return [salt.integer('0', -(2 ** 31)), salt.integer('1', -(2 ** 31)), name] as const
    }),
    reading: readReading(image.fields('reading')),
    localHashes,
    parents,
    held,
    orphans,
  }
}

function readReading(reading: Fields): CacheReadingRecord {
  return {
    groups: reading.list('groups').map(entry => {
      const group = new Fields(entry, 'groups')
      return {
        id: group.integer('id', 0),
        kind: group.has('kind') ? group.text('kind') : undefined,
        isSparse: group.flag('isSparse'),
        wasAccepted: group.flag('wasAccepted'),
      }
    }),
    tiers: reading.list('tiers').map(tier => {
      reading.require(TIERS.includes(tier as KvTier), 'a tier is one of those that events name')
      return tier as KvTier
    }),
    removesCopies: reading.flag('removesCopies'),
    left: reading.words('left', 2),
  }
}

function isLayer(layer: number): boolean {
  return layer >= 0 && layer < KEY_LAYERS.length && layer !== GUESSED_LAYER
}

function bytesOf(words: Int32Array): Uint8Array {
  return new Uint8Array(words.buffer, words.byteOffset, words.byteLength)
}

/** The members of a decoded map, each of the kind that is asked for. */
class Fields {
  readonly #value: Readonly<Record<string, unknown>>
  readonly #name: string

  constructor(value: unknown, name: string) {
    this.#name = name
    if (typeof value !== 'object' || value === null) throw this.#fault('is no map')
    this.#value = value as Readonly<Record<string, unknown>>
  }

  has(key: string): boolean {
    return this.#value[key] !== undefined && this.#value[key] !== null
  }

  require(condition: boolean, what: string): void {
    if (!condition) throw this.#fault(`is not so that ${what}`)
  }

  fields(key: string): Fields {
    return new Fields(this.#value[key], `${this.#name}.${key}`)
  }

  list(key: string): readonly unknown[] {
    const value = this.#value[key]
    if (!Array.isArray(value)) throw this.#fault(`has no list ${key}`)
    return value
  }

  number(key: string): number {
    const value = this.#value[key]
    if (typeof value !== 'number' || !Number.isFinite(value)) throw this.#fault(`has no number ${key}`)
    return value
  }

  /** At least one. */
  integers(key: string, min: number): readonly number[] {
    const values = this.list(key)
    const isRight = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= min
    if (values.length === 0 || !values.every(isRight)) throw this.#fault(`has no numbers ${key}`)
    return values as readonly number[]
  }

  integer(key: string, min: number): number {
    const value = this.#value[key]
    if (!Number.isSafeInteger(value) || (value as number) < min) throw this.#fault(`has no number ${key}`)
    return value as number
  }

  flag(key: string): boolean {
    const value = this.#value[key]
    if (typeof value !== 'boolean') throw this.#fault(`has no flag ${key}`)
    return value
  }

  text(key: string): string {
    const value = this.#value[key]
    if (typeof value !== 'string') throw this.#fault(`has no text ${key}`)
    return value
  }

  /** Words, as many as make whole records. */
  words(key: string, recordWords: number): Int32Array {
    const value = this.#value[key]
    const isWhole = value instanceof Uint8Array && value.length % (4 * recordWords) === 0
    if (!isWhole) throw this.#fault(`has no records ${key}`)
    // Copied, for the words to be aligned.
    return new Int32Array(new Uint8Array(value).buffer)
  }

  #fault(what: string): UnusableCheckpointError {
    return new UnusableCheckpointError('altered', `${this.#name} ${what}`)
  }
}

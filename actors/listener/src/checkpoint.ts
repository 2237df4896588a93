/**
 * Checkpoint: what a worker key held at one point of its source's history, as bytes and back. Pure; checkpoint-files.ts
 * keeps them.
 *
 *   "HOMINGCP", version u32, bytes of the body u32, CRC-32 of the body u32, body: a map in MessagePack
 *
 * Little-endian. A checkpoint says where in the history it stands and what the last batch looked like. It counts only
 * when the engine, asked to repeat that batch, repeats it: then it is the same life of the engine, and nothing is missing
 * between the checkpoint and what follows.
 */

import { crc32 } from 'node:zlib'
import { HELD_WORDS, KEY_LAYERS, ORPHAN_WORDS, PREDICTED_LAYER } from '@homing/index'
import type { KeyImage } from '@homing/indexer'
import { decode, encode } from '@msgpack/msgpack'
import { UnusableCheckpointError } from './errors.ts'

/** Where in the history of a source something was true. */
export interface HistoryPoint {
  /** Of the batch that comes next; the one before it is the proof. */
  readonly nextSequence: number
  /** Of the batch before, as SeenBatches has it. */
  readonly fingerprint: number
  /** The history begins with an empty cache. */
  readonly isWhole: boolean
  /** …because the engine cleared it. */
  readonly wasCleared: boolean
  /** Where it does not: why. */
  readonly gapReason: string
}

export interface Checkpoint {
  /** Of which source: its endpoint and rank. */
  readonly source: string
  readonly point: HistoryPoint
  readonly image: KeyImage
}

const MAGIC = 'HOMINGCP'
const VERSION = 1
const HEADER_BYTES = MAGIC.length + 12

export function encodeCheckpoint({ source, point, image }: Checkpoint): Uint8Array[] {
  const { localHashes, parents, held, orphans } = image
  const words = { localHashes, parents, held, orphans }
  const columns = Object.entries(words).map(([name, column]) => [name, bytesOf(column)])
  const body = encode(
    { source, point, image: { ...image, ...Object.fromEntries(columns) } },
    { ignoreUndefined: true },
  )
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
    value = decode(body)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new UnusableCheckpointError('altered', `its body cannot be read: ${why}`)
  }
  const root = new Fields(value, 'checkpoint')
  const point = root.fields('point')
  return {
    source: root.text('source'),
    point: {
      nextSequence: point.integer('nextSequence', 1),
      fingerprint: point.integer('fingerprint', -(2 ** 31)),
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
      return [salt.integer('0', -(2 ** 31)), salt.integer('1', -(2 ** 31)), salt.text('2')] as const
    }),
    groups: image.list('groups').map(entry => {
      const group = new Fields(entry, 'groups')
      return {
        id: group.integer('id', 0),
        kind: group.has('kind') ? group.text('kind') : undefined,
        isSparse: group.flag('isSparse'),
        wasAccepted: group.flag('wasAccepted'),
      }
    }),
    localHashes,
    parents,
    held,
    orphans,
  }
}

function isLayer(layer: number): boolean {
  return layer >= 0 && layer < KEY_LAYERS.length && layer !== PREDICTED_LAYER
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

/**
 * Checkpoint: the blocks that a worker key held at one point of its source's history, converted to bytes and
 * back. Pure; checkpoint-files.ts stores them.
 *
 * A checkpoint is a sealed body (packages/protocol). It records its position in the history and the last
 * batches. It counts only if the engine repeats these batches when asked: then it is the same life of the
 * engine, and nothing is missing between the checkpoint and the next batch. If both the checkpoint and the
 * engine know when its process began, these times must agree too: engines whose batches contain no time may
 * begin two lives with the same batches.
 */

import type { KeyImage } from '@homing/actors/indexer'
import { GUESSED_LAYER, HELD_WORDS, KEY_LAYERS, ORPHAN_WORDS, readLabelImage } from '@homing/index'
import {
  type CacheReadingRecord,
  HELD_TIERS,
  isMembersText,
  type KvTier,
  openSealedBody,
  type SealedFields,
  type SealedForm,
  sealBody,
} from '@homing/protocol'
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

/**
 * Blocks and labels are five texts of bytes, whatever their number, so the values are few: salts and
 * fingerprints. A million salts fit; the bytes are those that the header says.
 */
const BODY_BOUNDS = { bytesMax: 2 ** 32, valuesMax: 4 * 2 ** 20, depthMax: 8 }
const TIERS: readonly KvTier[] = [...HELD_TIERS, 'unknown']

const FORM: SealedForm = {
  magic: 'HOMINGCP',
  version: 3,
  bounds: BODY_BOUNDS,
  name: 'checkpoint',
  unusable: (fault, reason) => new UnusableCheckpointError(fault, reason),
}

export function encodeCheckpoint(checkpoint: Checkpoint): Uint8Array[] {
  const { image } = checkpoint
  const { localHashes, parents, held, orphans, reading, labels } = image
  const words = { localHashes, parents, held, orphans, labels }
  const columns = Object.entries(words).map(([name, column]) => [name, bytesOf(column)])
  const written = {
    ...image,
    ...Object.fromEntries(columns),
    reading: { ...reading, left: bytesOf(reading.left) },
  }
  return sealBody(FORM, { ...checkpoint, image: written })
}

/** Throws UnusableCheckpointError, with the fault. */
export function decodeCheckpoint(bytes: Uint8Array): Checkpoint {
  const root = openSealedBody(FORM, bytes)
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

function readImage(image: SealedFields): KeyImage {
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
  // Routers without labels have written none.
  const labels = image.has('labels') ? image.words('labels', 1) : new Int32Array(0)
  const records = readLabelImage(labels)
  image.require(records !== undefined, 'labels are those of blocks')
  const members = new Set<string>()
  for (const { moe, place } of records ?? [])
    for (const text of [moe?.members, place.members]) if (text !== undefined) members.add(text)
  image.require([...members].every(isMembersText), 'members of labels are those of labels')
  return {
    blockSizeTokens: image.has('blockSizeTokens') ? image.integer('blockSizeTokens', 1) : undefined,
    salts: image.list('salts').map(entry => {
      const salt = image.within(entry, 'salts')
      const name = salt.has('2') ? salt.text('2') : null
      return [salt.integer('0', -(2 ** 31)), salt.integer('1', -(2 ** 31)), name] as const
    }),
    reading: readReading(image.fields('reading')),
    localHashes,
    parents,
    held,
    orphans,
    labels,
  }
}

function readReading(reading: SealedFields): CacheReadingRecord {
  return {
    groups: reading.list('groups').map(entry => {
      const group = reading.within(entry, 'groups')
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

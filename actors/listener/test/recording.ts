/** A session recorded with a real engine, as fixtures/make-fixtures.ts keeps it. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliDecompressSync } from 'node:zlib'
import { hashBlocks, namespaceSeed } from '@homing/blocks'
import { type IndexReader, OverlapCounts } from '@homing/index'

export type RecordedEntry =
  | { readonly kind: 'session'; readonly blockSizeTokens: number; readonly sockets: readonly string[] }
  | {
      readonly kind: 'ask'
      readonly id: number
      readonly scenario: string
      readonly prompt: readonly number[]
      readonly salt?: string
      readonly model?: string
    }
  | { readonly kind: 'answer'; readonly id: number; readonly cachedTokens: number }
  | { readonly kind: 'published'; readonly socket: number; readonly frames: readonly Uint8Array[] }
  | { readonly kind: 'replay-request' | 'replay-reply'; readonly frames: readonly Uint8Array[] }

export interface Recording {
  readonly name: string
  readonly blockSizeTokens: number
  /** One per dp rank. */
  readonly socketCount: number
  readonly entries: readonly RecordedEntry[]
}

/** The model that the recorded engines served; every other name is an adapter. */
const BASE_MODEL = 'tiny'

export function readRecording(name: string): Recording {
  const bytes = readFileSync(join(import.meta.dirname, 'fixtures', `${name}.json.br`))
  const entries = brotliDecompressSync(bytes)
    .toString('utf8')
    .split('\n')
    .map(line => {
      const entry = JSON.parse(line)
      if (!('frames' in entry)) return entry as RecordedEntry
      const frames = entry.frames.map((frame: string) => new Uint8Array(Buffer.from(frame, 'base64')))
      return { ...entry, frames } as RecordedEntry
    })
  const session = entries.find(entry => entry.kind === 'session')
  if (session?.kind !== 'session') throw new Error(`recording ${name} has no session`)
  return { name, blockSizeTokens: session.blockSizeTokens, socketCount: session.sockets.length, entries }
}

/** Cached tokens that the index promises for a prompt, by worker slot 0 … slotCount − 1. */
export function predictedTokens(
  reader: IndexReader,
  slotCount: number,
  blockSizeTokens: number,
  ask: Extract<RecordedEntry, { readonly kind: 'ask' }>,
): readonly number[] {
  const seed = namespaceSeed({
    loraName: ask.model === BASE_MODEL ? undefined : ask.model,
    cacheSalt: ask.salt,
  })
  const { local } = hashBlocks(Int32Array.from(ask.prompt), blockSizeTokens, seed)
  // One token is always computed.
  const usable = Math.floor((ask.prompt.length - 1) / blockSizeTokens)
  const scores = new OverlapCounts()
  reader.overlap(local, usable, scores)
  const blocks = new Array<number>(slotCount).fill(0)
  for (const [workerSlot, count] of scores.toMap()) blocks[workerSlot] = count
  return blocks.map(count => count * blockSizeTokens)
}

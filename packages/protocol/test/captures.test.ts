/** Every frame recorded from live engines; skipped by name where the recordings are absent. */

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import {
  AttentionGroups,
  decodeKvBatch,
  type KvBatch,
  type KvEvent,
  parseEventFrames,
  parseReplayReply,
  parseReplayRequest,
} from '../src/index.ts'
import { naiveDecode } from './naive-decoder.ts'

const FOLDER = new URL('../../../../shared/engines/captures/', import.meta.url)

interface Counts {
  readonly batches: number
  readonly stored: number
  readonly removed: number
  readonly cleared: number
  readonly withoutHashes?: number
  readonly salted?: number
  readonly adapters?: number
  /** Stores of the groups that keep whole prefixes. */
  readonly prefixStores?: number
}

const EXPECTED: Record<string, Counts> = {
  'sglang-0.5.23-dp2-dynamo': { batches: 28, stored: 26, removed: 0, cleared: 2, salted: 6 },
  'sglang-0.5.23-page16': { batches: 80, stored: 59, removed: 38, cleared: 1, salted: 5 },
  'vllm-0.15.1': { batches: 164, stored: 121, removed: 195, cleared: 1 },
  'vllm-0.22.1': { batches: 158, stored: 118, removed: 186, cleared: 1 },
  'vllm-0.25.1': { batches: 165, stored: 121, removed: 195, cleared: 1 },
  'vllm-0.32.0-dp2-bytes': { batches: 23, stored: 23, removed: 0, cleared: 1 },
  'vllm-0.32.0-hybrid-swa': {
    batches: 101,
    stored: 416,
    removed: 283,
    cleared: 1,
    withoutHashes: 231,
    prefixStores: 104,
  },
  'vllm-0.32.0-int': { batches: 208, stored: 134, removed: 213, cleared: 1 },
}

interface Line {
  readonly kind: string
  readonly scenario: string
  readonly socket?: string
  readonly frames: readonly string[]
}

for (const [name, expected] of Object.entries(EXPECTED)) {
  const file = new URL(`${name}.jsonl`, FOLDER)
  const isAbsent = !existsSync(file)
  const skip = isAbsent ? `no recording ${name}` : false

  t.test(`the session recorded from ${name} decodes whole`, { skip }, async t => {
    const lines = readFileSync(file, 'utf8')
      .trim()
      .split('\n')
      .map(line => JSON.parse(line) as Line)
    const groups = new AttentionGroups()
    const batches: KvBatch[] = []
    const sequences = new Map<string, number>()
    let prefixStores = 0
    for (const line of lines) {
      if (line.kind !== 'pub') continue
      const { sequence, payload } = parseEventFrames(frames(line))
      const expectedSequence = sequences.get(line.socket!) ?? sequence
      assert.equal(sequence, expectedSequence, 'published sequences have no gap')
      sequences.set(line.socket!, sequence + 1)
      const batch = decodeKvBatch(payload)
      assert.deepEqual(naiveDecode(payload), batch)
      assert.deepEqual(batch.skipped, { unknownTag: 0, malformed: 0 })
      for (const event of batch.events) {
        if (event.kind !== 'stored' || !groups.accepts(event)) continue
        prefixStores++
        assert.equal(event.tokens.length, (event.hashes.length / 2) * event.blockSizeTokens)
      }
      batches.push(batch)
    }
    const events = batches.flatMap(batch => batch.events)
    const stores = events.filter(event => event.kind === 'stored')
    const counts = {
      batches: batches.length,
      stored: stores.length,
      removed: count(events, 'removed'),
      cleared: count(events, 'cleared'),
      withoutHashes: stores.filter(store => store.hashes.length === 0).length,
      salted: stores.filter(store => store.cacheSalt !== undefined).length,
      adapters: stores.filter(store => store.loraName !== undefined).length,
      prefixStores,
    }
    t.match(counts, expected)
    t.equal(groups.revisions, 0)
    t.equal(
      stores.some(store => store.hasUnknownExtraKeys),
      false,
    )
  })

  t.test(`the replays recorded from ${name} are read to their end`, { skip }, async t => {
    const lines = readFileSync(file, 'utf8')
      .trim()
      .split('\n')
      .map(line => JSON.parse(line) as Line)
    const ends: number[] = []
    let next: number | undefined
    for (const line of lines) {
      if (line.kind === 'replay-request') next = parseReplayRequest(frames(line))
      if (line.kind !== 'replay-reply') continue
      const reply = parseReplayReply(frames(line))
      if (reply.kind === 'batch') {
        assert.ok(next === undefined || reply.sequence >= next)
        next = reply.sequence + 1
        assert.deepEqual(decodeKvBatch(reply.payload).skipped, { unknownTag: 0, malformed: 0 })
      } else ends.push(reply.kind === 'end' ? 1 : 0)
    }
    t.ok(ends.every(end => end === 1))
    t.equal(
      ends.length > 0,
      lines.some(line => line.kind === 'replay-reply'),
    )
  })
}

function frames(line: Line): Uint8Array[] {
  return line.frames.map(hex => Uint8Array.from(Buffer.from(hex, 'hex')))
}

function count(events: readonly KvEvent[], kind: KvEvent['kind']): number {
  return events.filter(event => event.kind === kind).length
}

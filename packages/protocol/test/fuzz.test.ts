/**
 * A fuzzer over all code that reads bytes of engines: every input is read or refused with the error of that
 * message, and takes memory in proportion to its size.
 *
 * Runs for HOMING_FUZZ_SECONDS, 2 unless given. Each case has a seed of its own; a failure says which, and
 * HOMING_SEED=<that> runs it first.
 */

import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { type CodedError, type Random, seededRandom } from '@homing/base'
import t from 'tap'
import {
  decodeKvBatch,
  encodeReplayEnd,
  encodeReplayReply,
  encodeSnapshotReply,
  isSnapshotRequest,
  MalformedEventFramesError,
  MalformedKvBatchError,
  parseEventFrames,
  parseReplayReply,
  parseReplayRequest,
  parseSnapshotReply,
  replayRequestFrames,
  snapshotRequestFrames,
  TensorRtEvents,
} from '../src/index.ts'
import { ENGINE_VECTORS, type VectorName, vector } from './engine-vectors.ts'

const SECONDS = Number(process.env['HOMING_FUZZ_SECONDS'] ?? 2)
const SEED = Number(process.env['HOMING_SEED'] ?? Math.floor(Math.random() * 2 ** 31))
const CAPTURES = new URL('../../../../shared/engines/captures/', import.meta.url)
/** Of each recording. */
const CAPTURED_MAX = 60
/** Bytes of what is made of one byte of a message; a nil in a list of lists becomes two arrays. */
const WEIGHT_PER_BYTE = 512
const WEIGHT_FIXED = 4096

const TENSORRT = [
  '[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[100,0]},"window_size":8192}]',
  '[{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[{"type":"stored_block","block_hash":17357386176853808775,"tokens":[{"type":"unique_token","token_id":1,"token_extra_id":0},{"type":"unique_token","token_id":2,"token_extra_id":0}],"cache_level":0,"priority":35}]},"window_size":8192}]',
  '[{"event_id":2,"data":{"type":"updated","block_hash":17357386176853808775,"cache_level":{"type":"event_diff","old_value":0,"new_value":1},"priority":null},"window_size":8192},{"event_id":4,"data":{"type":"removed","block_hashes":[77]},"attention_dp_rank":1}]',
].map(text => Buffer.from(text))

const FRAMES = [
  snapshotRequestFrames(),
  replayRequestFrames(7),
  encodeReplayReply('topic', 'kv', 7, vector('D1')),
  encodeReplayReply('plain', '', 7, vector('F1')),
  encodeReplayEnd('topic'),
  encodeSnapshotReply(
    { publisherId: '00f0e1d2c3b4a596', nextSequence: 9, part: 0, parts: 2, isWhole: true, mayBeStale: false },
    vector('E2'),
  ),
]

/** Payloads recorded from live engines, where they are at hand. */
function captured(): readonly Uint8Array[] {
  if (!existsSync(CAPTURES)) return []
  return readdirSync(CAPTURES).flatMap(name =>
    readFileSync(new URL(name, CAPTURES), 'utf8')
      .split('\n')
      .filter(line => line.includes('"kind": "pub"') || line.includes('"kind":"pub"'))
      .slice(0, CAPTURED_MAX)
      .map(line => Buffer.from((JSON.parse(line) as { frames: readonly string[] }).frames[2]!, 'hex')),
  )
}

const PAYLOADS = [...(Object.keys(ENGINE_VECTORS) as VectorName[]).map(vector), ...captured()]
/** Heads of MessagePack that say how much follows. */
const HEADS = [0x9f, 0xc1, 0xc4, 0xc6, 0xcb, 0xcf, 0xd3, 0xd9, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0x92, 0xff]

function pick<T>(random: Random, of: readonly T[]): T {
  return of[random.below(of.length)]!
}

/** A few changes of a kind each, as damage and malice make them. */
function mutated(random: Random, from: Uint8Array, others: readonly Uint8Array[]): Uint8Array {
  let bytes: Uint8Array = Uint8Array.from(from)
  for (let changes = random.below(5); changes >= 0; changes--) {
    const at = random.below(bytes.length + 1)
    switch (random.below(7)) {
      case 0:
        bytes[at] = random.below(256)
        break
      case 1:
        bytes[at] = pick(random, HEADS)
        break
      case 2:
        bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8))
        break
      case 3:
        bytes = bytes.slice(0, at)
        break
      case 4:
        bytes = joined(bytes.subarray(0, at), random.bytes(random.below(9)), bytes.subarray(at))
        break
      case 5: {
        const part = bytes.slice(at, at + random.below(64))
        const times = random.below(20)
        bytes = joined(bytes.subarray(0, at), ...new Array<Uint8Array>(times).fill(part), bytes.subarray(at))
        break
      }
      default: {
        const other = pick(random, others)
        bytes = joined(bytes.subarray(0, at), other.subarray(random.below(other.length + 1)))
      }
    }
  }
  return bytes
}

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  return Uint8Array.from(Buffer.concat(parts))
}

/** About what a value takes in memory. */
function weightOf(value: unknown): number {
  if (typeof value === 'string') return 16 + 2 * value.length
  if (ArrayBuffer.isView(value)) return 64 + value.byteLength
  if (typeof value !== 'object' || value === null) return 8
  return 64 + Object.values(value).reduce((sum: number, part) => sum + weightOf(part), 0)
}

/** Reads, or throws what may be thrown. */
function mayRefuse(
  read: () => unknown,
  sizeBytes: number,
  refusal: new (...of: never[]) => CodedError,
): boolean {
  let result: unknown
  try {
    result = read()
  } catch (error) {
    assert.ok(error instanceof refusal, `${error instanceof Error ? error.stack : error}`)
    return false
  }
  const weight = weightOf(result)
  assert.ok(
    weight <= WEIGHT_FIXED + WEIGHT_PER_BYTE * sizeBytes,
    `${weight} bytes are made of a message of ${sizeBytes}`,
  )
  return true
}

/** One case, all of it from its seed; true when something could be read. */
function fuzzOnce(seed: number): boolean {
  const random = seededRandom(seed)
  const kind = random.below(10)
  if (kind < 6) {
    const payload = mutated(random, pick(random, PAYLOADS), PAYLOADS)
    return mayRefuse(() => decodeKvBatch(payload), payload.length, MalformedKvBatchError)
  }
  if (kind < 8) {
    const body = mutated(random, pick(random, TENSORRT), TENSORRT)
    const reader = new TensorRtEvents({ blockSizeTokens: 1 + random.below(4) })
    return mayRefuse(() => reader.read(body), body.length, MalformedKvBatchError)
  }
  const original = pick(random, FRAMES)
  const frames = original.map(frame => (random.below(3) === 0 ? mutated(random, frame, PAYLOADS) : frame))
  if (random.below(4) === 0) frames.splice(random.below(frames.length + 1), random.below(2), random.bytes(3))
  const size = frames.reduce((sum, frame) => sum + frame.length, 0)
  parseReplayRequest(frames)
  isSnapshotRequest(frames)
  const replies = [parseReplayReply(frames), parseSnapshotReply(frames)]
  const isRead = mayRefuse(() => parseEventFrames(frames), size, MalformedEventFramesError)
  return isRead || replies.some(reply => reply.kind !== 'malformed')
}

t.test(`whatever bytes come, they are read or refused (${SECONDS} s)`, { timeout: 0 }, async t => {
  t.comment(`HOMING_SEED=${SEED}, ${PAYLOADS.length} payloads to begin with`)
  const endsAt = performance.now() + SECONDS * 1000
  let cases = 0
  let read = 0
  do {
    for (let i = 0; i < 200; i++, cases++) {
      const seed = (SEED + cases) % 2 ** 31
      try {
        if (fuzzOnce(seed)) read++
      } catch (error) {
        throw new Error(`case HOMING_SEED=${seed}: ${error instanceof Error ? error.message : error}`, {
          cause: error,
        })
      }
    }
    await new Promise(resolve => setImmediate(resolve))
  } while (performance.now() < endsAt)
  t.comment(`${cases} cases, of which ${read} could be read`)
  t.ok(read > 0 && read < cases, `some of ${cases} cases can be read, and some cannot`)
})

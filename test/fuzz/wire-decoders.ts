/**
 * Readers of binary messages and files: events of engines, replicas, payloads at a broker, checkpoints,
 * learned values.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { EngineBook, LearnedValues } from '@homing/load'
import {
  BrokenMessageError,
  decodeKvBatch,
  decodeMessagePack,
  decodeSnapshotBatch,
  encodeKvBatch,
  encodeReplayEnd,
  encodeReplayReply,
  encodeSnapshotReply,
  encodeTokenLine,
  encodeTokenRequest,
  kvStored,
  MalformedEventFramesError,
  MalformedKvBatchError,
  MalformedTokenRequestError,
  parseEventFrames,
  parseReplayReply,
  parseReplayRequest,
  parseSnapshotReply,
  parseSnapshotRequest,
  readTokenLine,
  readTokenRequest,
  replayRequestFrames,
  snapshotRequestFrames,
  TensorRtEvents,
  TokenLines,
} from '@homing/protocol'
import { decodeCheckpoint, encodeCheckpoint } from '../../actors/listener/src/checkpoint.ts'
import { UnusableCheckpointError } from '../../actors/listener/src/errors.ts'
import { UnusableLearnedFileError } from '../../actors/tracker/src/errors.ts'
import { decodeLearned, encodeLearned, type LearnedImage } from '../../actors/tracker/src/learned-image.ts'
import {
  readApiList,
  readApiStatus,
  readApiWatchLine,
} from '../../packages/discovery/src/kubernetes/api-answers.ts'
import { readEndpointSlice } from '../../packages/discovery/src/kubernetes/endpoint-slice.ts'
import { readWorkerNotes } from '../../packages/discovery/src/kubernetes/worker-notes.ts'
import { podObject, sliceObject } from '../../packages/discovery/test/objects.ts'
import { ENGINE_VECTORS, type VectorName, vector } from '../../packages/protocol/test/engine-vectors.ts'
import {
  encodeRegistration,
  readRegistration,
} from '../../packages/publisher/src/registration/registration.ts'
import {
  decodeBatch,
  decodeDigests,
  decodeMoved,
  decodeOpenDigests,
  decodeSnapshotPart,
  decodeWaiting,
  encodeBatch,
  encodeDigests,
  encodeMoved,
  encodeOpenDigests,
  encodeQuestion,
  encodeSnapshot,
  encodeWaiting,
  isBye,
  isQuestion,
  type OpenBooking,
  SnapshotParts,
} from '../../packages/replication/src/index.ts'
import { faultOfAnswerHead } from '../../packages/transport/src/answer-head.ts'
import { readEtcdAnswer, readEtcdWatchLine } from '../../packages/transport/src/etcd/etcd-answers.ts'
import { loadSchema } from '../../packages/transport/src/ext-proc/schema.ts'
import { readHead, servedOf, subsetOf } from '../../packages/transport/src/ext-proc/words.ts'
import {
  decodeFrames,
  decodePayload,
  encodeMessage,
  encodePack,
  Parts,
  unpacked as unpackedPayloads,
} from '../../packages/transport/src/nats/payload.ts'
import {
  decodeCallPayload,
  jsonFrame,
  readCountFrame,
  readJsonFrame,
} from '../../packages/transport/src/nats/request-wire.ts'
import { FRAME, headersOf, openOf } from '../../packages/transport/src/requests/frames.ts'
import {
  decodeTcpFrame,
  encodeHello,
  encodeTcpFrame,
  LENGTH_BYTES,
  readHello,
} from '../../packages/transport/src/tcp/tcp-wire.ts'
import { type Decoder, ofBytes, ofJson } from './decoder.ts'

const CAPTURES = new URL('../../../shared/engines/captures/', import.meta.url)
/** Of each recording. */
const CAPTURED_MAX = 60

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

export const PAYLOADS = [...(Object.keys(ENGINE_VECTORS) as VectorName[]).map(vector), ...captured()]

/** Frames as one input: each with its length before it. */
function packed(frames: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(frames.flatMap(frame => [Buffer.of(frame.length >> 8, frame.length & 0xff), frame]))
}

function unpacked(bytes: Uint8Array): Uint8Array[] {
  const frames: Uint8Array[] = []
  for (let at = 0; at < bytes.length; ) {
    const size = (bytes[at]! << 8) | (bytes[at + 1] ?? 0)
    frames.push(bytes.subarray(at + 2, at + 2 + size))
    at += 2 + size
  }
  return frames
}

const LIFE = '0123456789abcdef'
const BOOKING: OpenBooking = {
  kind: 'booked',
  id: 'a',
  worker: '10.0.0.1:8000/0',
  activeBlocks: 3,
  promptTokens: 40,
  prefillTokens: 10,
  countsPrefill: true,
  isStream: true,
  waitedMs: 5,
  stepTokens: 1,
  session: undefined,
  otherBlocks: 2,
  digest: { count: 3, hashes: new Int32Array([1, 2, 3, 4]) },
  hasFirstToken: true,
}
const BATCH = {
  life: LIFE,
  sequence: 4,
  operations: [
    BOOKING,
    { kind: 'firstToken', id: 'a' } as const,
    { kind: 'freed', id: 'a', activeBlocks: 0, moved: { session: 's', worker: 'h:1/0' } } as const,
  ],
}
const SNAPSHOT = { life: LIFE, nextSequence: 4, bookings: [BOOKING, BOOKING] }

const CHECKPOINT = Buffer.concat(
  encodeCheckpoint({
    source: 'tcp://10.0.0.1:5557 0',
    key: '10.0.0.1:8000/0',
    processStartSeconds: 1_700_000_000.5,
    point: { nextSequence: 9, fingerprints: [1, -2], isWhole: false, wasCleared: false, gapReason: 'late' },
    image: {
      blockSizeTokens: 16,
      salts: [[1, 2, 'tenant']],
      reading: {
        groups: [{ id: 0, kind: 'full_attention', isSparse: false, wasAccepted: true }],
        tiers: ['device'],
        removesCopies: false,
        left: new Int32Array(2),
      },
      localHashes: new Int32Array([1, 2, 3, 4]),
      parents: new Int32Array([0, 1]),
      held: new Int32Array(0),
      // With one set of workers, one text ({"a":1}) and one record.
      labels: Int32Array.from([
        ...[0x4c42_0003, 1, 1, 9, 0, 1, 7, 0x2261_227b, 0x7d_313a],
        ...[1, 2, 3, 4, 15, 1, 2, 3, 3, 7, 1, 1, 0],
      ]),
      orphans: new Int32Array(0),
    },
  }),
)

/** The header is made right for the body: else a change of one byte is all that is ever found. */
function sealed(bytes: Uint8Array): Uint8Array {
  const file = Buffer.from(bytes)
  if (file.length < 20 || file[0] === 0) return file
  file.writeUInt32LE(file.length - 20, 12)
  file.writeUInt32LE(crc32(file.subarray(20)), 16)
  return file
}

const LEARNED = Buffer.concat(encodeLearned(learnedImage()))

function learnedImage(): LearnedImage {
  const learned = new LearnedValues()
  const book = new EngineBook({ workerSlotsMax: 2, learned })
  for (let i = 0; i < 40; i++) {
    const nowMs = i * 2000
    book.sent(`${i}`, i % 2, { promptTokens: 900 + i, newTokens: 900, nowMs })
    book.firstToken(`${i}`, nowMs + 40 + i)
    book.ended(`${i}`, nowMs + 1000 + i, 40 + i, 0)
  }
  const life = { joinedMs: 5, promptsEpoch: 0, processStartSeconds: 1_700_000_000.5, takenMs: 9000 }
  return {
    fleet: { takenMs: 9000, image: learned.fleetImage() },
    workers: [0, 1].map(slot => ({
      ...life,
      worker: `10.0.0.${slot}:8000/0`,
      image: learned.workerImage(slot)!,
    })),
  }
}

const SENDER = { life: LIFE, connection: 1 }
const TENSORRT = [
  '[{"event_id":0,"data":{"type":"created","num_blocks_per_cache_level":[100,0]},"window_size":8192}]',
  '[{"event_id":1,"data":{"type":"stored","parent_hash":null,"blocks":[{"type":"stored_block","block_hash":17357386176853808775,"tokens":[{"type":"unique_token","token_id":1,"token_extra_id":0},{"type":"unique_token","token_id":2,"token_extra_id":0}],"cache_level":0,"priority":35}]},"window_size":8192}]',
  '[{"event_id":2,"data":{"type":"updated","block_hash":17357386176853808775,"cache_level":{"type":"event_diff","old_value":0,"new_value":1},"priority":null},"window_size":8192},{"event_id":4,"data":{"type":"removed","block_hashes":[77]},"attention_dp_rank":1}]',
]
const FRAMES = [
  snapshotRequestFrames(),
  replayRequestFrames(7),
  encodeReplayReply('topic', 'kv', 7, vector('D1')),
  encodeReplayReply('plain', '', 7, vector('F1')),
  encodeReplayEnd('topic'),
  encodeSnapshotReply(
    {
      ...{ publisherId: '00f0e1d2c3b4a596', nextSequence: 9, part: 0, parts: 2 },
      ...{ isWhole: true, mayBeStale: false, form: 'hashes', offersHashes: true },
    },
    vector('E2'),
  ),
]
/** A store whose blocks are named by local hashes. */
const HASHED = encodeKvBatch(
  {
    timestampSeconds: 1,
    rank: 0,
    events: [
      kvStored({
        hashes: Int32Array.of(1, 2, 3, 4),
        tokens: new Int32Array(0),
        localHashes: Int32Array.of(5, 6, 7, 8),
        parent: Int32Array.of(9, 9),
        blockSizeTokens: 16,
        loraName: 'mine',
      }),
    ],
  },
  'vllm-map',
)
const REPLICA = [
  encodeBatch(BATCH),
  encodeDigests(BATCH)!,
  encodeMoved(BATCH)!,
  ...encodeOpenDigests(SNAPSHOT),
  ...encodeSnapshot(SNAPSHOT),
  encodeQuestion(),
  encodeWaiting([{ model: 'm', policyClass: 'c', requests: 1, promptTokens: 2, uncachedTokens: 1 }]),
]
const BOUNDS = { bytesMax: 2 ** 20, valuesMax: 4096, depthMax: 16 }

const API_POD = {
  name: 'a',
  address: '10.0.0.1',
  annotations: { 'homing/role': 'prefill', 'homing/path': '/a', 'homing/scheme': 'http' },
}
const API_SEEDS = [
  {
    metadata: { resourceVersion: '7', continue: 'x' },
    items: [sliceObject('vllm', [API_POD]), podObject(API_POD)],
  },
  { type: 'ADDED', object: sliceObject('vllm', [API_POD]) },
  { type: 'MODIFIED', object: podObject(API_POD) },
  { type: 'ERROR', object: { kind: 'Status', code: 410, message: 'too old resource version' } },
].map(value => Buffer.from(JSON.stringify(value)))

/** What a listing or a watch would hand to the readers of objects. */
function apiObjectsIn(bytes: Uint8Array) {
  const text = Buffer.from(bytes).toString()
  const event = readApiWatchLine(text)
  return [...(readApiList(text)?.items ?? []), ...('object' in event ? [event.object] : [])]
}
const EXT_PROC = await loadSchema()
const SUBSET = {
  list_value: { values: [{ string_value: '10.0.0.1:8000' }, { string_value: '10.0.0.2:8000' }] },
}
const EXT_PROC_FRAMES = [
  EXT_PROC.request.encode({
    request_headers: {
      headers: {
        headers: [
          { key: ':path', raw_value: Buffer.from('/v1/completions?a=b') },
          { key: 'a', value: 'b' },
        ],
      },
    },
    metadata_context: {
      filter_metadata: {
        'envoy.lb.subset_hint': { fields: { 'x-gateway-destination-endpoint-subset': SUBSET } },
      },
    },
    protocol_config: { request_body_mode: 4, response_body_mode: 4 },
  }),
  EXT_PROC.request.encode({
    response_headers: { headers: { headers: [{ key: ':status', raw_value: Buffer.from('200') }] } },
    metadata_context: {
      filter_metadata: {
        'envoy.lb': {
          fields: { 'x-gateway-destination-endpoint-served': { string_value: '10.0.0.1:8000' } },
        },
      },
    },
  }),
]

export const WIRE_DECODERS: readonly Decoder[] = [
  ofBytes('packages/protocol/src/kv-batch-decoder.ts', 'decodeKvBatch', bytes => decodeKvBatch(bytes), {
    seeds: PAYLOADS,
    refusals: [MalformedKvBatchError],
  }),
  ofBytes(
    'packages/protocol/src/kv-batch-decoder.ts',
    'decodeSnapshotBatch',
    bytes => decodeSnapshotBatch(bytes),
    { seeds: [HASHED, ...PAYLOADS], refusals: [MalformedKvBatchError] },
  ),
  ofJson(
    'packages/protocol/src/tensorrt-events.ts',
    'TensorRtEvents',
    bytes => new TensorRtEvents({ blockSizeTokens: 1 + (bytes.length % 4) }).read(bytes),
    { seeds: TENSORRT, refusals: [MalformedKvBatchError] },
  ),
  ofBytes(
    'packages/protocol/src/event-frames.ts',
    'parseEventFrames parseReplayRequest parseReplayReply',
    bytes => {
      const frames = unpacked(bytes)
      return [parseReplayRequest(frames), parseReplayReply(frames), parseEventFrames(frames)]
    },
    { seeds: FRAMES.map(packed), refusals: [MalformedEventFramesError] },
  ),
  ofBytes(
    'packages/protocol/src/snapshot-frames.ts',
    'parseSnapshotReply parseSnapshotRequest',
    bytes => [parseSnapshotReply(unpacked(bytes)), parseSnapshotRequest(unpacked(bytes))],
    { seeds: FRAMES.map(packed) },
  ),
  ofBytes(
    'packages/protocol/src/message-pack.ts',
    'decodeMessagePack',
    bytes => decodeMessagePack(bytes, BOUNDS),
    {
      seeds: [...PAYLOADS.slice(0, 12), ...REPLICA],
      refusals: [BrokenMessageError],
    },
  ),
  ofBytes(
    'packages/replication/src/wire.ts',
    'decodeBatch decodeDigests decodeMoved decodeOpenDigests decodeSnapshotPart decodeWaiting isBye isQuestion',
    bytes => {
      const parts = new SnapshotParts()
      const digests = decodeOpenDigests(bytes)
      if (digests !== undefined) parts.addDigests(digests)
      const part = decodeSnapshotPart(bytes)
      const whole = part === undefined ? undefined : parts.add(part)
      return [
        decodeBatch(bytes),
        decodeDigests(bytes),
        decodeMoved(bytes),
        decodeWaiting(bytes),
        isBye(bytes),
        isQuestion(bytes),
        whole,
      ]
    },
    { seeds: REPLICA },
  ),
  ofBytes('actors/listener/src/checkpoint.ts', 'decodeCheckpoint', bytes => decodeCheckpoint(sealed(bytes)), {
    seeds: [CHECKPOINT],
    refusals: [UnusableCheckpointError],
  }),
  ofBytes('actors/tracker/src/learned-image.ts', 'decodeLearned', bytes => decodeLearned(sealed(bytes), 8), {
    seeds: [LEARNED],
    refusals: [UnusableLearnedFileError],
  }),
  ofBytes(
    'packages/transport/src/ext-proc/words.ts',
    'readHead subsetOf servedOf',
    bytes => {
      const frame = EXT_PROC.request.decode(bytes)
      const head = frame.request_headers ?? frame.response_headers
      return [readHead(head?.headers), subsetOf(frame), servedOf(frame)]
    },
    // The library throws errors of no class of its own, and the stream ends with what they say.
    { seeds: EXT_PROC_FRAMES, refusals: [Error] },
  ),
  ofJson(
    'packages/discovery/src/kubernetes/api-answers.ts',
    'readApiList readApiStatus readApiWatchLine',
    bytes => {
      const text = Buffer.from(bytes).toString()
      return [readApiList(text), readApiStatus(text), readApiWatchLine(text)]
    },
    { seeds: API_SEEDS },
  ),
  ofJson(
    'packages/discovery/src/kubernetes/endpoint-slice.ts',
    'readEndpointSlice',
    bytes => apiObjectsIn(bytes).map(readEndpointSlice),
    { seeds: API_SEEDS },
  ),
  ofJson(
    'packages/discovery/src/kubernetes/worker-notes.ts',
    'readWorkerNotes',
    bytes => apiObjectsIn(bytes).map(readWorkerNotes),
    { seeds: API_SEEDS },
  ),
  ofJson(
    'packages/transport/src/etcd/etcd-answers.ts',
    'readEtcdAnswer readEtcdWatchLine',
    bytes => [readEtcdAnswer(bytes), readEtcdWatchLine(Buffer.from(bytes).toString())],
    {
      seeds: [
        '{"header":{"revision":"7"},"kvs":[{"key":"Zm9v","value":"YmFy","create_revision":"3","lease":"5"}],"count":"1"}',
        '{"result":{"header":{"revision":"8"},"events":[{"type":"DELETE","kv":{"key":"Zm9v"}},{"kv":{"key":"Zm9v","value":"YQ=="}}]}}',
        '{"result":{"canceled":true,"compact_revision":"9"}}',
        '{"error":"requested lease not found","code":5}',
      ].map(text => Buffer.from(text)),
    },
  ),
  ofBytes(
    'packages/transport/src/nats/payload.ts',
    'decodePayload decodeFrames',
    bytes => {
      for (const one of unpackedPayloads(bytes)) decodePayload(one)
      const payload = decodePayload(bytes)
      if (payload === undefined || payload === 'other-version') return payload
      const whole = new Parts().add(payload)
      return whole === undefined ? undefined : decodeFrames(whole)
    },
    {
      seeds: [
        ...encodeMessage([vector('D1'), vector('A1')], SENDER, 2 ** 20),
        ...encodeMessage([vector('D1')], SENDER, 64),
        encodePack(encodeMessage([vector('D1'), vector('A1')], SENDER, 2 ** 20), SENDER.life),
      ],
    },
  ),
  ofBytes(
    'packages/transport/src/nats/request-wire.ts',
    'decodeCallPayload readCountFrame',
    bytes => {
      const call = decodeCallPayload(bytes)
      return typeof call === 'object' ? call.frames.map(frame => readCountFrame(frame.bytes)) : call
    },
    { seeds: [Buffer.from('01010203040506070800000000020400000000010000040000000009020000006869', 'hex')] },
  ),
  ofBytes(
    'packages/transport/src/tcp/tcp-wire.ts',
    'decodeTcpFrame readHello',
    bytes => {
      const frame = decodeTcpFrame(bytes)
      if (frame === undefined) return undefined
      const { status, headers } = (frame.content ?? {}) as Record<string, unknown>
      if (frame.kind === FRAME.open) return openOf(frame.content)
      if (frame.kind === FRAME.head) return [faultOfAnswerHead(status, headers), headersOf(headers)]
      return frame.stream === 0 && typeof frame.content === 'object' ? readHello(frame.content) : frame
    },
    {
      seeds: [
        encodeHello({ frameBytesMax: 2 ** 20, streamsMax: 4096, windowBytes: 65_536, idleMs: 60_000 }),
        encodeTcpFrame(FRAME.open, 1, {
          ...{ method: 'POST', path: '/v1/completions', bodyBytes: 3, windowBytes: 65_536 },
          headers: { 'content-type': 'application/json', accept: ['a', 'b'] },
        }),
        encodeTcpFrame(FRAME.head, 1, { status: 200, headers: { 'content-length': '3' } }),
        encodeTcpFrame(FRAME.data, 7, Buffer.from('data: {}')),
        encodeTcpFrame(FRAME.credit, 7, 70_000),
        encodeTcpFrame(FRAME.failed, 7, { reason: 'why', wasSeen: false }),
      ].map(frame => frame.subarray(LENGTH_BYTES)),
    },
  ),
  ofJson(
    'packages/transport/src/nats/request-wire.ts',
    'readJsonFrame headersOf',
    bytes => {
      const { status, headers } = readJsonFrame(bytes) ?? {}
      return [faultOfAnswerHead(status, headers), headersOf(headers)]
    },
    {
      seeds: [
        jsonFrame({
          status: 200,
          headers: { 'content-length': '3', 'Set-Cookie': ['a=1', 'b=2'], 'set-cookie': 'c=3' },
        }),
        jsonFrame({
          method: 'POST',
          path: '/v1/chat/completions',
          headers: {},
          bodyBytes: 3,
          windowBytes: 65536,
        }),
      ],
    },
  ),
  ofJson('packages/protocol/src/token-requests.ts', 'readTokenRequest', bytes => readTokenRequest(bytes), {
    seeds: [
      encodeTokenRequest(
        {
          ...{
            requestId: 'r',
            model: 'm',
            tokenIds: [7],
            resumedTokens: 1,
            eosTokenIds: [9],
            cacheSalt: 's',
          },
          stopConditions: {
            ...{ maxTokens: 5, minTokens: 1, stop: ['x'], stopTokenIds: [3], ignoreEos: true },
          },
          samplingOptions: { temperature: 0.5, logit_bias: { 5: 1 } },
          dpRank: 1,
        },
        Int32Array.of(1, 2, 3),
      ),
    ],
    refusals: [MalformedTokenRequestError],
  }),
  ofJson(
    'packages/protocol/src/token-requests.ts',
    'readTokenLine',
    bytes => [readTokenLine(Buffer.from(bytes).toString()), new TokenLines().push(bytes)],
    {
      seeds: [
        encodeTokenLine({ tokenIds: [5, 6], finishReason: 'stop', cachedTokens: 3 }),
        encodeTokenLine({ error: 'out of memory' }),
      ],
    },
  ),
  ofJson(
    'packages/publisher/src/registration/registration.ts',
    'readRegistration',
    bytes => readRegistration(bytes),
    {
      seeds: [
        encodeRegistration('http://10.0.0.1:8000?ranks=2&kv_blocks=27000'),
        encodeRegistration('http://10.0.0.1:8000?role=prefill', 'Prefill'),
      ],
    },
  ),
]

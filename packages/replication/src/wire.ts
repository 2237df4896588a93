/**
 * The messages between replicas, MessagePack:
 *
 *   batch      [1, life, sequence, [operation …]]
 *   question   [1, 'open']
 *   snapshot   [1, life, next sequence, part, parts, [booking …]]
 *   waiting    [1, 'waiting', [[model, policy class, requests, prompt tokens, uncached tokens] …]]
 *   moved      [1, 'moved', [[session, worker] …]]  sessions that bookings of the batch before it have moved
 *   bye        [1, 'bye']                           nothing comes behind it
 *
 *   operation  [0, id, worker, active blocks, prompt tokens, prefill tokens, counts as prefill,
 *               is stream, waited ms, step tokens, session or nil]
 *              [1, id]                              first token
 *              [3, id, is freed]                    said here of a booking of another replica
 *              [2, id, active blocks left, output tokens, cached share]   freed; nil where it is not said
 *   booking    as operation 0, and whether it had its first token
 *
 *   digests    [1, 'digests', life, sequence, [digest or nil …]]        of the batch that follows, by place
 *   snapshot's [1, 'open digests', life, [[id, digest] …]]              before the last part of a snapshot
 *   digest     [active blocks of which no digest tells, blocks of the prompt, bytes of hashes]; the last two
 *              nil where there are none; a hash is 8 bytes, little-endian
 *
 * Digests and moved sessions have messages of their own, which an earlier version counts as malformed and
 * leaves alone; a longer row would cost it the batch.
 *
 * What cannot be read is undefined, never half of it. Any stranger may send it: nothing is made of a message
 * beyond its bounds.
 */

import { BrokenMessageError, decodeMessagePack } from '@homing/protocol'
import { encode } from '@msgpack/msgpack'
import { DIGEST_HASHES_MAX, DIGEST_LENGTH_MAX, MESSAGE_HASHES_MAX } from './digest-bounds.ts'
import type {
  BookedDigest,
  BookedOperation,
  DigestBatch,
  DigestSnapshot,
  MovedBinding,
  OpenBooking,
  OperationDigest,
  ReplicaBatch,
  ReplicaOperation,
  ReplicaSnapshot,
  SnapshotPart,
  WaitingRow,
} from './types.ts'

const VERSION = 1
const BOOKED = 0
const FIRST_TOKEN = 1
const FREED = 2
const REPORTED = 3
const BOOKINGS_PER_PART = 2000
const PARTS_MAX = 1024
const LIFE = /^[0-9a-f]{16}$/
const TEXT_MAX = 512
const OPEN = 'open'
const WAITING = 'waiting'
const MOVED = 'moved'
const BYE = 'bye'
const DIGESTS = 'digests'
const OPEN_DIGESTS = 'open digests'
const HASH_BYTES = 8
/** Rows of a message; further rows are left out. */
const WAITING_ROWS_MAX = 4096
/** Of a snapshot; more than a router has open. */
const SNAPSHOT_DIGESTS_MAX = 1_048_576
/** Halves of the hashes in them: twice what a router sends. */
const SNAPSHOT_WORDS_MAX = 4 * DIGEST_HASHES_MAX
/** Most tokens, blocks and requests; a larger figure is an error of its sender. */
const WIRE_COUNT_MAX = 2 ** 30
/**
 * Of a message. A batch has most: 65,536 operations, as the outbox has, of a dozen values; ids, worker keys
 * and sessions of 160 bytes each fit into it.
 */
const BOUNDS = { bytesMax: 32 * 2 ** 20, valuesMax: 2 ** 20, depthMax: 4 }
/** Of a word without content: whether a message is one is not found out by reading all of it. */
const WORD_BOUNDS = { bytesMax: 64, valuesMax: 8, depthMax: 1 }
/** A week: a longer wait is an error of its sender. */
const WAITED_MS_MAX = 604_800_000

export function encodeBatch({ life, sequence, operations }: ReplicaBatch): Uint8Array {
  return encode([VERSION, life, sequence, operations.map(operationRow)])
}

export function decodeBatch(bytes: Uint8Array): ReplicaBatch | undefined {
  const row = tryDecode(bytes)
  if (row === undefined || row.length !== 4) return undefined
  const [, life, sequence, rows] = row
  if (!isLife(life) || !isSequence(sequence) || !Array.isArray(rows)) return undefined
  const operations: ReplicaOperation[] = []
  for (const one of rows) {
    const operation = operationOf(one)
    if (operation === undefined) return undefined
    operations.push(operation)
  }
  return { life, sequence, operations }
}

/** What digests say of the batch, to be sent before it; undefined: nothing. */
export function encodeDigests({ life, sequence, operations }: ReplicaBatch): Uint8Array | undefined {
  const digests = operations.map(operation =>
    operation.kind === 'booked' || operation.kind === 'freed'
      ? digestRow(operation.otherBlocks, digestIn(operation))
      : null,
  )
  if (digests.every(row => row === null)) return undefined
  return encode([VERSION, DIGESTS, life, sequence, digests])
}

export function decodeDigests(bytes: Uint8Array): DigestBatch | undefined {
  const row = tryDecode(bytes)
  if (row?.length !== 5 || row[1] !== DIGESTS) return undefined
  const [, , life, sequence, rows] = row
  if (!isLife(life) || !isSequence(sequence) || !Array.isArray(rows)) return undefined
  const digests: (OperationDigest | undefined)[] = []
  for (const one of rows) {
    const digest = one === null ? undefined : digestOf(one)
    if (one !== null && digest === undefined) return undefined
    digests.push(digest)
  }
  return { life, sequence, digests }
}

/** The batch with what its digests say; unchanged where they are of another. */
export function withDigests(batch: ReplicaBatch, told: DigestBatch | undefined): ReplicaBatch {
  const { life, sequence, operations } = batch
  if (told === undefined || told.life !== life || told.sequence !== sequence) return batch
  if (told.digests.length !== operations.length) return batch
  return {
    ...batch,
    operations: operations.map((operation, i) => {
      const digest = told.digests[i]
      if (digest === undefined) return operation
      if (operation.kind === 'booked') return { ...operation, ...digest }
      return operation.kind === 'freed' ? { ...operation, otherBlocks: digest.otherBlocks } : operation
    }),
  }
}

/** Asks for all open bookings. */
export function encodeQuestion(): Uint8Array {
  return encode([VERSION, OPEN])
}

export function isQuestion(bytes: Uint8Array): boolean {
  return tryDecode(bytes, WORD_BOUNDS)?.[1] === OPEN
}

/** Good-bye: the replica stops regularly. */
export function encodeBye(): Uint8Array {
  return encode([VERSION, BYE])
}

export function isBye(bytes: Uint8Array): boolean {
  const row = tryDecode(bytes, WORD_BOUNDS)
  return row?.length === 2 && row[1] === BYE
}

/** Splits the bookings over messages, at least one. */
export function encodeSnapshot({ life, nextSequence, bookings }: ReplicaSnapshot): Uint8Array[] {
  const parts = Math.max(1, Math.ceil(bookings.length / BOOKINGS_PER_PART))
  return Array.from({ length: parts }, (_, part) => {
    const rows = bookings
      .slice(part * BOOKINGS_PER_PART, (part + 1) * BOOKINGS_PER_PART)
      .map(booking => [...bookedRow(booking), booking.hasFirstToken])
    return encode([VERSION, life, nextSequence, part, parts, rows])
  })
}

export function decodeSnapshotPart(bytes: Uint8Array): SnapshotPart | undefined {
  const row = tryDecode(bytes)
  if (row === undefined || row.length !== 6) return undefined
  const [, life, nextSequence, part, parts, rows] = row
  if (!isLife(life) || !isSequence(nextSequence) || !isCount(part) || !isCount(parts)) return undefined
  if (parts < 1 || parts > PARTS_MAX || part >= parts || !Array.isArray(rows)) return undefined
  if (rows.length > BOOKINGS_PER_PART) return undefined
  const bookings: OpenBooking[] = []
  for (const one of rows) {
    if (!Array.isArray(one) || typeof one.at(-1) !== 'boolean') return undefined
    const booked = bookedOf(one.slice(0, -1))
    if (booked === undefined) return undefined
    bookings.push({ ...booked, hasFirstToken: one.at(-1) as boolean })
  }
  return { life, nextSequence, part, parts, bookings }
}

/** What digests say of the bookings, to be sent before them, in as many messages as they need. */
export function encodeOpenDigests({ life, bookings }: ReplicaSnapshot): Uint8Array[] {
  const messages: Uint8Array[] = []
  let rows: unknown[] = []
  let hashes = 0
  const flush = (): void => {
    if (rows.length > 0) messages.push(encode([VERSION, OPEN_DIGESTS, life, rows]))
    rows = []
    hashes = 0
  }
  for (const { id, otherBlocks, digest } of bookings) {
    const row = digestRow(otherBlocks, digest)
    if (row === null) continue
    const more = (digest?.hashes.length ?? 0) / 2
    if (hashes + more > MESSAGE_HASHES_MAX || rows.length >= BOOKINGS_PER_PART) flush()
    rows.push([id, row])
    hashes += more
  }
  flush()
  return messages
}

export function decodeOpenDigests(bytes: Uint8Array): DigestSnapshot | undefined {
  const row = tryDecode(bytes)
  if (row?.length !== 4 || row[1] !== OPEN_DIGESTS || !isLife(row[2]) || !Array.isArray(row[3]))
    return undefined
  const digests = new Map<string, OperationDigest>()
  for (const one of row[3] as unknown[]) {
    if (!Array.isArray(one) || one.length !== 2 || !isText(one[0])) return undefined
    const digest = digestOf(one[1])
    if (digest === undefined) return undefined
    digests.set(one[0], digest)
  }
  return { life: row[2], digests }
}

/** All that waits at a replica; replaces its earlier report. */
export function encodeWaiting(rows: readonly WaitingRow[]): Uint8Array {
  return encode([
    VERSION,
    WAITING,
    rows
      .slice(0, WAITING_ROWS_MAX)
      .map(({ model, policyClass, requests, promptTokens, uncachedTokens }) => [
        model,
        policyClass,
        requests,
        promptTokens,
        uncachedTokens,
      ]),
  ])
}

export function decodeWaiting(bytes: Uint8Array): WaitingRow[] | undefined {
  const row = tryDecode(bytes)
  if (row?.length !== 3 || row[1] !== WAITING || !Array.isArray(row[2])) return undefined
  if (row[2].length > WAITING_ROWS_MAX) return undefined
  const rows: WaitingRow[] = []
  for (const one of row[2] as unknown[]) {
    if (!Array.isArray(one) || one.length !== 5) return undefined
    const [model, policyClass, requests, promptTokens, uncachedTokens] = one as unknown[]
    if (!isText(model) || !isText(policyClass) || !isCount(requests)) return undefined
    if (!isAmount(promptTokens) || !isAmount(uncachedTokens) || uncachedTokens > promptTokens)
      return undefined
    rows.push({ model, policyClass, requests, promptTokens, uncachedTokens })
  }
  return rows
}

/** The sessions that operations of the batch have moved, to be sent behind it; undefined: none. */
export function encodeMoved({ operations }: ReplicaBatch): Uint8Array | undefined {
  const rows = operations.flatMap(operation => {
    const moved = operation.kind === 'freed' ? operation.moved : undefined
    return moved === undefined ? [] : [[moved.session, moved.worker]]
  })
  return rows.length === 0 ? undefined : encode([VERSION, MOVED, rows])
}

export function decodeMoved(bytes: Uint8Array): MovedBinding[] | undefined {
  const row = tryDecode(bytes)
  if (row?.length !== 3 || row[1] !== MOVED || !Array.isArray(row[2])) return undefined
  const moved: MovedBinding[] = []
  for (const one of row[2] as unknown[]) {
    if (!Array.isArray(one) || one.length !== 2) return undefined
    const [session, worker] = one as unknown[]
    if (!isText(session) || !isText(worker)) return undefined
    moved.push({ session, worker })
  }
  return moved
}

/** Puts the parts of a snapshot together, which come in order, and what digests say of it. */
export class SnapshotParts {
  readonly #digests = new Map<string, OperationDigest>()
  #words = 0
  #digestLife = ''
  #bookings: OpenBooking[] = []
  #next = 0
  #life = ''

  /** Beyond the bounds they are left out: such bookings count alone. Those of another life replace them. */
  addDigests({ life, digests }: DigestSnapshot): void {
    if (life !== this.#digestLife) this.#clearDigests()
    this.#digestLife = life
    for (const [id, digest] of digests) {
      this.#words += digest.digest?.hashes.length ?? 0
      if (this.#digests.size >= SNAPSHOT_DIGESTS_MAX || this.#words > SNAPSHOT_WORDS_MAX) return
      this.#digests.set(id, digest)
    }
  }

  /** The snapshot with its last part; undefined: not yet. */
  add({ life, nextSequence, part, parts, bookings }: SnapshotPart): ReplicaSnapshot | undefined {
    if (part === 0) {
      this.#bookings = []
      this.#next = 0
      this.#life = life
    }
    // A lost part makes all that follow useless: the snapshot is requested again.
    if (part !== this.#next || life !== this.#life) return undefined
    this.#next++
    this.#bookings.push(...bookings)
    if (part < parts - 1) return undefined
    const known = this.#digestLife === life ? this.#digests : undefined
    const whole = this.#bookings.map(booking => ({ ...booking, ...known?.get(booking.id) }))
    this.#bookings = []
    this.#clearDigests()
    return { life, nextSequence, bookings: whole }
  }

  #clearDigests(): void {
    this.#digests.clear()
    this.#words = 0
  }
}

function digestIn(operation: ReplicaOperation): BookedDigest | undefined {
  return operation.kind === 'booked' ? operation.digest : undefined
}

function digestRow(
  otherBlocks: number | undefined,
  digest: BookedDigest | undefined,
): readonly unknown[] | null {
  if (otherBlocks === undefined) return null
  if (digest === undefined) return [otherBlocks, null, null]
  const bytes = Buffer.allocUnsafe(digest.hashes.length * (HASH_BYTES / 2))
  for (const [i, word] of digest.hashes.entries()) bytes.writeInt32LE(word, i * (HASH_BYTES / 2))
  return [otherBlocks, digest.count, bytes]
}

function digestOf(row: unknown): OperationDigest | undefined {
  if (!Array.isArray(row) || row.length !== 3) return undefined
  const [otherBlocks, count, bytes] = row as unknown[]
  if (!isCount(otherBlocks)) return undefined
  if (count === null && bytes === null) return { otherBlocks }
  if (!isCount(count) || !(bytes instanceof Uint8Array)) return undefined
  const { byteLength, byteOffset, buffer } = bytes
  if (byteLength % HASH_BYTES !== 0 || byteLength > DIGEST_LENGTH_MAX * HASH_BYTES) return undefined
  const view = new DataView(buffer, byteOffset, byteLength)
  const hashes = Int32Array.from({ length: byteLength / 4 }, (_, i) => view.getInt32(4 * i, true))
  return { otherBlocks, digest: { count, hashes } }
}

function operationRow(operation: ReplicaOperation): readonly unknown[] {
  switch (operation.kind) {
    case 'booked':
      return bookedRow(operation)
    case 'firstToken':
      return [FIRST_TOKEN, operation.id]
    case 'freed':
      return [
        FREED,
        operation.id,
        operation.activeBlocks,
        operation.outputTokens ?? null,
        operation.cachedShare ?? null,
      ]
    case 'reported':
      return [REPORTED, operation.id, operation.isFreed]
  }
}

function bookedRow(operation: BookedOperation): readonly unknown[] {
  const { id, worker, activeBlocks, promptTokens, prefillTokens, countsPrefill } = operation
  const { isStream, waitedMs, stepTokens, session } = operation
  return [
    BOOKED,
    id,
    worker,
    activeBlocks,
    promptTokens,
    prefillTokens,
    countsPrefill,
    isStream,
    waitedMs,
    stepTokens,
    session ?? null,
  ]
}

function operationOf(row: unknown): ReplicaOperation | undefined {
  if (!Array.isArray(row)) return undefined
  if (row[0] === BOOKED) return bookedOf(row)
  const id: unknown = row[1]
  if (!isText(id)) return undefined
  if (row[0] === FIRST_TOKEN && row.length === 2) return { kind: 'firstToken', id }
  if (row[0] === REPORTED && row.length === 3)
    return typeof row[2] === 'boolean' ? { kind: 'reported', id, isFreed: row[2] } : undefined
  if (row[0] !== FREED || row.length !== 5) return undefined
  const [, , activeBlocks, outputTokens, cachedShare] = row as unknown[]
  if (!isCount(activeBlocks)) return undefined
  if (!(outputTokens === null || isCount(outputTokens))) return undefined
  if (!(cachedShare === null || (isAmount(cachedShare) && cachedShare <= 1))) return undefined
  return {
    kind: 'freed',
    id,
    activeBlocks,
    outputTokens: outputTokens ?? undefined,
    cachedShare: cachedShare ?? undefined,
  }
}

function bookedOf(row: readonly unknown[]): BookedOperation | undefined {
  const [
    kind,
    id,
    worker,
    activeBlocks,
    promptTokens,
    prefillTokens,
    countsPrefill,
    isStream,
    waitedMs,
    stepTokens,
    session,
  ] = row
  if (kind !== BOOKED || row.length !== 11 || !isText(id) || !isText(worker)) return undefined
  if (!isCount(activeBlocks) || !isCount(promptTokens) || !isCount(prefillTokens) || !isCount(stepTokens))
    return undefined
  if (typeof isStream !== 'boolean' || typeof countsPrefill !== 'boolean') return undefined
  if (stepTokens < 1 || !isAmount(waitedMs) || waitedMs > WAITED_MS_MAX) return undefined
  if (session !== null && !isText(session)) return undefined
  return {
    kind: 'booked',
    id,
    worker,
    activeBlocks,
    promptTokens,
    prefillTokens,
    countsPrefill,
    isStream,
    waitedMs,
    stepTokens,
    session: session ?? undefined,
  }
}

function tryDecode(bytes: Uint8Array, bounds = BOUNDS): readonly unknown[] | undefined {
  try {
    const value = decodeMessagePack(bytes, bounds)
    return Array.isArray(value) && value[0] === VERSION ? value : undefined
  } catch (error) {
    if (error instanceof BrokenMessageError) return undefined
    throw error
  }
}

function isLife(value: unknown): value is string {
  return typeof value === 'string' && LIFE.test(value)
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length > 0 && value.length <= TEXT_MAX
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= WIRE_COUNT_MAX
}

function isSequence(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER
}

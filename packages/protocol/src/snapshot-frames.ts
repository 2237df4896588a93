/**
 * The frames of a snapshot: everything that a publisher's cache holds now, requested on its replay socket.
 *
 *   request   [] ["snapshot"] [version, 1 byte]         1: by tokens; 2: by hashes
 *   reply     [] ["snapshot"] [header] [payload]        one per part; the parts come in order
 *
 *   header    byte   0         1       2 … 9        10 … 17         18 … 21   22 … 25      big-endian
 *                    version   flags   publisher    next sequence   part      parts
 *
 * A request or reply is as its DEALER sees it; the ROUTER has the identity in front. The payload of a part is
 * a batch of KV events, stores only, for `decodeKvBatch`. All parts, applied to an empty cache in order and
 * then followed by the published batches from `next sequence` on, give what the publisher holds: parents come
 * before children, and a block with n copies is stored n times.
 *
 * By tokens, a store names its blocks as every other event does, so every reader of events can read it. By
 * hashes, it has the local hash of each block instead (`KvStored.localHashes`), a quarter of the bytes, and
 * the reader needs not hash; `decodeSnapshotBatch` reads it. A publisher that knows the second form, and
 * whose blocks have any local hash that says all, says so in every part of the first: older publishers drop a
 * request for it. Blocks that no local hash names have tokens there, too.
 *
 * A replay socket that knows no snapshots drops the request: engines take a request for a replay only when it
 * has exactly two frames behind the identity, and this one has three. A reply cannot be taken for one of a
 * replay either, since its header is no sequence of 8 bytes.
 */

type Frames = readonly Uint8Array[]

/** Fields of one reply, but for the payload. */
export interface SnapshotHeader {
  /** 64 random bits, 16 hexadecimal digits, new in each life of a publisher. */
  readonly publisherId: string
  /** The first batch that is not in the snapshot: the one to go on with. 0: nothing was published yet. */
  readonly nextSequence: number
  /** 0 … parts − 1. */
  readonly part: number
  /** How many parts there are, at least 1; 0: the publisher cannot give a snapshot now. */
  readonly parts: number
  /** True: the cache holds nothing else. False: it may hold blocks that the publisher does not know of. */
  readonly isWhole: boolean
  /**
   * True: some of what it names may be gone. The engine told something that could not be read, and it may
   * have been a removal.
   */
  readonly mayBeStale: boolean
  /** How the stores of the parts name their blocks. */
  readonly form: SnapshotForm
  /** The publisher would answer in the form `hashes`, too, and not with the same tokens again. */
  readonly offersHashes: boolean
}

/** `tokens`: version 1; `hashes`: version 2. */
export type SnapshotForm = 'tokens' | 'hashes'

export type SnapshotReply =
  | ({ readonly kind: 'part'; readonly payload: Uint8Array } & SnapshotHeader)
  /** No snapshot now, such as while others are being sent: ask again later. */
  | { readonly kind: 'refused'; readonly publisherId: string }
  | { readonly kind: 'malformed'; readonly reason: string }

/** The version of a form is its index. */
const FORMS: readonly (SnapshotForm | undefined)[] = [undefined, 'tokens', 'hashes']
const FLAG_WHOLE = 1
const FLAG_MAY_BE_STALE = 2
const FLAG_OFFERS_HASHES = 4
const HEADER_BYTES = 26
const EMPTY = new Uint8Array(0)
const MARK = new TextEncoder().encode('snapshot')

/** What a DEALER sends to have a snapshot. */
export function snapshotRequestFrames(form: SnapshotForm = 'tokens'): Uint8Array[] {
  return [EMPTY, MARK, Uint8Array.of(FORMS.indexOf(form))]
}

/**
 * The form of the snapshot that the frames after the identity ask for; undefined: they ask for none of a
 * version that is spoken here.
 */
export function parseSnapshotRequest(frames: Frames): SnapshotForm | undefined {
  const isRequest =
    frames.length === 3 && frames[0]!.length === 0 && isMark(frames[1]!) && frames[2]!.length === 1
  return isRequest ? FORMS[frames[2]![0]!] : undefined
}

/**
 * One part, or with `parts` 0 the refusal, from the empty delimiter on. Throws RangeError for fields out of
 * range.
 */
export function encodeSnapshotReply(header: SnapshotHeader, payload: Uint8Array): Uint8Array[] {
  const { publisherId, nextSequence, part, parts, isWhole, mayBeStale, form, offersHashes } = header
  if (!/^[0-9a-f]{16}$/.test(publisherId) || !Number.isSafeInteger(nextSequence) || nextSequence < 0) {
    throw new RangeError(`cannot write a snapshot of publisher ${publisherId} up to ${nextSequence}`)
  }
  const bytes = new Uint8Array(HEADER_BYTES)
  const view = new DataView(bytes.buffer)
  view.setUint8(0, FORMS.indexOf(form))
  const flags = [isWhole && FLAG_WHOLE, mayBeStale && FLAG_MAY_BE_STALE, offersHashes && FLAG_OFFERS_HASHES]
  for (const flag of flags) bytes[1]! |= flag || 0
  view.setBigUint64(2, BigInt(`0x${publisherId}`))
  view.setBigUint64(10, BigInt(nextSequence))
  view.setUint32(18, part)
  view.setUint32(22, parts)
  return [EMPTY, MARK, bytes, payload]
}

/**
 * Reads one reply. Never throws: a malformed reply ends a snapshot, not its reader. Unknown flags are
 * ignored.
 */
export function parseSnapshotReply(frames: Frames): SnapshotReply {
  const [delimiter, mark, bytes, payload] = frames
  if (frames.length !== 4 || delimiter!.length !== 0 || !isMark(mark!)) {
    return malformed('the frames are not those of a snapshot')
  }
  if (bytes!.length !== HEADER_BYTES) return malformed(`a header of ${bytes!.length} bytes`)
  const view = new DataView(bytes!.buffer, bytes!.byteOffset, HEADER_BYTES)
  const form = FORMS[view.getUint8(0)]
  if (form === undefined) return malformed(`version ${view.getUint8(0)}`)
  const publisherId = view.getBigUint64(2).toString(16).padStart(16, '0')
  const nextSequence = Number(view.getBigUint64(10))
  if (!Number.isSafeInteger(nextSequence)) return malformed('the next sequence is not below 2^53')
  const part = view.getUint32(18)
  const parts = view.getUint32(22)
  if (parts === 0) return { kind: 'refused', publisherId }
  if (part >= parts) return malformed(`part ${part} of ${parts}`)
  const flags = view.getUint8(1)
  const isWhole = (flags & FLAG_WHOLE) !== 0
  const mayBeStale = (flags & FLAG_MAY_BE_STALE) !== 0
  const offersHashes = (flags & FLAG_OFFERS_HASHES) !== 0
  const header = { publisherId, nextSequence, part, parts, isWhole, mayBeStale, form, offersHashes }
  return { kind: 'part', ...header, payload: payload! }
}

function isMark(frame: Uint8Array): boolean {
  return frame.length === MARK.length && frame.every((byte, i) => byte === MARK[i])
}

function malformed(reason: string): SnapshotReply {
  return { kind: 'malformed', reason }
}

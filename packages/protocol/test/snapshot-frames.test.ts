import t from 'tap'
import {
  encodeSnapshotReply,
  parseReplayReply,
  parseReplayRequest,
  parseSnapshotReply,
  parseSnapshotRequest,
  type SnapshotHeader,
  snapshotRequestFrames,
} from '../src/index.ts'

const HEADER: SnapshotHeader = {
  publisherId: '00f0e1d2c3b4a596',
  nextSequence: 2 ** 40 + 7,
  part: 1,
  parts: 3,
  isWhole: true,
  mayBeStale: false,
  form: 'tokens',
  offersHashes: false,
}
const PAYLOAD = Uint8Array.of(0x92, 0x00, 0x90)

const hex = (frames: readonly Uint8Array[]): string[] =>
  frames.map(frame => Buffer.from(frame).toString('hex'))
const bytes = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, 'hex'))

t.test('the frames are those of the documented wire form', async t => {
  t.strictSame(hex(snapshotRequestFrames()), ['', '736e617073686f74', '01'])
  t.strictSame(hex(snapshotRequestFrames('hashes')), ['', '736e617073686f74', '02'])
  t.strictSame(hex(encodeSnapshotReply(HEADER, PAYLOAD)), [
    '',
    '736e617073686f74',
    '010100f0e1d2c3b4a59600000100000000070000000100000003',
    '920090',
  ])
})

t.test('what is written is read back', async t => {
  for (const header of [
    HEADER,
    { ...HEADER, isWhole: false, part: 0, parts: 1, nextSequence: 0 },
    { ...HEADER, isWhole: false, mayBeStale: true },
    { ...HEADER, offersHashes: true },
    { ...HEADER, form: 'hashes', offersHashes: true },
  ] as const) {
    const reply = parseSnapshotReply(encodeSnapshotReply(header, PAYLOAD))
    t.strictSame(reply, { kind: 'part', ...header, payload: PAYLOAD })
  }
  const refusal = encodeSnapshotReply({ ...HEADER, part: 0, parts: 0 }, new Uint8Array(0))
  t.strictSame(parseSnapshotReply(refusal), {
    kind: 'refused',
    publisherId: HEADER.publisherId,
  })
})

t.test('a request for a snapshot is no request for a replay, and the other way round', async t => {
  const request = snapshotRequestFrames()
  t.equal(parseSnapshotRequest(request), 'tokens')
  t.equal(parseSnapshotRequest(snapshotRequestFrames('hashes')), 'hashes')
  t.equal(parseReplayRequest(request), undefined)
  t.equal(parseSnapshotRequest([bytes(''), bytes('0000000000000000')]), undefined)
  for (const version of ['00', '03', 'ff'])
    t.equal(parseSnapshotRequest([bytes(''), request[1]!, bytes(version)]), undefined, 'another version')
  t.equal(parseSnapshotRequest([bytes('00'), request[1]!, bytes('01')]), undefined, 'no delimiter')
})

t.test('a part is no reply of a replay, and the other way round', async t => {
  t.equal(parseReplayReply(encodeSnapshotReply(HEADER, PAYLOAD)).kind, 'malformed')
  t.equal(
    parseSnapshotReply([bytes(''), bytes('6b76'), bytes('0000000000000001'), PAYLOAD]).kind,
    'malformed',
  )
})

t.test('a reply that is not understood is malformed, with the reason', async t => {
  const [delimiter, mark, header, payload] = encodeSnapshotReply(HEADER, PAYLOAD) as [
    Uint8Array,
    Uint8Array,
    Uint8Array,
    Uint8Array,
  ]
  const changed = (at: number, value: number): Uint8Array => {
    const copy = header.slice()
    copy[at] = value
    return copy
  }
  for (const [frames, reason] of [
    [[delimiter, mark, header], /frames/],
    [[mark, mark, header, payload], /frames/],
    [[delimiter, mark, header.subarray(1), payload], /25 bytes/],
    [[delimiter, mark, changed(0, 3), payload], /version 3/],
    [[delimiter, mark, changed(10, 1), payload], /2\^53/],
    [[delimiter, mark, changed(21, 3), payload], /part 3 of 3/],
  ] as const) {
    const reply = parseSnapshotReply(frames)
    t.equal(reply.kind, 'malformed')
    if (reply.kind === 'malformed') t.match(reply.reason, reason)
  }
  t.equal(parseSnapshotReply([delimiter, mark, changed(1, 0xff), payload]).kind, 'part', 'further flags')
})

t.test('a header that cannot be written is refused', async t => {
  t.throws(() => encodeSnapshotReply({ ...HEADER, publisherId: 'me' }, PAYLOAD), RangeError)
  t.throws(() => encodeSnapshotReply({ ...HEADER, nextSequence: -1 }, PAYLOAD), RangeError)
})

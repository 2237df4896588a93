/**
 * Outbox and mirror: whatever is lost, repeated or late on the way, what is open there is open here in the
 * end. HOMING_SEED sets the seed.
 */

import process from 'node:process'
import { type Random, seededRandom } from '@homing/base'
import { decode, encode } from '@msgpack/msgpack'
import t from 'tap'
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
  Mirror,
  type OpenBooking,
  Outbox,
  type ReplicaOperation,
  SnapshotParts,
  withDigests,
} from '../src/index.ts'

const SEED = Number(process.env['HOMING_SEED'] ?? 1)
const ROUNDS = 200

function booked(id: string, worker = 'h:1/0'): ReplicaOperation {
  return {
    kind: 'booked',
    id,
    worker,
    activeBlocks: 3,
    promptTokens: 100,
    prefillTokens: 50,
    countsPrefill: true,
    isStream: true,
    waitedMs: 0.5,
    stepTokens: 8192,
    session: id === 'a' ? '0011223344556677' : undefined,
  }
}

/** What a mirror tells, as the tracker takes it. */
class Load {
  readonly open = new Map<string, boolean>()
  asked = 0
  readonly mirror = new Mirror({
    ask: () => {
      this.asked++
    },
    apply: operations => {
      for (const operation of operations) {
        if (operation.kind === 'booked') this.open.set(operation.id, false)
        else if (operation.kind === 'freed') this.open.delete(operation.id)
        else this.open.set(operation.id, true)
      }
    },
    reset: bookings => {
      this.open.clear()
      for (const { id, hasFirstToken } of bookings) this.open.set(id, hasFirstToken)
    },
  })
}

function openOf(outbox: Outbox): Map<string, boolean> {
  return new Map(outbox.snapshot().bookings.map(({ id, hasFirstToken }) => [id, hasFirstToken]))
}

t.test('batches in order are followed, and each operation counts once', async t => {
  const outbox = new Outbox('00000000000000aa')
  const load = new Load()
  load.mirror.connected()
  t.equal(load.asked, 1)
  load.mirror.snapshot(outbox.snapshot())
  outbox.add(booked('a'))
  outbox.add(booked('b'))
  outbox.add({ kind: 'firstToken', id: 'a' })
  outbox.add({ kind: 'firstToken', id: 'a' })
  outbox.add({ kind: 'freed', id: 'never booked', activeBlocks: 0 })
  const batch = outbox.take()
  t.equal(batch.operations.length, 3, 'what changes nothing is not told')
  load.mirror.heard(batch)
  load.mirror.heard(batch)
  t.strictSame(
    [...load.open],
    [
      ['a', true],
      ['b', false],
    ],
  )
  outbox.add({ kind: 'freed', id: 'a', activeBlocks: 0, outputTokens: 7, cachedShare: 0.5 })
  load.mirror.heard(outbox.take())
  t.strictSame([...load.open], [['b', false]])
  t.strictSame(outbox.take(), { life: '00000000000000aa', sequence: 2, operations: [] }, 'a word of life')
  t.match(load.mirror.counters, { gaps: 0, snapshots: 1, operations: 4 })
})

t.test('a word of life shows that the last batch was lost', async t => {
  const outbox = new Outbox('00000000000000aa')
  const load = new Load()
  load.mirror.connected()
  load.mirror.snapshot(outbox.snapshot())
  outbox.add(booked('a'))
  outbox.take()
  load.mirror.heard(outbox.take())
  t.equal(load.mirror.state, 'asking')
  load.mirror.snapshot(outbox.snapshot())
  t.strictSame([...load.open.keys()], ['a'])
})

t.test('another life begins anew; one that is gone leaves nothing', async t => {
  const load = new Load()
  const first = new Outbox('00000000000000aa')
  load.mirror.connected()
  first.add(booked('a'))
  load.mirror.snapshot(first.snapshot())
  const second = new Outbox('00000000000000bb')
  second.add(booked('b'))
  load.mirror.heard(second.take())
  t.equal(load.asked, 2)
  t.ok(load.open.has('a'), 'until it is known what is open')
  load.mirror.snapshot(second.snapshot())
  t.strictSame([...load.open.keys()], ['b'])
  load.mirror.gone()
  t.equal(load.open.size, 0)
  load.mirror.heard(second.take())
  t.equal(load.mirror.state, 'unknown', 'heard only when it is connected again')
})

t.test(`${ROUNDS} rounds of losses, repetitions, delays and lives end equal`, async t => {
  for (let round = 0; round < ROUNDS; round++) {
    const random = seededRandom(SEED * 1000 + round)
    const where = `seed ${SEED * 1000 + round}`
    const fault = converge(random)
    if (fault !== undefined) t.fail(`${where}: ${fault}`)
  }
  t.pass('all of them')
})

/** Random traffic over a bad line, then a good one; undefined: both sides are equal in the end. */
function converge(random: Random): string | undefined {
  let life = 1
  let outbox = new Outbox(life.toString(16).padStart(16, '0'))
  const load = new Load()
  load.mirror.connected()
  const isAsking = (): boolean => load.mirror.state === 'asking'
  const ids: string[] = []
  let answer: ReturnType<Outbox['snapshot']> | undefined
  const late: ReturnType<Outbox['take']>[] = []
  let asked = 0
  for (let step = 0; step < 300; step++) {
    const isBad = step < 250
    for (let i = random.below(4); i > 0; i--) {
      const draw = random.below(3)
      if (draw === 0 || ids.length === 0) {
        ids.push(`r${ids.length}`)
        outbox.add(booked(ids.at(-1)!))
      } else {
        const id = ids[random.below(ids.length)]!
        outbox.add(draw === 1 ? { kind: 'firstToken', id } : { kind: 'freed', id, activeBlocks: 0 })
      }
    }
    if (isBad && random.below(60) === 0) {
      outbox = new Outbox((++life).toString(16).padStart(16, '0'))
      ids.length = 0
      answer = undefined
    }
    if (isBad && random.below(60) === 0) load.mirror.connected()
    if (isBad && random.below(80) === 0) {
      load.mirror.gone()
      if (load.open.size > 0) return 'gone, and something is open'
      load.mirror.connected()
    }
    const batch = outbox.take()
    const fate = isBad ? random.below(6) : 5
    if (fate === 0) late.push(batch)
    else if (fate !== 1) load.mirror.heard(batch)
    if (fate === 2) load.mirror.heard(batch)
    if (late.length > 0 && random.below(5) === 0) load.mirror.heard(late.shift()!)
    // The answer comes a few steps after the question, or never.
    if (load.asked > asked && random.below(2) === 0) {
      asked = load.asked
      answer = outbox.snapshot()
    }
    if (answer !== undefined && random.below(3) === 0) {
      load.mirror.snapshot(answer)
      answer = undefined
    }
    // Whoever is not answered asks again, as the bridge does.
    if (isAsking() && answer === undefined) answer = outbox.snapshot()
  }
  while (load.mirror.state !== 'live') load.mirror.snapshot(outbox.snapshot())
  load.mirror.heard(outbox.take())
  if (isAsking()) load.mirror.snapshot(outbox.snapshot())
  const [here, there] = [load.open, openOf(outbox)]
  if (here.size !== there.size) return `${here.size} open here, ${there.size} there`
  for (const [id, hasFirstToken] of there) {
    if (here.get(id) !== hasFirstToken) return `${id} is ${here.get(id)} here, ${hasFirstToken} there`
  }
  return undefined
}

t.test('what is written is what is read', async t => {
  const outbox = new Outbox('0123456789abcdef')
  outbox.add(booked('a', 'gpu-1:8000/3'))
  outbox.add({ kind: 'firstToken', id: 'a' })
  outbox.add(booked('b'))
  outbox.add({ kind: 'freed', id: 'b', activeBlocks: 0, outputTokens: 12, cachedShare: 0.25 })
  const batch = outbox.take()
  t.strictSame(decodeBatch(encodeBatch(batch)), batch)
  t.equal(isQuestion(encodeQuestion()), true)
  t.equal(isQuestion(encodeBatch(batch)), false)
  for (let i = 0; i < 4500; i++) outbox.add(booked(`many-${i}`))
  const snapshot = outbox.snapshot()
  const parts = new SnapshotParts()
  const messages = encodeSnapshot(snapshot)
  t.equal(messages.length, 3)
  const read = messages.map(message => parts.add(decodeSnapshotPart(message)!))
  t.strictSame(read.slice(0, 2), [undefined, undefined])
  t.strictSame(read[2], snapshot)
  t.equal(parts.add(decodeSnapshotPart(messages[1]!)!), undefined, 'a part without its beginning')
})

t.test('digests come in messages of their own, which an earlier version leaves alone', async t => {
  const outbox = new Outbox('0123456789abcdef')
  const digest = (words: number) => ({
    count: words / 2,
    hashes: Int32Array.from({ length: words }, (_, i) => 7 - 3 * i),
  })
  const plain = booked('a') as OpenBooking
  outbox.add({ ...plain, otherBlocks: 2, digest: digest(6) })
  outbox.add({ kind: 'firstToken', id: 'a' })
  outbox.add({ ...(booked('b') as OpenBooking), otherBlocks: 5 })
  outbox.add({ kind: 'freed', id: 'b', activeBlocks: 3, otherBlocks: 1 })
  const batch = outbox.take()
  const [digests, bytes] = [encodeDigests(batch)!, encodeBatch(batch)]
  t.same(withDigests(decodeBatch(bytes)!, decodeDigests(digests)), batch)
  t.match(decodeBatch(bytes)!.operations[0], plain, 'a batch is what it was')
  t.equal(
    decodeBatch(bytes)!.operations[0]!.kind === 'booked' && 'digest' in decodeBatch(bytes)!.operations[0]!,
    false,
  )
  for (const message of [digests, ...encodeOpenDigests(outbox.snapshot())]) {
    t.equal(decodeBatch(message), undefined)
    t.equal(decodeSnapshotPart(message), undefined)
    t.equal(decodeWaiting(message), undefined)
    t.equal(isQuestion(message) || isBye(message), false)
  }
  const other = { ...decodeDigests(digests)!, sequence: 9 }
  t.same(withDigests(decodeBatch(bytes)!, other), decodeBatch(bytes), 'digests of another batch')

  // Of a snapshot they come first, in messages of less than half a MiB.
  for (let i = 0; i < 300; i++)
    outbox.add({ ...(booked(`m${i}`) as OpenBooking), otherBlocks: i, digest: digest(1024) })
  const parts = new SnapshotParts()
  const messages = encodeOpenDigests(outbox.snapshot())
  t.ok(messages.length > 2 && messages.every(({ length }) => length < 700_000))
  for (const message of messages) parts.addDigests(decodeOpenDigests(message)!)
  const read = encodeSnapshot(outbox.snapshot()).map(message => parts.add(decodeSnapshotPart(message)!))
  t.same(read.at(-1), outbox.snapshot())
  for (const message of messages) parts.addDigests({ ...decodeOpenDigests(message)!, life: 'another' })
  const bare = encodeSnapshot(outbox.snapshot()).map(message => parts.add(decodeSnapshotPart(message)!))
  t.ok(
    bare.at(-1)!.bookings.every(({ digest: said }) => said === undefined),
    'digests of another life',
  )
})

t.test(
  'sessions that moved come in a message of their own, which an earlier version leaves alone',
  async t => {
    const outbox = new Outbox('0123456789abcdef')
    const moved = { session: '0011223344556677', worker: 'h:1/0' }
    for (const id of ['b', 'c']) {
      outbox.add(booked(id))
      const freed = { kind: 'freed', id, activeBlocks: 3 } as const
      outbox.add(id === 'b' ? { ...freed, moved } : freed)
    }
    const batch = outbox.take()
    const [bytes, message] = [encodeBatch(batch), encodeMoved(batch)!]
    t.strictSame(decodeMoved(message), [moved])
    // As an earlier version reads it: a row of another length costs it the batch, and so a snapshot.
    const [version, life, sequence, rows] = decode(bytes) as [number, string, number, unknown[][]]
    t.strictSame([version, life, sequence], [1, batch.life, 0])
    t.strictSame(
      rows.map(row => [row[0], row.length]),
      [
        [0, 11],
        [2, 5],
        [0, 11],
        [2, 5],
      ],
    )
    for (const read of [decodeBatch, decodeDigests, decodeOpenDigests, decodeSnapshotPart, decodeWaiting])
      t.equal(read(message), undefined, read.name)
    t.equal(isQuestion(message) || isBye(message), false)
    t.equal(encodeMoved({ ...batch, operations: batch.operations.slice(2) }), undefined)
    for (const wrong of [[['s']], [['s', 1]], [['', 'w']], [['s', 'w', 'x']], 's', ['s']])
      t.equal(decodeMoved(encode([1, 'moved', wrong])), undefined, JSON.stringify(wrong))
    t.equal(decodeMoved(bytes), undefined)
  },
)

t.test('what cannot be read is nothing, whatever a stranger sends', async t => {
  const random = seededRandom(SEED)
  const outbox = new Outbox('0123456789abcdef')
  outbox.add(booked('a'))
  const freed = { kind: 'freed', id: 'a', activeBlocks: 0 } as const
  outbox.add(freed)
  const open: OpenBooking[] = [{ ...(booked('a') as OpenBooking), hasFirstToken: true }]
  outbox.add({ ...open[0]!, id: 'c', otherBlocks: 1, digest: { count: 3, hashes: new Int32Array(6) } })
  const batch = outbox.take()
  const valid = [
    encodeBatch(batch),
    encodeDigests(batch)!,
    ...encodeOpenDigests(outbox.snapshot()),
    encodeMoved({ ...batch, operations: [{ ...freed, moved: { session: 's', worker: 'w' } }] })!,
    encodeQuestion(),
    ...encodeSnapshot({ life: '0123456789abcdef', nextSequence: 4, bookings: open }),
  ]
  for (let i = 0; i < 20_000; i++) {
    const bytes = valid[random.below(valid.length)]!.slice(0, 1 + random.below(120))
    for (let flips = random.below(4); flips > 0; flips--)
      bytes[random.below(bytes.length)] = random.below(256)
    const batch = decodeBatch(bytes)
    const part = decodeSnapshotPart(bytes)
    isQuestion(bytes)
    decodeMoved(bytes)
    for (const operation of [...(batch?.operations ?? []), ...(part?.bookings ?? [])]) {
      if (operation.kind !== 'booked') continue
      const figures = [
        operation.activeBlocks,
        operation.prefillTokens,
        operation.promptTokens,
        operation.waitedMs,
      ]
      if (!figures.every(figure => figure >= 0 && Number.isFinite(figure))) t.fail(JSON.stringify(operation))
    }
  }
  t.equal(decodeBatch(new Uint8Array(0)), undefined)
})

t.test('what waits is read as it was written, and not if it is of another kind or out of range', async t => {
  const row = { model: 'm', policyClass: 'batch', requests: 2, promptTokens: 2 ** 33, uncachedTokens: 7 }
  t.strictSame(decodeWaiting(encodeWaiting([row, row])), [row, row])
  t.strictSame(decodeWaiting(encodeWaiting([])), [])
  t.equal(decodeBatch(encodeWaiting([row])), undefined)
  t.equal(decodeWaiting(encodeQuestion()), undefined)
  t.equal(decodeWaiting(encodeBatch({ life: '0'.repeat(16), sequence: 0, operations: [] })), undefined)
  for (const wrong of [
    { ...row, requests: -1 },
    { ...row, requests: 0.5 },
    { ...row, uncachedTokens: 2 ** 34 },
    { ...row, promptTokens: Number.NaN },
    { ...row, model: '' },
  ])
    t.equal(decodeWaiting(encodeWaiting([wrong])), undefined, JSON.stringify(wrong))
  t.equal(decodeWaiting(encodeWaiting(Array.from({ length: 5000 }, () => row)))?.length, 4096, 'bounded')
})

t.test(
  'figures that no router has make a message unreadable; numbers of batches have no such bound',
  async t => {
    const life = '00000000000000aa'
    const one = booked('a') as Extract<ReplicaOperation, { readonly kind: 'booked' }>
    const read = (operation: ReplicaOperation, sequence = 0) =>
      decodeBatch(encodeBatch({ life, sequence, operations: [operation] }))
    const far = 2 ** 40
    t.match(read(one, far), { sequence: far })
    t.match(
      decodeSnapshotPart(
        encodeSnapshot({ life, nextSequence: far, bookings: [{ ...one, hasFirstToken: true }] })[0]!,
      ),
      { nextSequence: far },
    )
    for (const wrong of [
      { activeBlocks: 2 ** 31 },
      { promptTokens: 2 ** 31 },
      { stepTokens: 0 },
      { waitedMs: 1e300 },
    ]) {
      const where = JSON.stringify(wrong)
      t.equal(read({ ...one, ...wrong }), undefined, where)
      const bookings = [{ ...one, ...wrong, hasFirstToken: true }]
      t.equal(decodeSnapshotPart(encodeSnapshot({ life, nextSequence: 0, bookings })[0]!), undefined, where)
    }
  },
)

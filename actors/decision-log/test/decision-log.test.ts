/**
 * The decision log: its lines, its header, its numbers, and what it says of requests that it has no room for.
 */

import t from 'tap'
import { WAITING_BYTES_MAX } from '../src/decision-log.ts'
import { BLOCK, fleetOf, linesOf, PATH, requestsOf, settled, start } from './log-world.ts'

t.test('every settled request is one line behind a header', async t => {
  const { files, ref, tell, flush } = start(t)
  ref.tell({ type: 'fleet', fleet: fleetOf('a', 'b') })
  tell(
    settled('AB', { arrivedAtMs: 1_700_000_001_234 }),
    settled('ABC', { outcome: 'aborted', worker: 'b/0' }),
  )
  t.equal(await flush(), true)
  const [first, ...others] = linesOf(files.text(PATH))
  t.match(first, {
    kind: 'header',
    header: {
      originMs: 1_700_000_000_000,
      selection: { mode: 'kv', policy: 'linear', followsEvents: true },
      workers: [
        { key: 'a/0', models: ['m'], blockTokens: BLOCK, kvBlocks: 101, stepTokensMax: 8192, isUp: true },
        { key: 'b/0' },
      ],
    },
  })
  t.match(others, [
    { request: { timestampMs: 1234, inputTokens: 33, outputTokens: 5, worker: 'a/0', totalMs: 50 } },
    { request: { outcome: 'aborted', worker: 'b/0' } },
  ])
  t.equal(others.length, 2)
})

t.test('blocks are numbered as they are first seen, and the partial last one is nobody else’s', async t => {
  const { files, tell, flush } = start(t)
  tell(settled('ABC'), settled('ABX'), settled('ABC', { promptTokens: 3 * BLOCK }), settled('CB'))
  await flush()
  t.strictSame(
    requestsOf(files.text(PATH)).map(({ hashIds }) => hashIds),
    [
      [0, 1, 2, 3],
      [0, 1, 4, 5],
      [0, 1, 2],
      [6, 7, 8],
    ],
  )
})

t.test('a prompt of which nothing is known shares no block', async t => {
  const { files, tell, flush } = start(t)
  const unknown = { knowledge: 'none', sequenceHashes: new Int32Array(0), promptTokens: 40 } as const
  tell(settled('', unknown), settled('', unknown), settled('', { ...unknown, promptTokens: 0 }))
  await flush()
  t.match(requestsOf(files.text(PATH)), [
    { hashIds: [0, 1, 2], inputTokens: 40, knowledge: 'none' },
    { hashIds: [3, 4, 5] },
    { hashIds: [], inputTokens: 0 },
  ])
})

t.test('sessions are numbered, not named', async t => {
  const { files, tell, flush } = start(t)
  tell(...['alice@example.org', 'bob', 'alice@example.org'].map(sessionId => settled('A', { sessionId })))
  await flush()
  t.strictSame(
    requestsOf(files.text(PATH)).map(({ sessionId }) => sessionId),
    ['0', '1', '0'],
  )
  t.notMatch(files.text(PATH), 'alice')
})

t.test('a block that was not seen for long gets a new number, and those seen lately keep theirs', async t => {
  const { files, tell, flush } = start(t, { blocksRemembered: 4 })
  tell(settled('A'), settled('BCD'), settled('A'), settled('EFGH'), settled('A'), settled('BCD'))
  await flush()
  const ids = requestsOf(files.text(PATH)).map(({ hashIds }) => Array.from(hashIds).slice(0, -1))
  t.strictSame(ids[2], ids[0], 'it is among the last four')
  t.strictSame(ids[4], ids[0])
  t.ok(ids[5]![0]! > 4, 'eight others were seen since')
  const all = ids.flat()
  t.equal(new Set([...ids[0]!, ...ids[1]!, ...ids[3]!, ...ids[5]!]).size, 1 + 3 + 4 + 3, String(all))
})

t.test('when the fleet changes, a header says so before the next line', async t => {
  const { files, system, ref, tell, flush } = start(t)
  ref.tell({ type: 'fleet', fleet: fleetOf('a') })
  tell(settled('A'))
  await system.advance('3s')
  ref.tell({ type: 'fleet', fleet: fleetOf('a') })
  ref.tell({ type: 'fleet', fleet: fleetOf('a', 'b') })
  tell(settled('B'), settled('C'))
  await flush()
  const lines = linesOf(files.text(PATH))
  t.strictSame(
    lines.map(({ kind }) => kind),
    ['header', 'request', 'header', 'request', 'request'],
  )
  t.match(lines[2], { header: { timestampMs: 3000, workers: [{ key: 'a/0' }, { key: 'b/0' }] } })
})

t.test('requests that never arrived are counted and said', async t => {
  const { files, tell, skip, flush, status } = start(t)
  tell(settled('A'))
  skip(3)
  tell(settled('B'))
  await flush()
  t.strictSame(
    linesOf(files.text(PATH)).map(line => (line.kind === 'loss' ? line.requests : line.kind)),
    ['header', 'request', 3, 'request'],
  )
  t.match(await status(), { written: 2, dropped: 3 })
})

t.test('a disk that hangs costs lines beyond a bound, and nothing else', async t => {
  const { files, system, tell, flush, status } = start(t)
  const { promise, resolve } = Promise.withResolvers<void>()
  files.hanging = promise
  const model = 'm'.repeat(1 << 20)
  const count = WAITING_BYTES_MAX / model.length + 3
  for (let i = 0; i < count; i++) tell(settled('A', { model }))
  await system.settle()
  const { dropped, waitingBytes } = await status()
  t.ok(dropped >= 3 && waitingBytes <= WAITING_BYTES_MAX, `${dropped} dropped, ${waitingBytes} bytes wait`)
  resolve()
  await flush()
  tell(settled('B'))
  await flush()
  const kinds = requestsOf([PATH, `${PATH}.1`, `${PATH}.2`].map(path => files.text(path)).join(''))
  t.ok(kinds.length > 0)
  t.match(await status(), { written: count - dropped + 1, dropped, waitingBytes: 0 })
  const losses = linesOf(files.text(PATH)).filter(({ kind }) => kind === 'loss')
  t.strictSame(losses, [{ kind: 'loss', requests: dropped }])
})

t.test('nothing that a client wrote is in the log', async t => {
  const { files, tell, flush } = start(t)
  tell(settled('SECRET', { sessionId: 'SECRET', error: 'HOMING_X' }))
  await flush()
  t.notMatch(files.text(PATH), /SECRET/)
  // The first one is as short as the test has made it.
  const hashes = [...settled('SECRET').sequenceHashes.subarray(2)].map(String)
  t.notOk(hashes.some(word => files.text(PATH).includes(word)))
})

/**
 * The example in Python: our parsers accept everything that it sends, and a late subscriber rebuilds exactly.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { systemClock } from '@homing/base'
import { decodeKvBatch, type KvEvent, parseEventFrames } from '@homing/protocol'
import { systemTransport } from '@homing/transport'
import t, { type Test } from 'tap'
import { asked, replay, snapshot } from './asking.ts'
import { keyOf, tokensOf } from './histories.ts'
import { NaiveCache } from './naive-cache.ts'

const EXAMPLE = fileURLToPath(new URL('../examples/publisher.py', import.meta.url))
const ANY = 'tcp://127.0.0.1:*'
const KEPT = 5

const hasPackages = spawnSync('python3', ['-c', 'import zmq, msgpack']).status === 0
const skip = hasPackages ? false : 'the Python packages pyzmq and msgpack are not installed'

type Call =
  | readonly ['stored', parent: readonly number[] | undefined, chains: readonly (readonly number[])[]]
  | readonly ['removed', chains: readonly (readonly number[])[]]
  | readonly ['cleared']

/** Hashes are written by hand: JSON.stringify has no numbers of 64 bits. */
function lineOf(call: Call): string {
  const hashes = (chains: readonly (readonly number[])[]): string => `[${chains.map(keyOf).join()}]`
  if (call[0] === 'cleared') return '["cleared"]'
  if (call[0] === 'removed') return `["removed",${hashes(call[1])}]`
  const [, parent, chains] = call
  const tokens = chains.flatMap(chain => [...tokensOf(chain.slice(-1))])
  return `["stored",${parent === undefined ? 'null' : keyOf(parent)},${hashes(chains)},${JSON.stringify(tokens)}]`
}

async function started(t: Test) {
  const child = spawn('python3', [EXAMPLE, ANY, ANY, String(KEPT)], { stdio: ['pipe', 'pipe', 'inherit'] })
  const { messages, close } = systemTransport({ clock: systemClock, log: { warn() {} } })
  t.teardown(() => {
    child.kill('SIGKILL')
    close()
  })
  const lines = createInterface(child.stdout)
  const [first] = (await once(lines, 'line')) as [string]
  const [events, replayed] = first.split(' ') as [string, string]
  return {
    messages,
    events,
    replayed,
    /** Resolves when it is published. */
    async call(call: Call): Promise<void> {
      child.stdin.write(`${lineOf(call)}\n`)
      await once(lines, 'line')
    },
  }
}

t.test('the example publishes, repeats and tells what it holds as a router expects it', { skip }, async t => {
  const { messages, events, replayed, call } = await started(t)
  const live: KvEvent[] = []
  const sequences: number[] = []
  const topics = new Set<string>()
  let arrived = Promise.withResolvers<void>()
  messages.subscribe(
    { endpoint: events, topic: '' },
    {
      message(frames) {
        const { sequence, topic, payload } = parseEventFrames(frames)
        const batch = decodeKvBatch(payload)
        t.strictSame([batch.rank, batch.skipped], [0, { unknownTag: 0, malformed: 0 }])
        sequences.push(sequence)
        topics.add(topic)
        live.push(...batch.events)
        arrived.resolve()
      },
      connected() {},
      disconnected() {},
    },
  )
  t.match((await snapshot(messages, replayed)).replies, [
    { kind: 'part', nextSequence: 0, parts: 1, isWhole: true },
  ])
  // Until the subscription is there, clears are lost and change nothing.
  for (let hasArrived = false; !hasArrived; ) {
    await call(['cleared'])
    hasArrived = await Promise.race([
      arrived.promise.then(() => true),
      new Promise<boolean>(resolve => setImmediate(() => resolve(false))),
    ])
  }

  const calls: readonly Call[] = [
    ['stored', undefined, [[1], [1, 2], [1, 2, 3]]],
    ['stored', [1], [[1, 3]]],
    ['stored', undefined, [[1]]],
    ['removed', [[1]]],
    [
      'removed',
      [
        [1, 2],
        [1, 2],
      ],
    ],
    ['stored', undefined, [[2]]],
    ['stored', [1], [[1, 2]]],
  ]
  for (const each of calls) await call(each)
  const last = async (): Promise<number> => (await snapshotNext()) - 1
  const snapshotNext = async (): Promise<number> => {
    const [reply] = (await snapshot(messages, replayed)).replies
    return reply?.kind === 'part' ? reply.nextSequence : Number.NaN
  }
  const newest = await last()
  while (sequences.at(-1) !== newest) {
    arrived = Promise.withResolvers()
    await arrived.promise
  }
  const early = new NaiveCache().applyAll(live)
  t.strictSame([...topics], ['kv-events'])
  t.strictSame(
    sequences,
    sequences.map((_, i) => sequences[0]! + i),
  )

  const again = await replay(messages, replayed, 0)
  t.strictSame(
    again.batches.map(({ sequence }) => sequence),
    Array.from({ length: KEPT }, (_, i) => newest - KEPT + 1 + i),
    'the batches that are kept, in order',
  )
  t.equal((await replay(messages, replayed, newest)).batches.length, 1)
  t.strictSame([...again.frameCounts], [4])

  const { events: dumped } = await snapshot(messages, replayed)
  const late = new NaiveCache().applyAll(dumped)
  t.strictSame(late.state(), early.state(), 'who comes late rebuilds exactly')
  t.equal(late.orphans, 0)
})

t.test('what is no request gets no answer', { skip }, async t => {
  const { messages, replayed } = await started(t)
  const counts: number[] = []
  const dealer = messages.dial({ endpoint: replayed }, frames => counts.push(frames.length))
  dealer.send([new Uint8Array(8)])
  dealer.send([new Uint8Array(0), Buffer.from('snapshot'), Uint8Array.of(9)])
  await asked(messages, replayed, [new Uint8Array(0), new Uint8Array(8)], () => true)
  dealer.send([new Uint8Array(0), new Uint8Array(8)])
  while (counts.length === 0) await new Promise(resolve => setImmediate(resolve))
  t.strictSame(counts, [4], 'the end of the one that was')
  dealer.close()
})

/**
 * The bytes on the wire in each way of reporting cache changes, and after a restart that only events show.
 */

import { SimulatedClock } from '@homing/base'
import { decodeKvBatch, type KvEvent, parseEventFrames } from '@homing/protocol'
import { MemoryNetwork } from '@homing/transport'
import t, { type Test } from 'tap'
import {
  BlockManager,
  type EventFaults,
  EventPublisher,
  hexOfHash,
  NO_EVENT_FAULTS,
  promptHashes,
} from '../src/index.ts'
import { replay } from './engine-client.ts'

const SIZE = 4
const tokens = (text: string): number[] => [...text].flatMap(letter => Array(SIZE).fill(letter.charCodeAt(0)))

/** A cache of so many blocks, its publisher, and what a subscriber got, batch by batch. */
async function publishing(t: Test, faults: Partial<EventFaults> = {}, removals: 'each' | 'last' = 'each') {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock })
  const transport = network.transport()
  const publisher = await EventPublisher.open(transport.messages, clock, {
    rank: 0,
    host: '10.0.0.1',
    eventsPort: 5557,
    replayPort: 6557,
    topic: '',
    form: 'vllm-map',
    hashForm: 'int',
    replayForm: 'topic',
    replayBatchesMax: 100,
    blockSizeTokens: SIZE,
  })
  publisher.faults = { ...NO_EVENT_FAULTS, ...faults }
  const batches: {
    readonly sequence: number
    readonly events: readonly KvEvent[]
    readonly unknown: number
  }[] = []
  transport.messages.subscribe(
    { endpoint: publisher.endpoint, topic: '' },
    {
      message(frames) {
        const { sequence, payload } = parseEventFrames(frames)
        const { events, skipped } = decodeKvBatch(payload)
        batches.push({ sequence, events, unknown: skipped.unknownTag })
      },
      connected() {},
      disconnected() {},
    },
  )
  const settle = () => new Promise(resolve => setImmediate(resolve))
  await settle()
  t.teardown(() => publisher.close())
  const blocks = new BlockManager({ blockSizeTokens: SIZE, blockCount: 5, hashSeed: 1, removals })
  const ask = async (...prompts: readonly string[]): Promise<void> => {
    for (const prompt of prompts) {
      const sequence = blocks.openSequence(tokens(prompt))
      blocks.reuse(sequence, blocks.match(sequence))
      blocks.allocate(sequence, sequence.length)
      blocks.store(sequence, sequence.length)
      blocks.release(sequence)
      publisher.publish(blocks.takeEvents())
    }
    await settle()
  }
  return { transport, publisher, batches, ask, settle }
}

/** 'stored b under a', 'removed c in group 5'. */
function words(events: readonly KvEvent[]): string[] {
  const name = (hashes: Int32Array, i: number): string => {
    const hash = hexOfHash(hashes[2 * i]!, hashes[2 * i + 1]!)
    const prompt = ['a', 'ab', 'abc', 'd', 'de', 'f', 'fg', 'fgh', 'fghi'].find(
      text => promptHashes(1, tokens(text), SIZE).at(-1) === hash,
    )
    return prompt ?? hash
  }
  return events.map(event => {
    if (event.kind === 'cleared' || event.kind === 'transition') return event.kind
    const hashes = Array.from({ length: event.hashes.length / 2 }, (_, i) => name(event.hashes, i)).join(' ')
    return `${event.kind} ${hashes} in group ${event.group ?? 'none'}`
  })
}

t.test(
  'what is evicted is removed under the group of its store, or under another, or under none',
  async t => {
    for (const [faults, expected] of [
      [{}, ['removed abc in group 0', 'stored d in group 0']],
      [{ group: 'none' }, ['removed abc in group none', 'stored d in group none']],
      [{ group: 3, removalGroup: 5 }, ['removed abc in group 5', 'stored d in group 3']],
      [{ removalGroup: 'none' }, ['removed abc in group none', 'stored d in group 0']],
      [
        { slidingGroup: 1 },
        ['removed abc in group 1', 'removed abc in group 0', 'stored d in group 1', 'stored d in group 0'],
      ],
    ] as const) {
      const { batches, ask } = await publishing(t, faults)
      await ask('abc', 'd', 'd')
      t.strictSame(words(batches.at(-1)!.events), expected, JSON.stringify(faults))
    }
  },
)

t.test('a copy of a block is stored again, or not, and removed by itself, or with the last one', async t => {
  for (const [repeatsStores, removals, expected] of [
    [true, 'each', ['stored d', 'stored d', 'removed d', 'removed d']],
    [true, 'last', ['stored d', 'stored d', 'removed d']],
    [false, 'last', ['stored d', 'removed d']],
  ] as const) {
    const { batches, ask } = await publishing(t, { repeatsStores }, removals)
    await ask('d', 'd', 'fghi')
    const told = batches.flatMap(({ events }) => words(events)).filter(word => / d in/.test(word))
    t.strictSame(
      told.map(word => word.replace(' in group 0', '')),
      expected,
    )
  }
})

t.test('removals go by an unknown name for as many batches as have any', async t => {
  const { batches, ask } = await publishing(t, { unknownRemovals: 1 })
  await ask('abc', 'd', 'd', 'fg')
  t.strictSame(
    batches.map(({ unknown }) => unknown),
    [0, 0, 1, 0],
  )
  t.strictSame(words(batches[2]!.events), ['stored d in group 0'])
  t.match(words(batches[3]!.events)[0], /^removed/)
})

t.test(
  'another life begins behind the same sockets, where it likes, and repeats nothing of before',
  async t => {
    const { publisher, transport, batches, ask, settle } = await publishing(t)
    await ask('a', 'd')
    for (const first of [0, 40]) {
      publisher.beginAnew(first)
      t.equal(publisher.nextSequence, first)
      t.equal(publisher.oldestKept, undefined)
      await ask('fg')
      t.equal(batches.at(-1)!.sequence, first)
      t.equal(publisher.oldestKept, first)
      const repeated = replay(transport, publisher.replayEndpoint!, 0)
      await settle()
      t.strictSame((await repeated).sequences, [first])
      await ask('d', 'a')
    }
    publisher.faults = { ...publisher.faults, replayRepliesMax: 1 }
    const repeated = replay(transport, publisher.replayEndpoint!, 0)
    await settle()
    t.strictSame((await repeated).sequences, [40], 'what is behind the first reply is lost')
  },
)

/**
 * A source that floods, and another one on the same thread: what the other says waits for a bounded number of
 * batches of the flood, however long that lasts. Counted in work, so it holds at any speed.
 */

import { createTestSystem } from '@homing/actor/testing'
import type { IndexerMessage } from '@homing/actors/indexer'
import { LISTENER_LIMITS, listener, type SourceMessage } from '@homing/actors/listener'
import { SimulatedClock } from '@homing/base'
import { encodeEventFrames, encodeKvBatch, kvStored } from '@homing/protocol'
import { MemoryNetwork, transportCapability } from '@homing/transport'
import t from 'tap'

const FLOOD_BATCHES = 200_000
/** Between two looks of the event loop; more than a mailbox holds. */
const BURST_BATCHES = 40_000
const QUIET_EVERY_BATCHES = 2500
const MAILBOX = 32_768
/** A turn is 64 messages: one of the flood's listener, and one or two that wait at the indexer. */
const WAIT_BATCHES_MAX = 4 * 64
const FLOOD = { slot: 0, endpoint: 'tcp://10.0.0.1:5557' }
const QUIET = { slot: 1, endpoint: 'tcp://10.0.0.2:5557' }

function frames(sequence: number) {
  const stored = kvStored({
    hashes: Int32Array.of(sequence, 1),
    tokens: Int32Array.of(1, 2, 3, 4),
    blockSizeTokens: 4,
  })
  const payload = encodeKvBatch({ timestampSeconds: sequence, rank: 0, events: [stored] }, 'vllm-map')
  return encodeEventFrames('', sequence, payload)
}

t.test('a flood of 200,000 batches holds another source back by a few turns', async t => {
  const network = new MemoryNetwork({ clock: new SimulatedClock() })
  const { messages } = network.transport()
  /** How many messages the indexer had taken when a batch of the other source arrived. */
  const arrived: number[] = []
  const transport = network.transport()
  const system = createTestSystem({
    provide: [
      [
        transportCapability,
        {
          ...transport,
          messages: {
            ...transport.messages,
            subscribe: (options: { endpoint: string; topic: string }, handler: Handler) =>
              transport.messages.subscribe(options, {
                message(received) {
                  if (options.endpoint === QUIET.endpoint) arrived.push(indexer.waiting.length)
                  handler.message(received)
                },
                connected: () => handler.connected(),
                disconnected: () => handler.disconnected(),
              }),
          },
        },
      ],
    ],
  })
  t.teardown(() => system.shutdown())
  const indexer = system.probe<IndexerMessage>('indexer')
  const directory = system.probe<SourceMessage>('directory')
  const sources = await Promise.all([FLOOD, QUIET].map(({ endpoint }) => messages.publish({ endpoint })))
  const [flood, quiet] = sources as [(typeof sources)[0], (typeof sources)[0]]
  const listeners = [FLOOD, QUIET].map(({ slot, endpoint }) =>
    system.spawn(listener, {
      name: `listener-${slot}`,
      args: {
        workerSlot: slot,
        key: `engine-${slot}/0`,
        dpRank: 0,
        eventsEndpoint: endpoint,
        replayEndpoint: undefined,
        topic: '',
        blockSizeTokens: undefined,
        indexer: indexer.ref,
        directory: directory.ref,
        limits: LISTENER_LIMITS,
      },
      mailbox: { capacity: MAILBOX },
    }),
  )
  await system.settle()

  let quietSequence = 0
  for (let sequence = 0; sequence < FLOOD_BATCHES; sequence++) {
    flood.send(frames(sequence))
    if (sequence % QUIET_EVERY_BATCHES === 0) quiet.send(frames(quietSequence++))
    // Actors run while the rest of the flood is on its way.
    if (sequence % BURST_BATCHES === BURST_BATCHES - 1) await new Promise(resolve => setImmediate(resolve))
  }
  const backlog = FLOOD_BATCHES - indexer.waiting.length
  await system.settle()

  const applied = indexer.waiting.flatMap((message, position) =>
    message.type === 'apply' && message.workerSlot === QUIET.slot ? [position] : [],
  )
  t.equal(arrived.length, quietSequence)
  t.equal(applied.length, quietSequence, 'every batch of the other source')
  const waits = applied.map((position, i) => position - arrived[i]!)
  t.comment(`at most ${Math.max(...waits)} batches of the flood before one of the other source`)
  t.ok(Math.max(...waits) <= WAIT_BATCHES_MAX, `${Math.max(...waits)} batches`)
  t.ok(backlog > MAILBOX, `the flood was faster: ${backlog} batches were not read when it ended`)

  const statuses = await Promise.all(
    listeners.map(async ref => {
      const answer = ref.ask({ type: 'status' }, { timeout: 1000 })
      await system.settle()
      return answer
    }),
  )
  const [flooder, other] = statuses as [(typeof statuses)[0], (typeof statuses)[0]]
  t.match(other, { state: 'live', batches: quietSequence, gaps: 0, lostFrames: 0 })
  t.equal(flooder.batches + flooder.lostFrames, FLOOD_BATCHES, 'every batch is applied, or counted as lost')
  t.ok(flooder.lostFrames > 0 && flooder.gaps > 0, `${flooder.lostFrames} lost in ${flooder.gaps} gaps`)
  const said = directory.waiting.filter(({ workerSlot }) => workerSlot === FLOOD.slot)
  t.equal(said.at(-1)?.trust, 'partial', said.at(-1)?.reason)
  t.comment(`${said.length} words to the directory`)
})

interface Handler {
  message(frames: readonly Uint8Array[]): void
  connected(): void
  disconnected(): void
}

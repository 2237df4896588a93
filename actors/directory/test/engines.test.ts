/**
 * The event path as it runs: simulated engines on threads of their own, real HTTP and real ZeroMQ, listeners
 * and indexers on event threads. Whatever happens, the index finally holds what the engines hold.
 */

import assert from 'node:assert/strict'
import { type ActorRef, type ActorSystem, createActorSystem } from '@homing/actor'
import { type IndexerMessage, indexer } from '@homing/actors/indexer'
import { systemClock } from '@homing/base'
import { type EngineMessage, type EngineSettings, engine } from '@homing/engine'
import { dumpKey, parseWorkerSpec } from '@homing/fleet'
import { createIndexMemory, layeredOptions } from '@homing/index'
import t, { type Test } from 'tap'
import { type DirectoryMessage, directory } from '../src/index.ts'

const SHARDS = 2
const SHARD = { capacityBytes: 8 << 20, workerSlotsMax: 16 }
const UNTIL_MS_MAX = 240_000
const ASK = { timeout: 60_000 }

interface Fleet {
  readonly system: ActorSystem
  readonly engines: readonly { readonly ref: ActorRef<EngineMessage>; readonly url: string }[]
  readonly indexers: readonly ActorRef<IndexerMessage>[]
  readonly directory: ActorRef<DirectoryMessage>
}

async function startFleet(
  t: Test,
  settings: readonly Partial<EngineSettings>[],
  blockSizeTokens?: number,
): Promise<Fleet> {
  const system = await createActorSystem({ logLevel: 'silent', pools: { events: { count: SHARDS } } })
  t.teardown(() => system.shutdown())
  // Where only the last removal of a block is told, all of what is held can be known.
  const common = { port: 0, eventsPort: 0, replayPort: 0, speed: 0, blocks: 80, removals: 'last' } as const
  const refs = settings.map((given, i) =>
    system.spawn(engine, {
      name: `engine-${i}`,
      args: { ...common, blockSizeTokens: 16, ...given },
      thread: 'dedicated',
    }),
  )
  const described = await Promise.all(refs.map(ref => ref.ask({ type: 'describe' }, { timeout: 60_000 })))
  const indexers = Array.from({ length: SHARDS }, (_, shard) =>
    system.spawn(indexer, {
      name: `indexer-${shard}`,
      args: {
        shard,
        memory: createIndexMemory(layeredOptions(SHARD.capacityBytes, SHARD.workerSlotsMax)),
        ...SHARD,
      },
      thread: `events-${shard}`,
      supervision: { directive: 'restart', max: 10, within: '1m', backoff: { min: 20, max: 100 } },
      mailbox: { capacity: 16_384 },
    }),
  )
  const directoryRef = system.spawn(directory, {
    name: 'directory',
    args: {
      specs: described.map(({ url }, i) => parseWorkerSpec(url, i)),
      indexers,
      kvEvents: true,
      blockSizeTokens,
      workerSlotsMax: SHARD.workerSlotsMax,
      probeIntervalMs: 200,
      // Long enough for a machine that is busy with other tests: nothing here waits for it to pass.
      probeTimeoutMs: 10_000,
      replayTimeoutMs: 1000,
    },
  })
  await directoryRef.ask({ type: 'whenProbed', withinMs: 60_000 }, { timeout: 60_000 })
  const engines = refs.map((ref, i) => ({ ref, url: described[i]!.url }))
  return { system, engines, indexers, directory: directoryRef }
}

/** Sends prompts that share beginnings, some at the same time. */
async function work(fleet: Fleet, seed: number, count = 24): Promise<void> {
  for (let i = 0; i < count; i += 4) {
    const calls = [0, 1, 2, 3].map(async j => {
      const { url } = fleet.engines[(i + j) % fleet.engines.length]!
      const topic = (seed + i + j) % 5
      const prompt = Array.from({ length: 40 + topic * 30 }, (_, k) => 1 + ((topic * 97 + k * 7) % 200))
      prompt.push(...Array.from({ length: (i * 13) % 90 }, (_, k) => 1 + ((seed * 31 + i + k) % 200)))
      const body = JSON.stringify({ model: 'homing-sim', prompt, max_tokens: 20, ignore_eos: true })
      const headers = { 'content-type': 'application/json' }
      const reply = await fetch(`${url}/v1/completions`, { method: 'POST', headers, body })
      await reply.arrayBuffer()
      assert.equal(reply.status, 200)
    })
    await Promise.all(calls)
  }
}

/** Undefined when the index holds what the engines hold, with trust exact; else what differs. */
async function difference(fleet: Fleet): Promise<string | undefined> {
  const report = await fleet.directory.ask({ type: 'describe' }, ASK)
  for (const [i, worker] of report.fleet.workers.entries()) {
    const state = await fleet.engines[i]!.ref.ask({ type: 'state', hasBlocks: true }, ASK)
    for (const key of worker.keys) {
      if (key.trust !== 'exact') return `${key.key} has trust ${key.trust}: ${key.trustReason}`
      const rank = state.ranks[key.dpRank]!
      const slices = dumpKey(fleet.indexers[key.shard]!, key.workerSlot, ASK.timeout)
      const held: string[] = []
      for await (const blocks of slices) held.push(...blocks.map(block => block.engineHash))
      held.sort()
      const cached = rank.blocks!.map(block => block.hash).sort()
      if (held.join() !== cached.join())
        return `${key.key} holds ${held.length} blocks, its engine ${cached.length}`
    }
  }
  return undefined
}

async function untilEqual(fleet: Fleet): Promise<void> {
  const endMs = systemClock.nowMs() + UNTIL_MS_MAX
  for (;;) {
    const differs = await difference(fleet).catch((error: unknown) => String(error))
    if (differs === undefined) return
    if (systemClock.nowMs() > endMs) throw new Error(`index and caches differ: ${differs}`)
    await new Promise<void>(resolve => void systemClock.after(20, resolve))
  }
}

t.test(
  'index and caches are equal through traffic, lost events, restarts and the death of a thread',
  async t => {
    const fleet = await startFleet(t, [
      { ranks: 2, eventForm: 'vllm-map' },
      { eventForm: 'vllm-array', hashForm: 'bytes', replayForm: 'plain' },
      { eventForm: 'sglang-map', topic: 'kv' },
    ])
    const { fleet: found } = await fleet.directory.ask({ type: 'describe' }, ASK)
    t.strictSame(
      found.workers.map(worker => [worker.state, worker.ranks.value, worker.blockSizeTokens?.value]),
      [
        ['up', 2, 16],
        ['up', 1, 16],
        ['up', 1, 16],
      ],
    )
    await work(fleet, 1)
    await untilEqual(fleet)
    t.pass('after traffic with evictions')

    for (const { ref } of fleet.engines) {
      const events = { drop: 3, duplicate: 2, delay: 2, delayMs: 10, replayLoseEvery: 7 }
      t.equal(await ref.ask({ type: 'faults', body: { events } }, ASK), undefined)
    }
    await work(fleet, 2)
    for (const { ref } of fleet.engines) {
      t.equal(await ref.ask({ type: 'faults', body: { events: { replayLoseEvery: 0 } } }, ASK), undefined)
    }
    await work(fleet, 3)
    await untilEqual(fleet)
    t.pass('after events that were lost, doubled and delayed')

    await fleet.engines[1]!.ref.ask({ type: 'restart' }, { timeout: 60_000 })
    await work(fleet, 4)
    await untilEqual(fleet)
    t.pass('after the restart of an engine')

    const before = await fleet.directory.ask({ type: 'describe' }, ASK)
    const sources = Object.values(before.sources)
    // Not of each one: which batches are lost, and whether a replay brings them before they are missed, is
    // chance.
    t.ok(sources.some(source => source !== undefined && source.gaps > 0))
    await fleet.system.killThread('events-0')
    await work(fleet, 5)
    await untilEqual(fleet)
    t.pass('after the death of an event thread')
  },
)

t.test('a listener that is to end soon after its thread died does end, and a new one starts', async t => {
  const fleet = await startFleet(t, [{}], 16)
  await work(fleet, 1)
  await untilEqual(fleet)
  const { fleet: before } = await fleet.directory.ask({ type: 'describe' }, ASK)
  const { workerSlot, shard } = before.workers[0]!.keys[0]!
  await fleet.system.killThread(`events-${shard}`)
  // Another block size than the one that was probed and given: no listener is wanted any more.
  const said = { trust: 'exact', reason: 'x', epoch: 1, isSuffix: false } as const
  fleet.directory.tell({ type: 'source', workerSlot, ...said, blockSizeTokens: 99 })
  await work(fleet, 2)
  // The engine's next process has its own block size: a listener is wanted again.
  await fleet.engines[0]!.ref.ask({ type: 'restart', downMs: 1500 }, { timeout: 60_000 })
  await work(fleet, 3)
  await untilEqual(fleet)
  t.pass('index and cache are equal again')
})

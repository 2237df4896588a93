/**
 * Messages to indexers about decisions, and blocks that count as held although no event names them, or on
 * lower tiers.
 */

import { defineActor } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import type { IndexerMessage, RoutedMessage } from '@homing/actors/indexer'
import { GUESSED_LAYER, KEY_LAYERS } from '@homing/index'
import type { Receipt } from '@homing/placement'
import t from 'tap'
import { ASK, BLOCK, fleetOf, holdIn, prompt, request, start } from './router-world.ts'

t.test(
  'what may be unnamed in events is told to the indexer of the worker, before it is sent there',
  async t => {
    const { ref, decide, told } = await start(t, fleetOf({ id: 'a', slots: [3] }))
    await decide(request('ABCD'))
    t.strictSame(told('separated'), [])
    const separated = { firstTokens: BLOCK, hashes: Int32Array.of(1, 2), unnamed: [1] }
    await ref.ask({ type: 'explain', request: request('ABCD', { separated }) }, ASK)
    t.strictSame(told('separated'), [], 'nothing is sent')
    await decide(request('ABCD', { separated }))
    t.strictSame(told('separated'), [{ type: 'separated', workerSlot: 3, epoch: 1, prompt: separated }])
  },
)

t.test('an indexer that began anew is told that there are prompts that it does not know', async t => {
  const fleet = fleetOf({ id: 'a', slots: [3] }, { id: 'b', slots: [4] })
  const { ref, index, decide, told, system } = await start(t, fleet)
  const later = () => told('separated').slice(2)
  const separated = { firstTokens: BLOCK, hashes: Int32Array.of(1, 2), unnamed: [1, 3] }
  for (const pinnedInstanceId of [0, 1]) await decide(request('ABCD', { separated, pinnedInstanceId }))
  const life = (incarnation: number, memoryNumber: number) =>
    ref.tell({
      type: 'shardMemory',
      shard: 0,
      incarnation,
      memoryNumber,
      memory: index.memory,
      lowerLayers: {},
      labels: undefined,
    })
  life(1, 1)
  life(1, 2)
  await system.settle()
  t.strictSame(later(), [], 'a shard that has moved has forgotten nothing')
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'a', slots: [3] }) })
  life(2, 7)
  await system.settle()
  const prompt = { firstTokens: 0, hashes: new Int32Array(0), unnamed: [1, 3] }
  const again = { type: 'separated', workerSlot: 3, epoch: 1, prompt }
  t.strictSame(later(), [again], 'of the keys that there are')
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'c', slots: [3] }) })
  life(3, 8)
  await system.settle()
  t.strictSame(later(), [again], 'another key of the same slot was sent nothing')
})

t.test('an indexer that has no room is told later that there are prompts that it does not know', async t => {
  const system = createTestSystem()
  const heard: RoutedMessage[] = []
  const ignore = (): void => {}
  const busy = defineActor(
    import.meta.url,
    'busy',
  )<IndexerMessage | RoutedMessage, undefined>({
    setup: () =>
      ({
        separated: (message: RoutedMessage) => void heard.push(message),
        attach: ignore,
        routed: ignore,
      }) as never,
  })
  const indexer = system.spawn(busy, { name: 'busy', args: undefined, mailbox: { capacity: 1 } })
  const { decide } = await start(t, fleetOf({ id: 'a', slots: [3] }), { indexers: [indexer] }, system)
  await system.settle()
  const separated = (set: number) => ({ firstTokens: 2, hashes: Int32Array.of(1, 2), unnamed: [set] })
  const decided = [1, 2, 4].map(set => decide(request(`A${set}`, { separated: separated(set) })))
  indexer.tell({ type: 'attach', memoryNumber: undefined, reader: indexer as never })
  await system.settle()
  await Promise.all(decided)
  await system.advance('2s')
  const sets = heard.flatMap(message => (message.type === 'separated' ? message.prompt.unnamed : []))
  t.strictSame([...new Set(sets)].sort(), [1, 2, 4], 'each is told, with its prompt or without')
})

t.test('without events, what was sent to a worker counts, and is told to its indexer', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0], trust: 'approximate' }, { id: 'b', slots: [1] })
  const { index, ref, decide, told } = await start(t, fleet)
  const first = await decide(request('ABCD', { pinnedInstanceId: 0 }))
  t.match(first, { worker: 'a/0', trust: 'approximate', overlapBlocks: 0, guessedTokens: 0 })
  t.match(told('routed'), [{ workerSlot: 0, epoch: 1, ttlMs: 120_000, blocksMax: 1 << 20 }])
  t.strictSame(told('routed')[0]!.localHashes, prompt('ABCD'))
  holdIn(index, 0, GUESSED_LAYER, 'ABCD')
  holdIn(index, 1, GUESSED_LAYER, 'ABCD')
  const again = await decide(request('ABCDE', { pinnedInstanceId: 0 }))
  t.match(again, { trust: 'approximate', overlapBlocks: 4, guessedTokens: 4 * BLOCK })
  const receipt = await ref.ask({ type: 'receipt', id: again.id }, ASK)
  t.match(receipt?.candidates, [
    { creditFactor: 0.8, layers: [{ layer: 'guessed', blocks: 4, factor: 0.8 }] },
  ])
  const exact = await decide(request('ABCDE', { pinnedInstanceId: 1 }))
  t.match(
    exact,
    { trust: 'exact', overlapBlocks: 0, guessedTokens: 0 },
    'where events tell, they alone count',
  )
  t.equal(told('routed').length, 2)
})

t.test(
  'a prompt that is known as text only is matched by what was sent before, whatever events say',
  async t => {
    const { index, ref, decide, told } = await start(t, fleetOf({ id: 'a', slots: [0] }))
    holdIn(index, 0, 0, 'ABC')
    holdIn(index, 0, GUESSED_LAYER, 'AB')
    const decision = await decide(request('ABCD', { textBlocksReason: 'no tokenizer' }))
    t.match(decision, { trust: 'approximate', overlapBlocks: 2, guessedTokens: 2 * BLOCK })
    t.match(told('routed'), [{ workerSlot: 0, ttlMs: 120_000 }])
    t.match(await ref.ask({ type: 'receipt', id: decision.id }, ASK), {
      mode: 'kv',
      textBlocksReason: 'no tokenizer',
    })
  },
)

t.test('until events come, what was sent counts after what they say, where that is wanted', async t => {
  const guesses = { ttlWithoutEventsMs: 120_000, ttlUntilEventsMs: 5000, blocksMax: 100 }
  const fleet = fleetOf({ id: 'a', slots: [0] })
  const { index, ref, decide, told } = await start(t, fleet, { guesses })
  holdIn(index, 0, 0, 'AB')
  const known = await decide(request('ABC'))
  t.match(known, { trust: 'exact', overlapBlocks: 2, guessedTokens: 0 })
  t.match(told('routed'), [{ ttlMs: 5000, blocksMax: 100 }])
  holdIn(index, 0, GUESSED_LAYER, 'ABCD')
  const guessed = await decide(request('ABCDE'))
  t.match(guessed, { trust: 'approximate', overlapBlocks: 4, guessedTokens: 2 * BLOCK })
  const receipt = await ref.ask({ type: 'receipt', id: guessed.id }, ASK)
  t.match(receipt?.candidates, [
    {
      creditFactor: 0.9,
      layers: [
        { layer: 'device', blocks: 2, factor: 1 },
        { layer: 'guessed', blocks: 2, factor: 0.8 },
      ],
    },
  ])
})

t.test('lower tiers count less, and only after what is on the device', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
  const { index, ref, decide } = await start(t, fleet)
  holdIn(index, 0, 0, 'AB')
  holdIn(index, 0, KEY_LAYERS.indexOf('host'), 'ABCD')
  holdIn(index, 0, KEY_LAYERS.indexOf('disk'), 'ABCDEF', 4)
  holdIn(index, 1, 0, 'ABC')
  t.equal((await decide(request('ABCDEFG'))).worker, 'b/0', 'before the indexer has spoken of lower tiers')
  const [host, disk] = [1 << KEY_LAYERS.indexOf('host'), 1 << KEY_LAYERS.indexOf('disk')]
  const lowerLayers = { 0: host | disk }
  const memory = {
    shard: 0,
    incarnation: 1,
    memoryNumber: 1,
    memory: index.memory,
    lowerLayers,
    labels: undefined,
  }
  ref.tell({ type: 'shardMemory', ...memory })
  const decision = await decide(request('ABCDEFG', { requestId: 'again', pinnedInstanceId: 0 }))
  t.match(decision, { overlapBlocks: 6, guessedTokens: 0, trust: 'exact' })
  const receipt = await ref.ask({ type: 'receipt', id: decision.id }, ASK)
  t.match(receipt?.candidates, [
    {
      creditFactor: (2 + 2 * 0.75 + 2 * 0.25) / 6,
      layers: [
        { layer: 'device', blocks: 2, factor: 1 },
        { layer: 'host', blocks: 2, factor: 0.75 },
        { layer: 'disk', blocks: 2, factor: 0.25 },
      ],
    },
  ])
  // The credit of a request is for the device; other tiers have weights of their own.
  const halved = { override: { overlapCredit: 0.5 }, pinnedInstanceId: 0 }
  const explained = await ref.ask({ type: 'explain', request: request('ABCDEFG', halved) }, ASK)
  const { prefillTokens, activePrefillTokens } = (explained as Receipt).candidates[0]!
  t.equal(prefillTokens - activePrefillTokens, 7 * BLOCK + 1 - (2 * 0.5 + 2 * 0.75 + 2 * 0.25) * BLOCK)
})

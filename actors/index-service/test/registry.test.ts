import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { RegistrationConflictError, RegistrationsFullError } from '../src/errors.ts'
import type { Rank } from '../src/rank.ts'
import { Registry } from '../src/registry.ts'
import type { RankRegistration } from '../src/requests.ts'

const SLOTS_MAX = 6
const SHARDS = 3

const registrations = fc.record({
  instanceId: fc.bigInt({ min: 0n, max: 3n }),
  dpRank: fc.integer({ min: 0, max: 2 }),
  model: fc.constantFrom('m', 'n'),
  group: fc.constantFrom('g', 'h'),
  blockSizeTokens: fc.constantFrom(4, 16),
  endpoint: fc.constantFrom(
    'tcp://localhost:1',
    'tcp://127.0.0.1:1',
    'tcp://a:1',
    'tcp://a:2',
    'tcp://a:3',
    'tcp://a:4',
  ),
  replayEndpoint: fc.constantFrom(undefined, undefined, 'tcp://a:4', 'tcp://a:5'),
})

const steps = fc.array(
  fc.oneof(
    fc.record({ do: fc.constant('register' as const), registration: registrations }),
    fc.record({
      do: fc.constant('unregister' as const),
      instanceId: fc.bigInt({ min: 0n, max: 3n }),
      model: fc.constantFrom('m', 'n'),
      group: fc.constantFrom(undefined, 'g', 'h'),
      dpRank: fc.constantFrom(undefined, 0, 1, 2),
    }),
    fc.record({ do: fc.constant('end' as const) }),
  ),
  { maxLength: 60 },
)

function sockets({ endpoint = '', replayEndpoint }: RankRegistration): string[] {
  const named = endpoint.replace('localhost', '127.0.0.1')
  return replayEndpoint === undefined ? [named] : [named, replayEndpoint]
}

t.test('slots, partitions and conflicts are those of a list of ranks, whatever happened before', async t => {
  const agree = fc.property(steps, list => {
    const registry = new Registry({ shardCount: SHARDS, workerSlotsMax: SLOTS_MAX })
    let ranks: Rank[] = []
    const ending: Rank[] = []
    for (const step of list) {
      if (step.do === 'register') {
        const { instanceId, dpRank, model, group, blockSizeTokens } = step.registration
        const isTwice = new Set(sockets(step.registration)).size < sockets(step.registration).length
        const contradicts =
          isTwice ||
          ranks.some(rank => {
            const isSamePartition = rank.model === model && rank.group === group
            if (isSamePartition && rank.blockSizeTokens !== blockSizeTokens) return true
            if (rank.instanceId === instanceId && (!isSamePartition || rank.dpRank === dpRank)) return true
            return sockets(rank).some(socket => sockets(step.registration).includes(socket))
          })
        const register = () => registry.register(step.registration)
        if (contradicts) assert.throws(register, RegistrationConflictError)
        else if (ranks.length + ending.length >= SLOTS_MAX) assert.throws(register, RegistrationsFullError)
        else ranks.push(register())
      } else if (step.do === 'unregister') {
        const { instanceId, model, group, dpRank } = step
        const meant = ranks.filter(
          rank =>
            rank.instanceId === instanceId &&
            rank.model === model &&
            (group === undefined || rank.group === group) &&
            (dpRank === undefined || rank.dpRank === dpRank),
        )
        const unregister = () => registry.unregister({ instanceId, model, group, dpRank })
        if (meant.length === 0) assert.throws(unregister, /is not registered/)
        else assert.deepEqual(new Set(unregister()), new Set(meant))
        ranks = ranks.filter(rank => !meant.includes(rank))
        ending.push(...meant)
      } else {
        const rank = ending.shift()
        if (rank !== undefined) registry.end(rank)
      }

      const all = [...ranks, ...ending]
      assert.equal(new Set(all.map(({ workerSlot }) => workerSlot)).size, all.length, 'a slot has one rank')
      for (const rank of all) assert.equal(registry.ofSlot(rank.workerSlot), rank)
      assert.deepEqual(new Set(registry.all()), new Set(all))
      assert.equal(registry.slotsTaken, all.length)
      assert.ok(all.every(({ workerSlot, shard }) => workerSlot < SLOTS_MAX && shard < SHARDS))
      const listed = [...registry.partitions]
      assert.deepEqual(new Set(listed.flatMap(partition => [...partition.ranks])), new Set(ranks))
      for (const partition of listed) {
        assert.ok(partition.ranks.size > 0, 'a partition exists while it has a rank')
        for (const { model, group, blockSizeTokens } of partition.ranks) {
          assert.deepEqual(
            [model, group, blockSizeTokens],
            [partition.model, partition.group, partition.blockSizeTokens],
          )
        }
      }
    }
  })
  t.doesNotThrow(() => fc.assert(agree, { numRuns: 300 }))
})

t.test('a new rank goes to the shard with the fewest', async t => {
  const registry = new Registry({ shardCount: SHARDS, workerSlotsMax: SLOTS_MAX })
  const shards = [0n, 1n, 2n, 3n, 4n, 5n].map(instanceId => {
    const place = {
      model: 'm',
      group: 'g',
      blockSizeTokens: 4,
      endpoint: `tcp://a:${instanceId}`,
      replayEndpoint: undefined,
    }
    return registry.register({ ...place, instanceId, dpRank: 0 }).shard
  })
  t.strictSame(shards.sort(), [0, 0, 1, 1, 2, 2])
})

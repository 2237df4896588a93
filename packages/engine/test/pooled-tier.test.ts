/** The pooled tier of a simulated engine: what it says of its blocks, and when. */

import { SimulatedClock } from '@homing/base'
import t from 'tap'
import type { BlocksStored, CacheEvent } from '../src/block-manager.ts'
import { type BlocksMoved, PooledTier } from '../src/pooled-tier.ts'

function tier(poolBlocks = 100) {
  const clock = new SimulatedClock()
  const told: string[] = []
  const pool = new PooledTier({
    poolId: 7,
    poolWorkers: ['2', '18446744073709551615'],
    poolBlocks,
    transferMs: 5,
    clock,
    publish: events => told.push(textOf(events)),
  })
  return { clock, pool, told, follow: (...events: CacheEvent[]) => textOf(pool.follow(events)) }
}

const stored = (...hashes: readonly number[]): BlocksStored => ({
  type: 'stored',
  hashes: Int32Array.from(hashes.flatMap(hash => [hash, 0])),
  parentHash: undefined,
  firstBlockIndex: 0,
  tokenIds: new Int32Array(0),
  namespace: {},
  sessionId: undefined,
})

const textOf = (events: readonly (CacheEvent | BlocksMoved)[]) =>
  events
    .map(event =>
      event.type === 'moved'
        ? `${event.state} ${[...event.hashes].filter((_, i) => i % 2 === 0).join(' ')}`
        : event.type,
    )
    .join(', ')

t.test('what is stored is on its way at once, there after the transfer, and goes there once', async t => {
  const { clock, told, follow, pool } = tier()
  t.equal(follow(stored(1, 2), { type: 'removed', hash: [2, 0] }), 'stored, removed, in_transit 1 2')
  t.equal(follow(stored(2, 3)), 'stored, in_transit 3')
  clock.advance(5)
  t.strictSame(told, ['cxl_pooled 1 2', 'cxl_pooled 3'])
  t.equal(follow(stored(1)), 'stored')
  const [, moved] = pool.follow([stored(9)]) as readonly [unknown, BlocksMoved]
  t.strictSame([moved.poolId, [...moved.workers]], [7, [2, 0, -1, -1]])
})

t.test('the oldest blocks are evicted where there is no more room', async t => {
  const { clock, told, follow } = tier(2)
  follow(stored(1, 2, 3))
  clock.advance(5)
  t.strictSame(told, ['cxl_pooled 1 2 3, evicted 1'])
  t.equal(follow(stored(1)), 'stored, in_transit 1', 'it goes there anew')
  clock.advance(5)
  t.equal(told.at(-1), 'cxl_pooled 1, evicted 2')
})

t.test('a clear ends transfers, and what is in the pool', async t => {
  const { clock, told, follow } = tier()
  follow(stored(1))
  t.equal(follow({ type: 'cleared' }), 'cleared')
  clock.advance(5)
  t.strictSame(told, [])
  t.equal(follow(stored(1)), 'stored, in_transit 1')
})

/**
 * A dump that is written, read and stored again answers every prompt as the index it came from, and never
 * with more.
 */

import assert from 'node:assert/strict'
import { formatHash } from '@homing/blocks'
import { dumpEvents } from '@homing/fleet'
import { BlockIndex, IndexReader, OverlapCounts } from '@homing/index'
import fc from 'fast-check'
import t from 'tap'
import { dumpHead, readDump } from '../src/peer-dump.ts'

const OPTIONS = { capacityBytes: 1 << 20, workerSlotsMax: 2 }

/** Paths through a small tree of blocks: the local hash is the letter, the engine hash the whole path. */
const paths = fc
  .array(fc.constantFrom('a', 'b'), { minLength: 1, maxLength: 5 })
  .map(letters => letters.join(''))

function pairs(paths: readonly string[], hash: (path: string) => number): Int32Array {
  // Both words in use, and above 2^63.
  return Int32Array.from(paths.flatMap(path => [hash(path), ~hash(path)]))
}
const prefixes = (path: string): string[] => [...path].map((_, i) => path.slice(0, i + 1))
const engineHashes = (path: string): Int32Array =>
  pairs(prefixes(path), prefix => Number.parseInt(prefix.replaceAll('a', '1').replaceAll('b', '2'), 3))
/** By engine hash in hexadecimal. */
const pathOf = new Map<string, string>()
for (let length = 1, level = ['a', 'b']; length <= 5; length++) {
  for (const path of level) {
    const [lo, hi] = engineHashes(path).slice(-2)
    pathOf.set(formatHash(lo!, hi!), path)
  }
  level = level.flatMap(path => [`${path}a`, `${path}b`])
}
const localHashes = (path: string): Int32Array => pairs([...path], letter => letter.charCodeAt(0))

function overlapOf(index: BlockIndex, path: string): number {
  const scores = new OverlapCounts()
  new IndexReader([index.memory]).overlap(localHashes(path), path.length, scores)
  return scores.blocksOf(1)
}

t.test(
  'every prompt has the overlap that it had, or less where blocks above others were removed',
  async t => {
    const agree = fc.property(
      fc.array(paths, { maxLength: 12 }),
      fc.array(paths, { maxLength: 4 }),
      (stored, removed) => {
        const index = BlockIndex.create(OPTIONS)
        for (const path of stored) {
          index.store(1, undefined, engineHashes(path), localHashes(path), path.length, 'set')
        }
        for (const path of removed) index.remove(1, engineHashes(path).slice(-2), 1)

        const blocks = [...index.dump(1)].map(({ engineHash, parentEngineHash, localHash, isReachable }) => ({
          engineHash: formatHash(...engineHash),
          parentEngineHash: parentEngineHash && formatHash(...parentEngineHash),
          localHash: formatHash(...localHash),
          isReachable,
        }))
        const reachable = blocks.filter(({ isReachable }) => isReachable)
        for (const { engineHash, parentEngineHash } of reachable) {
          const path = pathOf.get(engineHash)!
          const above = parentEngineHash === undefined ? '' : pathOf.get(parentEngineHash)
          assert.equal(path.slice(0, -1), above, 'a block is where it was')
        }
        let ids = 0
        const events = dumpEvents(2n ** 64n - 1n, 3, reachable, () => ids++)
        const rank = { instanceId: 2n ** 64n - 1n, dpRank: 3, endpoint: 'tcp://"e":5557' }
        const head = dumpHead({ model: 'a:model', group: 'group', blockSizeTokens: 16 }, [rank])
        const text = `{${head}${events}]}}`
        const dumps = readDump('http://peer', new TextEncoder().encode(text))

        const restored = BlockIndex.create(OPTIONS)
        for (const { runs, pooled, ...rank } of dumps) {
          assert.deepEqual(pooled, [])
          assert.deepEqual(rank, {
            model: 'a:model',
            group: 'group',
            blockSizeTokens: 16,
            instanceId: 2n ** 64n - 1n,
            dpRank: 3,
            endpoint: 'tcp://"e":5557',
          })
          for (const run of runs) {
            const outcome = restored.store(
              1,
              run.parent,
              run.engineHashes,
              run.localHashes,
              run.engineHashes.length / 2,
            )
            assert.equal(outcome, 'stored', 'parents come before children')
          }
        }
        for (const path of stored) {
          const [before, after] = [overlapOf(index, path), overlapOf(restored, path)]
          assert.ok(after <= before, `${path}: ${after} of ${before}`)
          if (removed.length === 0) assert.equal(after, before, path)
        }
      },
    )
    t.doesNotThrow(() => fc.assert(agree, { numRuns: 300 }))
  },
)

t.test('other tiers, other events and fields that are not known are left out', async t => {
  const stored = {
    parent_hash: null,
    blocks: [{ block_hash: '1', tokens_hash: -1, more: {} }],
    start_position: 0,
  }
  const dump = {
    'm:default': {
      block_size: 4,
      tree: 'radix',
      events: [
        { worker_id: 7, storage_tier: 'host_pinned', event: { event_id: 0, data: { stored } } },
        { worker_id: 7, event: { event_id: 1, data: 'cleared' } },
        { worker_id: 7, event: { event_id: 2, data: { removed: { block_hashes: [1] } } } },
        { worker_id: 7, residency_domain: 'x', event: { event_id: 3, data: { stored } } },
      ],
    },
  }
  const [rank, ...others] = readDump('http://peer', new TextEncoder().encode(JSON.stringify(dump)))
  t.strictSame(others, [])
  t.match(rank, { instanceId: 7n, dpRank: 0, model: 'm', group: 'default', blockSizeTokens: 4 })
  t.equal(rank!.endpoint, undefined)
  t.strictSame(rank!.runs, [
    { parent: undefined, engineHashes: Int32Array.of(1, 0), localHashes: Int32Array.of(-1, -1) },
  ])
})

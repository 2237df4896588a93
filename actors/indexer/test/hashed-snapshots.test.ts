/**
 * Snapshots of publishers by local hashes: an indexer that applies one knows what it would know from the same
 * snapshot by tokens, whatever the engine has told, and after whatever it tells behind it.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { DEFAULT_SEED, hashBlocks, mediaOfBlocks, namespaceSeed } from '@homing/blocks'
import { BlockIndex, IndexReader, layeredOptions, OverlapCounts } from '@homing/index'
import {
  ADAPTER,
  ALL_SEPARATORS,
  decodeKvBatch,
  decodeSnapshotBatch,
  EXTRA_KEY,
  encodeKvBatch,
  KV_CLEARED,
  type KvEvent,
  type KvMedia,
  kvRemoved,
  kvStored,
  SALT,
  type SnapshotForm,
} from '@homing/protocol'
import { HeldBlocks } from '@homing/publisher'
import t from 'tap'
import { EventApplier } from '../src/event-applier.ts'
import { LayerSlots } from '../src/layer-slots.ts'

const KEYS = 4
const BLOCK = 4
const CHAINS = 6
const DEPTH_MAX = 12
const SEEDS = 150
const TIERS = ['device', 'device', 'device', 'host', 'external'] as const

type Random = ReturnType<typeof seededRandom>

function shard() {
  const index = BlockIndex.create(layeredOptions(1 << 20, KEYS))
  const applier = new EventApplier(index, new LayerSlots(KEYS))
  applier.open(0)
  return { index, applier, reader: new IndexReader([index.memory]) }
}

type Shard = ReturnType<typeof shard>

/** What blocks of a chain have beside their tokens: of some chains an adapter, an image, a salt. */
interface Fleet {
  readonly hasSalts: boolean
  readonly tells: number
}

const hashOf = (chain: number, depth: number) => [chain * 100 + depth + 1, chain]
const tokensOf = (chain: number, from: number, length: number) =>
  Int32Array.from({ length: length * BLOCK }, (_, i) => chain * 1000 + from * BLOCK + i)
const adapterOf = (chain: number) => (chain === 1 ? 'mine' : undefined)
const isNumbered = (chain: number) => chain === 5
const imageOf = (chain: number, depth: number): readonly KvMedia[] =>
  chain === 2 && depth % 2 === 1 ? [{ id: 'ab'.repeat(16), offsetTokens: 1 }] : []

function randomEvent(random: Random, { hasSalts, tells }: Fleet): KvEvent {
  const chain = random.below(CHAINS)
  const depth = random.below(DEPTH_MAX)
  const length = 1 + random.below(DEPTH_MAX - depth)
  const hashes = Int32Array.from(Array.from({ length }, (_, i) => hashOf(chain, depth + i)).flat())
  const tier = TIERS[random.below(TIERS.length)]!
  const kind = random.below(40)
  if (kind === 0) return KV_CLEARED
  if (kind < 12) return kvRemoved({ hashes, tier })
  if (kind < 15) return kvStored({ hashes, tokens: new Int32Array(0), blockSizeTokens: 0, tier, tells })
  const media = Array.from({ length }, (_, i) => imageOf(chain, depth + i))
  return kvStored({
    hashes,
    parent: depth === 0 ? undefined : Int32Array.from(hashOf(chain, depth - 1)),
    tokens: tokensOf(chain, depth, length),
    blockSizeTokens: BLOCK,
    tier,
    tells,
    loraName: adapterOf(chain),
    loraId: isNumbered(chain) ? 7 : undefined,
    cacheSalt: hasSalts && chain === 3 && depth === 0 ? 'tenant' : undefined,
    mediaHashes: media.some(items => items.length > 0) ? media : undefined,
    hasUnknownExtraKeys: chain === 4 && depth > 4,
  })
}

/** What a reader sees for the prompt of every chain, and what the layers hold, without local hashes. */
function picture({ index, applier, reader }: Shard): unknown {
  const overlaps = Array.from({ length: CHAINS }, (_, chain) =>
    [undefined, 'tenant'].map(cacheSalt => {
      const seed = namespaceSeed({ loraName: adapterOf(chain), cacheSalt })
      const media = mediaOfBlocks(Array.from({ length: DEPTH_MAX }, (_, depth) => imageOf(chain, depth)))
      const { local } = hashBlocks(tokensOf(chain, 0, DEPTH_MAX), BLOCK, seed, { media })
      const scores = new OverlapCounts()
      reader.overlap(local, DEPTH_MAX, scores)
      return scores.blocksOf(0)
    }),
  )
  const layers = [0, 2, 3, 4].map(layer => {
    const entries = [...index.dump(layer * KEYS)].map(entry =>
      JSON.stringify([entry.engineHash, entry.position, entry.isReachable, entry.copies]),
    )
    const orphans = [...index.orphans(layer * KEYS)].map(({ engineHash, copies, parentEngineHash }) =>
      JSON.stringify([engineHash, copies, parentEngineHash]),
    )
    return [entries.sort(), orphans.sort()]
  })
  return { overlaps, layers, blocks: applier.status().blocksHeld[0] }
}

/** A prompt that this router has sent with a salt, and that begins as chain 0 does. */
function sendSeparated({ applier }: Shard): void {
  const { local } = hashBlocks(tokensOf(0, 0, 1), BLOCK, DEFAULT_SEED)
  applier.separated(0, { firstTokens: BLOCK, hashes: local, unnamed: [SALT] }, 0)
}

function restored(held: HeldBlocks, form: SnapshotForm, isSeparated: boolean) {
  const late = shard()
  if (isSeparated) sendSeparated(late)
  const frozen = held.freeze()
  const events = [...frozen.runs(0, frozen.size, 3, form)]
  frozen.release()
  const payload = encodeKvBatch({ timestampSeconds: 1, rank: undefined, events }, 'vllm-map')
  const read = decodeSnapshotBatch(payload)
  assert.deepEqual(read.skipped, { unknownTag: 0, malformed: 0 })
  assert.equal(read.events.length, events.length)
  late.applier.apply(0, BLOCK, read.events)
  const hashed = read.events.filter(
    event => event.kind === 'stored' && event.localHashes !== undefined,
  ).length
  const isSalted = read.events.some(event => event.kind === 'stored' && event.cacheSalt !== undefined)
  return { ...late, hashed, isSalted }
}

t.test('by hashes an indexer knows what it knows by tokens', async t => {
  let hashed = 0
  let salted = 0
  for (let seed = 0; seed < SEEDS; seed++) {
    const random = seededRandom(seed)
    const tells = [ALL_SEPARATORS, ALL_SEPARATORS, SALT | ADAPTER, ADAPTER, EXTRA_KEY][random.below(5)]!
    const fleet = { hasSalts: random.below(4) === 0, tells }
    const isSeparated = random.below(3) === 0
    const held = new HeldBlocks({ bytesMax: 2 ** 24 })
    const count = 5 + random.below(60)
    for (let i = 0; i < count; i++) held.apply(randomEvent(random, fleet))
    const byTokens = restored(held, 'tokens', isSeparated)
    const byHashes = restored(held, 'hashes', isSeparated)
    assert.deepEqual(picture(byHashes), picture(byTokens), `seed ${seed}`)
    const more = Array.from({ length: 1 + random.below(10) }, () => randomEvent(random, fleet))
    for (const { applier } of [byTokens, byHashes]) applier.apply(0, BLOCK, more)
    assert.deepEqual(picture(byHashes), picture(byTokens), `seed ${seed}, with what follows`)
    hashed += byHashes.hashed
    if (!byTokens.isSalted) continue
    salted++
    assert.equal(byHashes.hashed, 0, `seed ${seed}: by hashes beside a salt`)
  }
  t.ok(hashed > SEEDS, `${hashed} stores by hashes`)
  t.ok(salted >= SEEDS / 30, `${salted} snapshots with salts`)
})

t.test('no event of an engine names blocks by local hashes', async t => {
  const store = kvStored({
    hashes: Int32Array.of(1, 2),
    tokens: new Int32Array(0),
    localHashes: Int32Array.of(3, 4),
    blockSizeTokens: BLOCK,
  })
  const payload = encodeKvBatch({ timestampSeconds: 1, rank: undefined, events: [store] }, 'vllm-map')
  t.match(decodeKvBatch(payload), { events: [], skipped: { malformed: 1 } })
  t.strictSame(decodeSnapshotBatch(payload).events, [store])
})

t.test('local hashes that are not as many as the blocks count as no store', async t => {
  const { applier } = shard()
  const store = (localHashes: Int32Array) =>
    kvStored({ hashes: Int32Array.of(1, 2), tokens: new Int32Array(0), localHashes, blockSizeTokens: BLOCK })
  applier.apply(0, BLOCK, [store(new Int32Array(0)), store(Int32Array.of(1, 2, 3, 4))])
  t.equal(applier.status().eventsSkipped.unevenTokens, 2)
  applier.apply(0, BLOCK, [store(Int32Array.of(1, 2))])
  t.equal(applier.status().blocksHeld[0], 1)
})

t.test('local hashes say nothing of a salt: what belongs to a salted chain counts as no store', async t => {
  const { index, applier, reader } = shard()
  const { local } = hashBlocks(tokensOf(0, 0, 2), BLOCK, DEFAULT_SEED)
  const overlap = (): number => {
    const scores = new OverlapCounts()
    reader.overlap(local, 2, scores)
    return scores.blocksOf(0)
  }
  const byHashes = (depth: number, cacheSalt?: string) =>
    kvStored({
      hashes: Int32Array.from(hashOf(0, depth)),
      parent: depth === 0 ? undefined : Int32Array.from(hashOf(0, depth - 1)),
      tokens: new Int32Array(0),
      localHashes: local.slice(2 * depth, 2 * depth + 2),
      blockSizeTokens: BLOCK,
      cacheSalt,
    })
  applier.apply(0, BLOCK, [byHashes(0, 'tenant')])
  t.equal(overlap(), 0, 'prompts without a salt get no credit')
  t.equal(applier.status().eventsSkipped.unknownContent, 1)
  const salted = { hashes: Int32Array.from(hashOf(0, 0)), tokens: tokensOf(0, 0, 1), blockSizeTokens: BLOCK }
  applier.apply(0, BLOCK, [kvStored({ ...salted, cacheSalt: 'tenant' }), byHashes(1)])
  t.equal(applier.status().eventsSkipped.unknownContent, 2, 'below a block whose salt is known')
  t.equal(index.blocksHeld(0), 1)
  applier.apply(0, BLOCK, [KV_CLEARED, byHashes(0), byHashes(1)])
  t.equal(overlap(), 2)
})

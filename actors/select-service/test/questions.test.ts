/** What is read of a question. Refusals are tested over sockets, in test/system/select.test.ts. */

import { DEFAULT_SEED, hashBlocks, hashToBigInt, mediaByBlock, namespaceSeed } from '@homing/blocks'
import t from 'tap'
import { readQuestion } from '../src/questions.ts'

const TOKENS = Array.from({ length: 10 }, (_, i) => i + 1)
const read = (body: object) => readQuestion('select', new TextEncoder().encode(JSON.stringify(body)))

t.test('a prompt is hashed as engines and routers hash it', async t => {
  const plain = hashBlocks(Uint32Array.from(TOKENS), 4, DEFAULT_SEED)
  const asked = read({ token_ids: TOKENS }).prompt(4)
  t.strictSame(asked.localHashes, plain.local)
  t.strictSame(asked.sequenceHashes, plain.sequence)
  t.equal(asked.promptTokens, 10)
  t.equal(asked.separated, undefined)
  // The public vector of the tokens 1 to 4.
  t.equal(hashToBigInt(asked.localHashes[0]!, asked.localHashes[1]!), 14643705804678351452n)
  t.equal(read({ token_ids: TOKENS }).prompt(16).localHashes.length, 0)

  const namespace = { loraName: 'adapter-a', cacheSalt: 'tenant-a' }
  const salted = read({ token_ids: TOKENS, lora_name: 'adapter-a', cache_salt: 'tenant-a' }).prompt(4)
  t.strictSame(salted.localHashes, hashBlocks(Uint32Array.from(TOKENS), 4, namespaceSeed(namespace)).local)
  t.not(salted.separated, undefined)
  t.strictSame(read({ token_ids: TOKENS, lora_name: '', cache_salt: '' }).prompt(4), asked)

  const eagle = read({ token_ids: TOKENS, is_eagle: true }).prompt(4)
  const windows = hashBlocks(Uint32Array.from(TOKENS), 4, DEFAULT_SEED, { eagle: true })
  t.strictSame(eagle.localHashes, windows.local)

  const objects = [{ hash: { lo: 42, hi: 0 }, ranges: [[2, 5]] as const }]
  const media = mediaByBlock(objects, 4, 2)
  const seen = read({
    token_ids: TOKENS,
    mm_routing_info: { mm_objects: [{ mm_hash: 42, offsets: [[2, 5]] }] },
  }).prompt(4)
  t.strictSame(seen.localHashes, hashBlocks(Uint32Array.from(TOKENS), 4, DEFAULT_SEED, { media }).local)
})

t.test('hashes are taken as they are, with or without a sign', async t => {
  const hashed = read({
    block_hashes: ['-1', 5],
    sequence_hashes: ['18446744073709551615', 6],
    isl_tokens: 9,
  }).prompt(4)
  t.strictSame([...hashed.localHashes], [-1, -1, 5, 0])
  t.strictSame([...hashed.sequenceHashes], [-1, -1, 6, 0])
  t.equal(hashed.promptTokens, 9)
})

t.test('what is not given is left to the settings', async t => {
  t.match(read({ token_ids: [1] }), {
    model: 'default',
    group: 'default',
    selectionId: undefined,
    tracking: undefined,
    pinned: undefined,
    allowed: undefined,
    requiredTaints: [],
    preferredTaints: {},
    override: { overlapWeight: undefined, overlapCredit: undefined, temperature: undefined },
    moeQuery: undefined,
    wantsReceipt: false,
  })
  t.match(
    read({
      token_ids: [1],
      router_config_override: {
        overlap_score_weight: 2,
        prefill_load_scale: 3,
        router_temperature: 0.5,
        track_prefill_tokens: false,
        assume_kv_reuse: null,
        moe_query: { layer_id: 3, expert_ids: [1, 2] },
      },
      pinned_worker: '18446744073709551615',
      allowed_worker_ids: ['18446744073709551615', 1],
      routing_constraints: { required_taints: ['a'], preferred_taints: { b: -1 } },
    }),
    {
      override: { overlapWeight: 2, temperature: 0.5 },
      moeQuery: { layerId: 3, expertIds: [1, 2], expertGroup: undefined, fallbackToUnlabeled: true },
      tracking: { prefillTokens: false, assumesReuse: undefined },
      pinned: { workerId: 2n ** 64n - 1n, dpRank: undefined },
      allowed: [2n ** 64n - 1n, 1n],
      requiredTaints: ['a'],
      preferredTaints: { b: -1 },
    },
  )
})

import t from 'tap'
import { AttentionGroups, type KvRemoved, type KvStored, kvRemoved, kvStored } from '../src/index.ts'

const BLOCK = new Int32Array(2)
const SPARSE = { tokens: new Int32Array(8) }

function store(group: number | undefined, attention?: string, fields: Partial<KvStored> = {}): KvStored {
  return kvStored({
    hashes: BLOCK,
    tokens: new Int32Array(4),
    blockSizeTokens: 4,
    group,
    attention,
    ...fields,
  })
}

function removal(group: number | undefined): KvRemoved {
  return kvRemoved({ hashes: BLOCK, group })
}

t.test('engines without groups are accepted whole', async t => {
  const groups = new AttentionGroups()
  t.equal(groups.accepts(removal(undefined)), true)
  t.equal(groups.accepts(store(undefined)), true)
  t.equal(groups.accepts(store(undefined, 'full_attention')), true)
  t.equal(groups.accepts(store(undefined, 'mamba')), false)
})

t.test('only the kinds that keep whole prefixes are accepted, and removals follow their group', async t => {
  const groups = new AttentionGroups()
  t.equal(groups.accepts(store(0, 'sliding_window', SPARSE)), false)
  for (const [group, kind] of [
    [3, 'full_attention'],
    [4, 'mla_attention'],
    [5, 'sink_full_attention'],
  ] as const) {
    t.equal(groups.accepts(removal(group)), false, 'nothing of the group is known yet')
    t.equal(groups.accepts(store(group, kind)), true, kind)
    t.equal(groups.accepts(removal(group)), true)
  }
  t.equal(groups.accepts(store(6, 'chunked_local_attention')), false)
  t.equal(groups.accepts(removal(0)), false)
  t.equal(groups.accepts(removal(9)), false)
  t.equal(
    groups.accepts(store(3, undefined, { blockSizeTokens: 0, tokens: new Int32Array(0) })),
    true,
    'a placeholder',
  )
  t.equal(groups.accepts(store(7)), false, 'a group of unknown kind')
  t.equal(groups.revisions, 0)
})

t.test('without kinds the lowest group that is not sparse is the main one', async t => {
  const groups = new AttentionGroups()
  t.equal(groups.accepts(store(1)), true)
  t.equal(groups.accepts(store(0, undefined, SPARSE)), false)
  t.equal(groups.accepts(removal(0)), false)
  t.equal(groups.accepts(removal(1)), true)
  t.equal(groups.accepts(store(2)), false)
  t.equal(groups.revisions, 0)
})

t.test('a verdict that is taken back is told', async t => {
  const groups = new AttentionGroups()
  t.equal(groups.accepts(store(0)), true)
  t.equal(groups.accepts(store(1)), false)
  t.equal(groups.accepts(store(0, undefined, SPARSE)), false)
  t.equal(groups.revisions, 1)
  t.equal(groups.accepts(store(1)), true)
  t.equal(groups.accepts(store(1, 'sliding_window')), false)
  t.equal(groups.revisions, 2)
})

t.test('a stream that names endless groups does not grow without end', async t => {
  const groups = new AttentionGroups()
  for (let group = 0; group < 100_000; group++) groups.accepts(store(group))
  t.equal(groups.accepts(store(0)), true)
  t.equal(groups.accepts(store(99_999)), false)
})

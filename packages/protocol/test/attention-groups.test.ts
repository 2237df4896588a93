import t from 'tap'
import { AttentionGroups, type KvStored, kvStored } from '../src/index.ts'

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

t.test('engines without groups are accepted whole', async t => {
  const groups = new AttentionGroups()
  t.equal(groups.taken(undefined), 'copy')
  t.equal(groups.accepts(store(undefined)), true)
  t.equal(groups.accepts(store(undefined, 'full_attention')), true)
  t.equal(groups.accepts(store(undefined, 'mamba')), false)
  t.equal(groups.taken(undefined), 'copy')
})

t.test('of the kinds that keep whole prefixes the first group that stores is the main one', async t => {
  for (const kind of ['full_attention', 'mla_attention', 'sink_full_attention']) {
    const groups = new AttentionGroups()
    t.equal(groups.accepts(store(0, 'sliding_window', SPARSE)), false)
    t.equal(groups.taken(3), 'block', 'nothing of the group is known yet')
    t.equal(groups.accepts(store(3, kind)), true, kind)
    t.equal(groups.accepts(store(2, 'full_attention')), false, 'another one beside it')
    t.equal(groups.accepts(store(4, 'chunked_local_attention')), false)
    t.equal(groups.accepts(store(5)), false, 'a group of unknown kind')
    const placeholder = store(3, undefined, { blockSizeTokens: 0, tokens: new Int32Array(0) })
    t.equal(groups.accepts(placeholder), true, 'a placeholder')
    t.equal(groups.revisions, 0)
    t.strictSame(
      [0, 2, 3, 4, 5, 9, undefined].map(group => groups.taken(group)),
      ['nothing', 'block', 'copy', 'nothing', 'block', 'block', 'block'],
    )
  }
})

t.test('without kinds the lowest group that is not sparse is the main one', async t => {
  const groups = new AttentionGroups()
  t.equal(groups.accepts(store(1)), true)
  t.equal(groups.accepts(store(0, undefined, SPARSE)), false)
  t.equal(groups.accepts(store(2)), false)
  t.strictSame(
    [0, 1, 2, 3].map(group => groups.taken(group)),
    ['nothing', 'copy', 'block', 'block'],
  )
  t.equal(groups.revisions, 0)
})

t.test('without kinds a group that seems to be whole does not take the place of one that is', async t => {
  const groups = new AttentionGroups()
  t.equal(groups.accepts(store(3)), true)
  t.equal(groups.accepts(store(0)), false, 'one block says nothing of whether it is sparse')
  t.equal(groups.accepts(store(3)), true)
  t.equal(groups.revisions, 0)
  t.equal(groups.accepts(store(3, undefined, SPARSE)), false)
  t.equal(groups.accepts(store(0)), true)
  t.equal(groups.revisions, 1)
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

t.test('what was learned is taken over, the main group too', async t => {
  const groups = new AttentionGroups()
  groups.accepts(store(2, 'full_attention'))
  groups.accepts(store(1, 'full_attention'))
  const heir = new AttentionGroups()
  heir.learn([...groups.records()].reverse())
  t.equal(heir.accepts(store(2)), true)
  t.equal(heir.accepts(store(1)), false)
  t.equal(heir.revisions, 0)
})

t.test('a stream that names endless groups does not grow without end', async t => {
  const groups = new AttentionGroups()
  for (let group = 0; group < 100_000; group++) groups.accepts(store(group))
  t.equal(groups.accepts(store(0)), true)
  t.equal(groups.accepts(store(99_999)), false)
  t.equal(groups.taken(99_999), 'block')
})

import { encodeKvBatch, type KvEvent, kvRemoved } from '@homing/protocol'
import t from 'tap'
import { wordsOf } from '../src/engine-hash.ts'
import { LocalIndexer } from '../src/index.ts'
import { keyOf, storedChain } from './histories.ts'
import { NaiveCache } from './naive-cache.ts'

function record(indexer: LocalIndexer, ...events: KvEvent[]): number {
  return indexer.record(events, encodeKvBatch({ timestampSeconds: 0, rank: 0, events }, 'vllm-map'))
}

/**
 * Six batches, of which the last three are kept; the blocks are [1], [1 2], …, [1 2 3 1 2 3] without [1 2].
 */
function filled(): LocalIndexer {
  const indexer = new LocalIndexer({ bufferBatchesMax: 3 })
  const chain = [1, 2, 3, 1, 2]
  for (let i = 0; i < chain.length; i++) record(indexer, storedChain(chain.slice(0, i + 1), i))
  record(indexer, kvRemoved({ hashes: wordsOf([keyOf([1, 2])]) }))
  return indexer
}

t.test('batches are numbered from 0', async t => {
  const indexer = new LocalIndexer()
  t.equal(indexer.nextEventId, 0)
  t.strictSame([record(indexer, storedChain([1], 0)), record(indexer, storedChain([2], 0))], [0, 1])
})

t.test('a range that ends before it begins is invalid, whatever is kept', async t => {
  const answer = { kind: 'invalidRange', start: 5, end: 4 }
  t.strictSame(filled().getEventsInIdRange(5, 4), answer)
  t.strictSame(new LocalIndexer().getEventsInIdRange(5, 4), answer)
})

t.test('without a start everything held is told, up to the newest batch', async t => {
  const dump = filled().getEventsInIdRange()
  t.match(dump, { kind: 'treeDump', lastEventId: 5, nextEventId: 6, isWhole: true })
  t.match(filled().getEventsInIdRange(undefined, 2), { kind: 'treeDump', lastEventId: 5 })
  if (dump.kind !== 'treeDump') return
  const rebuilt = new NaiveCache().applyAll(dump.events)
  t.strictSame(
    [...rebuilt.blocks.keys()].sort(),
    [[1], [1, 2, 3], [1, 2, 3, 1], [1, 2, 3, 1, 2]].map(chain => `device/${keyOf(chain)}`).sort(),
  )
})

t.test('with nothing kept there is only a dump, whose last id is 0 and whose next id tells', async t => {
  const empty = { kind: 'treeDump', events: [], lastEventId: 0, nextEventId: 0, isWhole: true }
  t.strictSame(new LocalIndexer().getEventsInIdRange(), empty)
  t.strictSame(new LocalIndexer().getEventsInIdRange(7), empty)
  const tiny = new LocalIndexer({ bufferBytesMax: 1 })
  record(tiny, storedChain([1], 0))
  t.match(tiny.getEventsInIdRange(0), { kind: 'treeDump', lastEventId: 0, nextEventId: 1 })
})

t.test('a start that is not there yet is too new', async t => {
  t.strictSame(filled().getEventsInIdRange(6), {
    kind: 'tooNew',
    requestedStart: 6,
    requestedEnd: undefined,
    newestAvailable: 5,
  })
  t.match(filled().getEventsInIdRange(7, 9), { kind: 'tooNew', requestedEnd: 9, newestAvailable: 5 })
})

t.test('a start that is no longer kept is answered with a dump', async t => {
  t.match(filled().getEventsInIdRange(2), { kind: 'treeDump', lastEventId: 5, nextEventId: 6 })
  t.match(filled().getEventsInIdRange(0, 1), { kind: 'treeDump', lastEventId: 5 })
})

t.test('what is kept is answered with its batches, both ends included', async t => {
  const ids = (start: number, end?: number): readonly number[] => {
    const range = filled().getEventsInIdRange(start, end)
    return range.kind === 'events' ? range.batches.map(({ sequence }) => sequence) : [Number.NaN]
  }
  t.strictSame(ids(3), [3, 4, 5])
  t.strictSame(ids(4, 4), [4])
  t.strictSame(ids(5, 99), [5])
})

t.test('the last 1024 batches are kept unless told otherwise', async t => {
  const indexer = new LocalIndexer()
  for (let i = 0; i < 1030; i++) record(indexer, storedChain([i % 4], 0))
  t.equal(indexer.stats.bufferedBatches, 1024)
  t.equal(indexer.getEventsInIdRange(5).kind, 'treeDump')
  t.equal(indexer.getEventsInIdRange(6).kind, 'events')
})

t.test('ids that are no ids are a mistake of the caller', async t => {
  t.throws(() => filled().getEventsInIdRange(-1), RangeError)
  t.throws(() => filled().getEventsInIdRange(0, 1.5), RangeError)
})

t.test('after a restart the batches are kept and the blocks are not', async t => {
  const indexer = filled()
  indexer.restart({ isWhole: false })
  t.match(indexer.getEventsInIdRange(), { events: [], lastEventId: 5, isWhole: false })
  t.equal(indexer.getEventsInIdRange(3).kind, 'events')
})

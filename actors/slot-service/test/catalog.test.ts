/** The catalog: who is registered, and which slots and keys ranks have. */

import t from 'tap'
import { bookingId, SlotCatalog } from '../src/catalog.ts'
import type { Registration } from '../src/requests.ts'

const worker = (workerId: bigint, given: Partial<Registration> = {}): Registration => ({
  workerId,
  model: 'm',
  group: 'g',
  blockSizeTokens: 16,
  rankFirst: 0,
  rankCount: 1,
  ...given,
})

const keysOf = (catalog: SlotCatalog) =>
  catalog.fleet().workers.flatMap(({ keys }) => keys.map(({ key, workerSlot }) => [key, workerSlot] as const))

t.test('a slot serves one rank, and is given out again when its worker is gone', async t => {
  const catalog = new SlotCatalog(3)
  t.match(catalog.register(worker(1n, { rankFirst: 4, rankCount: 2 }), 0).ranks, [
    { key: /^1@[0-9a-f]{32}\/4$/, dpRank: 4, workerSlot: 0 },
    { dpRank: 5, workerSlot: 1 },
  ])
  catalog.register(worker(2n), 0)
  t.equal(catalog.slotsTaken, 3)
  t.throws(() => catalog.register(worker(3n), 0), { code: 'HOMING_SERVICE_FULL' })
  t.equal(catalog.slotsTaken, 3, 'what is refused takes nothing')
  catalog.unregister(worker(1n))
  t.equal(catalog.slotsTaken, 1)
  catalog.register(worker(3n, { rankCount: 2 }), 0)
  t.strictSame(
    keysOf(catalog)
      .map(([, slot]) => slot)
      .sort(),
    [0, 1, 2],
  )
})

t.test(
  'a key is the same text in every process, and another for other workers, models and block sizes',
  async t => {
    const keyOf = (registration: Registration) => {
      const catalog = new SlotCatalog(8)
      catalog.register(registration, 0)
      return keysOf(catalog)[0]![0]
    }
    t.equal(keyOf(worker(7n)), '7@4894e7be669ce49e9d9632df79e50552/0')
    const others = [
      worker(7n),
      worker(8n),
      worker(7n, { model: 'n' }),
      worker(7n, { group: 'h' }),
      worker(7n, { blockSizeTokens: 32 }),
      worker(7n, { rankFirst: 1 }),
      worker(7n, { model: 'm","g', group: '' }),
    ]
    t.equal(new Set(others.map(keyOf)).size, others.length)
    const long = keyOf(worker(2n ** 64n - 1n, { model: 'x'.repeat(1024), rankFirst: 2 ** 32 - 1 }))
    t.ok(long.length <= 512, 'replicas take it')
  },
)

t.test('a partition ends with its last worker, and may then have another block size', async t => {
  const catalog = new SlotCatalog(8)
  catalog.register(worker(1n), 0)
  t.throws(() => catalog.register(worker(2n, { blockSizeTokens: 32 }), 0), {
    code: 'HOMING_SERVICE_CONFLICT',
  })
  const before = bookingId(catalog.partition('find', worker(1n)), 'a')
  catalog.unregister(worker(1n))
  t.throws(() => catalog.partition('find', worker(1n)), { code: 'HOMING_SERVICE_NOT_FOUND' })
  catalog.register(worker(2n, { blockSizeTokens: 32 }), 0)
  t.not(bookingId(catalog.partition('find', worker(1n)), 'a'), before)
})

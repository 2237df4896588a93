/** Shares of what all consumers of a connection may hold. */

import t from 'tap'
import { UNTAKEN_ALL_MAX, UNTAKEN_MAX, UNTAKEN_MIN } from '../src/nats/streams.ts'
import { type SharingConsumer, UntakenShares } from '../src/nats/untaken-shares.ts'

const settle = async (): Promise<void> => {
  for (let i = 0; i < 20_000; i++) await Promise.resolve()
}

function joined(shares: UntakenShares, update: (share: number) => Promise<void>): SharingConsumer {
  const consumer = shares.join(update)
  shares.made(consumer)
  return consumer
}

t.test('however many consumers there are, all together have what one process may hold', async t => {
  const shares = new UntakenShares()
  const consumers: SharingConsumer[] = []
  let told = 0
  const update = async (): Promise<void> => void told++
  const all = (): number => consumers.reduce((sum, { share }) => sum + share, 0)
  for (let count = 1; count <= 1024; count++) {
    consumers.push(joined(shares, update))
    if ((count & (count - 1)) !== 0 && count % 100 !== 0) continue
    await settle()
    t.ok(all() <= UNTAKEN_ALL_MAX && (all() > UNTAKEN_ALL_MAX / 2 || count < 16), `${count}: ${all()}`)
  }
  t.ok(told < 3 * 1024, `${told} words to the broker`)
  t.equal(consumers[0]!.share, UNTAKEN_MIN)
  for (const one of consumers.splice(1)) shares.leave(one)
  await settle()
  t.equal(consumers[0]!.share, UNTAKEN_MAX)
})

t.test('one that could not be told keeps its share until the next change', async t => {
  const shares = new UntakenShares()
  let fails = true
  const first = joined(shares, () => (fails ? Promise.reject(new Error('no answer')) : Promise.resolve()))
  const others = Array.from({ length: 31 }, () => joined(shares, async () => {}))
  await settle()
  t.equal(first.share, UNTAKEN_MAX)
  t.equal(others[0]!.share, UNTAKEN_ALL_MAX / 32)
  fails = false
  for (let i = 0; i < 32; i++) others.push(joined(shares, async () => {}))
  await settle()
  t.equal(first.share, UNTAKEN_ALL_MAX / 64)
})

t.test('one that is made while others join is told of its share when it is there', async t => {
  const shares = new UntakenShares()
  const told: number[] = []
  const late = shares.join(async share => void told.push(share))
  t.equal(late.share, UNTAKEN_MAX)
  for (let i = 0; i < 31; i++) joined(shares, async () => {})
  await settle()
  t.strictSame(told, [], 'the broker does not know it yet')
  shares.made(late)
  await settle()
  t.strictSame([told, late.share], [[UNTAKEN_ALL_MAX / 32], UNTAKEN_ALL_MAX / 32])
})

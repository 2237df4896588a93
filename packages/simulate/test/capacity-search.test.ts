import t from 'tap'
import { CAPACITY_STEPS, searchCapacity } from '../src/index.ts'

const upTo = (capacity: number) => async (speed: number) => (speed <= capacity ? 0.96 : 0.9)

t.test('the highest good speed is found within 1/256, wherever the guess is', async t => {
  for (const capacity of [0.11, 0.9, 1, 3.34, 57, 1000]) {
    for (const guess of [0.5, 3, 200]) {
      const found = await searchCapacity(guess, upTo(capacity))
      t.ok(
        found.speed <= capacity && found.speed > capacity * (1 - 1 / 128),
        `${guess}: ${found.speed} for ${capacity}`,
      )
      t.equal(found.isAtLeast, false)
    }
  }
})

t.test('it takes eight steps behind its bracket, and tells all that it tried', async t => {
  const { tried } = await searchCapacity(2, upTo(3))
  t.strictSame(
    tried.slice(0, 3).map(({ speed }) => speed),
    [2, 4, 3],
  )
  t.equal(tried.length, 2 + CAPACITY_STEPS)
  t.ok(tried.every(({ speed, share }) => share === (speed <= 3 ? 0.96 : 0.9)))
})

t.test('a share of exactly 95 % is inside', async t => {
  const { speed } = await searchCapacity(1, async speed => (speed <= 1 ? 0.95 : 0))
  t.equal(speed, 1)
})

t.test('a fleet that is never too slow, or always, ends the search', async t => {
  const fast = await searchCapacity(1, async () => 1)
  t.strictSame([fast.speed, fast.isAtLeast], [4096, true])
  const slow = await searchCapacity(1, async () => 0)
  t.strictSame([slow.speed, slow.isAtLeast], [0, false])
})

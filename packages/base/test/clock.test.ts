import t from 'tap'
import {
  choicesOf,
  type Duration,
  durationMs,
  SimulatedClock,
  seededRandom,
  systemRandom,
} from '../src/index.ts'

t.test('durations are milliseconds or text with a unit', async t => {
  t.equal(durationMs(50), 50)
  t.equal(durationMs('50ms'), 50)
  t.equal(durationMs('1.5s'), 1500)
  t.equal(durationMs('2m'), 120_000)
  for (const bad of [-1, Number.NaN, Number.POSITIVE_INFINITY, '5 s' as Duration, 'ms' as Duration]) {
    t.throws(() => durationMs(bad), RangeError)
  }
})

t.test('simulated timers fire in order of due time, then of creation, also when nested', async t => {
  const clock = new SimulatedClock()
  const fired: string[] = []
  clock.after(20, () => fired.push(`b@${clock.nowMs()}`))
  clock.after(10, () => {
    fired.push(`a@${clock.nowMs()}`)
    clock.after(5, () => fired.push(`nested@${clock.nowMs()}`))
  })
  clock.after(20, () => fired.push(`c@${clock.nowMs()}`))
  const cancelled = clock.after(12, () => fired.push('cancelled'))
  cancelled.cancel()
  clock.advance(20)
  t.strictSame(fired, ['a@10', 'nested@15', 'b@20', 'c@20'])
  t.equal(clock.pendingCount, 0)
})

t.test('equal seeds give equal sequences, and values cover their range', async t => {
  const a = seededRandom(7)
  const b = seededRandom(7)
  const seen = new Set<number>()
  for (let i = 0; i < 1000; i++) {
    const value = a.next()
    t.equal(value, b.next()) || t.bailout('sequences differ')
    if (value < 0 || value >= 1) t.fail(`${value} is outside [0, 1)`)
    seen.add(a.below(6))
    b.below(6)
  }
  t.strictSame([...seen].sort(), [0, 1, 2, 3, 4, 5])
  t.not(seededRandom(8).next(), seededRandom(7).next())
})

t.test('one seed gives equal choices, and bytes that are never equal', async t => {
  const a = choicesOf(7)
  const b = choicesOf(7)
  for (let i = 0; i < 100; i++) {
    t.notSame(a.bytes(8), b.bytes(8))
    t.equal(a.next(), b.next())
    t.equal(a.below(1000), b.below(1000))
  }
})

t.test('random bytes of the system come in any number and never twice', async t => {
  const seen = new Set<string>()
  for (let i = 0; i < 2000; i++) {
    const bytes = systemRandom.bytes(16)
    t.equal(bytes.length, 16) || t.bailout('another length')
    seen.add(bytes.toString())
  }
  t.equal(seen.size, 2000)
  for (const count of [0, 1, 4096, 4097, 100_000]) t.equal(systemRandom.bytes(count).length, count)
})

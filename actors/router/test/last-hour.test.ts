/** The sums of the last hour, against a list of all that was settled. */

import assert from 'node:assert/strict'
import type { Delivery, GuardReceipt } from '@homing/placement'
import fc from 'fast-check'
import t from 'tap'
import { LastHour } from '../src/last-hour.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

const delivery = (change: Partial<Delivery>): Delivery => ({
  outcome: 'ok',
  status: 200,
  promptTokens: 100,
  completionTokens: 4,
  cachedTokens: 64,
  waitedMs: 1,
  timeToFirstByteMs: 20,
  durationMs: 30,
  streamEvents: 4,
  error: undefined,
  ...change,
})
const guard = (predictedFirstTokenMs: number, roundRobin: number): GuardReceipt => ({
  arm: undefined,
  phase: 'trusting',
  controlShare: 0,
  predictedFirstTokenMs,
  extraTokens: 0,
  regretMs: { 'round-robin': roundRobin, 'least-loaded': 0, product: 1 },
})

t.test('counts what was settled within the hour, and nothing older', async t => {
  const settled = fc.record({
    gapMs: fc.integer({ min: 0, max: 10 * MINUTE_MS }),
    cachedTokens: fc.option(fc.integer({ min: 0, max: 100 }), { nil: undefined }),
    firstMs: fc.integer({ min: 1, max: 100_000 }),
    isOk: fc.boolean(),
    regret: fc.integer({ min: -50, max: 50 }),
  })
  const agree = fc.property(
    fc.array(settled, { maxLength: 60 }),
    fc.integer({ min: 0, max: HOUR_MS }),
    (all, restMs) => {
      const hour = new LastHour(0)
      let nowMs = 0
      const naive = all.map(one => {
        nowMs += one.gapMs
        const { cachedTokens, firstMs, isOk, regret } = one
        hour.settled(
          delivery({ cachedTokens, timeToFirstByteMs: firstMs, outcome: isOk ? 'ok' : 'error' }),
          guard(firstMs + 5, regret),
          nowMs,
        )
        return { ...one, minute: Math.floor(nowMs / MINUTE_MS) }
      })
      nowMs += restMs
      const first = Math.floor(nowMs / MINUTE_MS) - 59
      const within = naive.filter(({ minute }) => minute >= first)
      const ok = within.filter(({ isOk }) => isOk)
      const said = ok.filter(({ cachedTokens }) => cachedTokens !== undefined)
      const report = hour.report(nowMs)
      assert.equal(report.requests, within.length)
      assert.equal(report.promptTokens, 100 * said.length)
      assert.equal(
        report.cachedTokens,
        said.reduce((sum, { cachedTokens }) => sum + cachedTokens!, 0),
      )
      assert.equal(report.firstTokens, ok.length)
      assert.equal(report.guarded, within.length)
      assert.equal(
        report.regretMs['round-robin'],
        within.reduce((sum, { regret }) => sum + regret, 0),
      )
      assert.equal(report.minutes.length, 60)
      assert.equal(
        report.minutes.reduce((sum, { requests }) => sum + requests, 0),
        within.length,
      )
      const sorted = ok.map(({ firstMs }) => firstMs + 1).sort((one, other) => one - other)
      if (sorted.length === 0) return
      for (const [name, share] of [
        ['p50', 0.5],
        ['p90', 0.9],
        ['p99', 0.99],
      ] as const) {
        const exact = sorted[Math.ceil(share * sorted.length) - 1]!
        const ratio = report.firstTokenMs![name] / exact
        assert.ok(ratio > 0.9 && ratio < 1.1, `${name}: ${report.firstTokenMs![name]} for ${exact}`)
      }
    },
  )
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('says how far first tokens were off, and looks back no further than it has lived', async t => {
  const hour = new LastHour(1000)
  hour.settled(delivery({ timeToFirstByteMs: 20 }), guard(15, -3), 2000)
  hour.settled(delivery({ timeToFirstByteMs: 30 }), guard(40, -3), 2000)
  t.equal(hour.report(61_000).predictionError, 15 / 50)
  t.equal(hour.report(61_000).spanMs, 60_000)
  t.equal(hour.report(3 * HOUR_MS).spanMs, HOUR_MS)
  t.match(hour.report(3 * HOUR_MS), { requests: 0, firstTokenMs: undefined, predictionError: undefined })
})

t.test('what slices of a request computed is not cached for it', async t => {
  const hour = new LastHour(0)
  hour.settled(delivery({ promptTokens: 100, cachedTokens: 96, sliceTokens: 64 }), undefined, 1)
  t.match(hour.report(2), { promptTokens: 100, cachedTokens: 32, cachedPairs: 32 ** 2 / 2 })
})

t.test('counts what was spared less where the rest of a prompt is below the knee', async t => {
  const hour = new LastHour(0)
  hour.settled(delivery({ promptTokens: 1050, cachedTokens: 1000 }), undefined, 1)
  const once = [1000, 1000 - (64 - 50), 1000 - (128 - 50), 1000 - (256 - 50)]
  t.strictSame(hour.report(1).sparedTokens, once)
  hour.settled(delivery({ promptTokens: 100, cachedTokens: 96 }), undefined, 1)
  t.strictSame(
    hour.report(1).sparedTokens,
    [96, 100 - 64, 0, 0].map((more, at) => once[at]! + more),
    'a prompt that is itself below the knee takes as long without its cache',
  )
  t.strictSame(hour.report(3 * HOUR_MS).sparedTokens, [0, 0, 0, 0])
})

/** Busy thresholds: strictly past any of them, and only if all ranks are. */

import t from 'tap'
import { hasThreshold, mergedThresholds, NO_BUSY_THRESHOLDS, whyBusy } from '../src/index.ts'

const RANK = { activeBlocks: 50, blocksMax: 100, activePrefillTokens: 1000, stepTokens: 500 }

t.test('each threshold is passed strictly above it', async t => {
  for (const [change, isBusy] of [
    [{}, false],
    [{ decodeBlocksFraction: 0.5 }, false],
    [{ decodeBlocksFraction: 0.49 }, true],
    [{ prefillTokens: 1000 }, false],
    [{ prefillTokens: 999 }, true],
    [{ prefillTokens: 0 }, true],
    [{ prefillFraction: 2 }, false],
    [{ prefillFraction: 1.99 }, true],
    [{ decodeBlocksFraction: 1, prefillTokens: 999 }, true],
  ] as const) {
    const thresholds = mergedThresholds(NO_BUSY_THRESHOLDS, change)
    t.equal(whyBusy(thresholds, [RANK]) !== undefined, isBusy, JSON.stringify(change))
    t.equal(hasThreshold(thresholds), Object.keys(change).length > 0)
  }
})

t.test('a worker is busy only if all its ranks are, and not without any', async t => {
  const thresholds = mergedThresholds(NO_BUSY_THRESHOLDS, { prefillTokens: 10 })
  const idle = { ...RANK, activePrefillTokens: 10 }
  t.match(whyBusy(thresholds, [RANK, RANK]), /1000 prefill tokens are under way, of 10/)
  t.equal(whyBusy(thresholds, [RANK, idle]), undefined)
  t.equal(whyBusy(thresholds, []), undefined)
})

t.test('blocks count by the larger of what the router and what the engine counts', async t => {
  const thresholds = mergedThresholds(NO_BUSY_THRESHOLDS, { decodeBlocksFraction: 0.6 })
  t.equal(whyBusy(thresholds, [RANK]), undefined)
  t.match(
    whyBusy(thresholds, [{ ...RANK, reportedBlocks: 61 }]),
    /^61 of 100 blocks are in use, as its engine says, of which 0.6 may be$/,
  )
  t.match(
    whyBusy(thresholds, [{ ...RANK, activeBlocks: 61, reportedBlocks: 5 }]),
    /^61 of 100 blocks are in use, of which/,
  )
})

t.test('what is not known of an engine holds nothing back', async t => {
  const thresholds = mergedThresholds(NO_BUSY_THRESHOLDS, { decodeBlocksFraction: 0, prefillFraction: 0 })
  t.equal(whyBusy(thresholds, [{ ...RANK, blocksMax: undefined, stepTokens: undefined }]), undefined)
  t.equal(whyBusy(thresholds, [{ ...RANK, blocksMax: 0, stepTokens: undefined }]), undefined)
})

t.test('a change leaves what it does not name', async t => {
  const first = mergedThresholds(NO_BUSY_THRESHOLDS, { prefillTokens: 10, prefillFraction: 2 })
  t.strictSame(mergedThresholds(first, { prefillTokens: 0 }), {
    decodeBlocksFraction: undefined,
    prefillTokens: 0,
    prefillFraction: 2,
  })
})

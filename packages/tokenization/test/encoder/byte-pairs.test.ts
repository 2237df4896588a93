/** Merging against the simplest form of it, and its steps on the worst texts known for it. */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { buildMerges, PairMerger } from '../../src/encoder/byte-pairs.ts'

type Merge = readonly [left: number, right: number, made: number]

function mergerOf(merges: readonly Merge[]): PairMerger {
  const column = (i: 0 | 1 | 2) => Int32Array.from(merges, merge => merge[i])
  return new PairMerger(buildMerges(column(0), column(1), column(2)), undefined)
}

function merged(merger: PairMerger, symbols: readonly number[]): number[] {
  const array = Int32Array.from(symbols)
  return Array.from(array.subarray(0, merger.merge(array, symbols.length)))
}

/** Searches all pairs for the lowest rank, merges the leftmost of it, and begins again. */
function mergedSimply(merges: readonly Merge[], symbols: readonly number[]): number[] {
  const list = [...symbols]
  for (;;) {
    let best = Number.POSITIVE_INFINITY
    let place = -1
    for (let i = 0; i + 1 < list.length; i++) {
      const rank = merges.findLastIndex(([a, b]) => a === list[i] && b === list[i + 1])
      if (rank >= 0 && rank < best) {
        best = rank
        place = i
      }
    }
    if (place < 0) return list
    list.splice(place, 2, merges[best]![2])
  }
}

/**
 * Texts of tokens are unique, so merges make tokens by concatenation; ranks are in any order, and pairs may
 * come twice.
 */
const vocabularies = fc.array(fc.tuple(fc.nat(), fc.nat()), { minLength: 1, maxLength: 40 }).chain(picks => {
  const texts = ['a', 'b', 'c']
  const merges: Merge[] = []
  for (const [i, j] of picks) {
    const left = i % texts.length
    const right = j % texts.length
    const text = texts[left]! + texts[right]!
    if (text.length > 40) continue
    if (!texts.includes(text)) texts.push(text)
    merges.push([left, right, texts.indexOf(text)])
  }
  return fc.shuffledSubarray(merges, { minLength: merges.length }).map(shuffled => ({ merges: shuffled }))
})

t.test('short and long pieces merge in the order of rank and place', async t => {
  const agrees = fc.property(vocabularies, fc.array(fc.nat(2), { maxLength: 120 }), ({ merges }, symbols) => {
    assert.deepEqual(merged(mergerOf(merges), symbols), mergedSimply(merges, symbols))
  })
  t.doesNotThrow(() => fc.assert(agrees, { numRuns: 1500 }))
})

t.test('steps grow no faster than the length and its logarithm on the worst texts', async t => {
  // a, aa, aaaa … up to 64, and all pairs of a and b: what makes queues long and merges deep.
  const merges: Merge[] = []
  let id = 2
  for (let last = 0, i = 0; i < 6; i++, last = id++) merges.push([last, last, id])
  for (const [a, b] of [
    [0, 1],
    [1, 0],
    [1, 1],
  ] as const)
    merges.push([a, b, id++])
  const texts: Readonly<Record<string, (i: number) => number>> = {
    'one letter': () => 0,
    'two in turn': i => i & 1,
    'two at random': i => (Math.imul(i, 0x9e3779b1) >>> 13) & 1,
    'runs of all lengths': i => Math.floor(Math.sqrt(i)) & 1,
    'rank falls to the right': i => (i % 67 === 0 ? 1 : 0),
  }
  for (const [name, unit] of Object.entries(texts)) {
    const perSymbol = [4096, 262_144].map(length => {
      const merger = mergerOf(merges)
      merger.merge(
        Int32Array.from({ length }, (_, i) => unit(i)),
        length,
      )
      return merger.counts.steps / length
    })
    // 64 times the length: 18 levels of a binary heap instead of 12; here of four children each.
    t.ok(perSymbol[1]! < perSymbol[0]! * 1.6 + 2, `${name}: ${perSymbol.join(' then ')} steps a symbol`)
    t.ok(perSymbol[1]! < 60, `${name}: ${perSymbol[1]} steps a symbol`)
  }
})

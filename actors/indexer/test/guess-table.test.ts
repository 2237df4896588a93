/**
 * The table of guesses against its definition: a list that is sorted whenever entries must go.
 */

import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { BUCKET_MS, GuessTable } from '../src/guess-table.ts'

/** Blocks of a prompt; each is named by the letters up to it. */
function hashes(prompt: string): Int32Array {
  const words = new Int32Array(prompt.length * 2)
  for (let i = 0; i < prompt.length; i++) {
    // Few values of the low words, so that entries share places.
    let name = 7
    for (const letter of prompt.slice(0, i + 1)) name = (Math.imul(name, 31) + letter.charCodeAt(0)) | 0
    words[2 * i] = name & 3
    words[2 * i + 1] = name
  }
  return words
}

class NaiveTable {
  readonly blocks = new Map<string, { expiryMs: number; depth: number }>()

  add(prompt: string, expiryMs: number): number {
    const bucketMs = Math.ceil(expiryMs / BUCKET_MS) * BUCKET_MS
    let known = 0
    for (let depth = 0; depth < prompt.length; depth++) {
      const name = prompt.slice(0, depth + 1)
      const block = this.blocks.get(name)
      if (block === undefined) this.blocks.set(name, { expiryMs: bucketMs, depth })
      else {
        known++
        block.expiryMs = Math.max(block.expiryMs, bucketMs)
      }
    }
    return known
  }

  /** Names in the order in which they go; those that are equal in both may go in any order. */
  inOrder(): string[] {
    const list = [...this.blocks].sort(([, a], [, b]) => a.expiryMs - b.expiryMs || b.depth - a.depth)
    return list.map(([name]) => name)
  }

  expire(nowMs: number): void {
    for (const [name, { expiryMs }] of this.blocks) if (expiryMs <= nowMs) this.blocks.delete(name)
  }

  isStranded(): boolean {
    return [...this.blocks.keys()].some(name => name.length > 1 && !this.blocks.has(name.slice(0, -1)))
  }
}

const key = (low: number, high: number): string => `${low},${high}`

function keyOf(name: string): string {
  const words = hashes(name)
  return key(words.at(-2)!, words.at(-1)!)
}

function keysOf(words: Int32Array, count: number): string[] {
  return Array.from({ length: count }, (_, i) => key(words[2 * i]!, words[2 * i + 1]!))
}

const prompts = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 9 })
const steps = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ add: prompts, ttlMs: fc.constantFrom(50, 400, 1200) }) },
    { weight: 2, arbitrary: fc.record({ waitMs: fc.nat(500) }) },
    { weight: 1, arbitrary: fc.record({ pruneTo: fc.nat(12) }) },
  ),
  { minLength: 1, maxLength: 60, size: 'max' },
)

t.test('holds what the list holds, whatever was added, has expired or was pruned, in any slices', async t => {
  const property = fc.property(steps, fc.integer({ min: 1, max: 5 }), (history, slice) => {
    const table = new GuessTable()
    const naive = new NaiveTable()
    const held = new Set<string>()
    const everAdded = new Set<string>()
    const into = new Int32Array(2 * slice)
    let nowMs = 0
    const drop = (taken: number): void => {
      for (const name of keysOf(into, taken)) assert.ok(held.delete(name), 'what goes was there')
    }
    for (const step of history) {
      if ('add' in step) {
        assert.equal(
          table.add(hashes(step.add), step.add.length, nowMs + step.ttlMs),
          naive.add(step.add, nowMs + step.ttlMs),
        )
        for (const name of keysOf(hashes(step.add), step.add.length)) held.add(name)
        for (let end = 1; end <= step.add.length; end++) everAdded.add(step.add.slice(0, end))
      } else if ('waitMs' in step) {
        nowMs += step.waitMs
        naive.expire(nowMs)
        for (let taken = -1; taken !== 0; ) {
          taken = table.takeExpired(nowMs, into)
          drop(taken)
          assert.ok(!isStranded(held, everAdded), 'nothing is stranded between two slices')
        }
      } else {
        const goes = naive.inOrder().slice(0, Math.max(0, naive.blocks.size - step.pruneTo))
        table.pruneTo(step.pruneTo)
        const gone: string[] = []
        for (let taken = -1; taken !== 0; ) {
          taken = table.takePruned(into)
          gone.push(...keysOf(into, taken))
          drop(taken)
          assert.ok(!isStranded(held, everAdded), 'nothing is stranded between two slices')
          table.audit()
        }
        const kind = (name: string) => {
          const { expiryMs, depth } = naive.blocks.get(name)!
          return `${expiryMs} ${depth}`
        }
        const names = new Map([...naive.blocks.keys()].map(name => [keyOf(name), name]))
        const goneNames = gone.map(name => names.get(name)!)
        assert.deepEqual(goneNames.map(kind).sort(), goes.map(kind).sort())
        for (const name of goneNames) naive.blocks.delete(name)
        assert.equal(table.isPruning, false)
      }
      table.audit()
      assert.deepEqual([...held].sort(), [...naive.blocks.keys()].map(keyOf).sort())
      assert.equal(table.size, naive.blocks.size)
      assert.ok(!naive.isStranded())
      const next = Math.min(...[...naive.blocks.values()].map(({ expiryMs }) => expiryMs))
      assert.equal(table.nextExpiryMs, next === Number.POSITIVE_INFINITY ? undefined : next)
    }
  })
  t.doesNotThrow(() => fc.assert(property, { numRuns: 300 }))
})

/** Whether something is held below a block that is not. */
function isStranded(held: ReadonlySet<string>, names: ReadonlySet<string>): boolean {
  return [...names].some(
    name => name.length > 1 && held.has(keyOf(name)) && !held.has(keyOf(name.slice(0, -1))),
  )
}

t.test('a table that was emptied is as good as new, at any size', async t => {
  const table = new GuessTable()
  const count = 3000
  const words = Int32Array.from({ length: 2 * count }, (_, i) => Math.imul(i, 0x9e3779b1))
  for (let round = 0; round < 3; round++) {
    t.equal(table.add(words, count, 1000), 0)
    t.equal(table.add(words, count, 1000), count)
    const into = new Int32Array(2 * count)
    t.equal(table.takeExpired(999, into), 0)
    t.equal(table.takeExpired(1000, into), count)
    t.equal(table.size, 0)
    table.audit()
  }
  t.ok(table.bytes <= 4096 * 32)
})

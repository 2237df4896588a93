/** What is kept of selections, against a list of them. */

import assert from 'node:assert/strict'
import type { RoutingRequest } from '@homing/placement'
import fc from 'fast-check'
import t from 'tap'
import { type PendingSelection, PendingSelections } from '../src/pending-selections.ts'

const TTL_MS = 100
/** Beside the hashes, with the texts of `selectionOf`. */
const ENTRY = 512 + 2 * 7

const REQUEST: Omit<RoutingRequest, 'requestId' | 'localHashes' | 'sequenceHashes'> = {
  model: 'm:g',
  promptTokens: 1,
  blockSizeTokens: 1,
  unknownPromptReason: undefined,
  textBlocksReason: undefined,
  override: {},
  pinnedInstanceId: undefined,
  pinnedRank: undefined,
  excludedWorkers: [],
}

function selectionOf(selectionId: string, blocks: number): PendingSelection {
  return {
    selectionId,
    model: 'm',
    group: 'g',
    rank: undefined as never,
    request: {
      ...REQUEST,
      requestId: selectionId,
      localHashes: new Int32Array(blocks),
      sequenceHashes: new Int32Array(blocks),
    },
    prefillTokens: blocks,
  }
}

const steps = fc.array(
  fc.oneof(
    fc.record({
      do: fc.constant('keep' as const),
      id: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
      blocks: fc.integer({ min: 0, max: 120 }),
    }),
    fc.record({ do: fc.constant('forget' as const), id: fc.constantFrom('a', 'b', 'c') }),
    fc.record({ do: fc.constant('wait' as const), ms: fc.integer({ min: 1, max: 60 }) }),
  ),
  { maxLength: 60 },
)

t.test('the newest that have room are kept for their time, whatever happens', async t => {
  const agree = fc.property(steps, list => {
    let nowMs = 0
    const bounds = { ttlMs: TTL_MS, entriesMax: 3, bytesMax: 3 * ENTRY + 1200 }
    const pending = new PendingSelections(bounds, () => nowMs)
    let kept: { readonly id: string; readonly blocks: number; readonly keptMs: number }[] = []
    const bytesOf = ({ blocks }: { readonly blocks: number }) => ENTRY + 8 * blocks
    const bytes = () => kept.reduce((sum, one) => sum + bytesOf(one), 0)
    for (const step of list) {
      if (step.do === 'wait') nowMs += step.ms
      else if (step.do === 'forget') {
        pending.forget(step.id)
        kept = kept.filter(({ id }) => id !== step.id)
      } else {
        kept = kept.filter(({ id, keptMs }) => id !== step.id && nowMs - keptMs < TTL_MS)
        pending.keep(selectionOf(step.id, step.blocks))
        kept.push({ id: step.id, blocks: step.blocks, keptMs: nowMs })
        while (kept.length > bounds.entriesMax || bytes() > bounds.bytesMax) kept.shift()
      }
      kept = kept.filter(({ keptMs }) => nowMs - keptMs < TTL_MS)
      pending.expire()
      assert.equal(pending.count, kept.length)
      assert.equal(pending.bytes, bytes())
      for (const id of ['a', 'b', 'c', 'd', 'e'])
        assert.equal(pending.find(id)?.prefillTokens, kept.find(one => one.id === id)?.blocks)
    }
  })
  t.doesNotThrow(() => fc.assert(agree))
})

t.test('one that is larger than all the room is not kept', async t => {
  const pending = new PendingSelections({ ttlMs: 1, entriesMax: 9, bytesMax: 600 }, () => 0)
  pending.keep(selectionOf('a', 1))
  pending.keep(selectionOf('b', 100))
  t.ok(pending.find('a'))
  t.equal(pending.find('b'), undefined)
  t.strictSame(pending.lost, { expired: 0, evicted: 1 })
})

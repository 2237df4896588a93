import assert from 'node:assert/strict'
import { statSync } from 'node:fs'
import { readTrace, TRACE_BLOCK_TOKENS } from '@homing/trace'
import t from 'tap'
import { makeTrace, sessionPrompt, sessions, traceTokens } from '../src/workloads.ts'

const FIXTURE = new URL('../fixtures/small-trace.jsonl.gz', import.meta.url).pathname

t.test('the committed trace is small, and is what its script makes', async t => {
  t.ok(statSync(FIXTURE).size <= 60_000)
  assert.deepEqual(readTrace(FIXTURE), makeTrace({ seed: 512, requests: 1000 }))
})

t.test('the trace is a tree: an id has one parent and one depth, and lengths fit', async t => {
  const parents = new Map<number, number>()
  const depths = new Map<number, number>()
  let next = 0
  let reusedTokens = 0
  let inputTokens = 0
  for (const request of readTrace(FIXTURE)) {
    assert.equal(request.hashIds.length, Math.ceil(request.inputTokens / TRACE_BLOCK_TOKENS))
    for (const [depth, id] of Array.from(request.hashIds).entries()) {
      const parent = request.hashIds[depth - 1] ?? -1
      if (parents.has(id)) reusedTokens += TRACE_BLOCK_TOKENS
      else assert.equal(id, next++, 'ids are numbered in order of first appearance')
      assert.equal(parents.get(id) ?? parent, parent)
      assert.equal(depths.get(id) ?? depth, depth)
      parents.set(id, parent)
      depths.set(id, depth)
    }
    inputTokens += request.inputTokens
  }
  const share = reusedTokens / inputTokens
  t.ok(share > 0.25 && share < 0.75, `about half of the prompt tokens came before: ${share.toFixed(2)}`)
})

t.test('prompts share exactly the tokens of their common ids', async () => {
  const requests = readTrace(FIXTURE).slice(0, 200)
  for (const [i, a] of requests.entries()) {
    const b = requests[(i * 7 + 1) % requests.length]!
    if (a === b) continue
    const left = traceTokens(a)
    const right = traceTokens(b)
    assert.equal(left.length, a.inputTokens)
    let ids = 0
    while (ids < a.hashIds.length && a.hashIds[ids] === b.hashIds[ids]) ids++
    const shared = Math.min(ids * TRACE_BLOCK_TOKENS, left.length, right.length)
    assert.deepEqual(left.subarray(0, shared), right.subarray(0, shared))
    const next = left.subarray(shared, shared + 16)
    if (next.length === 16) assert.notDeepEqual(next, right.subarray(shared, shared + 16))
  }
})

t.test('sessions are a function of the seed; a turn begins with the turn before and its answer', async t => {
  const options = { seed: 9, sessions: 20, systemPrompts: 4 }
  const all = [...sessions(options)]
  // Not tap's comparison: it writes out differences of large arrays, which takes minutes.
  assert.deepEqual([...sessions(options)], all)
  assert.notDeepEqual([...sessions({ ...options, seed: 10 })], all)
  t.equal(new Set(all.map(session => session.systemPrompt)).size <= 4, true)
  const long = all.find(session => session.turns.length >= 3)!
  const answers = [
    [1, 2, 3],
    [4, 5],
  ]
  const second = sessionPrompt(long, 1, answers)
  const third = sessionPrompt(long, 2, answers)
  assert.deepEqual(third.subarray(0, second.length), second)
  t.strictSame([...third.subarray(second.length, second.length + 2)], [4, 5])
})

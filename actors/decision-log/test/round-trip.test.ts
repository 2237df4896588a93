/**
 * What is logged and read again has the same lengths, and prompts begin alike exactly where their blocks were
 * the same.
 */

import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createTestSystem } from '@homing/actor/testing'
import { readDecisionLog } from '@homing/trace'
import fc from 'fast-check'
import t from 'tap'
import { decisionLog } from '../src/index.ts'
import { ARGS, ASK, BLOCK, settled } from './log-world.ts'

/** A request: its prompt, a letter for each block, and how long it takes. */
interface Sent {
  readonly letters: string
  readonly atMs: number
  readonly totalMs: number
  /** Tokens behind the last full block. */
  readonly rest: number
}

const sent: fc.Arbitrary<Sent> = fc.record({
  letters: fc.stringMatching(/^[ab]{0,3}[a-d]{0,4}$/),
  atMs: fc.integer({ min: 0, max: 10_000 }),
  totalMs: fc.integer({ min: 0, max: 5000 }),
  rest: fc.integer({ min: 0, max: BLOCK - 1 }),
})

/** Writes the lives of a log into a folder, one after the other, each request when it is settled. */
async function write(path: string, lives: readonly (readonly Sent[])[], fileBytesMax: number): Promise<void> {
  for (const [life, requests] of lives.entries()) {
    const system = createTestSystem({ random: randomOf(life) })
    const args = { ...ARGS, path, fileBytesMax, filesMax: 1000 }
    const ref = system.spawn(decisionLog, { name: 'log', args })
    const originMs = system.clock.wallMs()
    const inOrderOfEnd = requests.toSorted((a, b) => a.atMs + a.totalMs - b.atMs - b.totalMs)
    for (const [number, { letters, atMs, totalMs, rest }] of inOrderOfEnd.entries()) {
      const promptTokens = letters.length * BLOCK + rest
      const request = settled(letters, { promptTokens, arrivedAtMs: originMs + atMs, totalMs })
      ref.tell({ type: 'settled', request, number })
    }
    assert.equal(await ref.ask({ type: 'flush' }, ASK), true)
    await system.shutdown()
  }
}

/** Each life has a name of its own. */
function randomOf(life: number) {
  return { next: () => 0.5, below: () => 0, bytes: (count: number) => new Uint8Array(count).fill(life) }
}

function commonLength(a: ArrayLike<number | string>, b: ArrayLike<number | string>): number {
  let length = 0
  while (length < a.length && length < b.length && a[length] === b[length]) length++
  return length
}

t.test('lengths and prefixes survive, over files and lives', async t => {
  const outer = await mkdtemp(join(tmpdir(), 'homing-decisions-'))
  t.teardown(() => rm(outer, { recursive: true }))
  let runs = 0
  const same = fc.asyncProperty(
    fc.array(fc.array(sent, { maxLength: 12 }), { minLength: 1, maxLength: 3 }),
    fc.integer({ min: 100, max: 3000 }),
    async (lives, fileBytesMax) => {
      const folder = join(outer, String(runs++))
      await mkdir(folder)
      await write(join(folder, 'log'), lives, fileBytesMax)
      const names = await readdir(folder)
      const { requests, cuts, droppedRequests } = await readDecisionLog(names.map(name => join(folder, name)))
      assert.deepEqual([cuts, droppedRequests], [[], 0])
      const expected = lives
        .flatMap((life, number) => life.map(request => ({ ...request, life: number })))
        .sort((a, b) => a.atMs - b.atMs)
      assert.deepEqual(
        requests.map(({ timestampMs }) => timestampMs),
        expected.map(({ atMs }) => atMs),
      )
      const shown = (letters: string, tokens: number, totalMs: number) =>
        `${letters.length} ${tokens} ${totalMs}`
      assert.deepEqual(
        requests
          .map(({ inputTokens, totalMs }) =>
            shown('x'.repeat(Math.floor(inputTokens / BLOCK)), inputTokens, totalMs),
          )
          .sort(),
        expected
          .map(({ letters, rest, totalMs }) => shown(letters, letters.length * BLOCK + rest, totalMs))
          .sort(),
      )
      // By what makes a request unique as far as the log goes: prefixes of every pair.
      const pairs = (all: readonly { readonly key: string; readonly path: ArrayLike<number | string> }[]) =>
        all
          .flatMap((a, i) =>
            all.slice(i + 1).map(b => `${[a.key, b.key].sort().join()}: ${commonLength(a.path, b.path)}`),
          )
          .sort()
      assert.deepEqual(
        pairs(
          requests.map(({ timestampMs, inputTokens, totalMs, hashIds }) => ({
            key: `${timestampMs} ${inputTokens} ${totalMs}`,
            path: Array.from(hashIds).slice(0, Math.floor(inputTokens / BLOCK)),
          })),
        ),
        pairs(
          expected.map(({ atMs, letters, rest, totalMs, life }) => ({
            key: `${atMs} ${letters.length * BLOCK + rest} ${totalMs}`,
            path: [...letters].map(letter => `${life}${letter}`),
          })),
        ),
      )
    },
  )
  await fc.assert(same, { numRuns: 12 })
  t.ok(runs >= 12)
})

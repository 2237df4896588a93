/**
 * Plays a recorded session of vLLM 0.32 through the engine model and compares every event batch: the same
 * stores and removals in the same order and the same batches, with hashes that stand for each other one to
 * one.
 */

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { decodeKvBatch, type KvBatch } from '@homing/protocol'
import t from 'tap'
import {
  BlockManager,
  type CacheEvent,
  DEFAULT_VOCABULARY,
  EngineModel,
  timingProfile,
} from '../src/index.ts'

const CAPTURE = new URL('../../../../shared/engines/captures/vllm-0.32.0-int.jsonl', import.meta.url)
/** From here on the recording has requests whose token ids it does not tell. */
const SCENARIO_END = 'chat'
const BLOCK_SIZE = 32
const BLOCKS = 66
const STEP_TOKENS_MAX = 512

interface Recorded {
  readonly id: number
  readonly prompts: readonly (readonly number[])[]
  readonly body: Readonly<Record<string, unknown>>
  readonly headers: Readonly<Record<string, string>>
  outputs: readonly (readonly number[])[]
  cachedTokens: number
}

t.test(
  'a recorded session of vLLM gives the same batches here',
  { skip: !existsSync(CAPTURE) && 'no recorded engine sessions' },
  async t => {
    const { groups, batches } = readCapture()
    const blocks = new BlockManager({ blockSizeTokens: BLOCK_SIZE, blockCount: BLOCKS, hashSeed: 4 })
    const model = new EngineModel({
      blocks,
      profile: timingProfile('h100-8b'),
      stepTokensMax: STEP_TOKENS_MAX,
      sequencesMax: 256,
      vocabulary: DEFAULT_VOCABULARY,
    })
    const published: CacheEvent[][] = []
    for (const group of groups) {
      const cached = new Map<string, number>()
      for (const recorded of group) submit(model, recorded)
      while (model.startStep() !== undefined) {
        const { tokens, events } = model.finishStep()
        for (const token of tokens) cached.set(token.id, token.cachedTokens)
        if (events.length > 0) published.push([...events])
      }
      const ours = [...cached.values()].reduce((sum, tokens) => sum + tokens, 0)
      t.equal(
        ours,
        group.reduce((sum, recorded) => sum + recorded.cachedTokens, 0),
        `cached tokens of request ${group.map(({ id }) => id).join(', ')}`,
      )
    }
    t.equal(published.length, batches.length)
    t.ok(batches.length > 15)

    const theirs = new Map<string, string>()
    const ourHashes = new Set<string>()
    const same = (our: string, their: string): void => {
      const known = theirs.get(their)
      assert.ok(known === undefined ? !ourHashes.has(our) : known === our, 'hashes stand for each other')
      theirs.set(their, our)
      ourHashes.add(our)
    }
    for (const [i, batch] of batches.entries()) {
      const events = published[i]!
      assert.deepEqual(
        events.map(event => event.type),
        batch.events.map(event => event.kind),
        `batch ${i}`,
      )
      for (const [n, event] of events.entries()) {
        const recorded = batch.events[n]!
        if (event.type === 'removed' && recorded.kind === 'removed') {
          assert.equal(recorded.hashes.length, 2)
          same(event.hash.join(), recorded.hashes.join())
        }
        if (event.type !== 'stored' || recorded.kind !== 'stored') continue
        assert.deepEqual(event.tokenIds, recorded.tokens)
        assert.equal(event.hashes.length, recorded.hashes.length)
        assert.equal(event.namespace.cacheSalt, recorded.cacheSalt)
        assert.equal(event.sessionId, recorded.sessionId)
        assert.equal(event.parentHash === undefined, recorded.parent === undefined)
        if (event.parentHash !== undefined) same(event.parentHash.join(), recorded.parent!.join())
        for (let h = 0; h < event.hashes.length; h += 2) {
          same(event.hashes.subarray(h, h + 2).join(), recorded.hashes.subarray(h, h + 2).join())
        }
      }
    }
  },
)

function submit(model: EngineModel, { id, prompts, body, headers, outputs }: Recorded): void {
  const choices = Number(body['n'] ?? 1)
  for (const [p, promptIds] of prompts.entries()) {
    for (let n = 0; n < choices; n++) {
      model.submit({
        id: `${id}/${p}/${n}`,
        promptIds,
        outputTokens: Number(body['max_tokens']),
        namespace: { cacheSalt: body['cache_salt'] as string | undefined },
        seed: 0,
        sessionId: (body['session_id'] ?? headers['X-Session-ID']) as string | undefined,
        reportFull: body['vllm_xargs'] !== undefined,
        outputIds: outputs[p * choices + n]!,
      })
    }
  }
}

/** Requests that were under way together form a group. */
function readCapture(): { groups: Recorded[][]; batches: KvBatch[] } {
  const groups: Recorded[][] = []
  const batches: KvBatch[] = []
  const open = new Map<number, Recorded>()
  for (const line of readFileSync(CAPTURE, 'utf8').trim().split('\n')) {
    const entry = JSON.parse(line)
    if (entry.kind === 'scenario' && entry.scenario === SCENARIO_END) break
    if (entry.kind === 'request' && entry.body?.prompt !== undefined) {
      const { prompt } = entry.body
      const recorded: Recorded = {
        id: entry.id,
        prompts: Array.isArray(prompt[0]) ? prompt : [prompt],
        body: entry.body,
        headers: entry.headers ?? {},
        outputs: [],
        cachedTokens: 0,
      }
      if (open.size === 0) groups.push([])
      open.set(entry.id, recorded)
      groups.at(-1)!.push(recorded)
    } else if (entry.kind === 'response') {
      const recorded = open.get(entry.id)
      if (recorded === undefined) continue
      open.delete(entry.id)
      recorded.outputs = entry.token_ids ?? []
      recorded.cachedTokens = entry.usage?.prompt_tokens_details.cached_tokens ?? 0
      if (entry.status !== 200) groups.pop()
    } else if (entry.kind === 'pub') {
      batches.push(decodeKvBatch(Buffer.from(entry.frames[2], 'hex')))
    }
  }
  return { groups, batches }
}

/**
 * Prompts of token ids for the tests of faults: sent whole, to an engine of the test's choice, and never
 * credited with more than was reused.
 */

import assert from 'node:assert/strict'
import { seededRandom } from '@homing/base'
import { type Answer, type Fleet, type RouterClient, until } from './fleet.ts'

export const MODEL = 'homing-sim'

/** Ten full blocks and a bit; equal seeds, equal prompts. */
export function promptOf(seed: number, tokens = 165): number[] {
  const random = seededRandom(seed)
  return Array.from({ length: tokens }, () => 33 + random.below(90))
}

/**
 * One unstreamed completion, which must succeed, and whose predicted overlap must not exceed what the engine
 * reused.
 */
export async function complete(
  fleet: RouterClient,
  prompt: readonly number[],
  more: object = {},
): Promise<Answer> {
  const answer = await fleet.send('/v1/completions', {
    body: { model: MODEL, prompt, max_tokens: 2, ...more },
  })
  assert.equal(answer.status, 200, answer.text)
  const cached = answer.json.usage.prompt_tokens_details?.cached_tokens ?? 0
  const predicted = Number(answer.headers['x-homing-overlap-blocks']) * 16
  assert.ok(predicted <= cached, `${predicted} tokens were credited, ${cached} were there`)
  return answer
}

/** What was sent is entered on another thread: resolves when `blocks` of it count at the worker. */
export async function counts(
  fleet: RouterClient,
  worker: string | undefined,
  body: object,
  blocks: number,
): Promise<void> {
  let seen: unknown
  await until(
    `${blocks} blocks count at ${worker}`,
    async () => {
      const { json } = await fleet.send('/route', { body: { model: MODEL, ...body } })
      const candidates = json.candidates as readonly { worker: string; overlap_blocks: number }[]
      seen = candidates.map(({ worker, overlap_blocks }) => [worker, overlap_blocks])
      const overlap = candidates.find(one => one.worker === worker)?.overlap_blocks ?? 0
      return overlap >= blocks ? true : undefined
    },
    { seen: () => seen },
  )
}

/** What sends a request to this engine of a fleet. */
export const pin = (fleet: Fleet, engine: number): Promise<{ nvext: { backend_instance_id: number } }> =>
  fleet
    .worker(fleet.engines[engine]!.url)
    .then(({ instance_id }) => ({ nvext: { backend_instance_id: instance_id } }))

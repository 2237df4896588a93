/** What Prometheus' own tools say of /metrics, of a router and an indexer under load. */

import { spawnSync } from 'node:child_process'
import t from 'tap'
import { MODEL } from '../simulation/simulated-fleet.ts'
import { startFleet } from './fleet.ts'

const HAS_PROMTOOL = spawnSync('promtool', ['--version']).status === 0
const prompt = (seed: number): number[] =>
  Array.from({ length: 96 }, (_, at) => 40 + ((seed * 31 + at * 7) % 80))

t.test(
  'promtool finds nothing',
  { skip: HAS_PROMTOOL ? false : 'promtool (Debian: prometheus) is not installed' },
  async t => {
    const fleet = await startFleet({ engines: [{}, {}] })
    t.teardown(() => fleet.stop())
    for (let i = 0; i < 6; i++) {
      const body = { model: MODEL, prompt: prompt(i % 3), max_tokens: 4, stream: i % 2 === 0 }
      t.equal((await fleet.send('/v1/completions', { body })).status, 200)
    }
    t.equal((await fleet.send('/v1/completions', { body: '{' })).status, 400)
    const { text } = await fleet.send('/metrics')
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: text,
      encoding: 'utf8',
    })
    t.equal(`${stdout}${stderr}`, '')
    t.equal(status, 0)
  },
)

t.test('the figures of requests add up', async t => {
  const fleet = await startFleet({ engines: [{}] })
  t.teardown(() => fleet.stop())
  const count = 5
  for (let i = 0; i < count; i++) {
    const body = {
      model: MODEL,
      prompt: prompt(1),
      max_tokens: 4,
      stream: true,
      stream_options: { include_usage: true },
    }
    t.equal((await fleet.send('/v1/completions', { body })).status, 200)
    await fleet.caughtUp(fleet.engines)
  }
  const { text } = await fleet.send('/metrics')
  const value = (sample: string): number => {
    const line = text.split('\n').find(each => each.startsWith(`${sample} `))
    t.ok(line, sample)
    return Number(line?.split(' ').at(-1))
  }
  const by = `{model="${MODEL}"}`
  t.equal(value(`homing_request_started_total${by}`), count)
  t.equal(value(`homing_request_first_token_seconds_count${by}`), count)
  t.equal(value(`homing_request_prompt_tokens_sum${by}`), 96 * count)
  t.equal(value(`homing_request_output_tokens_sum${by}`), 4 * count)
  // The last token of a prompt is always computed, so the last of its six blocks is not reused.
  t.equal(value(`homing_request_cached_tokens_total${by}`), 80 * (count - 1))
  for (const stage of ['read', 'tokenize', 'place', 'lookup', 'decide', 'call'])
    t.equal(value(`homing_request_stage_seconds_count{stage="${stage}"}`), count, stage)
})

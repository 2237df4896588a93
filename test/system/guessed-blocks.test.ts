/**
 * If the events of an engine or the tokens of a prompt are unknown, the requests sent to the engine count.
 */

import assert from 'node:assert/strict'
import t, { type Test } from 'tap'
import { type Fleet, startFleet } from './fleet.ts'
import { complete, counts, MODEL, pin, promptOf } from './pinned-prompts.ts'

/** Its costs know nothing of time: on a machine that is busy an engine may be slow by chance. */
const LINEAR = ['--router-policy', 'linear']

t.test('a prompt that nobody can tokenize goes where its text went before', async t => {
  const fleet = await startFleet({ engines: [{}, {}, {}], router: LINEAR })
  t.teardown(() => fleet.stop())
  const system = (topic: number) => ({ role: 'system', content: `Topic ${topic}. `.repeat(60) })
  const bodyOf = (topic: number, turns: number, more: object = {}) => {
    const users = Array.from({ length: turns }, (_, turn) => ({ role: 'user', content: `Turn ${turn}?` }))
    const messages = [system(topic), ...users]
    // What /tokenize does not know, so that no engine is asked.
    return { model: MODEL, messages, max_tokens: 2, reasoning_effort: 'low', ...more }
  }
  const ask = async (topic: number, turns: number, more: object = {}) => {
    const answer = await fleet.send('/v1/chat/completions', { body: bodyOf(topic, turns, more) })
    assert.equal(answer.status, 200, answer.text)
    t.equal(answer.headers['x-homing-trust'], 'approximate')
    return answer
  }
  const before: (string | undefined)[] = []
  for (let topic = 1; topic <= 5; topic++) {
    const answer = await ask(topic, 1, await pin(fleet, topic % 3))
    t.equal(answer.headers['x-homing-overlap-blocks'], '0')
    before.push(answer.headers['x-homing-worker'])
  }
  for (let topic = 1; topic <= 5; topic++) {
    await counts(fleet, before[topic - 1], bodyOf(topic, 2), 6)
    const answer = await ask(topic, 2)
    t.equal(answer.headers['x-homing-worker'], before[topic - 1])
    t.ok(Number(answer.headers['x-homing-overlap-blocks']) > 5)
    t.ok(answer.json.usage.prompt_tokens_details.cached_tokens > 0, 'and the engine has it')
  }
})

t.test('where the event port is closed, what was sent to an engine counts', async t => {
  const fleet = await startFleet({
    engines: [{}, {}],
    workerQuery: ({ ranks }) => `?events=${ranks[0]!.replayPort! + 1}&replay=${ranks[0]!.replayPort! + 2}`,
    router: LINEAR,
    trust: 'approximate',
  })
  t.teardown(() => fleet.stop())
  await sendsAgainToTheSame(t, fleet)
  const { trust_reason: reason } = (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!
  t.match(reason, /guesses from sent requests count$/)
})

for (const [name, engine, router] of [
  ['an engine that does not publish', { publishesEvents: false }, []],
  ['a router that wants no events', {}, ['--no-kv-events']],
] as const) {
  t.test(`${name}: what was sent to an engine counts, and is shown`, async t => {
    const fleet = await startFleet({
      engines: [engine, engine, engine],
      router: [...LINEAR, ...router],
      trust: 'approximate',
    })
    t.teardown(() => fleet.stop())
    await sendsAgainToTheSame(t, fleet)
    const metrics = (await fleet.send('/metrics')).text
    t.match(metrics, /^homing_index_guessed_blocks\{shard="\d"\} [1-9]/m)
  })
}

t.test(
  'where caches are ignored, no events are heard, nothing is guessed, and requests go by load',
  async t => {
    const router = ['--kv-overlap-score-weight', '0']
    const fleet = await startFleet({ engines: [{}, {}], router, trust: 'none' })
    t.teardown(() => fleet.stop())
    for (let i = 0; i < 3; i++) {
      const { headers } = await complete(fleet, promptOf(1))
      t.equal(headers['x-homing-overlap-blocks'], '0')
      t.equal(headers['x-homing-trust'], 'none')
    }
    const { text } = await fleet.send('/metrics')
    t.match(text, /^homing_index_distinct_blocks\{shard="0"\} 0$/m)
    t.match(text, /^homing_index_guessed_blocks\{shard="0"\} 0$/m)
    t.notMatch(text, /^homing_listener_batches_total\{/m, 'there is no listener')
    const { trust_reason: reason } = (await fleet.worker(fleet.engines[0]!.url)).worker_keys[0]!
    t.match(reason, /^caches are ignored/)
  },
)

/** Prompts go where they went before, with an overlap that the engines confirm. */
async function sendsAgainToTheSame(t: Test, fleet: Fleet): Promise<void> {
  const prompts = [1, 2, 3, 4, 5, 6].map(seed => promptOf(seed))
  const before: (string | undefined)[] = []
  // Ties are broken at random: that the prompts lie on every engine is not left to chance.
  for (const [i, prompt] of prompts.entries()) {
    const answer = await complete(fleet, prompt, await pin(fleet, i % fleet.engines.length))
    before.push(answer.headers['x-homing-worker'])
  }
  t.equal(new Set(before).size, fleet.engines.length)
  for (const [i, prompt] of prompts.entries()) {
    await counts(fleet, before[i], { prompt }, 10)
    const answer = await complete(fleet, prompt)
    t.equal(answer.headers['x-homing-worker'], before[i])
    t.equal(answer.headers['x-homing-overlap-blocks'], '10')
    t.equal(answer.headers['x-homing-trust'], 'approximate')
  }
}

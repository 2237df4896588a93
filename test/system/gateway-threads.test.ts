/**
 * Several gateways on threads of their own, behind one port: all answer alike, their figures add up, and one
 * whose thread dies costs its own connections and nothing else.
 */

import { once } from 'node:events'
import { createServer } from 'node:net'
import t from 'tap'
import { chunksOf, type Fleet, QUICK, send, startFleet, startTestRouter, TINY_TOKENIZER, until } from './fleet.ts'

const MODEL = 'homing-sim'
const THREADS = 2
const ids = (seed: number, count = 96): number[] =>
  Array.from({ length: count }, (_, at) => 40 + ((at * 7 + seed) % 80))

/** Requests each over a connection of its own. */
const closes = true

async function gatewayRequests(fleet: Fleet): Promise<number> {
  const { text } = await fleet.send('/metrics', { closes })
  const found = /^homing_gateway_requests_total\{route="completions",status="200"\} (\d+)$/m.exec(text)
  return Number(found?.[1] ?? 0)
}

/** Messages that the gateways have handled, by the name of each. */
async function handledBy(fleet: Fleet): Promise<ReadonlyMap<string, number>> {
  const { threads } = (await fleet.send('/actors', { closes })).json
  return new Map(
    threads.map(({ thread, handled }: { thread: string; handled: number }) => [thread, handled] as const),
  )
}

t.test('two gateways on one port', async t => {
  const fleet = await startFleet({
    engines: [QUICK, QUICK],
    router: ['--gateway-threads', String(THREADS), '--tokenizer', TINY_TOKENIZER],
  })
  t.teardown(() => fleet.stop())

  await t.test('both serve, with equal answers', async t => {
    const before = await handledBy(fleet)
    const answers = []
    for (let turn = 0; turn < 32; turn++) {
      const body = { model: MODEL, prompt: ids(3), max_tokens: 4, seed: 1 }
      answers.push(await fleet.send('/v1/completions', { body, closes }))
    }
    t.strictSame([...new Set(answers.map(({ status }) => status))], [200])
    t.equal(new Set(answers.map(({ json }) => json.choices[0].text)).size, 1)
    const decisions = new Set(answers.map(({ headers }) => headers['x-homing-decision']))
    t.equal(decisions.size, 32, 'no two decisions have one id')
    const after = await handledBy(fleet)
    for (const thread of ['gateways-0', 'gateways-1'])
      t.ok(after.get(thread)! > before.get(thread)!, `${thread} has served`)
    t.equal(await gatewayRequests(fleet), 32, 'metrics add up')
    const stream = await fleet.send('/v1/completions', {
      body: { model: MODEL, prompt: ids(5), max_tokens: 4, stream: true },
      closes,
    })
    t.ok(chunksOf(stream.text).length > 0)
  })

  await t.test('every route answers at both', async t => {
    for (const path of ['/v1/models', '/workers', '/queue', '/metrics', '/decisions', '/actors', '/ready', '/health']) {
      for (let turn = 0; turn < 6; turn++) t.equal((await fleet.send(path, { closes })).status, 200, path)
    }
  })
})

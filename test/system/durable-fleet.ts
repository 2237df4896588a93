/** For tests of a stream of KV events at a real broker: its engine, work for it, and what must hold. */

import type { EngineSettings } from '@homing/engine'
import type { Test } from 'tap'
import { assertExact, type RouterClient, startEngines, type ThreadEngine } from './fleet.ts'

const MODEL = 'homing-sim'

let turns = 0

/** An engine that publishes into a stream at this broker, and keeps next to nothing itself. */
export async function startDurableEngine(t: Test, address: string): Promise<readonly ThreadEngine[]> {
  const settings: Partial<EngineSettings> = {
    nats: [address],
    natsSubject: 'homing.kv.engine',
    durableKvEvents: true,
    replayBatchesMax: 2,
    blocks: 300,
  }
  const { engines, stop } = await startEngines([settings])
  t.teardown(stop)
  return engines
}

/** Prompts that share beginnings, and a cache too small for all. */
export async function work(router: RouterClient, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const turn = turns++
    const prompt = `conversation ${turn % 13} ${'system prompt '.repeat(20 + (turn % 5))} turn ${turn}`
    const answer = await router.send('/v1/completions', { body: { model: MODEL, prompt, max_tokens: 2 } })
    if (answer.status !== 200) throw new Error(answer.text)
  }
}

export async function isExact(
  t: Test,
  client: RouterClient,
  engines: readonly ThreadEngine[],
): Promise<void> {
  t.ok((await assertExact(client, engines)) > 0, 'the index is that of the caches')
}

/** The value of the metric whose line begins so; 0 without one. */
export async function counter(client: RouterClient, line: string): Promise<number> {
  const { text } = await client.send('/metrics')
  const found = text.split('\n').find(one => one.startsWith(line))
  return found === undefined ? 0 : Number(found.split(' ').at(-1))
}

/** Sessions over real sockets: their requests stay where they began, until that worker fails them. */

import t from 'tap'
import { type Fleet, startFleet } from './fleet.ts'

const MODEL = 'homing-sim'
const BLOCK_SIZE_TOKENS = 16
const HARD = ['--router-session-affinity-ttl-secs', '60', '--router-session-affinity-mode', 'hard']

let marker = 0
/** Prompts that have their beginning in common, and nothing else. */
function prompt(beginning: number): number[] {
  marker++
  const tokens = (count: number, seed: number): number[] =>
    Array.from({ length: count }, (_, at) => 40 + ((seed * 7 + at * (1 + (seed % 5))) % 80))
  return [...tokens(BLOCK_SIZE_TOKENS, 10_000 + beginning), ...tokens(3 * BLOCK_SIZE_TOKENS, marker)]
}

async function workerOf(fleet: Fleet, session: string | undefined, beginning = marker): Promise<string> {
  const answer = await fleet.send('/v1/completions', {
    body: { model: MODEL, prompt: prompt(beginning), max_tokens: 1 },
    headers: session === undefined ? {} : { 'x-dynamo-session-id': session },
  })
  if (answer.status !== 200) throw new Error(answer.text)
  return answer.headers['x-homing-worker']!
}

t.test('requests of a session go to one worker, and after it failed to another one', async t => {
  const fleet = await startFleet({
    engines: [{}, {}, {}],
    router: ['--router-mode', 'round-robin', ...HARD],
  })
  t.teardown(() => fleet.stop())
  const first = await workerOf(fleet, 's')
  const elsewhere = new Set<string>()
  for (let i = 0; i < 6; i++) {
    t.equal(await workerOf(fleet, 's'), first)
    elsewhere.add(await workerOf(fleet, undefined))
  }
  t.ok(elsewhere.size > 1, 'others go on')
  await fleet.engineOf(first).faults({ die: { tokens: 0, requests: 2 } })
  const second = await workerOf(fleet, 's')
  t.not(second, first)
  for (let i = 0; i < 4; i++) t.equal(await workerOf(fleet, 's'), second, 'it does not return')
})

t.test('the beginning of a prompt may stand for the session', async t => {
  const fleet = await startFleet({
    engines: [{}, {}, {}],
    router: ['--router-mode', 'round-robin', ...HARD, '--router-session-prefix-blocks', '1'],
  })
  t.teardown(() => fleet.stop())
  for (const beginning of [1, 2, 3]) {
    const first = await workerOf(fleet, undefined, beginning)
    for (let i = 0; i < 4; i++) t.equal(await workerOf(fleet, undefined, beginning), first)
  }
})

/**
 * Messages that cross mailboxes for one request, on each route, and for each chunk of its answer: counted in
 * a simulation, where nothing else happens. Bytes of answers cross none.
 */

import t from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from './simulated-fleet.ts'

/**
 * Long against every request here, short against what the actors do by themselves: that is counted, and taken
 * off.
 */
const WINDOW_MS = 3000
const REQUESTS = 8

/** Messages that actors handled, by the thread, while `act` ran and until the window was over. */
async function handledWhile(fleet: SimulatedFleet, act: () => Promise<unknown>): Promise<number> {
  const { simulation } = fleet
  const handled = () => simulation.counters().total.handled
  const before = handled()
  const endMs = simulation.clock.nowMs() + WINDOW_MS
  await act()
  await simulation.run(undefined, { within: endMs - simulation.clock.nowMs() })
  return handled() - before
}

t.test('a request costs a handful of messages on each route, and its chunks none', async t => {
  const fleet = await SimulatedFleet.start({
    seed: 1,
    engines: [{ blocks: 100_000, publishesEvents: false }],
  })
  const idle = await handledWhile(fleet, async () => {})
  let marker = 0
  const prompt = () => Array.from({ length: 2 * BLOCK_SIZE_TOKENS }, (_, at) => 40 + ((++marker + at) % 80))
  const cost = async (path: string, body: () => object): Promise<number> => {
    const handled = await handledWhile(fleet, async () => {
      for (let i = 0; i < REQUESTS; i++) {
        const { status } = await fleet.ask({ path }, body())
        t.equal(status, 200, path)
      }
    })
    return (handled - idle) / REQUESTS
  }
  const whole = await cost('/v1/completions', () => ({ model: MODEL, prompt: prompt(), max_tokens: 4 }))
  const stream = (tokens: number) =>
    cost('/v1/completions', () => ({ model: MODEL, prompt: prompt(), max_tokens: tokens, stream: true }))
  const short = await stream(4)
  const long = await stream(68)
  const relayed = await cost('/tokenize', () => ({ model: MODEL, prompt: 'hello' }))
  const perChunk = (long - short) / 64
  t.comment(
    `messages per request: whole ${whole}, stream of 4 ${short}, relayed ${relayed}; per chunk ${perChunk}`,
  )
  t.ok(whole <= WHOLE_MAX, `${whole} messages for an answer that is whole`)
  t.ok(relayed <= WHOLE_MAX, `${relayed} messages for a relayed request`)
  t.ok(perChunk < 0.05, `${perChunk} messages for a chunk`)
  await fleet.stop()
})

/**
 * tokenize, place, decide, its answer, project, book, routed, first byte, settled, free; signs of life, and
 * what settled as it is kept for questions, are shared by several.
 */
const WHOLE_MAX = 11.5

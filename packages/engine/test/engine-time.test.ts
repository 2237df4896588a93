import { SimulatedClock, seededRandom, silentLog } from '@homing/base'
import { MemoryNetwork } from '@homing/transport'
import t from 'tap'
import { byteTokenizer, Engine, type EngineSettings } from '../src/index.ts'

/** An engine on a simulated clock, and when each piece of one streamed answer came. */
async function tokenTimesMs(settings: Partial<EngineSettings>, promptTokens: number, outputTokens: number) {
  const clock = new SimulatedClock()
  const network = new MemoryNetwork({ clock })
  const engine = await Engine.start({
    settings,
    transport: network.transport(),
    tokenizer: byteTokenizer(),
    clock,
    random: seededRandom(1),
    log: silentLog,
  })
  const timesMs: number[] = []
  let isEnded = false
  network.transport().http.call(
    {
      origin: engine.describe().url,
      method: 'POST',
      path: '/v1/completions',
      body: new TextEncoder().encode(
        JSON.stringify({
          prompt: Array.from({ length: promptTokens }, (_, i) => 97 + (i % 26)),
          max_tokens: outputTokens,
          stream: true,
        }),
      ),
    },
    {
      head: () => {},
      data: () => void timesMs.push(clock.nowMs()),
      end: () => {
        isEnded = true
      },
      failed: error => {
        throw error
      },
    },
  )
  for (let turn = 0; turn < 5000 && !isEnded; turn++) {
    // Everything that the last instant set off, then the next timer.
    await new Promise(resolve => setImmediate(resolve))
    if (!isEnded && clock.nextDueMs !== undefined) clock.advance(clock.nextDueMs - clock.nowMs())
  }
  await engine.close()
  return timesMs
}

t.test('tokens come when the profile says, divided by the speed', async t => {
  for (const speed of [1, 10]) {
    const timesMs = await tokenTimesMs({ port: 0, speed }, 2048, 5)
    t.ok(Math.abs(timesMs[0]! * speed - 50.1) < 0.1, `first token at ${timesMs[0]} ms`)
    const gapMs = (timesMs[4]! - timesMs[0]!) / 4
    t.ok(Math.abs(gapMs * speed - 6.6) < 0.1, `then one every ${gapMs} ms`)
  }
})

t.test('at speed 0 no time passes for a short answer', async t => {
  const timesMs = await tokenTimesMs({ port: 0, speed: 0 }, 2048, 5)
  t.equal(timesMs.at(-1), 0)
})

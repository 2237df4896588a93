/**
 * Many streams at once, with engines that are killed at random moments: every client gets an answer, whole
 * ones are those of one piece however many engines had a part in them, none hangs, and nothing stays booked.
 * `HOMING_SIM_SEEDS` sets the rounds (default 20), `HOMING_SIM_SEED` the first seed.
 */

import process from 'node:process'
import { seededRandom } from '@homing/base'
import { byteTokenizer, expectedOutput, outputVocabulary } from '@homing/engine'
import t from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from './simulated-fleet.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const ROUNDS = Number(process.env['HOMING_SIM_SEEDS'] ?? 20)
const STREAMS = 200
/** As SimulatedFleet gives it to its engines. */
const ENGINE_SEED = 1
const TOKENIZER = byteTokenizer()
const VOCABULARY = outputVocabulary(TOKENIZER)
const KILLS = 8
/** Streams begin and engines are killed within this time. */
const BUSY_MS = 1000
const END_MS_MAX = 30_000

for (let seed = FIRST; seed < FIRST + ROUNDS; seed++) {
  t.test(`seed ${seed}: of ${STREAMS} streams none hangs, and nothing stays booked`, async t => {
    const random = seededRandom(seed)
    const fleet = await SimulatedFleet.start({
      seed,
      engines: Array.from({ length: 4 }, () => ({ blocks: 4096, hashSeed: random.below(2 ** 31) })),
      settings: { openRequestsMax: 2 * STREAMS },
    })
    const { simulation, engines } = fleet
    const prefixes = Array.from({ length: 6 }, () => tokens(6 * BLOCK_SIZE_TOKENS))
    function tokens(count: number): number[] {
      return Array.from({ length: count }, () => 33 + random.below(90))
    }
    const outcomes = new Map<string, number>()
    let open = STREAMS
    const wrong: number[] = []
    const ended = (outcome: string): void => {
      open--
      outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
    }
    for (let stream = 0; stream < STREAMS; stream++) {
      const prompt = [...prefixes[random.below(prefixes.length)]!, ...tokens(random.below(40))]
      const ids = random.below(2) === 0 ? { return_token_ids: true } : {}
      const body = { model: MODEL, prompt, max_tokens: 5 + random.below(40), stream: true, ...ids }
      simulation.clock.after(random.next() * BUSY_MS, () => {
        fleet.send({}, body, END_MS_MAX).then(
          reply => {
            const text = Buffer.from(reply.body).toString()
            const end = endOf(reply.status, text)
            ended(end)
            const output = expectedOutput(prompt, body.max_tokens, ENGINE_SEED, VOCABULARY)
            const whole = TOKENIZER.decode(Int32Array.from(output))
            const isSame = 'return_token_ids' in body ? idsOf(text) === output.join() : textOf(text) === whole
            if (end === 'whole' && !isSame) wrong.push(stream)
          },
          (error: { code?: string }) => ended(error.code ?? String(error)),
        )
      })
    }
    for (let kill = 0; kill < KILLS; kill++) {
      const { engine } = engines[random.below(engines.length)]!
      simulation.clock.after(random.next() * BUSY_MS, () => void engine.restart(random.below(300)))
    }
    t.equal(
      await simulation.run(() => open === 0, { within: 2 * END_MS_MAX }),
      'reached',
      `${open} streams hang`,
    )
    await simulation.run(undefined, { within: 2000 })
    for (const { url, worker_keys } of await fleet.workers())
      for (const { load } of worker_keys)
        t.match(load, { active_blocks: 0, prefill_tokens: 0, requests: 0 }, `${url} has nothing booked`)
    t.comment([...outcomes].map(([outcome, count]) => `${outcome}: ${count}`).join(', '))
    t.ok((outcomes.get('whole') ?? 0) > STREAMS / 4, 'most are answered')
    t.strictSame(wrong, [], 'whole streams are those of one piece')
    t.notOk(outcomes.has('cut'), 'no stream ends without a word')
    t.strictSame(await fleet.stop(), [])
  })
}

/** As they are by default. */
const DEFAULTS = {
  ...{ probeIntervalMs: 5000, probeTimeoutMs: 2000, stallTimeoutMs: 10_000 },
  ...{ silenceTimeoutMs: 600_000, requestTimeoutMs: 0 },
}
const LONG_STREAMS = 30
/** So long do they last. */
const LONG_TOKENS = 1500
const LONG_MS_MAX = 60_000

/**
 * Long streams over three engines, of which the first hangs after half a second; what became of the streams,
 * once all are over, and how many went on elsewhere.
 */
async function runWithHang(seed: number, hang: 'all' | 'generation', hangMs: number) {
  const random = seededRandom(seed)
  const engines = Array.from({ length: 3 }, () => ({ blocks: 16_384, hashSeed: 1 }))
  const settings = { openRequestsMax: 2 * LONG_STREAMS, ...DEFAULTS }
  const fleet = await SimulatedFleet.start({ seed, engines, settings })
  const { simulation } = fleet
  const outcomes: { end: string; isExact: boolean; endedMs: number }[] = []
  for (let stream = 0; stream < LONG_STREAMS; stream++) {
    const prompt = Array.from({ length: 40 }, () => 33 + random.below(90))
    // One half cannot be continued.
    const choices = stream % 2 === 0 ? {} : { logprobs: 1 }
    const body = { model: MODEL, prompt, max_tokens: LONG_TOKENS, stream: true, ...choices }
    simulation.clock.after(random.next() * 300, () => {
      void fleet.send({}, body, LONG_MS_MAX).then(reply => {
        const text = Buffer.from(reply.body).toString()
        const end = endOf(reply.status, text)
        const output = expectedOutput(prompt, LONG_TOKENS, ENGINE_SEED, VOCABULARY)
        outcomes.push({
          end: `${stream % 2 === 0 ? 'plain' : 'unfit'}: ${end}`,
          isExact: end === 'whole' && textOf(text) === TOKENIZER.decode(Int32Array.from(output)),
          endedMs: simulation.clock.nowMs(),
        })
      })
    })
  }
  const { engine } = fleet.engines[0]!
  simulation.clock.after(500, () => engine.setFaults({ hang }))
  simulation.clock.after(500 + hangMs, () => engine.setFaults({ hang: 'off' }))
  const isOver = (): boolean => outcomes.length === LONG_STREAMS
  const end = await simulation.run(isOver, { within: 2 * LONG_MS_MAX })
  const metrics = Buffer.from((await fleet.ask({ method: 'GET', path: '/metrics' })).body).toString()
  const placed = /^homing_gateway_continuations_total\{outcome="place"\} (\d+)$/m.exec(metrics)
  const loads = (await fleet.workers()).flatMap(({ worker_keys }) =>
    worker_keys.map(({ load }) => load.requests),
  )
  await fleet.stop()
  return { end, outcomes, continued: Number(placed?.[1] ?? 0), loads }
}

t.test('streams of an engine that is frozen are left within seconds, at the default limits', async t => {
  const { end, outcomes, continued, loads } = await runWithHang(FIRST, 'all', 10 * LONG_MS_MAX)
  t.equal(end, 'reached', `${outcomes.length} of ${LONG_STREAMS} are over`)
  const ends = new Set(outcomes.map(outcome => outcome.end))
  t.strictSame([...ends].sort(), ['plain: whole', 'unfit: error event', 'unfit: whole'])
  for (const { end, isExact, endedMs } of outcomes) {
    t.equal(isExact, end.endsWith('whole'), end)
    // Down by its probes after 20 s, and ten seconds for the others, which have no requests left, to follow.
    t.ok(endedMs < 40_000, `${end} after ${endedMs} ms`)
  }
  t.ok(continued > 2, `${continued} went on elsewhere`)
  t.strictSame(loads, [0, 0, 0])
})

t.test('streams of an engine that is silent, and answers its probes, are not left', async t => {
  const { end, outcomes, continued } = await runWithHang(FIRST, 'generation', 15_000)
  t.equal(end, 'reached', `${outcomes.length} of ${LONG_STREAMS} are over`)
  t.equal(continued, 0)
  for (const { end, isExact } of outcomes) t.ok(end.endsWith('whole') && isExact, end)
})

const DRAINED_REQUESTS = 60
const DRAINED_TOKENS = 200
const DRAIN_SEEDS = 3

t.test('at the limit of its drain a hung engine is rid of all that has begun or waits there', async t => {
  for (let seed = FIRST; seed < FIRST + DRAIN_SEEDS; seed++) {
    const random = seededRandom(seed)
    const engines = Array.from({ length: 3 }, () => ({ blocks: 16_384, hashSeed: 1 }))
    const settings = { openRequestsMax: 2 * DRAINED_REQUESTS, ...DEFAULTS, drainMsMax: 100 }
    const fleet = await SimulatedFleet.start({ seed, engines, settings })
    const { simulation } = fleet
    let over = 0
    for (let request = 0; request < DRAINED_REQUESTS; request++) {
      const prompt = Array.from({ length: 40 }, () => 33 + random.below(90))
      const stream = request % 2 === 0
      const body = { model: MODEL, prompt, max_tokens: DRAINED_TOKENS, stream }
      const output = expectedOutput(prompt, DRAINED_TOKENS, ENGINE_SEED, VOCABULARY)
      simulation.clock.after(random.next() * 300, () => {
        void fleet.send({}, body, LONG_MS_MAX).then(reply => {
          over++
          const text = Buffer.from(reply.body).toString()
          const said = stream ? textOf(text) : JSON.parse(text).choices?.[0]?.text
          t.equal(reply.status, 200)
          t.equal(said, TOKENIZER.decode(Int32Array.from(output)), `request ${request} of seed ${seed}`)
        })
      })
    }
    const { engine, url } = fleet.engines[0]!
    simulation.clock.after(250, () => engine.setFaults({ hang: 'generation' }))
    const drain = { path: `/workers/${url.slice('http://'.length)}/drain` }
    simulation.clock.after(350, () => void fleet.send(drain, undefined, LONG_MS_MAX))
    // Sooner than anything else would have them left.
    const end = await simulation.run(() => over === DRAINED_REQUESTS, { within: 9000 })
    t.equal(end, 'reached', `${over} are over`)
    const metrics = Buffer.from((await fleet.ask({ method: 'GET', path: '/metrics' })).body).toString()
    const countOf = (row: string): number =>
      Number(new RegExp(`^${row} (\\d+)$`, 'm').exec(metrics)?.[1] ?? 0)
    t.ok(countOf(`homing_request_retries_total\\{model="${MODEL}",reason="drained"\\}`) > 0)
    t.ok(countOf('homing_gateway_continuations_total\\{outcome="place"\\}') > 0)
    await fleet.stop()
  }
})

/** Of all events before the last. */
function textOf(stream: string): string {
  return choicesOf(stream)
    .map(({ text = '' }) => text)
    .join('')
}

function idsOf(stream: string): string {
  return choicesOf(stream)
    .flatMap(({ token_ids: ids = [] }) => ids)
    .join()
}

function choicesOf(stream: string): readonly { text?: string; token_ids?: readonly number[] }[] {
  return stream
    .split('\n\n')
    .filter(event => event.startsWith('data: {'))
    .flatMap(event => JSON.parse(event.slice('data: '.length)).choices ?? [])
}

/** As a client sees it. */
function endOf(status: number, text: string): string {
  if (status !== 200) return String(status)
  if (text.includes('data: [DONE]')) return 'whole'
  return text.includes('"error"') ? 'error event' : 'cut'
}

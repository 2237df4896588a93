/**
 * Prefill and decode apart, with both hand-overs, while engines are killed, hang, refuse, break off and are
 * slow, and clients leave: in each state of both legs. Each request ends once, nothing stays booked on either
 * side, and no engine holds a computed prompt past the time in which it may be taken over (vLLM holds one
 * that no decode engine took until then; SGLang likewise its room). `HOMING_SIM_SEEDS` sets the number of
 * seeds (10), `HOMING_SIM_SEED` the first.
 */

import { seededRandom } from '@homing/base'
import t from 'tap'
import { BLOCK_SIZE_TOKENS, MODEL, SimulatedFleet } from './simulated-fleet.ts'

const FIRST = Number(process.env['HOMING_SIM_SEED'] ?? 1)
const SEEDS = Number(
  process.env['HOMING_SIM_SEEDS'] ?? (process.env['HOMING_SIM_SEED'] === undefined ? 10 : 1),
)
const REQUESTS = 32
const TROUBLES = 8
/** Requests and troubles begin within this time. */
const BUSY_MS = 1500
const HANDOVER_MS_MAX = 2000
const END_MS_MAX = 60_000

const counts = new Map<string, number>()
const count = (what: string, by = 1): void => void counts.set(what, (counts.get(what) ?? 0) + by)

async function runSeed(seed: number): Promise<void> {
  const random = seededRandom(seed)
  const isBootstrap = seed % 2 === 1
  const isStrict = random.below(3) === 0
  const handover = isBootstrap ? 'bootstrap' : 'kv_transfer'
  const settings = { handoverMsMax: HANDOVER_MS_MAX, handover, speed: 1 } as const
  const roles = ['prefill', 'prefill', 'decode', 'decode'] as const
  const fleet = await SimulatedFleet.start({
    seed,
    engines: roles.map(role => ({ ...settings, role, blocks: 4096, hashSeed: random.below(2 ** 31) })),
    settings: { retries: 1, enforceDisagg: isStrict, guardShare: 0 },
    workers: urls =>
      urls.map((url, at) => {
        const meets = isBootstrap && roles[at] === 'prefill' ? `&bootstrap_port=${8001 + at}` : ''
        return `${url}?role=${roles[at]}&handover=${handover}${meets}`
      }),
  })
  const { simulation, engines } = fleet
  const at = (run: () => void): void => void simulation.clock.after(random.next() * BUSY_MS, run)
  const ends = new Array<number>(REQUESTS).fill(0)
  for (const number of ends.keys()) {
    const prompt = Array.from(
      { length: (1 + random.below(40)) * BLOCK_SIZE_TOKENS },
      (_, token) => 33 + ((token * 7 + number * (1 + random.below(2))) % 90),
    )
    const body = {
      model: MODEL,
      prompt,
      max_tokens: 1 + random.below(40),
      stream: random.below(2) === 0,
      ...(random.below(8) === 0 ? { nvext: { prefill_worker_id: random.below(2) } } : {}),
    }
    const leaves = random.below(6) === 0 ? new AbortController() : undefined
    at(() => {
      const ended = (what: string): void => {
        ends[number]!++
        count(what)
      }
      fleet.send({}, body, END_MS_MAX, leaves?.signal).then(
        reply => ended(endOf(reply.status, Buffer.from(reply.body).toString())),
        (error: { code?: string }) => ended(leaves?.signal.aborted ? 'left' : (error.code ?? String(error))),
      )
      if (leaves !== undefined) simulation.clock.after(random.next() * 400, () => leaves.abort())
    })
  }
  for (let trouble = 0; trouble < TROUBLES; trouble++) {
    const { engine } = engines[random.below(engines.length)]!
    const requests = 1 + random.below(4)
    const fault = [
      { die: { tokens: random.below(3), requests } },
      { error: { tokens: random.below(3), requests } },
      { refuse: requests },
      { hang: 'generation' },
      { hang: 'all' },
      { slowFactor: 30 },
    ][random.below(9)]
    const forMs = random.below(2000)
    at(() => {
      if (fault === undefined) void engine.restart(random.below(500))
      else {
        engine.setFaults(fault)
        simulation.clock.after(forMs, () => engine.clearFaults())
      }
    })
  }
  const isOver = (): boolean => ends.every(times => times > 0)
  const outcome = await simulation.run(isOver, { within: 3 * END_MS_MAX })
  if (outcome !== 'reached') throw new Error(`requests hang: ${ends}`)
  await simulation.run(undefined, { within: 5 * HANDOVER_MS_MAX })
  if (ends.some(times => times !== 1)) throw new Error(`a request ended twice: ${ends}`)
  for (const { url, worker_keys } of await fleet.workers()) {
    for (const { load } of worker_keys) {
      if (load.requests + load.active_blocks + load.prefill_tokens !== 0)
        throw new Error(`${url} has something booked: ${JSON.stringify(load)}`)
    }
  }
  for (const { engine, url } of engines) {
    const { handovers } = engine.state()
    if (handovers !== 0) throw new Error(`${url} holds ${handovers} prompts`)
    if (engine.openRequests !== 0) throw new Error(`${url} has ${engine.openRequests} requests`)
  }
  const metrics = Buffer.from((await fleet.ask({ method: 'GET', path: '/metrics' })).body).toString()
  for (const [, name, label, value] of metrics.matchAll(
    /^homing_gateway_(prefill_legs|decode_alone)_total\{\w+="(\w+)"\} (\d+)/gm,
  ))
    count(`${handover} ${name} ${label}`, Number(value))
  const late = await fleet.ask({}, { model: MODEL, prompt: [40, 41, 42], max_tokens: 2 })
  if (late.status !== 200) throw new Error(`afterwards, ${late.status} ${Buffer.from(late.body).toString()}`)
  const slow = await fleet.stop()
  if (slow.length > 0) throw new Error(`${slow} did not stop`)
}

/** As a client sees it. */
function endOf(status: number, text: string): string {
  if (status !== 200) return `${status} ${/"code":"(\w+)"/.exec(text)?.[1]}`
  if (text.includes('data: [DONE]') || (text.startsWith('{') && text.includes('"choices"'))) return 'whole'
  return text.includes('"error"') ? 'error event' : 'cut'
}

t.test(`two legs in trouble, ${SEEDS} seeds from ${FIRST} on`, async t => {
  for (let seed = FIRST; seed < FIRST + SEEDS; seed++) {
    await runSeed(seed).catch((thrown: Error) => t.fail(`HOMING_SIM_SEED=${seed}: ${thrown.stack}`))
  }
  const all = [...counts].sort(([a], [b]) => (a < b ? -1 : 1))
  t.comment(all.map(([what, times]) => `${what}: ${times}`).join(', '))
  t.notOk(counts.has('cut'), 'no stream ends without a word')
  t.ok((counts.get('whole') ?? 0) > (SEEDS * REQUESTS) / 3, 'many are answered')
})

/**
 * Busy thresholds over real sockets: which requests are refused, what `/busy_threshold` says, and that no
 * request is refused by default.
 */

import t, { type Test } from 'tap'
import { type Answer, type Fleet, type FleetOptions, type KeyView, open, startFleet, until } from './fleet.ts'

const MODEL = 'homing-sim'
const NOTHING = {
  active_decode_blocks_threshold: null,
  active_prefill_tokens_threshold: null,
  active_prefill_tokens_threshold_frac: null,
}

let marker = 0
const body = (tokens = 200): object => {
  marker++
  const prompt = Array.from({ length: tokens }, (_, at) => 40 + ((marker * 7 + at * (1 + (marker % 5))) % 80))
  return { model: MODEL, prompt, max_tokens: 1 }
}

async function begin(t: Test, options: Partial<FleetOptions> = {}): Promise<Fleet> {
  const fleet = await startFleet({ engines: [{}, {}], ...options })
  t.teardown(() => fleet.stop())
  return fleet
}

const complete = (fleet: Fleet): Promise<Answer> => fleet.send('/v1/completions', { body: body() })
const set = (fleet: Fleet, change: unknown): Promise<Answer> =>
  fleet.send('/busy_threshold', { method: 'POST', body: change })

/** Each engine gets a request for a stream, and answers nothing until `end`. */
async function occupied(fleet: Fleet): Promise<{ readonly end: () => Promise<readonly Answer[]> }> {
  for (const engine of fleet.engines) await engine.faults({ hang: 'generation' })
  const held = fleet.engines.map(() => fleet.send('/v1/completions', { body: { ...body(), stream: true } }))
  await until('each worker has a request', async () => {
    const keys = (await fleet.workers()).flatMap(({ worker_keys }) => worker_keys)
    return keys.every(({ load }) => load.prefill_tokens > 0) ? true : undefined
  })
  return {
    async end() {
      for (const engine of fleet.engines) await engine.faults({ hang: 'off' })
      return Promise.all(held)
    },
  }
}

t.test('past a threshold on all workers requests are refused; without one they never are', async t => {
  for (const [options, status] of [
    [[], undefined],
    [['--active-prefill-tokens-threshold', '0'], 503],
    [['--active-prefill-tokens-threshold-frac', '0.01', '--http-overload-status-code', '529'], 529],
    [['--active-decode-blocks-threshold', '0'], 503],
  ] as const) {
    await t.test(options.join(' ') || 'no threshold', async t => {
      const fleet = await begin(t, { router: options })
      const { end } = await occupied(fleet)
      const more = complete(fleet)
      if (status !== undefined) {
        const answer = await more
        t.equal(answer.status, status, answer.text)
        t.equal(answer.json.error.code, 'overloaded')
        t.match(answer.json.error.message, /every worker that could take it is busy/)
        t.ok(Number(answer.headers['retry-after']) >= 1)
        const metrics = await fleet.send('/metrics')
        t.match(metrics.text, `homing_busy_refused_requests_total{model="${MODEL}"} 1`)
      }
      const answers = await end()
      t.ok(answers.every(answer => answer.status === 200))
      if (status === undefined) t.equal((await more).status, 200)
      else t.equal((await complete(fleet)).status, 200, 'and with room again it is placed')
      await fleet.drained()
    })
  }
})

t.test('who is refused hears when to come back, by how fast others get a place', async t => {
  const fleet = await begin(t, { router: ['--active-prefill-tokens-threshold', '0'] })
  const retryAfter = async (): Promise<number> => {
    const { status, headers } = await complete(fleet)
    t.equal(status, 503)
    return Number(headers['retry-after'])
  }
  const first = await occupied(fleet)
  t.equal(await retryAfter(), 1, 'nobody has got a place yet')
  const crowd = await Promise.all(Array.from({ length: 60 }, () => complete(fleet)))
  t.ok(crowd.every(({ status }) => status === 503))
  await first.end()
  await fleet.drained()
  const second = await occupied(fleet)
  const seconds = await until('sixty are counted against two places', async () => {
    const found = await retryAfter()
    return found > 1 ? found : undefined
  })
  t.ok(Number.isInteger(seconds) && seconds <= 60, `${seconds} s`)
  await second.end()
})

t.test('/busy_threshold reads, sets, merges, lists and refuses', async t => {
  const fleet = await begin(t, { router: ['--active-decode-blocks-threshold', '0.9'] })
  const given = { ...NOTHING, active_decode_blocks_threshold: 0.9 }
  const list = async (): Promise<unknown> => (await fleet.send('/busy_threshold')).json
  t.strictSame(await list(), { thresholds: [{ model: MODEL, ...given }] })
  const read = await set(fleet, { model: MODEL })
  t.strictSame([read.status, read.json], [200, { model: MODEL, ...given }])
  const one = await set(fleet, { model: MODEL, active_prefill_tokens_threshold: 1000 })
  const after = { model: MODEL, ...given, active_prefill_tokens_threshold: 1000 }
  t.strictSame([one.status, one.json], [200, after])
  const two = await set(fleet, {
    model: MODEL,
    active_prefill_tokens_threshold_frac: 2.5,
    active_prefill_tokens_threshold: null,
  })
  const both = { ...after, active_prefill_tokens_threshold_frac: 2.5 }
  t.strictSame([two.status, two.json], [200, both])
  t.strictSame(await list(), { thresholds: [both] })

  const nobody = await set(fleet, { model: 'nobody' })
  t.strictSame([nobody.status, nobody.json], [200, { model: 'nobody', ...NOTHING }])
  for (const [status, change, words] of [
    [404, { model: 'nobody', active_prefill_tokens_threshold: 1 }, /no worker serves the model "nobody"/],
    [400, { model: MODEL, active_decode_blocks_threshold: 1.1 }, /is 1.1: use a number from 0 to 1/],
    [400, { model: MODEL, active_decode_blocks_threshold: -0.1 }, /use a number from 0 to 1/],
    [
      400,
      { model: MODEL, active_prefill_token_threshold: 1 },
      /"active_prefill_token_threshold" is no threshold: use/,
    ],
    [400, { model: MODEL, active_prefill_tokens_threshold: 1.5 }, /use a whole number of tokens/],
    [400, { model: MODEL, active_prefill_tokens_threshold: '7' }, /is "7": use a whole number/],
    [400, { model: MODEL, active_prefill_tokens_threshold_frac: -1 }, /use a number ≥ 0/],
    [422, { active_prefill_tokens_threshold: 1 }, /names no model/],
    [422, [], /no JSON object/],
    [422, '{"model":', /no JSON/],
  ] as const) {
    const refused = await set(fleet, change)
    t.equal(refused.status, status, refused.text)
    t.match(refused.json, { error: words })
    t.strictSame(Object.keys(refused.json), ['error'])
  }
  t.strictSame(await list(), { thresholds: [both] }, 'what is refused changes nothing')
})

t.test('a threshold that is set at run time holds at once, and not longer than the load', async t => {
  const fleet = await begin(t)
  const { end } = await occupied(fleet)
  t.equal((await set(fleet, { model: MODEL, active_prefill_tokens_threshold: 0 })).status, 200)
  t.equal((await complete(fleet)).status, 503)
  t.ok((await end()).every(answer => answer.status === 200))
  await fleet.drained()
  t.equal((await complete(fleet)).status, 200)
})

t.test(
  "what an engine says of its own KV cache counts for a busy threshold, beside the router's figure",
  async t => {
    const fleet = await begin(t, {
      engines: [{ blocks: 101 }],
      router: ['--active-decode-blocks-threshold', '0.5', '--engine-metrics-interval', '50ms'],
    })
    const [engine] = fleet.engines
    const loadWhen = async (what: string, isRight: (load: KeyView['load']) => boolean) => {
      let seen: KeyView['load'] | undefined
      return until(
        what,
        async () => {
          seen = (await fleet.workers())[0]!.worker_keys[0]!.load
          return isRight(seen) ? seen : undefined
        },
        { seen: () => seen },
      )
    }
    await loadWhen('it says that nothing is in use', ({ engine_kv_usage }) => engine_kv_usage === 0)
    // Steps so long that it runs until it is left.
    await engine!.faults({ slowMs: 100 })
    const leaves = new AbortController()
    const long = { ...body(60 * 16), max_tokens: 600, ignore_eos: true, stream: true }
    const past = await open(engine!.url, '/v1/completions', { body: long, signal: leaves.signal })
    past.body.on('error', () => {})
    const load = await loadWhen(
      'it says that much is in use',
      ({ engine_kv_usage }) => (engine_kv_usage ?? 0) > 0.5,
    )
    t.match(load, { active_blocks: 0, requests: 0 }, 'the router has placed nothing there')
    const refused = await complete(fleet)
    t.equal(refused.status, 503, refused.text)
    t.match(refused.json.error, { code: 'overloaded', message: /blocks are in use, as its engine says/ })
    const { text } = await fleet.send('/metrics')
    const [, ratio] = /^homing_tracker_engine_kv_usage_ratio\{[^}]*\} (\S+)$/m.exec(text) ?? []
    t.ok(Number(ratio) > 0.5, `the gauge is ${ratio}`)
    leaves.abort()
    await engine!.faults({ slowMs: 0 })
    await loadWhen('it says that nothing is in use any more', ({ engine_kv_usage }) => engine_kv_usage === 0)
    t.equal((await complete(fleet)).status, 200)
  },
)

t.test('engines are not asked for it where the interval is 0', async t => {
  const fleet = await begin(t, { router: ['--engine-metrics-interval', '0'] })
  for (const { worker_keys } of await fleet.workers())
    for (const { load } of worker_keys) t.match(load, { engine_kv_usage: null, engine_kv_usage_reason: null })
})

import t from 'tap'
import { finish, requestAt, virtualLoad } from './virtual-load.ts'

const near = (value: number, expected: number): boolean => Math.abs(value - expected) <= 0.001 * expected

t.test('a closed loop keeps its number open, and sends as many as it is told', async t => {
  const load = virtualLoad(() => ({ afterMs: 100 }), {
    pace: { kind: 'closed', concurrency: 4 },
    requestsMax: 42,
    warmup: 2,
  })
  const figures = await finish(load)
  t.equal(load.sentMs.length, 42)
  t.equal(load.openMost(), 4)
  t.strictSame([figures.requests, figures.answered, figures.errorRate], [40, 40, 0])
  t.ok(near(figures.e2eMs.p50, 100) && near(figures.ttftMs.p99, 50), 'latencies are those of the server')
  t.ok(near(figures.itlMs.mean, 5), '50 ms over 10 gaps')
  t.strictSame([figures.outputTokens, figures.promptTokens, figures.cachedShare], [440, 4000, 0.4])
  t.ok(near(figures.windowMs, 1100), `eleven rounds of 4: ${figures.windowMs}`)
  t.ok(near(figures.outputTokensPerS, 400))
})

t.test('a closed loop ends with its time', async t => {
  const load = virtualLoad(() => ({ afterMs: 100 }), {
    pace: { kind: 'closed', concurrency: 2 },
    durationMs: 1000,
  })
  const figures = await finish(load)
  t.equal(figures.requests, 20)
})

t.test('an open loop sends at its instants, however late the server is', async t => {
  for (const afterMs of [10, 3000]) {
    const load = virtualLoad(() => ({ afterMs }), {
      pace: { kind: 'rate', perS: 10, arrival: 'constant', openMax: 1000 },
      durationMs: 2000,
    })
    const figures = await finish(load)
    t.ok(load.sentMs.every((ms, i) => Math.abs(ms - i * 100) < 1e-6))
    t.equal(figures.requests, 20)
    t.equal(figures.waited, 0)
    t.ok(near(figures.e2eMs.mean, afterMs))
  }
})

t.test('Poisson arrivals have the rate, and the same seed the same instants', async t => {
  const times = async (): Promise<readonly number[]> => {
    const load = virtualLoad(() => ({ afterMs: 1 }), {
      pace: { kind: 'rate', perS: 50, arrival: 'poisson', openMax: 1000 },
      requestsMax: 2000,
    })
    await finish(load)
    return load.sentMs
  }
  const sent = await times()
  const rate = 2000 / (sent.at(-1)! / 1000)
  t.ok(rate > 45 && rate < 55, String(rate))
  const gaps = sent.slice(1).map((ms, i) => ms - sent[i]!)
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length
  const deviation = Math.sqrt(gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length)
  t.ok(deviation / mean > 0.9 && deviation / mean < 1.1, 'as far from the mean as exponential ones')
  t.strictSame(await times(), sent)
})

t.test('the times of a trace count from its first, divided by the speed', async t => {
  async function* requests() {
    for (const atMs of [5000, 5000, 6000, 9000]) yield requestAt(atMs)
  }
  const load = virtualLoad(() => ({ afterMs: 1 }), {
    pace: { kind: 'times', speed: 4, openMax: 10 },
    requests: requests(),
  })
  await finish(load)
  t.strictSame(load.sentMs, [0, 0, 250, 1000])
})

t.test('what waits for a place is charged from when it was due', async t => {
  const load = virtualLoad(() => ({ afterMs: 1000 }), {
    pace: { kind: 'rate', perS: 10, arrival: 'constant', openMax: 1 },
    requestsMax: 3,
  })
  const figures = await finish(load)
  t.strictSame(load.sentMs, [0, 1000, 2000])
  t.equal(load.openMost(), 1)
  t.equal(figures.waited, 2)
  t.ok(near(figures.e2eMs.mean, (1000 + 1900 + 2800) / 3), String(figures.e2eMs.mean))
})

t.test('what finds no place to wait is not sent, and has failed', async t => {
  const load = virtualLoad(() => ({ afterMs: 1000 }), {
    pace: { kind: 'rate', perS: 100, arrival: 'constant', openMax: 2 },
    waitingMax: 3,
    requestsMax: 10,
  })
  const figures = await finish(load)
  t.equal(load.sentMs.length, 5)
  t.match(figures.errors, [{ kind: 'unsent', count: 5, detail: '2 requests were open, and 3 waited' }])
  t.equal(figures.errorRate, 0.5)
})

t.test('a request that is not answered ends with its time, and what waited so long is not sent', async t => {
  const load = virtualLoad(number => (number === 0 ? undefined : { afterMs: 10 }), {
    pace: { kind: 'rate', perS: 10, arrival: 'constant', openMax: 1 },
    timeoutMs: 250,
    requestsMax: 4,
  })
  const figures = await finish(load)
  t.match(figures.errors, [{ kind: 'timeout', count: 1, detail: 'not answered within 250 ms' }])
  t.strictSame(load.sentMs, [0, 250, 260, 300])

  const stuck = virtualLoad(() => undefined, {
    pace: { kind: 'rate', perS: 1000, arrival: 'constant', openMax: 1 },
    timeoutMs: 100,
    requestsMax: 50,
  })
  const all = await finish(stuck)
  t.equal(all.requests, 50, 'each is counted')
  t.equal(all.answered, 0)
})

t.test('failures are counted by kind and status, and have no latency', async t => {
  const load = virtualLoad(
    number => ({ afterMs: 10, ...(number % 4 === 0 && { failure: 'status' as const }) }),
    {
      pace: { kind: 'closed', concurrency: 1 },
      requestsMax: 20,
    },
  )
  const figures = await finish(load)
  t.match(figures.errors, [{ kind: 'status', status: 503, count: 5, detail: 'full' }])
  t.strictSame([figures.answered, figures.errorRate], [15, 0.25])
})

t.test('stopped, it ends at once, and what was open is not counted', async t => {
  for (const pace of [
    { kind: 'closed', concurrency: 3 },
    { kind: 'rate', perS: 30, arrival: 'constant', openMax: 2 },
  ] as const) {
    const load = virtualLoad(() => ({ afterMs: 100 }), { pace })
    load.clock.after(1050, () => load.run.stop())
    const figures = await finish(load)
    t.ok(load.clock.nowMs() < 1100, `at ${load.clock.nowMs()}`)
    t.equal(figures.answered, figures.requests)
    t.ok(figures.requests >= 20)
    load.run.stop()
  }
})

t.test('a load that is late says by how much', async t => {
  const load = virtualLoad(() => ({ afterMs: 1 }), {
    pace: { kind: 'rate', perS: 10, arrival: 'constant', openMax: 100 },
    requestsMax: 20,
    requests: slow(),
  })
  /** A source that takes 170 ms for each request: time passes while the run waits for it. */
  async function* slow() {
    for (;;) {
      await new Promise<void>(resolve => load.clock.after(170, resolve))
      yield requestAt(undefined)
    }
  }
  const figures = await finish(load)
  t.ok(figures.issueLagMs.p99 > 1000, `70 ms more each time: ${figures.issueLagMs.p99}`)
  t.ok(figures.e2eMs.p99 > 1000, 'and they are in the latencies')
})

/** Labels of models in the metrics of requests: bounded, and given back. */

import { Metrics } from '@homing/metrics'
import type { Decision, RoutingRequest } from '@homing/placement'
import t from 'tap'
import { RequestMetrics } from '../src/request-metrics.ts'

/** Most series of a model that has a label of its own; docs/metrics.md states it. */
const SERIES_PER_MODEL = 130

function world(modelsMax: number) {
  const metrics = new Metrics()
  const clock = { now: 0, nowMs: () => clock.now }
  const requests = new RequestMetrics(metrics, { modelsMax, modelIdleMs: 1000 }, clock)
  const serve = (model: string, worker = 'w:1/0') => {
    const routing = { model, promptTokens: 64, blockSizeTokens: 16 } as RoutingRequest
    const decision = { overlapBlocks: 1, bestOverlapBlocks: 2, lookupMs: 1, decisionMs: 1 } as Decision
    requests.decided(routing, decision, true)
    requests.placedAgain(model, 'broke')
    requests.placedAgain(model, 'refused')
    requests.firstToken(model, 50, worker)
    const figures = { promptTokens: 64, completionTokens: 3, cachedTokens: 16, tokensMs: 40 }
    requests.answered(model, figures, worker)
  }
  const series = async (): Promise<string[]> => {
    requests.sweep()
    return (await metrics.render()).split('\n').filter(line => line.includes('model='))
  }
  return { metrics, requests, clock, serve, series }
}

const modelsIn = (lines: readonly string[]) =>
  [...new Set(lines.map(line => /model="([^"]*)"/.exec(line)![1]))].sort()

t.test('of many models, as many have series as the setting says, and each has a bounded number', async t => {
  const { serve, series } = world(10)
  for (let i = 0; i < 3000; i++) serve(`adapter-${i}`)
  const lines = await series()
  t.equal(modelsIn(lines).length, 11)
  t.ok(modelsIn(lines).includes('other'))
  t.ok(lines.length <= 11 * SERIES_PER_MODEL, `${lines.length} series`)
  t.ok(lines.some(line => line === 'homing_request_started_total{model="other"} 2990'))
})

t.test('a model that no client asks for gives its series back, and begins anew', async t => {
  const { clock, serve, series } = world(2)
  serve('a')
  serve('b')
  clock.now = 600
  serve('b')
  serve('c')
  t.strictSame(modelsIn(await series()), ['a', 'b', 'other'])
  clock.now = 1100
  t.strictSame(modelsIn(await series()), ['b', 'other'], 'all of them')
  serve('c')
  const lines = await series()
  t.strictSame(modelsIn(lines), ['b', 'c', 'other'])
  t.ok(lines.includes('homing_request_started_total{model="c"} 1'))
  t.ok(lines.includes('homing_request_started_total{model="b"} 2'))
})

t.test('the last figures of a worker go with it', async t => {
  const { metrics, requests, serve } = world(2)
  serve('a', 'w:1/0')
  serve('a', 'w:2/0')
  requests.workersLeft(worker => worker === 'w:2/0')
  requests.sweep()
  const text = await metrics.render()
  t.notMatch(text, /w:1/)
  t.match(text, /^homing_worker_last_first_token_seconds\{worker="w:2\/0"\} 0\.05$/m)
  t.match(text, /^homing_worker_last_token_gap_seconds\{worker="w:2\/0"\} 0\.02$/m)
  t.match(text, /^homing_worker_last_prompt_tokens\{worker="w:2\/0"\} 64$/m)
})

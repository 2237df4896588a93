/**
 * The promise of the project on a recorded workload: prefixes are found, predicted exactly, and nothing is left behind.
 *
 * Workload  the Mooncake conversation trace where it is present (HOMING_TRACES, or ../shared/traces beside the
 *           repository), and always the small trace of packages/testkit.
 * Prompts   token ids, as long as the trace says; outputs too, up to OUTPUT_TOKENS_MAX. Engines do not wait.
 * Requests  one after the other, but each is sent while earlier answers still come: without any load, kv would
 *           rightly send all that share a system prompt to the one worker that holds it.
 */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readTrace, type TraceRequest, traceTokens } from '@homing/testkit'
import t, { type Test } from 'tap'
import { assertIndexEqualsCaches, chunksOf, type Fleet, withFleet } from './fleet.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const MOONCAKE = join(
  process.env['HOMING_TRACES'] ?? join(ROOT, '..', 'shared', 'traces'),
  'mooncake_conversation_trace.jsonl.gz',
)
const SMALL = join(
  dirname(fileURLToPath(import.meta.resolve('@homing/testkit'))),
  '..',
  'fixtures',
  'small-trace.jsonl.gz',
)
const ENGINES = 8
const BLOCK_SIZE_TOKENS = 64
const OUTPUT_TOKENS_MAX = 400
const OPEN_MAX = 32

interface Run {
  readonly requests: number
  /** By request. */
  readonly promptTokens: Int32Array
  readonly cachedTokens: Int32Array
  /** Requests whose predicted overlap is what the engine reported. */
  readonly exactlyPredicted: number
  /** Requests that were open when one was sent. */
  readonly openMean: number
  readonly seconds: number
}

/**
 * Sends every request after the events of all earlier prompts are in the index: when the first token of the one
 * before has come, and the router has seen what its engine had published by then. Answers go on meanwhile, so
 * that there is load to balance; at most `OPEN_MAX` at a time.
 */
async function run(fleet: Fleet, trace: readonly TraceRequest[]): Promise<Run> {
  const startedAt = performance.now()
  const open = new Set<Promise<void>>()
  const promptTokens = Int32Array.from(trace, ({ inputTokens }) => inputTokens)
  const predicted = new Int32Array(trace.length)
  const cachedTokens = new Int32Array(trace.length)
  let openSum = 0
  for (const [number, line] of trace.entries()) {
    openSum += open.size
    const stream = await fleet.open('/v1/completions', {
      body: {
        model: 'homing-sim',
        prompt: [...traceTokens(line)],
        max_tokens: Math.min(line.outputTokens, OUTPUT_TOKENS_MAX),
        stream: true,
        stream_options: { include_usage: true },
      },
    })
    assert.equal(stream.statusCode, 200, `request ${number}`)
    predicted[number] = Number(stream.headers['x-homing-overlap-blocks']) * BLOCK_SIZE_TOKENS
    const parts: Buffer[] = []
    const firstToken = new Promise<void>(resolve => {
      stream.body.on('data', (bytes: Buffer) => {
        parts.push(bytes)
        resolve()
      })
    })
    const ended = once(stream.body, 'end').then(() => {
      const { usage } = chunksOf(Buffer.concat(parts).toString()).at(-1)
      assert.equal(usage.prompt_tokens, line.inputTokens)
      cachedTokens[number] = usage.prompt_tokens_details?.cached_tokens ?? 0
      open.delete(ended)
    })
    open.add(ended)
    await Promise.race([firstToken, ended])
    await fleet.caughtUp([fleet.engineOf(String(stream.headers['x-homing-worker']))])
    while (open.size >= OPEN_MAX) await Promise.race(open)
  }
  await Promise.all(open)
  return {
    requests: trace.length,
    promptTokens,
    cachedTokens,
    exactlyPredicted: predicted.filter((tokens, number) => tokens === cachedTokens[number]).length,
    openMean: openSum / trace.length,
    seconds: (performance.now() - startedAt) / 1000,
  }
}

/** `kv` over the whole trace against `round-robin` over its first requests. */
async function compare(t: Test, trace: readonly TraceRequest[], roundRobinRequests: number): Promise<void> {
  const engines = Array.from({ length: ENGINES }, () => ({ blockSizeTokens: BLOCK_SIZE_TOKENS }))
  const kv = await withFleet({ engines, router: ['--router-mode', 'kv'] }, async fleet => {
    const kv = await run(fleet, trace)
    await fleet.drained()
    t.pass('every booking is freed')
    await fleet.caughtUp(fleet.engines)
    const blocks = await assertIndexEqualsCaches(fleet, fleet.engines)
    t.pass(`the index equals the caches, block for block: ${blocks}`)
    return kv
  })
  const roundRobin = await withFleet({ engines, router: ['--router-mode', 'round-robin'] }, fleet =>
    run(fleet, trace.slice(0, roundRobinRequests)),
  )
  t.comment(`kv: ${shown(kv)}`)
  t.comment(`round-robin: ${shown(roundRobin)}`)
  const exactShare = kv.exactlyPredicted / kv.requests
  t.ok(exactShare >= 0.99, `the engine reused what was predicted: ${percent(exactShare)} of the requests`)
  const kvRate = hitRate(kv, roundRobinRequests)
  const roundRobinRate = hitRate(roundRobin, roundRobinRequests)
  t.ok(
    kvRate > roundRobinRate,
    `hit rate over the same requests: kv ${percent(kvRate)}, round-robin ${percent(roundRobinRate)}`,
  )
}

function hitRate({ promptTokens, cachedTokens }: Run, requests: number): number {
  const sum = (tokens: Int32Array): number => tokens.subarray(0, requests).reduce((a, b) => a + b, 0)
  return sum(cachedTokens) / sum(promptTokens)
}

function shown(run: Run): string {
  const { requests, openMean, seconds } = run
  return `${requests} requests in ${seconds.toFixed(1)} s, ${openMean.toFixed(1)} open, hit rate ${percent(hitRate(run, requests))}`
}

function percent(share: number): string {
  return `${(100 * share).toFixed(2)} %`
}

t.test(
  'on the small trace kv reuses more than round-robin, as predicted, and the index is exact',
  async t => {
    await compare(t, readTrace(SMALL).slice(0, 200), 200)
  },
)

t.test(
  'on 2,000 requests of the Mooncake trace kv reuses more than round-robin does on the first 600, as predicted, and the index is exact',
  { skip: existsSync(MOONCAKE) ? false : 'the Mooncake trace is not here (HOMING_TRACES)' },
  async t => {
    await compare(t, readTrace(MOONCAKE).slice(0, 2000), 600)
  },
)

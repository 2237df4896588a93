/**
 * Plays a trace through a router over simulated engines, in two modes, and compares.
 *
 * Prompts   token ids, as long as the trace says; outputs too, up to OUTPUT_TOKENS_MAX.
 * Requests  one after the other, but each is sent while earlier answers still come: without any load, kv
 *           would send all requests that share a system prompt to the one worker that holds it.
 */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { traceTokens } from '@homing/engine'
import type { TraceRequest } from '@homing/trace'
import type { Test } from 'tap'
import { assertIndexEqualsCaches, chunksOf, type Fleet, withFleet } from './fleet.ts'

const BLOCK_SIZE_TOKENS = 64
/**
 * Together they keep answers open for a while, on fast and slow machines alike: steps of 2 ms, 40 of them.
 */
const OUTPUT_TOKENS_MAX = 40
const STEP_MS = 2
const OPEN_MAX = 32

interface Run {
  readonly requests: number
  /** By request. */
  readonly promptTokens: Int32Array
  readonly cachedTokens: Int32Array
  /** Requests whose predicted overlap equals the overlap that the engine reported. */
  readonly exactlyPredicted: number
  /** Requests that were open when one was sent. */
  readonly openMean: number
  readonly seconds: number
}

/**
 * Sends every request after the events of all earlier prompts are in the index: when the first token of the
 * one before has come, and the router has seen what its engine had published by then. Answers go on
 * meanwhile, so that there is load to balance; at most `OPEN_MAX` at a time.
 */
async function run(fleet: Fleet, trace: readonly TraceRequest[]): Promise<Run> {
  for (const engine of fleet.engines) await engine.faults({ slowMs: STEP_MS })
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
export async function compare(
  t: Test,
  engineCount: number,
  trace: readonly TraceRequest[],
  roundRobinRequests: number,
): Promise<void> {
  const engines = Array.from({ length: engineCount }, () => ({
    blockSizeTokens: BLOCK_SIZE_TOKENS,
    // A prompt of any length is one step.
    stepTokensMax: 131_072,
  }))
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

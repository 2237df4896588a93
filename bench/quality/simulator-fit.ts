/**
 * The simulator against real processes. A fleet of four engines serves a recorded load through a router that
 * writes its decision log. The log is simulated, with every request on the worker that really got it, and
 * both are compared (packages/simulate/src/log-fit.ts).
 *
 *   pnpm exec node bench/quality/simulator-fit.ts [--requests 600] [--rate 8] [--write]
 *
 * starts four `homing engine` processes and a `homing router` process for each policy, and sends the load
 * from a third one. With `--write` the table of docs/decision-log.md is written. The test does the same on
 * simulated engines and a virtual clock.
 */

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { parseArgs } from 'node:util'
import type { RouterSettings } from '@homing/config'
import { makeTrace, traceTokens } from '@homing/engine'
import { fitLog, fitText, type LogFit } from '@homing/simulate'
import { readDecisionLog, type TraceRequest } from '@homing/trace'
import { MemoryFiles } from '../../actors/decision-log/test/memory-files.ts'
import { DECISION_LOG, MODEL, SimulatedFleet } from '../../test/simulation/simulated-fleet.ts'
import { RouterClient, startProcess } from '../../test/system/fleet.ts'
import { givenFigure } from '../given-figure.ts'
import { marksOf, withTable } from '../page-table.ts'

const ENGINES = 4
/** Of each engine: 64,000 tokens, so that caches turn over within a minute. */
const BLOCKS = 4000
const BLOCK_SIZE_TOKENS = 16
const PROFILE = 'h100-8b'
const INPUT_TOKENS_MAX = 30_000
/**
 * Each token is an event that all processes handle; these are about a second of decoding for every engine and
 * second.
 */
const OUTPUT_TOKENS_MAX = 24
/** Of the trace as it is generated. */
const TRACE_PER_SECOND = 3.4
const PAGE = join(import.meta.dirname, '..', '..', 'docs', 'decision-log.md')

export const POLICIES = {
  linear: { routerPolicy: 'linear' },
  product: { routerPolicy: 'product' },
  'round-robin': { routerMode: 'round-robin' },
} as const satisfies Readonly<Record<string, Partial<RouterSettings>>>
const OPTIONS = { routerMode: '--router-mode', routerPolicy: '--router-policy' } as const
export type PolicyUnderTest = keyof typeof POLICIES

/** Chats that come back, at `perSecond` requests a second. */
export function loadOf(seed: number, requests: number, perSecond: number): readonly TraceRequest[] {
  return makeTrace({ seed, requests: 2 * requests, requestsPerSecond: TRACE_PER_SECOND })
    .filter(({ inputTokens }) => inputTokens <= INPUT_TOKENS_MAX)
    .slice(0, requests)
    .map(request => ({
      ...request,
      timestampMs: (request.timestampMs * TRACE_PER_SECOND) / perSecond,
      outputTokens: Math.min(request.outputTokens, OUTPUT_TOKENS_MAX),
    }))
}

/** On processes, in real time; the decision log is then at `path`. */
export async function recordOnProcesses(
  path: string,
  load: readonly TraceRequest[],
  policy: PolicyUnderTest,
): Promise<void> {
  const ports = ['--port', '0', '--events-port', '0', '--replay-port', '0']
  const engineArgv = [...ports, '--blocks', String(BLOCKS), '--profile', PROFILE]
  const engines = await Promise.all(Array.from({ length: ENGINES }, () => startProcess('engine', engineArgv)))
  const chosen = Object.entries(POLICIES[policy]).flatMap(([key, value]) => [
    OPTIONS[key as keyof typeof OPTIONS],
    value,
  ])
  const router = await startProcess('router', [
    ...['--host', '127.0.0.1', '--port', '0', '--decision-log', path],
    ...chosen,
    ...['--log-level', 'warn'],
    ...engines.flatMap(({ url }) => ['--worker', url]),
  ])
  const client = new RouterClient(router.url)
  await client.trusted()
  const startedAt = performance.now()
  const open = new Set<Promise<void>>()
  for (const request of load) {
    const waitMs = request.timestampMs - (performance.now() - startedAt)
    // The load has a time of its own; nothing is awaited by it.
    if (waitMs > 0) await new Promise(resolve => setTimeout(resolve, waitMs))
    const sent = client.send('/v1/completions', { body: bodyOf(request) }).then(({ status, text }) => {
      open.delete(sent)
      if (status !== 200) throw new Error(`a request was answered with ${status}: ${text}`)
    })
    open.add(sent)
  }
  await Promise.all(open)
  for (const one of [router, ...engines]) {
    one.kill('SIGTERM')
    await one.ended
  }
}

/** On simulated engines and a virtual clock; the decision log is then at `path`. */
export async function recordInSimulation(
  path: string,
  load: readonly TraceRequest[],
  policy: PolicyUnderTest,
): Promise<void> {
  const files = new MemoryFiles()
  const engine = { blocks: BLOCKS, profile: PROFILE, speed: 1, blockSizeTokens: BLOCK_SIZE_TOKENS } as const
  const fleet = await SimulatedFleet.start({
    seed: 1,
    engines: Array.from({ length: ENGINES }, () => engine),
    decisionFiles: files,
    settings: { ...POLICIES[policy], openRequestsMax: 1024, silenceTimeoutMs: 600_000, requestTimeoutMs: 0 },
  })
  let open = load.length
  for (const request of load) {
    fleet.simulation.clock.after(request.timestampMs, () => {
      const ended = (): void => {
        open--
      }
      fleet.send({}, bodyOf(request), 600_000).then(ended, ended)
    })
  }
  const outcome = await fleet.simulation.run(() => open === 0, { within: 3_600_000 })
  if (outcome !== 'reached') throw new Error(`${open} requests did not end: ${outcome}`)
  await fleet.drainRouter(1000)
  await fleet.stop()
  await writeFile(path, files.text(DECISION_LOG))
}

export async function fitOf(path: string): Promise<LogFit> {
  return fitLog(await readDecisionLog([path]), { profile: PROFILE })
}

function bodyOf(request: TraceRequest): object {
  return {
    model: MODEL,
    prompt: [...traceTokens(request)],
    max_tokens: request.outputTokens,
    stream: true,
    stream_options: { include_usage: true },
  }
}

/** A row of the table in docs/decision-log.md. */
function rowOf(policy: PolicyUnderTest, fit: LogFit): string {
  const { seen, simulated } = fit.ttftMs
  const times = (['mean', 'p50', 'p90'] as const).map(
    name =>
      `${seen[name].toFixed(1)} · ${simulated[name].toFixed(1)} · ${(simulated[name] / seen[name]).toFixed(2)}`,
  )
  const percent = (share: number): string => (100 * share).toFixed(1)
  const points = percent(fit.hitRate.simulated - fit.hitRate.seen)
  const hits = `${percent(fit.hitRate.seen)} · ${percent(fit.hitRate.simulated)} · ${points}`
  return `| ${policy} | ${[...times, hits].join(' | ')} | ${fit.routerMs.toFixed(1)} + ${fit.baseMs.toFixed(1)} ms |`
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      requests: { type: 'string', default: '600' },
      rate: { type: 'string', default: '8' },
      write: { type: 'boolean', default: false },
    },
  })
  const load = loadOf(1, givenFigure('requests', values.requests, 1), givenFigure('rate', values.rate))
  const folder = await mkdtemp(join(tmpdir(), 'homing-fit-'))
  const rows = [
    '| policy | TTFT mean: seen · simulated ms · ratio | p50 | p90 | hit rate: seen · simulated % · points | router + base |',
    '|---|---|---|---|---|---|',
  ]
  try {
    for (const policy of Object.keys(POLICIES) as PolicyUnderTest[]) {
      const path = join(folder, `${policy}.jsonl`)
      await recordOnProcesses(path, load, policy)
      const fit = await fitOf(path)
      rows.push(rowOf(policy, fit))
      console.log(`${policy}: ${fitText(fit)}`)
      if (fit.faults.length > 0) process.exitCode = 1
    }
  } finally {
    await rm(folder, { recursive: true })
  }
  if (values.write) {
    const page = await readFile(PAGE, 'utf8')
    await writeFile(PAGE, withTable(page, rows.join('\n'), marksOf('fit')))
  }
}

/**
 * Question   Does it cost requests anything when operators look at the page?
 * Workload   Chats of `promptTokens` tokens, three quarters of which were seen before, with short streamed answers, `concurrency` at a time, from
 *            `engines` simulated engines that take no time. `tabs` streams of the page are read, as by as many browsers.
 * Arms       none         nobody looks
 *            tabs         all tabs are open
 *            They take turns in slices of `slice` requests on one router, `rounds` times: none, tabs, tabs, none, …
 * Soak       `minutes=60` goes on for so long with all tabs open, and says by how much the memory of the router grew after the first tenth.
 * Read it    `decision` is the router's own time from the question to the decision (decision_ms of its receipts). The ratios are of medians
 *            over slices next to each other, so others on the machine change them less than the figures.
 */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { fileURLToPath } from 'node:url'
import { type Measures, parameter, percentile, runBench, Skip } from '../harness.ts'
import { sendAll } from '../http/client.ts'
import { cpuMsOf, knowsCpuTime, type Process, startProcess } from '../http/processes.ts'
import { promptBodies, TINY_TOKENIZER } from '../http/prompts.ts'

const tabs = parameter('tabs', { smoke: 3, full: 10 })
const rounds = parameter('rounds', { smoke: 2, full: 24 })
const slice = parameter('slice', { smoke: 30, full: 400 })
const engineCount = parameter('engines', { smoke: 1, full: 2 })
const concurrency = parameter('concurrency', { smoke: 2, full: 4 })
const promptTokens = parameter('promptTokens', { smoke: 500, full: 1000 })
const minutes = parameter('minutes', { smoke: 0, full: 0 })

/** Requests before the clock starts: code that is not compiled yet is no part of the question. */
const WARM_UP_SLICES = 4
const ROUTER = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const ENGINES = fileURLToPath(new URL('../http/engines.ts', import.meta.url))
const MIB = 2 ** 20

interface Slice {
  readonly decisionMs: number
  readonly cpuMs: number
}

async function run(): Promise<Measures | Skip> {
  if (!knowsCpuTime) return new Skip('the CPU time of another process is read from /proc, which is not here')
  const processes: Process[] = []
  const start = async (file: string, words: readonly string[]): Promise<Process> => {
    const started = await startProcess(file, words)
    processes.push(started)
    return started
  }
  try {
    const engines = await start(ENGINES, [String(engineCount), '0', TINY_TOKENIZER])
    const workers = engines.urls.flatMap(url => ['--worker', url])
    const listening = ['--port', '0', '--host', '127.0.0.1', '--decisions-kept', String(2 * slice)]
    const words = ['router', ...listening, '--tokenizer', TINY_TOKENIZER, '--log-level', 'error', ...workers]
    return await measure(await start(ROUTER, words))
  } finally {
    await Promise.all(processes.map(started => started.stop()))
  }
}

async function measure(router: Process): Promise<Measures> {
  const url = router.urls[0]!
  const bodies = promptBodies({ seed: 1, promptTokens, outputTokens: 4, conversations: 16, isStream: true })
  const take = (): Promise<Slice> => takeSlice(router, url, bodies)
  for (let warm = 0; warm < WARM_UP_SLICES; warm++) await take()
  const none: Slice[] = []
  const looked: Slice[] = []
  let updateBytes = 0
  for (let round = 0; round < rounds; round++) {
    const arms = round % 2 === 0 ? [none, looked] : [looked, none]
    for (const arm of arms) {
      const open = arm === looked ? await openTabs(url) : undefined
      arm.push(await take())
      if (open !== undefined) updateBytes += open.close()
    }
  }
  const ratios = (of: (slice: Slice) => number) =>
    Float64Array.from(looked, (one, at) => of(one) / of(none[at]!))
  const median = (values: Float64Array): number => percentile(values, 50)
  const decisions = (arm: readonly Slice[]) => median(Float64Array.from(arm, ({ decisionMs }) => decisionMs))
  assert.ok(updateBytes > 0, 'the tabs were told something')
  return {
    [`decision, ${tabs} tabs ÷ none`]: { value: median(ratios(({ decisionMs }) => decisionMs)), unit: '×' },
    [`CPU of the router, ${tabs} tabs ÷ none`]: { value: median(ratios(({ cpuMs }) => cpuMs)), unit: '×' },
    'decision, none': { value: 1000 * decisions(none), unit: 'µs' },
    'decision, tabs': { value: 1000 * decisions(looked), unit: 'µs' },
    ...(minutes > 0 && (await soak(router, url, take))),
  }
}

async function takeSlice(router: Process, url: string, bodies: Generator<string, never>): Promise<Slice> {
  const prompts = Array.from({ length: slice }, () => bodies.next().value)
  const cpuMs = cpuMsOf(router.pid)
  await sendAll([url], prompts, concurrency)
  const usedMs = cpuMsOf(router.pid) - cpuMs
  const answer = await fetch(`${url}/decisions?limit=${Math.min(1000, slice)}`)
  const { decisions } = (await answer.json()) as {
    readonly decisions: readonly { readonly decision_ms: number }[]
  }
  return {
    decisionMs: percentile(
      Float64Array.from(decisions, ({ decision_ms: ms }) => ms),
      50,
    ),
    cpuMs: usedMs,
  }
}

interface OpenTabs {
  /** Bytes that came. */
  close(): number
}

/** Resolves when each tab has been told something. */
async function openTabs(url: string): Promise<OpenTabs> {
  let bytes = 0
  const streams = await Promise.all(
    Array.from({ length: tabs }, async () => {
      const stream = await new Promise<IncomingMessage>((resolve, reject) => {
        get(`${url}/page/live`, { agent: false }, resolve).once('error', reject)
      })
      assert.equal(stream.statusCode, 200)
      // It is this end that cuts it.
      stream.on('error', () => {})
      await new Promise<void>(resolve => {
        stream.on('data', (piece: Buffer) => {
          bytes += piece.length
          resolve()
        })
      })
      return stream
    }),
  )
  return {
    close() {
      for (const stream of streams) stream.destroy()
      return bytes
    },
  }
}

async function soak(router: Process, url: string, take: () => Promise<Slice>): Promise<Measures> {
  const open = await openTabs(url)
  const startMs = performance.now()
  const lengthMs = minutes * 60_000
  const settledMs = startMs + lengthMs / 10
  let firstBytes = 0
  while (performance.now() < startMs + lengthMs) {
    await take()
    if (firstBytes === 0 && performance.now() > settledMs) firstBytes = residentBytes(router.pid)
  }
  open.close()
  const grownBytes = residentBytes(router.pid) - firstBytes
  return { [`memory of the router, grown in ${minutes} min`]: { value: grownBytes / MIB, unit: 'MiB' } }
}

function residentBytes(pid: number): number {
  return 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1])
}

await runBench(
  {
    name: 'page',
    question: 'Does it cost requests anything when operators look at the page?',
    targets: { [`decision, ${tabs} tabs ÷ none`]: { floor: 1.05, goal: 1 } },
  },
  run,
)

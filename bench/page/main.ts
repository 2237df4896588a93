/**
 * Question   Does it cost requests anything when operators look at the page?
 * Workload   Chats of `promptTokens` tokens, three quarters of which were seen before, with short streamed
 *            answers, `concurrency` at a time, from `engines` simulated engines that take no time. `tabs`
 *            streams of the page are read, as by as many browsers.
 * Arms       none         no tab is open
 *            tabs         all tabs are open
 *            what if      a thread beside computes one question after the other, cancelled at the end of the
 *                         arm; the slice in which this thread starts counts apart
 *            Arms take turns in slices of `slice` requests on one router, `rounds` times, in one order and
 *            then in the other.
 * Soak       `minutes=60` sends `rate` requests a second for that time with all tabs open. It reports by how
 *            much the memory of the router grew after the first tenth, and its slope over the last five
 *            tenths, where only unbounded memory still grows. If Chromium is installed, the tabs are those of
 *            a browser, each on another view; then the growth of the page's heaps after a collection is
 *            reported too.
 * Read it    `decision` is the router's own time from the question to the decision (decision_ms of its
 *            receipts). The ratios are of medians over neighbouring slices, so other programs on the machine
 *            change them less than the figures.
 */

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import puppeteer, { type Page } from 'puppeteer-core'
import { type Measures, parameter, percentile, runBench, Skip } from '../harness.ts'
import { sendAll } from '../http/client.ts'
import { cpuMsOf, knowsCpuTime, type Process, startProcess } from '../http/processes.ts'
import { promptBodies, TINY_TOKENIZER } from '../http/prompts.ts'
import { slope } from '../statistics.ts'

const tabs = parameter('tabs', { smoke: 3, full: 10 })
const rounds = parameter('rounds', { smoke: 2, full: 24 })
const slice = parameter('slice', { smoke: 30, full: 400 })
const engineCount = parameter('engines', { smoke: 1, full: 2 })
const concurrency = parameter('concurrency', { smoke: 2, full: 4 })
const promptTokens = parameter('promptTokens', { smoke: 500, full: 1000 })
const minutes = parameter('minutes', { smoke: 0, full: 0 })
const rate = parameter('rate', { smoke: 40, full: 40 })

/** Requests before the clock starts: code that is not compiled yet is no part of the question. */
const WARM_UP_SLICES = 4
const ROUTER = fileURLToPath(new URL('../../packages/homing/src/main.ts', import.meta.url))
const ENGINES = fileURLToPath(new URL('../http/engines.ts', import.meta.url))
const MIB = 2 ** 20
const ASK_AGAIN_MS = 100

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
  const starting: Slice[] = []
  const asked: Slice[] = []
  let questions = 0
  let updateBytes = 0
  for (let round = 0; round < rounds; round++) {
    const arms = round % 2 === 0 ? [none, looked, asked] : [asked, looked, none]
    for (const arm of arms) {
      const open = arm === looked ? await openTabs(url) : undefined
      const asking = arm === asked ? keepAsking(url) : undefined
      if (arm === asked) starting.push(await take())
      arm.push(await take())
      if (open !== undefined) updateBytes += open.close()
      questions += (await asking?.()) ?? 0
    }
  }
  const ratios = (of: (slice: Slice) => number, arm = looked) =>
    Float64Array.from(arm, (one, at) => of(one) / of(none[at]!))
  const median = (values: Float64Array): number => percentile(values, 50)
  const decisions = (arm: readonly Slice[]) => median(Float64Array.from(arm, ({ decisionMs }) => decisionMs))
  assert.ok(updateBytes > 0, 'the tabs were told something')
  return {
    'decision, what if in its first second ÷ none': {
      value: median(ratios(({ decisionMs }) => decisionMs, starting)),
      unit: '×',
    },
    'decision, what if ÷ none': { value: median(ratios(({ decisionMs }) => decisionMs, asked)), unit: '×' },
    'questions what if': { value: questions, unit: 'questions' },
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

/**
 * Asks what if, again and again; the function that is given ends that, cancels the last question, and says
 * how many there were.
 */
function keepAsking(url: string): () => Promise<number> {
  let isOver = false
  const asking = async (): Promise<number> => {
    for (let questions = 1; ; questions++) {
      const begun = await fetch(`${url}/what_if`, { method: 'POST', body: '{"anyway":true}' })
      assert.equal(begun.status, 202, await begun.text())
      while (!isOver && (await stateOfQuestion(url)) === 'running') await setTimeout(ASK_AGAIN_MS)
      if (!isOver) continue
      await fetch(`${url}/what_if`, { method: 'DELETE' })
      while ((await stateOfQuestion(url)) === 'running') await setTimeout(ASK_AGAIN_MS)
      return questions
    }
  }
  const asked = asking()
  return () => {
    isOver = true
    return asked
  }
}

async function stateOfQuestion(url: string): Promise<string> {
  const { state } = (await (await fetch(`${url}/what_if`)).json()) as { readonly state: string }
  assert.ok(['running', 'done', 'cancelled'].includes(state), state)
  return state
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

/** Memory at one moment, in bytes. */
interface Memory {
  readonly router: number
  /** Of all tabs. */
  readonly page: number | undefined
}

async function soak(router: Process, url: string, take: () => Promise<Slice>): Promise<Measures> {
  const browser = await openBrowser(url)
  const open = browser ?? (await openTabs(url))
  const look = async (): Promise<Memory> => ({
    router: residentBytes(router.pid),
    page: await browser?.heapBytes(),
  })
  const startMs = performance.now()
  const tenthMs = (minutes * 60_000) / 10
  const decisionMs: number[] = []
  const routerBytes: number[] = []
  let first: Memory | undefined
  for (let tenth = 1; tenth <= 10; tenth++) {
    const slices: number[] = []
    while (performance.now() < startMs + tenth * tenthMs) {
      const sliceMs = performance.now()
      slices.push((await take()).decisionMs)
      await setTimeout(Math.max(0, sliceMs + (1000 * slice) / rate - performance.now()))
    }
    decisionMs.push(percentile(Float64Array.from(slices), 50))
    const memory = await look()
    first ??= memory
    routerBytes.push(memory.router)
    const page = memory.page === undefined ? '' : `, page ${(memory.page / MIB).toFixed(1)} MiB`
    console.error(`${tenth}/10: router ${(memory.router / MIB).toFixed(1)} MiB${page}`)
  }
  const last = await look()
  await open.close()
  const grown = `grown in ${minutes} min`
  const ratio = percentile(Float64Array.from(decisionMs.slice(5)), 50) / decisionMs[0]!
  return {
    [`memory of the router, ${grown}`]: { value: (last.router - first!.router) / MIB, unit: 'MiB' },
    'memory of the router, slope over the last five tenths': {
      value: (slope([...routerBytes.slice(5).entries()]) / MIB) * (600 / minutes),
      unit: 'MiB/h',
    },
    ...(last.page !== undefined && {
      [`heaps of ${tabs} tabs, ${grown}`]: { value: (last.page - first!.page!) / MIB, unit: 'MiB' },
    }),
    'decision, second half ÷ first tenth': { value: ratio, unit: '×' },
  }
}

interface OpenBrowser {
  /** Used by all tabs, garbage collected. */
  heapBytes(): Promise<number>
  close(): Promise<void>
}

/** A browser with all tabs, each on the next view; undefined: none is installed. */
async function openBrowser(url: string): Promise<OpenBrowser | undefined> {
  const executablePath = spawnSync('which', ['chromium'], { encoding: 'utf8' }).stdout.trim()
  if (executablePath === '') return undefined
  const browser = await puppeteer.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
  })
  const pages: Page[] = []
  for (let tab = 0; tab < tabs; tab++) {
    const page = await browser.newPage()
    await page.goto(`${url}/`, { waitUntil: 'load' })
    const views = await page.$$eval('nav a[href^="#"]', links => links.map(link => link.getAttribute('href')))
    await page.click(`nav a[href="${views[tab % views.length]}"]`)
    await page.waitForSelector('.live-live')
    pages.push(page)
  }
  return {
    async heapBytes() {
      let bytes = 0
      for (const page of pages) {
        // The browser slows down tabs in the background.
        await page.bringToFront()
        await page.waitForSelector('.live-live')
        const session = await page.createCDPSession()
        await session.send('HeapProfiler.collectGarbage')
        bytes += (await session.send('Runtime.getHeapUsage')).usedSize
        await session.detach()
      }
      return bytes
    },
    close: () => browser.close(),
  }
}

function residentBytes(pid: number): number {
  return 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1])
}

await runBench(
  {
    name: 'page',
    question: 'Does it cost requests anything when operators look at the page?',
    targets: {
      [`decision, ${tabs} tabs ÷ none`]: { floor: 1.05, goal: 1 },
      'decision, what if ÷ none': { floor: 1.05, goal: 1 },
      'decision, what if in its first second ÷ none': { floor: 1.5, goal: 1.05 },
    },
  },
  run,
)

/** The rows on the life of threads: failover, what an ask learns of a death, restarts without end, start. */

import { type ActorRef, type ActorSystem, createActorSystem, ThreadDownError } from '@homing/actor'
import { percentile } from '../harness.ts'
import {
  adder,
  EXIT_AT,
  HANDLED,
  HANDLED_AT,
  LAST_N,
  VIOLATIONS,
  type VictimMessage,
  victim,
} from './actors.ts'
import { nextTurn, pause, requireEqual } from './loads.ts'
import { workerExitMs, workerStartMs } from './raw.ts'
import { quiet, type Row, restarting, THREAD, twoThreads, withSystem } from './row.ts'
import { failoverLoadPerS, failovers, rejections, stormMs } from './sizes.ts'

/** Between two deaths, so that each falls into steady work. */
const SETTLE_MS = 20
/** For what must happen within this, or the bench fails. */
const OUTAGE_MS_MAX = 10_000
const RAW_STARTS = 10
const RSS_SAMPLE_MS = 100

export const threadRows: readonly Row[] = [
  {
    name: 'failover',
    threads: 2,
    targets: { failoverP99: { floor: 100, goal: 60 } },
    async run() {
      const starts = await times(Math.min(RAW_STARTS, failovers), workerStartMs)
      const { outagesMs, lost } = await withSystem(2, measureFailovers)
      const rawStart = { 'worker start': percentile(starts, 50) }
      return {
        failoverP50: { value: percentile(outagesMs, 50), unit: 'ms', raw: rawStart },
        failoverP99: { value: percentile(outagesMs, 99), unit: 'ms', raw: rawStart },
        failoverLost: { value: lost / failovers, unit: 'msg lost per death' },
      }
    },
  },
  {
    name: 'askRejection',
    threads: 2,
    targets: { askRejectionP99: { floor: 20, goal: 5 } },
    async run() {
      const exits = await times(Math.min(RAW_STARTS, rejections), workerExitMs)
      const timesMs = await withSystem(2, measureRejections)
      const raw = { 'exit event': percentile(exits, 50) }
      return {
        askRejectionP50: { value: percentile(timesMs, 50), unit: 'ms', raw },
        askRejectionP99: { value: percentile(timesMs, 99), unit: 'ms', raw },
      }
    },
  },
  {
    name: 'storm',
    threads: 2,
    targets: { storm: { floor: 10, goal: 25 } },
    async run() {
      const starts = await times(RAW_STARTS, workerStartMs)
      const { perS, rssKbPerRestart } = await withSystem(2, measureStorm)
      return {
        storm: { value: perS, unit: 'restart/s', raw: { 'worker start': 1000 / percentile(starts, 50) } },
        stormRssSlope: { value: rssKbPerRestart, unit: 'kB per restart' },
      }
    },
  },
  {
    name: 'ready',
    threads: 2,
    targets: { ready: { floor: 120, goal: 70 } },
    async run() {
      // First in its process, and only once: the second start of anything is faster.
      const fromMs = performance.now()
      const system = await createActorSystem({ ...twoThreads, ...quiet })
      const value = performance.now() - fromMs
      await system.shutdown()
      const raw = await workerStartMs()
      return { ready: { value, unit: 'ms', raw: { 'worker start': raw } } }
    },
  },
]

class Watched {
  readonly timesNs = new BigInt64Array(new SharedArrayBuffer(2 * BigInt64Array.BYTES_PER_ELEMENT))
  readonly words = new Int32Array(new SharedArrayBuffer(4 * Int32Array.BYTES_PER_ELEMENT))
  readonly ref: ActorRef<VictimMessage>

  constructor(system: ActorSystem) {
    const args = { timesNs: this.timesNs.buffer, words: this.words.buffer }
    this.ref = system.spawn(victim, {
      name: 'victim',
      args,
      thread: THREAD,
      supervision: restarting,
      mailbox: { capacity: 65_536 },
    })
  }

  /** Resolves when the actor answers. */
  async serves(): Promise<void> {
    const untilMs = performance.now() + OUTAGE_MS_MAX
    for (;;) {
      try {
        await this.ref.ask({ type: 'ping' }, { timeout: '10s' })
        return
      } catch (error) {
        if (!(error instanceof ThreadDownError) || performance.now() > untilMs) throw error
        await nextTurn()
      }
    }
  }
}

/** Kills the thread under load; the time from its exit to the first message that its next life handled. */
async function measureFailovers(system: ActorSystem): Promise<{ outagesMs: Float64Array; lost: number }> {
  const watched = new Watched(system)
  const { ref, timesNs, words } = watched
  await watched.serves()
  let n = 0
  let isOver = false
  const fromMs = performance.now()
  let duePast = 0
  const load = (): void => {
    const due = Math.floor(((performance.now() - fromMs) * failoverLoadPerS) / 1000)
    for (; duePast < due; duePast++) ref.tell({ type: 'work', n: ++n })
    if (!isOver) setTimeout(load, 1)
  }
  load()

  const outagesMs = new Float64Array(failovers)
  for (let i = 0; i < failovers; i++) {
    await pause(SETTLE_MS)
    Atomics.store(timesNs, HANDLED_AT, 0n)
    Atomics.store(timesNs, EXIT_AT, 0n)
    ref.tell({ type: 'exit' })
    const untilMs = performance.now() + OUTAGE_MS_MAX
    while (Atomics.load(timesNs, HANDLED_AT) <= Atomics.load(timesNs, EXIT_AT) || timesNs[EXIT_AT] === 0n) {
      if (performance.now() > untilMs) throw new Error(`no message was handled after death ${i + 1}`)
      await pause(1)
    }
    outagesMs[i] = Number(timesNs[HANDLED_AT]! - timesNs[EXIT_AT]!) / 1e6
  }
  isOver = true
  await watched.serves()
  requireEqual('messages out of order or twice', Atomics.load(words, VIOLATIONS), 0)
  requireEqual('last message', Atomics.load(words, LAST_N), n)
  const { asksPending } = await system.stats()
  requireEqual('asks left', asksPending, 0)
  return { outagesMs, lost: n - Atomics.load(words, HANDLED) }
}

/** The time from the exit of a thread to the rejection of an ask that it had taken. */
async function measureRejections(system: ActorSystem): Promise<Float64Array> {
  const watched = new Watched(system)
  const { ref, timesNs } = watched
  const timesMs = new Float64Array(rejections)
  for (let i = 0; i < rejections; i++) {
    await watched.serves()
    await pause(SETTLE_MS)
    const asked = ref.ask({ type: 'silent' }, { timeout: '10s' })
    ref.tell({ type: 'exit' })
    const error = await asked.then(
      () => undefined,
      (error: unknown) => error,
    )
    const nowNs = process.hrtime.bigint()
    if (!(error instanceof ThreadDownError)) throw new Error(`an ask of a dead thread ended with ${error}`)
    timesMs[i] = Number(nowNs - Atomics.load(timesNs, EXIT_AT)) / 1e6
  }
  await watched.serves()
  return timesMs
}

/** Ends the thread again as soon as its actor answers; restarts per second, and what memory does meanwhile. */
async function measureStorm(system: ActorSystem): Promise<{ perS: number; rssKbPerRestart: number }> {
  const ref = system.spawn(adder, {
    name: 'adder',
    args: undefined,
    thread: THREAD,
    supervision: restarting,
  })
  const samples: { restarts: number; rssKb: number }[] = []
  let restarts = 0
  let sampledMs = 0
  const fromMs = performance.now()
  for (let nowMs = fromMs; nowMs - fromMs < stormMs; nowMs = performance.now()) {
    await system.killThread(THREAD)
    restarts++
    requireEqual('answer after a restart', await ref.ask({ type: 'add', a: 1 }, { timeout: '10s' }), 2)
    if (nowMs - sampledMs >= RSS_SAMPLE_MS) {
      samples.push({ restarts, rssKb: process.memoryUsage.rss() / 1024 })
      sampledMs = nowMs
    }
  }
  const perS = (restarts / (performance.now() - fromMs)) * 1000
  const { threadRestarts, actors, asksPending } = await system.stats()
  requireEqual('restarts counted', threadRestarts, restarts)
  requireEqual('actors', actors, 1)
  requireEqual('asks left', asksPending, 0)
  // The first half is warm-up: heaps and pools grow to their size.
  return { perS, rssKbPerRestart: slope(samples.slice(samples.length >> 1)) }
}

/** Least squares: kB per restart. */
function slope(samples: readonly { readonly restarts: number; readonly rssKb: number }[]): number {
  const mean = (of: (sample: (typeof samples)[number]) => number): number =>
    samples.reduce((sum, sample) => sum + of(sample), 0) / samples.length
  const meanRestarts = mean(({ restarts }) => restarts)
  const meanRssKb = mean(({ rssKb }) => rssKb)
  const covariance = mean(({ restarts, rssKb }) => (restarts - meanRestarts) * (rssKb - meanRssKb))
  const variance = mean(({ restarts }) => (restarts - meanRestarts) ** 2)
  return variance === 0 ? 0 : covariance / variance
}

async function times(count: number, measureMs: () => Promise<number>): Promise<Float64Array> {
  const timesMs = new Float64Array(count)
  for (let i = 0; i < count; i++) timesMs[i] = await measureMs()
  return timesMs
}

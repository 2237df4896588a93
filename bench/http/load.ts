/**
 * The load of the open loop, as a process. `load.ts OPTIONS` (JSON: the workload) makes its bodies, says that
 * it is ready, and then does what each line of its standard input says, one after the other, with one line of
 * JSON for each: LoadOrder and LoadReport below. It ends with its standard input.
 *
 * A wrong answer ends it with that answer in its last words.
 */

import { createInterface } from 'node:readline'
import { Worker } from 'node:worker_threads'
import { seededRandom } from '@homing/base'
import { AnswerReader } from './answer-reader.ts'
import { Connections, type Exchange } from './load-connection.ts'
import { dueTimes, Tally, type WindowFigures } from './open-loop.ts'
import { monotonicMs, type Pace } from './pacer.ts'
import { cpuMsBetween, knowsCpuTime, machineBusyMs, treeUsage } from './processes.ts'
import { type OpenWorkload, openBodies } from './prompts.ts'

export type LoadOrder =
  /** Sends `count` bodies, `concurrency` at a time. */
  | {
      readonly type: 'closed'
      readonly url: string
      readonly from: number
      readonly count: number
      readonly concurrency: number
    }
  /** Sends bodies from `from` on as they are due. */
  | {
      readonly type: 'open'
      readonly url: string
      readonly from: number
      readonly ratePerS: number
      readonly durationMs: number
      readonly seed: number
      /** Answers that take longer are counted. */
      readonly deadlineMs: number
      /** False: the answers are of other engines than those of this bench. */
      readonly isChecked: boolean
      /** Whose CPU time is of interest: the server, and the rest of the bench. */
      readonly server: number | undefined
      readonly others: readonly number[]
    }

export interface LoadReport {
  readonly figures: WindowFigures
  /** Number of the body that comes next. */
  readonly next: number
  readonly windowMs: number
  /** CPU time between the first instant and the last answer; undefined: there is no server, or no way. */
  readonly serverMs: number | undefined
  /** What the load and the others took, in cores. */
  readonly restCores: number
  /** CPU that processes outside of this bench took in the window, in cores. */
  readonly foreignCores: number
  /** Mean of `x-homing-overlap-blocks`, if the server tells it. */
  readonly overlapBlocks: number | undefined
}

/** More open at a time are dropped, and counted. */
const OPEN_MAX = 4000
/** After this long a request has failed. */
const ANSWER_MS_MAX = 10_000
const LOOK_MS = 250
/** Time for the pacer to start. */
const LEAD_MS = 200

const workload = JSON.parse(process.argv[2]!) as OpenWorkload
const bodies = openBodies(workload)
const pools = new Map<string, Connections>()
process.stdout.write(`load ready (pid ${process.pid})\n`)
for await (const line of createInterface(process.stdin)) {
  const order = JSON.parse(line) as LoadOrder
  const report = order.type === 'closed' ? await closedLoop(order) : await openLoop(order)
  process.stdout.write(`${JSON.stringify(report)}\n`)
}
process.exit()

function connectionsOf(url: string): Connections {
  const known = pools.get(url) ?? new Connections(url)
  pools.set(url, known)
  return known
}

/** Bodies behind the last begin anew where the conversations and the warm-up end. */
function bodyOf(number: number): number {
  const own = bodies.length - workload.count
  return number < bodies.length ? number : own + ((number - own) % workload.count)
}

async function closedLoop({
  url,
  from,
  count,
  concurrency,
}: LoadOrder & { type: 'closed' }): Promise<LoadReport> {
  const connections = connectionsOf(url)
  const tally = new Tally(ANSWER_MS_MAX)
  const startMs = monotonicMs()
  let next = from
  const sendOn = async (): Promise<void> => {
    while (next < from + count) {
      const number = bodyOf(next++)
      const dueMs = monotonicMs()
      tally.due()
      await new Promise<void>(resolve => {
        const exchange: Exchange = {
          body: bodies[number]!,
          piece() {},
          answered() {
            tally.answered({ dueMs, sentMs: dueMs, endedMs: monotonicMs() })
            resolve()
          },
          failed(reason) {
            tally.failed(reason)
            resolve()
          },
        }
        connections.send(exchange)
      })
    }
  }
  await Promise.all(Array.from({ length: concurrency }, sendOn))
  return {
    figures: tally.figures(),
    next,
    windowMs: monotonicMs() - startMs,
    serverMs: undefined,
    restCores: 0,
    foreignCores: 0,
    overlapBlocks: undefined,
  }
}

async function openLoop(order: LoadOrder & { type: 'open' }): Promise<LoadReport> {
  const { url, from, ratePerS, durationMs, seed, deadlineMs, isChecked, server, others } = order
  const connections = connectionsOf(url)
  const startMs = monotonicMs() + LEAD_MS
  const instantsMs = dueTimes(ratePerS, durationMs, seededRandom(seed)).map(atMs => startMs + atMs)
  const words = new Int32Array(new SharedArrayBuffer(8))
  const pacer = new Worker(new URL('./pacer.ts', import.meta.url), {
    workerData: { words, instantsMs } satisfies Pace,
  })
  const tally = new Tally(deadlineMs)
  const open = new Map<number, { readonly dueMs: number; abort(reason: string): void }>()
  let overlapBlocks = 0
  let overlaps = 0
  let drained: (() => void) | undefined
  const settle = (i: number): void => {
    open.delete(i)
    if (open.size === 0) drained?.()
  }
  const issue = (i: number): void => {
    const number = bodyOf(from + i)
    const dueMs = instantsMs[i]!
    tally.due()
    if (open.size >= OPEN_MAX) {
      tally.dropped()
      return
    }
    const reader = new AnswerReader(number, workload, isChecked)
    const sentMs = monotonicMs()
    const connection = connections.send({
      body: bodies[number]!,
      piece: text => reader.piece(text),
      answered(_status, head) {
        const endedMs = monotonicMs()
        if (isChecked) reader.end()
        const { firstMs, gapsMs } = reader
        tally.answered({ dueMs, sentMs, endedMs, ...(firstMs === undefined ? {} : { firstMs, gapsMs }) })
        const overlap = /\r\nx-homing-overlap-blocks: *(\d+)/i.exec(head)?.[1]
        if (overlap !== undefined) {
          overlaps++
          overlapBlocks += Number(overlap)
        }
        settle(i)
      },
      failed(reason) {
        tally.failed(reason)
        settle(i)
      },
    })
    open.set(i, { dueMs, abort: reason => connection.abort(reason) })
  }
  const looks = setInterval(() => {
    const oldestMs = monotonicMs() - ANSWER_MS_MAX
    for (const { dueMs, abort } of open.values())
      if (dueMs < oldestMs) abort(`no answer within ${ANSWER_MS_MAX} ms`)
  }, LOOK_MS)
  const busyMs = knowsCpuTime ? machineBusyMs() : 0
  const before = usages([server, ...others, process.pid])
  const beginMs = monotonicMs()
  for (let sent = 0; sent < instantsMs.length; ) {
    const due = Atomics.load(words, 0)
    while (sent < due) issue(sent++)
    if (sent === instantsMs.length) break
    const woken = Atomics.waitAsync(words, 0, due)
    if (woken.async) await woken.value
  }
  if (open.size > 0)
    await new Promise<void>(resolve => {
      drained = resolve
    })
  clearInterval(looks)
  const after = usages([server, ...others, process.pid])
  const windowMs = monotonicMs() - beginMs
  await pacer.terminate()
  const spent = before.map((usage, i) => (usage === undefined ? undefined : cpuMsBetween(usage, after[i]!)))
  const ownMs = spent.reduce<number>((sum, ms) => sum + (ms ?? 0), 0)
  return {
    figures: tally.figures(),
    next: from + instantsMs.length,
    windowMs,
    serverMs: spent[0],
    restCores: (ownMs - (spent[0] ?? 0)) / windowMs,
    foreignCores: knowsCpuTime ? Math.max(0, (machineBusyMs() - busyMs - ownMs) / windowMs) : 0,
    overlapBlocks: overlaps === 0 ? undefined : overlapBlocks / overlaps,
  }
}

function usages(pids: readonly (number | undefined)[]) {
  return pids.map(pid => (pid === undefined || !knowsCpuTime ? undefined : treeUsage(pid)))
}

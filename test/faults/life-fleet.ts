/**
 * Many histories of lives: simulated ones on as many threads as there are cores, those over sockets on this
 * one.
 */

import { availableParallelism } from 'node:os'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { runLife } from './life-history.ts'
import type { LifeOutcome, Violation } from './life-rules.ts'
import { drawScript, without } from './life-script.ts'

export interface LivesOptions {
  /** The first seed, and how many. */
  readonly from: number
  readonly count: number
  /** Ways to deceive that are left out. */
  readonly left?: readonly string[]
  readonly threads?: number
  /** After so long no further history is begun. */
  readonly budgetMs?: number
  /** Ends with the first violation. */
  readonly isHunt?: boolean
  readonly onViolation?: (found: FoundViolation) => void
}

export interface FoundViolation {
  readonly seed: number
  readonly violation: Violation
}

export type LivesSum = Omit<LifeOutcome, 'violations' | 'unobservable'> & {
  readonly histories: number
  /** Histories in which a block that was gone was credited as exact without any sign, by reason. */
  readonly unobservable: Readonly<Record<string, number>>
  readonly violations: readonly FoundViolation[]
  readonly slowestMs: number
}

interface Given extends Pick<LivesOptions, 'from' | 'count' | 'left'> {
  readonly isLifeThread: true
  /** How many were begun, over all threads. */
  readonly begun: SharedArrayBuffer
}

interface Told {
  readonly seed: number
  readonly ms: number
  readonly outcome: LifeOutcome
}

/** Seeds are assigned in order; a violation of a lower seed may be found after one of a higher seed. */
export async function runLives(options: LivesOptions): Promise<LivesSum> {
  const {
    from,
    count,
    left,
    threads = availableParallelism(),
    isHunt = false,
    budgetMs,
    onViolation,
  } = options
  const begun = new SharedArrayBuffer(4)
  const sum = newSum()
  const workers = Array.from({ length: Math.min(threads, count) }, () => {
    const given: Given = { isLifeThread: true, begun, from, count, ...(left === undefined ? {} : { left }) }
    const worker = new Worker(new URL(import.meta.url), { workerData: given })
    worker.on('message', (told: Told) => {
      add(sum, told, onViolation)
      if (isHunt && told.outcome.violations.length > 0) Atomics.store(new Int32Array(begun), 0, count)
    })
    return new Promise<void>((resolve, reject) => {
      worker.on('error', reject)
      worker.on('exit', () => resolve())
    })
  })
  const beginNoMore = (): void => void Atomics.store(new Int32Array(begun), 0, count)
  const timer = budgetMs === undefined ? undefined : setTimeout(beginNoMore, budgetMs)
  await Promise.all(workers)
  clearTimeout(timer)
  return { ...sum, violations: sum.violations.sort((a, b) => a.seed - b.seed) }
}

/** In real time, `width` histories at once: they mostly wait. */
export async function runRealLives(options: LivesOptions & { readonly width: number }): Promise<LivesSum> {
  const { from, count, left = [], width, budgetMs = Number.POSITIVE_INFINITY, onViolation } = options
  const sum = newSum()
  const startMs = performance.now()
  let begun = 0
  const lane = async (): Promise<void> => {
    while (begun < count && performance.now() - startMs < budgetMs) {
      const seed = from + begun++
      const beginMs = performance.now()
      const outcome = await runLife(without(drawScript(seed), new Set(left)), { isReal: true })
      add(sum, { seed, ms: performance.now() - beginMs, outcome }, onViolation)
    }
  }
  await Promise.all(Array.from({ length: Math.min(width, count) }, lane))
  return sum
}

interface Sum extends Mutable<Omit<LivesSum, 'violations' | 'unobservable'>> {
  readonly violations: FoundViolation[]
  readonly unobservable: Record<string, number>
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] }

function newSum(): Sum {
  const figures = { looks: 0, exactLooks: 0, untold: 0, rests: 0, exactRests: 0 }
  return { histories: 0, ...figures, unobservable: {}, slowestMs: 0, violations: [] }
}

function add(sum: Sum, { seed, ms, outcome }: Told, onViolation: LivesOptions['onViolation']): void {
  sum.histories++
  sum.slowestMs = Math.max(sum.slowestMs, ms)
  for (const name of ['looks', 'exactLooks', 'untold', 'rests', 'exactRests'] as const)
    sum[name] += outcome[name]
  for (const why of outcome.unobservable) sum.unobservable[why] = (sum.unobservable[why] ?? 0) + 1
  for (const violation of outcome.violations) {
    sum.violations.push({ seed, violation })
    onViolation?.({ seed, violation })
  }
}

async function work({ begun, from, count, left = [] }: Given): Promise<void> {
  const next = new Int32Array(begun)
  for (let i = Atomics.add(next, 0, 1); i < count; i = Atomics.add(next, 0, 1)) {
    const startMs = performance.now()
    const outcome = await runLife(without(drawScript(from + i), new Set(left)))
    const told: Told = { seed: from + i, ms: performance.now() - startMs, outcome }
    parentPort!.postMessage(told)
  }
}

if (!isMainThread && (workerData as Partial<Given> | null)?.isLifeThread === true)
  await work(workerData as Given)

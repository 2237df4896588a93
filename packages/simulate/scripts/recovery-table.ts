/**
 * Prints what a client waits when the worker of its stream dies: a restart by the client, a migration that
 * computes the prompt again, and one that reads it out of pooled memory. `pnpm exec node
 * packages/simulate/scripts/recovery-table.ts`. Eight of sixteen workers die, one after the other; ten seeds.
 */

import process from 'node:process'
import { openWorkload, parseWorkload, type RecoverySpec, simulateCell } from '../src/index.ts'

const SEEDS = Array.from({ length: 10 }, (_, i) => i + 1)
const WORKERS = 16
const READ = { readMs: 1, readMsPerToken: 0.002 }
const KINDS: readonly (readonly [name: string, recovery: RecoverySpec])[] = [
  ['restart', { kind: 'restart' }],
  ['migration', { kind: 'migration' }],
  ['pool', { kind: 'pool', ...READ }],
]
const WORKLOADS = [
  'generator:sessions?requests=6000&rate=24',
  'generator:coding?requests=3000',
  'generator:rag?requests=6000&rate=10',
]

interface Sums {
  requests: number
  waitMs: number
  p99Ms: number
  computed: number
  e2eMs: number
}

process.stdout.write(
  '| traffic | recovery | taken up | wait: mean, s | wait: p99, s | tokens computed again | to the last token: mean, s |\n' +
    '|---|---|---:|---:|---:|---:|---:|\n',
)
for (const text of WORKLOADS) {
  const workload = await parseWorkload(text)
  for (const [name, recovery] of KINDS) {
    const sums: Sums = { requests: 0, waitMs: 0, p99Ms: 0, computed: 0, e2eMs: 0 }
    for (const seed of SEEDS) {
      const spec = {
        workers: WORKERS,
        profile: 'h100-8b',
        blockTokens: 512,
        routers: 1,
        view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 },
        selection: { policy: 'auto' },
        knowsOutput: false,
        speed: 1,
        copies: 1,
        stretch: 1,
        seed,
        warmupShare: 0,
        deaths: Array.from({ length: WORKERS / 2 }, (_, i) => ({ atMs: 30_000 + 15_000 * i, worker: i })),
        recovery,
      } as const
      const { result } = await simulateCell(spec, openWorkload(workload, spec))
      if (result.lost > 0) throw new Error(`${result.lost} requests of ${text} were lost`)
      const { requests, waitMs, e2eMs, computedTokens } = result.recovery!
      sums.requests += requests
      sums.waitMs += requests * waitMs.mean
      sums.p99Ms = Math.max(sums.p99Ms, waitMs.p99)
      sums.computed += requests * computedTokens
      sums.e2eMs += requests * e2eMs.mean
    }
    const each = (sum: number): number => sum / Math.max(1, sums.requests)
    const row = [
      text.slice('generator:'.length).replace(/\?.*/, ''),
      name,
      String(sums.requests),
      (each(sums.waitMs) / 1000).toFixed(2),
      (sums.p99Ms / 1000).toFixed(2),
      each(sums.computed).toFixed(0),
      (each(sums.e2eMs) / 1000).toFixed(1),
    ]
    process.stdout.write(`| ${row.join(' | ')} |\n`)
  }
}

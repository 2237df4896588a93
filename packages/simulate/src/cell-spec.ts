/** What can be simulated: the figures of a spec within their ranges. */

import { TRACE_BLOCK_TOKENS } from '@homing/trace'
import type { CellSpec } from './cell-types.ts'
import { SimulationError } from './simulation-error.ts'

/** Throws SimulationError for the first figure that is out of range. */
export function checkSpec(spec: CellSpec): void {
  const { workers, routers, blockTokens, warmupShare, view, slow } = spec
  const traceBlockTokens = spec.traceBlockTokens ?? TRACE_BLOCK_TOKENS
  const require = (condition: boolean, what: string, right: string): void => {
    if (!condition) throw new SimulationError(what, right)
  }
  require(isWhole(workers, 1, 65_536), `${workers} workers`, 'use a whole number from 1 to 65,536')
  require(isWhole(routers, 1, 64), `${routers} routers`, 'use a whole number from 1 to 64')
  require(isWhole(blockTokens, 1, traceBlockTokens) &&
    traceBlockTokens % blockTokens ===
      0, `blocks of ${blockTokens} tokens`, `use a divisor of ${traceBlockTokens}, the block of the trace`)
  require(warmupShare >= 0 && warmupShare < 1, `a warm-up share of ${warmupShare}`, 'use 0 or more, below 1')
  const { replicaSyncMs = 0, replicaGather, companyMs = 0, baseLatencyMs = 0, selection } = spec
  const ages = [view.eventDelayMs, view.signalDelayMs, view.guessTtlMs ?? 0]
  const gathers = [replicaGather?.ms ?? 0, selection.nearTieMs ?? 0]
  for (const ms of [...ages, baseLatencyMs, replicaSyncMs, companyMs, ...gathers]) {
    require(ms >= 0 && ms < Number.POSITIVE_INFINITY, `a delay of ${ms} ms`, 'use a number ≥ 0')
  }
  checkPools(spec, require)
  const { readMs = 0, readMsPerToken = 0, weight = 1 } = spec.recovery ?? {}
  for (const figure of [readMs, readMsPerToken, weight])
    require(figure >= 0 &&
      figure < Number.POSITIVE_INFINITY, `a recovery with a figure of ${figure}`, 'use a number ≥ 0')
  const lossShare = view.lossShare ?? 0
  require(lossShare >= 0 && lossShare <= 1, `a loss share of ${lossShare}`, 'use a number from 0 to 1')
  if (slow !== undefined) {
    require(slow.share >= 0 && slow.share <= 1, `a slow share of ${slow.share}`, 'use a number from 0 to 1')
    const { worker = 0 } = slow
    require(isWhole(worker, 0, workers - 1), `a slow worker ${worker}`, `use 0 to ${workers - 1}`)
    require(slow.factor > 0 && slow.factor < 1e6, `a slow factor of ${slow.factor}`, 'use a number above 0')
  }
  for (const { worker, atMs, forMs } of spec.stalls ?? []) {
    require(isWhole(worker, 0, workers - 1), `a stall of worker ${worker}`, `use 0 to ${workers - 1}`)
    for (const ms of [atMs, forMs])
      require(ms >= 0 && ms < Number.POSITIVE_INFINITY, `a stall of ${ms} ms`, 'use a number ≥ 0')
  }
  checkHedge(spec, require)
  for (const { worker } of [...(spec.joins ?? []), ...(spec.deaths ?? [])]) {
    require(isWhole(worker, 0, workers - 1), `a change of worker ${worker}`, `use 0 to ${workers - 1}`)
  }
}

/** Hedges are simulated where nothing else places a request twice. */
const NOT_WITH_HEDGES = ['pools', 'deaths', 'trouble', 'replicaSyncMs'] as const

function checkHedge(
  spec: CellSpec,
  require: (condition: boolean, what: string, right: string) => void,
): void {
  const { hedge, selection } = spec
  if (hedge === undefined) return
  const { afterMs, budgetShare } = hedge
  require(afterMs > 0 &&
    afterMs < Number.POSITIVE_INFINITY, `a hedge after ${afterMs} ms`, 'use a number above 0')
  require(budgetShare >= 0 && budgetShare <= 1, `a budget of ${budgetShare}`, 'use a number from 0 to 1')
  for (const name of NOT_WITH_HEDGES)
    require(spec[name] === undefined, `hedges with ${name}`, `leave ${name} out`)
  require(selection.queue === undefined, 'hedges with a queue', 'leave the queue out')
}

/** What nothing was built for: workers that come and go, queues, and what knows no legs. */
const NOT_WITH_POOLS = ['joins', 'deaths', 'recovery', 'trouble', 'replicaSyncMs'] as const

function checkPools(
  { pools, workers, selection, ...more }: CellSpec,
  require: (condition: boolean, what: string, right: string) => void,
): void {
  if (pools === undefined) return
  const { prefill, transferMs, transferMsPerToken, stay } = pools
  require(isWhole(
    prefill,
    1,
    workers - 1,
  ), `${prefill} prefill workers of ${workers}`, 'use at least one of either kind')
  for (const ms of [transferMs, transferMsPerToken])
    require(ms >= 0 && ms < Number.POSITIVE_INFINITY, `a transfer of ${ms} ms`, 'use a number ≥ 0')
  if (stay !== undefined && stay !== 'auto') {
    require(stay.tokens >= 0, `${stay.tokens} new tokens`, 'use a number ≥ 0')
    require(stay.share >= 0 && stay.share <= 1, `a share of ${stay.share}`, 'use a number from 0 to 1')
  }
  if (stay === 'auto')
    require(selection.policy ===
      'auto', `legs compared by ${selection.policy}`, "use policy 'auto': no other knows times")
  for (const name of NOT_WITH_POOLS)
    require(more[name] === undefined, `pools with ${name}`, 'leave one of them out')
  for (const name of ['queue', 'rule', 'workersWithoutLongPrompts'] as const)
    require(selection[name] === undefined, `pools with ${name}`, 'leave one of them out')
  require(selection.oracleView !== true, 'pools with oracleView', 'leave one of them out')
}

function isWhole(value: number, min: number, max: number): boolean {
  return Number.isInteger(value) && value >= min && value <= max
}

/**
 * KV usage in the metrics of an engine: the share of its KV cache that its requests use, 0 … 1, by
 * data-parallel rank.
 *
 *   vllm:kv_cache_usage_perc{engine="RANK"}     vLLM and engines that copy it
 *   vllm:gpu_cache_usage_perc{engine="RANK"}    vLLM before 0.10
 *   sglang:token_usage{dp_rank="RANK"}          SGLang with --enable-metrics; without the label it is rank 0
 *
 * Cached blocks that no request uses count in neither. If several lines have one rank (the shards of a
 * model), the highest counts.
 */

import { RANKS_MAX } from '@homing/fleet'

const NAMES = ['vllm:kv_cache_usage_perc', 'sglang:token_usage', 'vllm:gpu_cache_usage_perc'] as const

/** By rank; empty: the text names none. */
export function readKvUsage(metrics: string): ReadonlyMap<number, number> {
  for (const name of NAMES) {
    const shares = sharesOf(metrics, name)
    if (shares.size > 0) return shares
  }
  return new Map()
}

/** Start of the process in Unix seconds; undefined: the text does not say. */
export function readStartSeconds(metrics: string): number | undefined {
  const value = Number(/^process_start_time_seconds(?:\{.*\})? +(\S+)/m.exec(metrics)?.[1])
  return Number.isFinite(value) && value > 0 ? value : undefined
}

function sharesOf(metrics: string, name: string): Map<number, number> {
  const shares = new Map<number, number>()
  // Metrics are long and the lines few: what is between them is not split.
  for (let at = metrics.indexOf(name); at >= 0; at = metrics.indexOf(name, at + name.length)) {
    const isLineStart = at === 0 || metrics[at - 1] === '\n'
    const next = metrics[at + name.length]
    if (!isLineStart || (next !== '{' && next !== ' ')) continue
    const end = metrics.indexOf('\n', at)
    const line = metrics.slice(at + name.length, end < 0 ? undefined : end)
    const [, labels = '', value = 'none'] = /^(?:\{(.*)\})? +(\S+)/.exec(line) ?? []
    const share = Number(value)
    const rank = Number(/(?:^|,) *(?:engine|dp_rank)="(\d{1,4})"/.exec(labels)?.[1] ?? 0)
    if (!(share >= 0 && share <= 1) || rank >= RANKS_MAX) continue
    shares.set(rank, Math.max(share, shares.get(rank) ?? 0))
  }
  return shares
}

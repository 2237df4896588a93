/** The Prometheus text of /metrics with vLLM's names; only what a router or an operator looks at. */

import type { ModelCounts } from './engine-model.ts'

export interface EngineMetricsInput {
  readonly model: string
  readonly blockSizeTokens: number
  readonly blocks: number
  readonly adapters: readonly string[]
  /** By dp rank. */
  readonly ranks: readonly ModelCounts[]
  /** Requests that ended, by finish reason. */
  readonly finished: Readonly<Record<string, number>>
  /** Seconds since 1970 when this life of the engine began. */
  readonly startSeconds: number
}

/** The body of /metrics. */
export function metricsText(input: EngineMetricsInput): string {
  const lines: string[] = []
  const name = labelText(input.model)
  const family = (
    metric: string,
    kind: 'gauge' | 'counter',
    help: string,
    value: (counts: ModelCounts) => number,
  ): void => {
    const sample = kind === 'counter' ? `${metric}_total` : metric
    lines.push(`# HELP ${metric} ${help}`, `# TYPE ${metric} ${kind}`)
    for (const [rank, counts] of input.ranks.entries()) {
      lines.push(`${sample}{engine="${rank}",model_name="${name}"} ${number(value(counts))}`)
    }
  }
  family('vllm:num_requests_running', 'gauge', 'Requests in execution.', counts => counts.running)
  family('vllm:num_requests_waiting', 'gauge', 'Requests waiting.', counts => counts.waiting)
  family('vllm:kv_cache_usage_perc', 'gauge', 'Share of KV blocks in use, 0 to 1.', counts => counts.kvUsage)
  family('vllm:prefix_cache_queries', 'counter', 'Tokens looked up.', counts => counts.queriedTokens)
  family('vllm:prefix_cache_hits', 'counter', 'Tokens found.', counts => counts.hitTokens)
  family(
    'vllm:external_prefix_cache_queries',
    'counter',
    'Tokens looked up in the pool.',
    counts => counts.poolQueriedTokens,
  )
  family(
    'vllm:external_prefix_cache_hits',
    'counter',
    'Tokens read out of the pool.',
    counts => counts.poolHitTokens,
  )
  family('vllm:num_preemptions', 'counter', 'Pre-emptions.', counts => counts.preemptions)
  family('vllm:prompt_tokens', 'counter', 'Prompt tokens processed.', counts => counts.promptTokens)
  family('vllm:generation_tokens', 'counter', 'Tokens generated.', counts => counts.generatedTokens)
  lines.push('# HELP vllm:request_success Requests that ended.', '# TYPE vllm:request_success counter')
  for (const [reason, count] of Object.entries(input.finished)) {
    lines.push(
      `vllm:request_success_total{engine="0",finished_reason="${reason}",model_name="${name}"} ${number(count)}`,
    )
  }
  lines.push('# HELP vllm:cache_config_info The KV cache.', '# TYPE vllm:cache_config_info gauge')
  const capacityTokens = (input.blocks - 1) * input.blockSizeTokens
  for (const rank of input.ranks.keys()) {
    lines.push(
      `vllm:cache_config_info{block_size="${input.blockSizeTokens}",enable_prefix_caching="True",engine="${rank}",kv_cache_size_tokens="${capacityTokens}",num_gpu_blocks="${input.blocks}"} 1.0`,
    )
  }
  if (input.adapters.length > 0) {
    lines.push(
      '# HELP vllm:lora_requests_info Adapters.',
      '# TYPE vllm:lora_requests_info gauge',
      `vllm:lora_requests_info{max_lora="${input.adapters.length}",running_lora_adapters="",waiting_lora_adapters=""} ${number(input.startSeconds)}`,
    )
  }
  lines.push(
    '# HELP process_start_time_seconds Start of the process, seconds since 1970.',
    '# TYPE process_start_time_seconds gauge',
    `process_start_time_seconds ${number(input.startSeconds)}`,
  )
  return `${lines.join('\n')}\n`
}

/** As Python writes floats: 3 is 3.0. */
function number(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value)
}

function labelText(text: string): string {
  return text.replace(/[\\"\n]/g, character => (character === '\n' ? '\\n' : `\\${character}`))
}

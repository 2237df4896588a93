/** What engines say in their metrics of their KV caches. */

import t from 'tap'
import { readKvUsage } from '../src/kv-usage.ts'

const entries = (text: string): readonly (readonly [number, number])[] => [...readKvUsage(text)]

t.test('vLLM, one rank and several', async t => {
  const text = `# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="a,engine=\\"7\\""} 0.0625
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 1.0
`
  t.strictSame(entries(text), [
    [0, 0.0625],
    [1, 1],
  ])
  t.strictSame(
    entries('vllm:gpu_cache_usage_perc{model_name="m"} 0.5'),
    [[0, 0.5]],
    'as it was called before',
  )
  t.strictSame(
    entries('vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25\n'),
    [[0, 0.25]],
    'the present name wins',
  )
})

t.test('SGLang, whose shards each say it', async t => {
  const line = (labels: string, value: string): string =>
    `sglang:token_usage{engine_type="unified",model_name="m",${labels}} ${value}\n`
  t.strictSame(entries(line('tp_rank="0",pp_rank="0"', '0.3') + line('tp_rank="1",pp_rank="0"', '0.31')), [
    [0, 0.31],
  ])
  t.strictSame(entries(line('dp_rank="0",tp_rank="0"', '0.1') + line('dp_rank="1",tp_rank="1"', '4e-2')), [
    [0, 0.1],
    [1, 0.04],
  ])
})

t.test('what is not a share of a rank is left out', async t => {
  for (const text of [
    '',
    '# TYPE vllm:kv_cache_usage_perc gauge',
    'vllm:kv_cache_usage_perc_total{engine="0"} 0.5',
    'x vllm:kv_cache_usage_perc{engine="0"} 0.5',
    'vllm:kv_cache_usage_perc{engine="0"} NaN',
    'vllm:kv_cache_usage_perc{engine="0"} -0.1',
    'vllm:kv_cache_usage_perc{engine="0"} 42',
    'vllm:kv_cache_usage_perc{engine="9999"} 0.5',
    'vllm:kv_cache_usage_perc{engine="0"',
    'vllm:kv_cache_usage_perc{engine="0"}',
    'vllm:kv_cache_usage_perc{engine="0"}\n0.5',
  ])
    t.strictSame(entries(text), [], JSON.stringify(text))
})

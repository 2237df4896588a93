/** Figures in the metrics of an engine that say how busy it is. */

/** Requests waiting in the engine, over all ranks (vLLM, SGLang); undefined: not in the metrics. */
export function requestsWaiting(metrics: string): number | undefined {
  let waiting: number | undefined
  for (const line of metrics.split('\n')) {
    const match = /^(?:vllm:num_requests_waiting|sglang:num_queue_reqs)(?:\{[^}]*\})? (\S+)/.exec(line)
    const count = Number(match?.[1])
    if (Number.isFinite(count)) waiting = (waiting ?? 0) + count
  }
  return waiting
}

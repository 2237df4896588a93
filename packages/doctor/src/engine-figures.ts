/** Figures in the metrics of an engine that say how busy it is. */

/** Requests that wait in it, over all ranks, as vLLM and SGLang say; undefined: they do not. */
export function requestsWaiting(metrics: string): number | undefined {
  let waiting: number | undefined
  for (const line of metrics.split('\n')) {
    const match = /^(?:vllm:num_requests_waiting|sglang:num_queue_reqs)(?:\{[^}]*\})? (\S+)/.exec(line)
    const count = Number(match?.[1])
    if (Number.isFinite(count)) waiting = (waiting ?? 0) + count
  }
  return waiting
}

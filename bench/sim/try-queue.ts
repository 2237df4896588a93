import { type CellSpec, detectBinMs, openWorkload, parseColumn, parseWorkload, simulateCell } from '@homing/simulate'
const [, , trace, speedText, ...columns] = process.argv
const path = trace!.startsWith('generator') ? trace! : `/work/shared/traces/${trace}_trace.jsonl.gz`
const workload = await parseWorkload(path)
const binMs = await detectBinMs(workload)
for (const text of columns) {
  const [name, threshold, order = 'auto', aging] = text.split('/') as [string, string?, any?, string?]
  const { selection } = parseColumn(name)
  const spec: CellSpec = {
    workers: 8, profile: 'h100-8b', copies: 1, blockTokens: 512, routers: 1,
    view: { kind: 'late', eventDelayMs: 20, signalDelayMs: 2 }, knowsOutput: false, speed: Number(speedText), stretch: 1, warmupShare: 0.1,
    ...(binMs > 0 && { spread: { binMs, jitterShare: 0.2 } }), seed: Number(process.env.SEED ?? 1),
    selection: { ...selection, ...(threshold && { queue: { threshold: threshold === 'auto' ? 'auto' : Number(threshold), order, ...(aging && { agingMs: Number(aging) }) } }) },
  }
  const { result: r, cost } = await simulateCell(spec, openWorkload(workload, spec))
  const f = (x: number) => x.toFixed(x > 100 ? 0 : 2)
  console.log(text.padEnd(34), 'ttft', f(r.ttftMs.mean / 1000), f(r.ttftMs.p99 / 1000), 'e2e', f(r.e2eMs.mean / 1000), 'itl', f(r.itlMs.mean), 'good', f(100 * r.goodput.standard), f(100*r.goodput.interactive), 'hit', f(100 * r.hitRate), 'refused', r.refused, JSON.stringify(r.queue), 'ms', cost.elapsedMs.toFixed(0), 'µs/d', f(cost.cpuUsPerDecision))
}

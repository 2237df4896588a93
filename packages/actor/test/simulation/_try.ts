import { runToys } from './scenario.ts'

const first = Number(process.argv[2] ?? 1),
  n = Number(process.argv[3] ?? 20),
  show = Number(process.argv[4] ?? 3)
let t = performance.now(),
  steps = 0,
  msgs = 0,
  bad = 0
for (let s = first; s < first + n; s++) {
  try {
    const o = await runToys(s)
    steps += o.steps
    msgs += o.messages
    if (process.argv[5]) {
      const b = await runToys(s)
      if (b.traceHash !== o.traceHash) console.log('DIFF', s, o.steps, b.steps)
    }
    if (o.violations.length) {
      bad++
      if (bad <= show) console.log(s, o.steps, o.violations.slice(0, 4))
    }
  } catch (e) {
    bad++
    if (bad <= show) console.log(s, 'THREW', e)
  }
}
const ms = performance.now() - t
console.log({
  n,
  bad,
  ms: Math.round(ms),
  perSeedMs: ms / n,
  steps: steps / n,
  msgs: msgs / n,
  stepsPerS: ((steps / ms) * 1000) | 0,
})

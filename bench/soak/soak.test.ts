import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

t.test('a smoke soak breaks no promise and states its figures', async t => {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  const { status, stdout, stderr } = spawnSync(process.execPath, [run, 'soak', '--smoke'], {
    encoding: 'utf8',
    timeout: 300_000,
  })
  t.equal(status, 0, stderr)
  const { bench, results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  t.equal(bench, 'soak')
  t.match(results, {
    lostBeyondWindow: { median: 0 },
    duplicates: { median: 0 },
    violations: { median: 0 },
    failoverP99: { median: Number, unit: 'ms' },
    rssGrowth: { median: Number, unit: 'MiB/1,000 deaths' },
    simulatedMessages: { median: Number },
    simulatedLostBeyondWindow: { median: 0 },
    simulatedViolations: { median: 0 },
  })
})

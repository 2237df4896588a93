import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { knowsCpuTime } from '../http/processes.ts'

const linuxOnly = knowsCpuTime ? {} : { skip: 'the CPU time of another process is read from /proc' }

t.test('the bench runs, and says what a decision costs', linuxOnly, async t => {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  const options = { encoding: 'utf8', timeout: 300_000 } as const
  const { status, stdout, stderr } = spawnSync(process.execPath, [run, 'picker', '--smoke'], options)
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  for (const name of ['routerCpu', 'pickerCpu', 'ratio', 'frameCpu', 'addedP50', 'addedP99'])
    t.match(results[name], { median: Number }, name)
})

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

function bench(...words: string[]) {
  const run = fileURLToPath(new URL('./run.ts', import.meta.url))
  return spawnSync(process.execPath, [run, ...words], { encoding: 'utf8', timeout: 60_000 })
}

t.test('without a name the benches are listed with their questions', async t => {
  const { status, stdout } = bench()
  t.equal(status, 0)
  t.match(stdout, /^index +How fast and how small is the prefix index\?$/m)
})

t.test('an unknown bench, option, parameter or peer is one clear line and exit code 2', async t => {
  for (const words of [
    ['nope'],
    ['index', '--nope'],
    ['index', '--smoke', 'nope=1'],
    ['index', '--vs', 'nope'],
  ]) {
    const { status, stdout, stderr } = bench(...words)
    t.equal(status, 2, words.join(' '))
    t.equal(stdout, '')
    t.match(stderr, /^bench: unknown .*nope.*\n$/)
  }
  t.match(bench('index', '--smoke', 'workers=many').stderr, /^bench: workers=many: not a number\n$/)
})

t.test('the last line of a bench is one JSON object, and the index agrees with the naive one', async t => {
  const { status, stdout, stderr } = bench('index', '--smoke', '--runs', '2', '--vs', 'naive', 'workers=5')
  t.equal(status, 0, stderr)
  const line = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  t.match(line, {
    bench: 'index',
    node: process.version,
    cpu: String,
    commit: String,
    params: { smoke: true, runs: 2, workers: 5 },
    vs: 'naive',
    results: { mixed: { median: Number, min: Number, max: Number, unit: 'block op/s', ratio: Number } },
  })
  t.equal(line.results.scoreSum.median, line.results.scoreSum.peer)
})

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

function bench(...words: string[]) {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  return spawnSync(process.execPath, [run, 'actors', ...words], { encoding: 'utf8', timeout: 240_000 })
}

t.test('a row states its figure, the raw one beside it, and whether its targets are met', async t => {
  const { status, stdout, stderr } = bench(
    '--smoke',
    '--vs',
    'nact',
    'rows=localTell,crossTell',
    'crossTells=2000',
  )
  t.equal(status, 0, stderr)
  t.match(stderr, /^ {2}nact \d/m)
  t.match(stderr, /localTell .* msg\/s .*× raw bare loop.*floor 15 M (met|missed); goal 30 M (met|missed)/)
  const line = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  t.match(line, {
    bench: 'actors',
    vs: 'nact',
    versions: { nact: String },
    results: {
      localTell: {
        median: Number,
        unit: 'msg/s',
        raw: { 'bare loop': Number },
        rawRatio: { 'bare loop': Number },
        floor: { value: 15e6, is: /^(met|missed)$/ },
        ratio: Number,
        peers: { nact: { median: Number, ratio: Number } },
      },
      crossTell: { raw: { ring: Number, port: Number } },
    },
  })
})

t.test('every promise on speed has its row, with a floor, a goal and a verdict', async t => {
  const { status, stdout, stderr } = bench('--smoke')
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  const judged = Object.keys(results).filter(name => 'floor' in results[name])
  t.strictSame(judged, [
    'localTell',
    'localAsk',
    'localAskSequential',
    'spawnStop',
    'idleActor',
    'crossTell',
    'crossObject',
    'crossObjectBatched',
    'crossAsk',
    'crossAskSequentialP50',
    'openLoopP50',
    'openLoopP99',
    'openLoopCpu',
    'object64B',
    'object1KiB',
    'object16KiB',
    'object256KiB',
    'idleCpu',
    'ready',
    'failoverP99',
    'failoverColdP99',
    'hangP99',
    'askRejectionP99',
    'storm',
    'stormRssSlope',
    'simulatedMessages',
    'simulatedSeeds',
    'nightViolations',
    'nightHours',
    'lostBeyondWindow',
    'duplicates',
    'disorders',
    'stuckAsks',
    'violations',
    'modelFailures',
    'modelIncomplete',
  ])
  for (const name of judged) {
    const { floor, goal } = results[name]
    t.match(floor.is, /^(met|missed)$/, `${name}: floor`)
    t.match(goal.is, /^(met|missed)$/, `${name}: goal`)
  }
  // What two threads do is stated in CPU time as well, since the clock depends on who else is there.
  for (const name of ['crossTell', 'crossObject', 'crossAsk', 'crossAskSequential']) {
    t.match(results, { [`${name}Cpu`]: { unit: 'ns CPU' }, [`${name}CpuBusier`]: { unit: 'ns CPU' } })
  }
})

t.test('with --json nothing is written for people', async t => {
  const { status, stdout, stderr } = bench('--smoke', '--json', 'rows=localAsk')
  t.equal(status, 0, stderr)
  t.equal(stderr, '')
  t.ok(JSON.parse(stdout).results.localAsk)
})

t.test('an unknown row is one clear line and exit code 2', async t => {
  const { status, stderr } = bench('--smoke', 'rows=nope')
  t.equal(status, 2)
  t.match(stderr, /^bench: unknown row nope; known: .*\n$/)
})

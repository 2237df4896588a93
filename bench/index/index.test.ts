import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

const folder = mkdtempSync(join(tmpdir(), 'homing-bench-index-'))
t.teardown(() => rmSync(folder, { recursive: true, force: true }))

/** One loop on a small corpus in a folder of its own. */
function bench(words: readonly string[], environment: NodeJS.ProcessEnv = process.env) {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  return spawnSync(process.execPath, [run, 'index', '--smoke', `corpusDir=${folder}`, ...words], {
    encoding: 'utf8',
    timeout: 300_000,
    env: environment,
  })
}

t.test('an unknown loop, corpus or plant is one clear line and exit code 2', async t => {
  for (const words of [['loops=A,nope'], ['corpus=nope'], ['plant=nope']]) {
    const { status, stderr } = bench(words)
    t.equal(status, 2, words.join(' '))
    t.match(stderr, /^bench: .*nope.*\n$/)
  }
})

t.test('without cargo the peer is skipped by name, and the bench goes on', async t => {
  const { status, stdout, stderr } = bench(['loops=A', '--vs', 'dynamo'], {
    ...process.env,
    PATH: dirname(process.execPath),
  })
  t.equal(status, 0, stderr)
  t.match(stderr, /^ {2}dynamo is skipped: it is not installed$/m)
  t.match(JSON.parse(stdout), { results: { mixed: { values: [Number] } } })
})

t.test('where nothing is removed, there is no figure of it', async t => {
  const { status, stdout, stderr } = bench(['loops=A', 'requests=100', 'cacheBlocks=20000', 'capacityMb=8'])
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout)
  t.ok(results.stored)
  t.notOk('removed' in results)
})

t.test('--check compares the best of the runs, and names the row that became slower', async t => {
  const baseline = join(folder, 'baseline.json')
  t.equal(bench(['loops=A', `out=${baseline}`]).status, 0)
  const stored = JSON.parse(readFileSync(baseline, 'utf8'))
  const scaled = (factor: number): string => {
    const copy = structuredClone(stored)
    for (const [name, result] of Object.entries<{ values: number[]; unit: string }>(copy.results)) {
      // Memory does not change with who else is on the machine.
      const slower = name === 'bytesPerMembership' ? 1 : result.unit.endsWith('/s') ? 1 / factor : factor
      result.values = [result.values[0]! * slower]
    }
    const file = join(folder, `baseline-${factor}.json`)
    writeFileSync(file, JSON.stringify(copy))
    return file
  }
  const passed = bench(['loops=A', '--check', scaled(100)])
  t.equal(passed.status, 0, passed.stderr)
  const failed = bench(['loops=A', '--check', scaled(0.01)])
  t.equal(failed.status, 1)
  for (const row of ['lookupCpu', 'eventCpu', 'mixed', 'lookups']) {
    t.match(failed.stderr, new RegExp(`^index: the row ${row} is slower: `, 'm'))
  }
  t.notMatch(failed.stderr, /the row bytesPerMembership/)
  t.equal(bench(['loops=A', '--check', join(folder, 'absent.json')]).status, 2)
})

/** The machine may be slow while the baseline is made, which hides a slowdown: then with another baseline. */
const BASELINES_MAX = 4

t.test('--check finds a lookup that takes twice as long, and 6 µs more per event', async t => {
  const size = ['loops=A', 'requests=800', 'cacheBlocks=2000', 'capacityMb=4']
  const baseline = join(folder, 'unplanted.json')
  const missing = new Map([
    ['lookup', 'lookupCpu'],
    ['event', 'eventCpu'],
  ])
  for (let i = 0; i < BASELINES_MAX && missing.size > 0; i++) {
    t.equal(bench([...size, `out=${baseline}`]).status, 0)
    for (const [plant, row] of missing) {
      const { status, stderr } = bench([...size, `plant=${plant}`, '--check', baseline])
      if (status === 1 && stderr.includes(`index: the row ${row} is slower: `)) missing.delete(plant)
    }
  }
  t.strictSame([...missing.keys()], [])
})

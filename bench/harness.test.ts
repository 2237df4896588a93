import { spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'

function bench(...words: string[]) {
  const run = fileURLToPath(new URL('./run.ts', import.meta.url))
  return spawnSync(process.execPath, [run, ...words], { encoding: 'utf8', timeout: 300_000 })
}

t.test('without a name the benches are listed with their questions', async t => {
  const { status, stdout } = bench()
  t.equal(status, 0)
  t.match(stdout, /^index +How fast and how small is the prefix index\?$/m)
})

t.test('with --help each bench tells its question, its parameters and its options', async t => {
  const names = [...bench().stdout.matchAll(/^([a-z]+) +[A-Z]/gm)].map(([, name]) => name!)
  t.ok(names.length >= 5)
  const helps = new Map(names.map(name => [name, bench(name, '--help')]))
  for (const [name, { status, stdout, stderr }] of helps) {
    t.strictSame([status, stderr], [0, ''], name)
    t.match(stdout, new RegExp(`^Usage: pnpm bench ${name} .*\\n\\nQuestion +[A-Z]`))
    t.match(stdout, /^ {2}--runs N +runs, each in a process of its own/m)
    t.match(stdout, /^ +default +with --smoke\n {2}\w+ +\S+ +\S+$/m)
  }
  const { stdout } = helps.get('index')!
  t.match(stdout, /^ {2}corpus +idx-small +synthetic$/m)
  t.match(stdout, /^ {2}offeredMax +32_000_000 +2_000_000$/m)
  t.match(stdout, /^ {2}--vs PEER,… +others that do the same work: naive, dynamo$/m)
  t.equal(bench('index', '--help', '--nope').status, 2, 'what is wrong beside it is still told')
})

t.test('a question of two lines is listed whole', async t => {
  t.match(bench().stdout, /^soak +What is lost, .* and over 200 million messages of simulated ones\?$/m)
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
  for (const names of ['', 'naive,', ',']) {
    const { status, stdout, stderr } = bench('index', '--smoke', '--vs', names)
    t.strictSame([status, stdout, stderr], [2, '', `bench: --vs ${names}: a name is empty\n`])
  }
  const long = bench('index', '--smoke', '--vs', 'x'.repeat(5000)).stderr
  t.ok(long.startsWith('bench: unknown peer xxx') && long.length < 300, 'a long name is cut')
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

const HARNESS = new URL('./harness.ts', import.meta.url).href
const BASE = new URL('../packages/base/src/index.ts', import.meta.url).href

/** A bench of one measure, which says whose packages it has: 5 of this checkout, else that of the other. */
const ASKS_PACKAGES = `
  const { isPaired, parameter, runBench } = await import(${JSON.stringify(HARNESS)})
  const against = parameter('against', { smoke: '', full: '' })
  const run = async () => {
    const { ANSWER = 5 } = await import(${JSON.stringify(BASE)})
    return { answer: { value: ANSWER, unit: 'ns' }, isPaired: { value: Number(isPaired), unit: '' } }
  }
  await runBench(
    {
      ...{ name: 'asks', question: 'Whose?', parts: ['a', 'b'], pins: ['isPaired'] },
      targets: { answer: { floor: 1.1, goal: 0.5, timesPeer: 'before' } },
      peers: against === '' ? {} : { before: { run, packagesOf: against } },
    },
    run,
  )`

t.test('pairs are new processes in changing order, with another checkout and with itself', async t => {
  const folder = t.testdir({ 'bench.ts': ASKS_PACKAGES })
  const other = join(folder, 'other')
  mkdirSync(join(other, 'packages/base/src'), { recursive: true })
  writeFileSync(join(other, 'packages/base/src/index.ts'), 'export const ANSWER = 4\n')
  const asks = (...words: string[]) =>
    spawnSync(process.execPath, [join(folder, 'bench.ts'), ...words], { encoding: 'utf8', timeout: 300_000 })

  const { status, stdout, stderr } = asks('--pairs', '6', `against=${other}`)
  t.equal(status, 0, stderr)
  t.strictSame(
    stderr.match(/(?<=done )\(.*\)/g),
    [
      '(ours, before, again)',
      '(again, before, ours)',
      '(before, again, ours)',
      '(ours, again, before)',
      '(again, ours, before)',
      '(before, ours, again)',
    ],
    'each is as often before as behind each other one, and at each place',
  )
  t.match(
    stderr,
    /answer +5 ns .*; 1.25 \(95 %: 1.25 … 1.25\) × before \(4\); 1 \(95 %: 1 … 1\) × again \(5\)/,
  )
  t.match(stderr, /floor 1.1 × before missed; goal 0.5 × before missed/)
  const { answer } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!).results
  t.match(answer.peers, {
    before: { ratio: 1.25, interval: [1.25, 1.25], values: [4, 4, 4, 4, 4, 4] },
    again: { ratio: 1, interval: [1, 1] },
  })
  t.equal(answer.ratio, 1.25, 'the control is no peer to be measured by')

  t.match(asks('--pairs', '2').stderr, /^bench: --pairs needs another side: against=PATH .*\n$/)
  t.match(asks('--pairs', '0').stderr, /^bench: --pairs 0: not 1 … 1000\n$/)
  t.match(asks('--pairs', '2', '--runs', '2').stderr, /^bench: --runs and --pairs: only one of them\n$/)
  t.equal(asks('--pairs', '2', '--help').status, 0)
})

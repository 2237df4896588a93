import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'

function bench(...words: string[]) {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  return spawnSync(process.execPath, [run, 'actors', ...words], { encoding: 'utf8', timeout: 60_000 })
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

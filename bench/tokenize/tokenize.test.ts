import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { corpusOf, KINDS } from './corpora.ts'

function bench(...words: string[]) {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  return spawnSync(process.execPath, [run, 'tokenize', '--smoke', ...words], {
    encoding: 'utf8',
    timeout: 300_000,
  })
}

t.test('a run has every state of every kind beside the peers, and what was compared', async t => {
  const { status, stdout, stderr } = bench()
  t.equal(status, 0, stderr)
  const { results } = JSON.parse(stdout.trimEnd().split('\n').at(-1)!)
  for (const kind of ['english', 'mixed']) {
    for (const state of ['new', 'warm', 'turn']) {
      t.match(results[`cl100k-32k ${kind} 1 k ${state}`], { unit: 'ms CPU', raw: { library: Number } })
    }
  }
  const { 'cl100k-32k memory words, most': words, 'cl100k-32k memory remembered, most': remembered } = results
  t.ok(words.median > 0 && words.median <= 4 * 1.048576, 'the words stay within their setting')
  t.ok(remembered.median > 0 && remembered.median <= 4 * 1.048576, 'and so does what is remembered')
  t.match(stderr, /vocabulary \d+\.\d MB once/, 'gauges are printed on the way')
  if (!stderr.includes('native is left out')) {
    t.match(results['cl100k-32k equality'], { median: 0 })
    t.ok(results['cl100k-32k compared'].median >= 10_000)
  }
})

t.test('unknown kinds, sizes and parts are one clear line and exit code 2', async t => {
  for (const word of ['kinds=nope', 'sizes=nope', 'part=nope']) {
    const { status, stdout, stderr } = bench(word)
    t.strictSame([status, stdout], [2, ''], word)
    t.match(stderr, /^bench: \S*nope|NaN\S*: .*\n$/)
  }
})

t.test('a vocabulary that was not downloaded is skipped by name', async t => {
  const run = fileURLToPath(new URL('../run.ts', import.meta.url))
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [run, 'tokenize', '--smoke', 'vocabularies=qwen', 'part=equality'],
    { encoding: 'utf8', timeout: 300_000, env: { ...process.env, HOMING_VOCABULARIES: t.testdir() } },
  )
  t.equal(status, 0, stderr)
  t.match(JSON.parse(stdout).skipped, { 'qwen equality': /qwen was not downloaded from its registry/ })
})

t.test('each kind has two halves of enough other text', async t => {
  for (const kind of KINDS) {
    const { other, measured } = corpusOf(kind)
    t.ok(other.length > 400_000 && measured.length > 400_000, kind)
    t.not(other.slice(0, 1000), measured.slice(0, 1000))
    t.strictSame(corpusOf(kind), { other, measured }, 'the same each time')
  }
})

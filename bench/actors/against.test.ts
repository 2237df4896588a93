import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '../..')

function against(...words: string[]) {
  const script = join(import.meta.dirname, 'against.ts')
  return spawnSync(process.execPath, [script, ...words], { encoding: 'utf8', timeout: 300_000 })
}

t.test('two checkouts are compared row by row, in turns', async t => {
  const run = against(ROOT, ROOT, 'turns=1', 'rows=localTell', '--smoke', 'least=0')
  t.equal(run.status, 0, run.stderr)
  const [head, , ...lines] = run.stdout.trimEnd().split('\n')
  t.equal(head, '| measure | old | new | speed: new ÷ old | beside raw |')
  t.match(
    lines[0],
    /^\| localTell \| \S+ msg\/s \| \S+ msg\/s \| \d+\.\d+ \(\d+\.\d+ … \d+\.\d+\) \| .* bare loop \|$/,
  )
  const slower = against(ROOT, ROOT, 'turns=1', 'rows=localTell', '--smoke', 'least=1e6')
  t.equal(slower.status, 1, 'what is slower than it may be fails')
})

t.test('a folder or a row that is none is one clear line and exit code 2', async t => {
  for (const [words, message] of [
    [[], /^against: name the folder of the old checkout.*\n$/],
    [['/nowhere'], /^against: there is no bench\/actors in \/nowhere\n$/],
    [[ROOT, 'turns=0'], /^against: turns is an integer > 0.*\n$/],
    [[ROOT, 'rows=nope'], /^against: not both have the row nope; known: machine, .*\n$/],
  ] as const) {
    const { status, stderr } = against(...words)
    t.equal(status, 2)
    t.match(stderr, message)
  }
})

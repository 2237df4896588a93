/** The file of --workers-file: what it may say, what cannot be used, and what the fleet makes of it. */

import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parseWorkersFile, readWorkersFile } from '../src/index.ts'
import { type DirectoryWorld, world } from './directory-world.ts'

const parse = (text: string): readonly string[] => parseWorkersFile(text, 'f')

t.test('one URL a line, or YAML', async t => {
  const urls = ['http://a:1?events=5557', 'http://b:2']
  t.strictSame(parse('# fleet\nhttp://a:1?events=5557   # first\r\n\n  http://b:2'), urls)
  t.strictSame(parse('- http://a:1?events=5557\n- http://b:2\n'), urls)
  t.strictSame(parse('workers:\n  - http://a:1?events=5557\n  - http://b:2\n'), urls)
  t.strictSame(parse('{"workers": ["http://a:1?events=5557", "http://b:2"]}'), urls)
  t.strictSame(parse('workers: []'), [])
})

t.test('what cannot be used is named, with its line', async t => {
  for (const [text, words] of [
    ['', /names no worker; to have none, write: workers: \[\]/],
    ['# nothing', /names no worker/],
    ['http://a:1\nftp://b', /line 2: .*http/],
    ['http://a:1\nhttp://a:1?ranks=2', /line 2: a:1 is there twice/],
    ['http://a:1?event=5', /line 1: .*unknown parameter "event"/],
    ['- http://a:1\n- 7', /worker 2 is 7, not a URL/],
    ['workers: 5', /must be a list/],
    ['workers: [a\n', /cannot use the workers file f: /],
    ['workers: []\nother: 1', /it has "other"/],
  ] as const) {
    t.throws(() => parse(text), { code: 'HOMING_DIRECTORY_WORKERS_FILE', message: words }, text)
  }
})

t.test('a directory, a FIFO, a file that is not there or too large are refused at once', async t => {
  const folder = t.testdir({ large: 'x'.repeat(5 * 1024 * 1024) })
  execFileSync('mkfifo', [join(folder, 'fifo')])
  for (const [name, words] of [
    ['.', /EISDIR|not a regular file/],
    ['fifo', /not a regular file/],
    ['absent', /ENOENT/],
    ['large', /5242880 bytes/],
  ] as const) {
    await t.rejects(
      readWorkersFile(join(folder, name)),
      { code: 'HOMING_DIRECTORY_WORKERS_FILE', message: words },
      name,
    )
  }
})

/** Reading is real, time is not: a look has been taken when its result was handled. */
async function looks(w: DirectoryWorld, count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    await w.system.advance('1s')
    // Three whole reads that begin after the actor's have outlasted it.
    for (let read = 0; read < 3; read++) await readWorkersFile(PATH.value).catch(() => undefined)
    await new Promise(resolve => setImmediate(resolve))
    await w.system.settle()
  }
}
const PATH = { value: '' }

t.test('the fleet follows the file', async t => {
  const w = await world(t)
  for (const host of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) await w.engine(host)
  const folder = t.testdir({ workers: 'http://10.0.0.1:8000\n' })
  const path = join(folder, 'workers')
  PATH.value = path
  await w.begin(['http://10.0.0.3:8000'], {
    fileWorkers: { path, urls: parseWorkersFile('http://10.0.0.1:8000', path) },
  })
  const states = () => Object.fromEntries(w.fleet.workers.map(({ id, state }) => [id.slice(7, 8), state]))
  t.strictSame(states(), { 1: 'up', 3: 'up' })

  writeFileSync(path, 'http://10.0.0.1:8000\nhttp://10.0.0.2:8000\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' })

  writeFileSync(path, 'http://10.0.0.2:8000\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'draining', 2: 'up', 3: 'up' })

  // It is wanted again before it has left.
  writeFileSync(path, 'http://10.0.0.2:8000\nhttp://10.0.0.1:8000\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' })

  for (const broken of ['', 'http://10.0.0.2:80', 'nonsense here', 'workers: [http://10.0.0.2:8000']) {
    if (broken === 'http://10.0.0.2:80') {
      // Half written: it is whole by the next look.
      writeFileSync(path, broken)
      await looks(w, 1)
      writeFileSync(path, 'http://10.0.0.2:8000\nhttp://10.0.0.1:8000\n')
    } else writeFileSync(path, broken)
    await looks(w, 3)
    t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' }, JSON.stringify(broken))
  }
  t.match(
    w.log.lines.filter(({ text }) => /workers file is left aside/.test(text)),
    [{}, {}, {}],
    'each fault is told once',
  )
  rmSync(path)
  mkdirSync(path)
  await looks(w, 3)
  rmSync(path, { recursive: true })
  await looks(w, 3)
  t.strictSame(states(), { 1: 'up', 2: 'up', 3: 'up' })

  // As a mounted ConfigMap does: another file behind a link.
  writeFileSync(join(folder, 'next'), 'http://10.0.0.2:8000?kv_blocks=7\n')
  symlinkSync(join(folder, 'next'), join(folder, 'link'))
  renameSync(join(folder, 'link'), path)
  await looks(w, 3)
  t.strictSame(states(), { 1: 'draining', 2: 'up', 3: 'up' })
  t.match(
    w.fleet.workers.find(({ id }) => id === '10.0.0.2:8000'),
    { kvBlocks: { value: 7, source: 'given' } },
    'other parameters',
  )

  writeFileSync(path, 'workers: []\n')
  await looks(w, 3)
  t.strictSame(states(), { 1: 'draining', 2: 'draining', 3: 'up' }, 'who was given otherwise stays')
})

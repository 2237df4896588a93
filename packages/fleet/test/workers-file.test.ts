/** The file of --workers-file: what it may say, and what cannot be used. */

import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { parseWorkersFile, readWorkersFile } from '../src/index.ts'

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
    ['http://a:1?event=5', /line 1: .*unknown parameter event;/],
    ['- http://a:1\n- 7', /worker 2 is no text, so no URL/],
    ['workers: 5', /must be a list/],
    ['workers: [a\n', /cannot use the workers file f: /],
    ['workers: []\nother: 1', /it has other;/],
    ['workers: [&a http://a:1, *a]', /it has aliases, or too many levels/],
    ['workers: [http://a:1', /at line 1, column 21/],
    [`workers: [http://a:1] # ${'x'.repeat(2 ** 16)}`, /the most as YAML is 65536/],
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

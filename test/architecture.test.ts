/**
 * The two walks of docs/architecture.md, a request and a KV event, name file and function of each stop, and
 * these exist.
 */

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '..')
const STOP = /\(`(\w+)(?:\.(\w+))?`,\s+([\w./-]+\.ts)\)/g

const text = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8')

for (const [walk, stopsMin] of [
  ['A request, step by step', 6],
  ['A KV event, step by step', 7],
] as const) {
  t.test(`${walk}: each stop is where the page says`, async t => {
    const section = text.split(`## ${walk}\n`)[1]!.split('\n## ')[0]!
    const stops = [...section.matchAll(STOP)]
    t.ok(stops.length >= stopsMin, `${stops.length} stops are named`)
    const steps = [...section.matchAll(/^\d\. /gm)].length
    t.ok(stops.length >= steps, 'every step names one')
    for (const [, owner, method, file] of stops) {
      const path = join(ROOT, file!)
      if (!existsSync(path)) {
        t.fail(`${file} is not there`)
        continue
      }
      const code = readFileSync(path, 'utf8')
      t.match(code, new RegExp(`\\b(?:class|function|const) ${owner}\\b`), `${file} has ${owner}`)
      if (method !== undefined)
        t.match(code, new RegExp(`^ {2}(?:async )?${method}\\(`, 'm'), `${owner} has ${method}`)
    }
  })
}

/** The examples do what their pages say. */

import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'

const run = promisify(execFile)

const expected = {
  'ping-pong': '1000 hits between court-0 and court-1, the last by pong\n',
  'own-actor': 'flies: 2\nhome, after its thread was replaced: 1\nslow to stop: 0\n',
}

for (const [name, output] of Object.entries(expected)) {
  t.test(`the example ${name} prints what it promises and ends`, async t => {
    const file = fileURLToPath(new URL(`../examples/${name}.ts`, import.meta.url))
    const { NODE_OPTIONS: _, ...env } = process.env
    const { stdout, stderr } = await run(process.execPath, [file], { timeout: 20_000, env })
    t.equal(stdout, output)
    t.equal(stderr, '')
  })
}

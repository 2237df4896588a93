/** Lines on standard output, whose reader is slow. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import process from 'node:process'
import { text } from 'node:stream/consumers'
import t from 'tap'

t.test('a full pipe is written on as soon as its reader has made room, not after a while', async t => {
  const program = join(import.meta.dirname, 'pipe-program.ts')
  const child = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'pipe'] })
  t.teardown(() => child.kill('SIGKILL'))
  const ended = once(child, 'exit')
  const said = text(child.stderr)
  await once(child.stderr, 'data')

  let bytes = 0
  for await (const chunk of child.stdout) bytes += (chunk as Buffer).length

  t.strictSame(await ended, [0, null])
  t.match(await said, `wrote ${bytes}\n`)
  t.equal(bytes, 64 * 32 * 1024)
})

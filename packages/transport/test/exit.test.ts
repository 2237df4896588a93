/** A process with open ZeroMQ sockets ends as it was told to, with the right code. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import t from 'tap'
import { bounded } from './inbox.ts'

const PROGRAM = new URL('./exit-process.ts', import.meta.url).pathname

async function run(ending: string, signal?: NodeJS.Signals) {
  const child = spawn(process.execPath, [PROGRAM, ending], { stdio: ['ignore', 'pipe', 'pipe'] })
  let errors = ''
  child.stderr.on('data', data => {
    errors += data
  })
  const closed = once(child, 'close')
  const talking = once(child.stdout, 'data')
  await bounded(Promise.race([talking, closed]), 'the child to talk')
  if (signal !== undefined) child.kill(signal)
  const [code, by] = await bounded(closed, `the child to end by ${ending}`).finally(() =>
    child.kill('SIGKILL'),
  )
  return { code, by, errors }
}

t.test('process.exit, with messages on their way', async t => {
  for (let i = 0; i < 5; i++) t.same(await run('exit'), { code: 7, by: null, errors: '' })
})

t.test('the end of all work, once everything is closed', async t => {
  t.same(await run('natural'), { code: 0, by: null, errors: '' })
})

t.test('an uncaught error', async t => {
  const { code, errors } = await run('throw')
  t.equal(code, 1)
  t.match(errors, /a crash/)
})

t.test('SIGTERM, handled and not', async t => {
  t.same(await run('handled', 'SIGTERM'), { code: 5, by: null, errors: '' })
  t.same(await run('wait', 'SIGTERM'), { code: null, by: 'SIGTERM', errors: '' })
})

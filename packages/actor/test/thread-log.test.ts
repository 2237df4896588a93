/** The log of every thread is written as the system is told. */

import { spawnSync } from 'node:child_process'
import process from 'node:process'
import t from 'tap'

const urlOf = (path: string): string => JSON.stringify(new URL(path, import.meta.url).href)

/** Lines on standard error of an actor that fails on a thread beside main. */
function linesOf(logFormat: string): readonly string[] {
  const program = `
    import { createActorSystem } from ${urlOf('../src/index.ts')}
    import { echo } from ${urlOf('fixtures/echo.ts')}
    const system = await createActorSystem({ pools: { p: { count: 1 } }, logFormat: ${JSON.stringify(logFormat)} })
    const ref = system.spawn(echo, { name: 'failing', args: {}, thread: 'p-0' })
    await ref.ask({ type: 'fail', text: 'on purpose' }, { timeout: '4m' }).catch(() => {})
    await system.shutdown()`
  const { stderr, status } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
    timeout: 300_000,
  })
  t.equal(status, 0, stderr)
  return stderr.trim().split('\n')
}

t.test('text is written by other threads too, with their name', async t => {
  const lines = linesOf('text')
  for (const line of lines) t.match(line, /^\d\d:\d\d:\d\d (warn|error|info) {1,2}[\w-]+: /)
  t.ok(
    lines.some(line => / failing: .*on purpose.* thread=p-0$/.test(line)),
    lines.join('\n'),
  )
})

t.test('where nobody asks, and standard error is a pipe, it is JSON', async t => {
  for (const line of linesOf('auto')) t.match(JSON.parse(line), { level: String, msg: String })
})

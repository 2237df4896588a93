/** Ctrl-C on a terminal, and signals that come twice. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t from 'tap'
import { RunningCommand } from './command.ts'

const ROOT = join(import.meta.dirname, '..', '..', '..')
const IDLE = ['router', '--port', '0', '--router-event-threads', '1', '--worker', 'http://127.0.0.1:1']
/** A pnpm that runs the tests; node_modules has none. */
const PNPM = process.env['npm_execpath'] ?? ''
const SKIP =
  spawnSync('script', ['--version']).status !== 0
    ? 'there is no script(1), which makes a terminal'
    : /pnpm(\.c?js)?$/.test(PNPM)
      ? false
      : 'not run by pnpm'

t.test(
  'Ctrl-C under pnpm is an orderly end with exit code 0, and nobody complains',
  { skip: SKIP },
  async t => {
    // Without `exec` a shell that stays (dash, where SHELL is not set) would die of Ctrl-C and hide how pnpm
    // ended.
    const line = `exec ${[process.execPath, PNPM, 'start', ...IDLE].map(word => `'${word}'`).join(' ')}`
    const terminal = spawn('script', ['--quiet', '--flush', '--return', '--command', line, '/dev/null'], {
      cwd: ROOT,
      env: { ...process.env, npm_config_verify_deps_before_run: 'false' },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    t.teardown(() => terminal.kill('SIGKILL'))
    let shown = ''
    for await (const text of terminal.stdout.setEncoding('utf8')) {
      const wasReady = shown.includes('router ready on')
      shown += text
      if (!wasReady && shown.includes('router ready on')) terminal.stdin.write('\x03')
    }
    if (terminal.exitCode === null) await once(terminal, 'exit')
    t.equal(terminal.exitCode, 0, `exit code ${terminal.exitCode}: ${shown}`)
    t.match(shown, 'main: stopping reason="signal SIGINT"')
    t.match(shown, 'main: stopped ')
    t.notMatch(shown, /ELIFECYCLE|Command failed/)
  },
)

t.test('a signal that comes twice at once, as launchers pass them on, is one', async t => {
  const router = new RunningCommand(t, IDLE)
  await router.ready()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) router.child.kill(signal)
  const { code, stderr } = await router.exit()
  t.equal(code, 0)
  t.match(stderr, '"msg":"stopped"')
})

t.test('a copy of the signal that comes when all has stopped does not kill it', async t => {
  const router = new RunningCommand(t, IDLE)
  await router.ready()
  router.child.kill('SIGINT')
  while (!router.stderr.includes('"msg":"stopped"')) await router.changed()
  router.child.kill('SIGINT')
  const { code, signal } = await router.exit()
  t.equal(signal, null)
  t.equal(code, 0)
})

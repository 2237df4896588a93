/**
 * The log as people and programs get it: text on a terminal, JSON elsewhere, and what was asked for
 * everywhere.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { MAIN, RunningCommand } from './command.ts'

const IDLE = ['router', '--port', '0', '--router-event-threads', '1', '--worker', 'http://127.0.0.1:1']
const SKIP =
  spawnSync('script', ['--version']).status === 0 ? false : 'there is no script(1), which makes a terminal'
const TIME = String.raw`\d\d:\d\d:\d\d`

/** What a terminal shows of a router that is ended with Ctrl-C once it is ready. */
async function shownOn(
  t: Test,
  options: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<string> {
  const line = [process.execPath, MAIN, ...IDLE, ...options].map(word => `'${word}'`).join(' ')
  const terminal = spawn(
    'script',
    ['--quiet', '--flush', '--return', '--command', `exec ${line}`, '/dev/null'],
    { env: { ...process.env, TERM: 'xterm', NO_COLOR: '', ...env }, stdio: ['pipe', 'pipe', 'inherit'] },
  )
  t.teardown(() => terminal.kill('SIGKILL'))
  let shown = ''
  for await (const text of terminal.stdout.setEncoding('utf8')) {
    const wasReady = shown.includes('router ready on')
    shown += text
    if (!wasReady && shown.includes('router ready on')) terminal.stdin.write('\x03')
  }
  if (terminal.exitCode === null) await once(terminal, 'exit')
  t.equal(terminal.exitCode, 0, shown)
  return shown
}

t.test(
  'on a terminal the log is text, one line each, and warnings have a colour',
  { skip: SKIP },
  async t => {
    const shown = await shownOn(t, [], {})
    t.match(
      shown,
      new RegExp(`^${TIME} \x1b\\[33mwarn \x1b\\[0m directory: worker does not answer.* worker=127`, 'm'),
    )
    t.match(shown, new RegExp(`${TIME} info  main: stopped cutRequests=0`, 'm'))
    t.notMatch(shown, '"msg"')
  },
)

t.test('with NO_COLOR there is none, and with json it is JSON on a terminal too', { skip: SKIP }, async t => {
  const [plain, json] = [
    await shownOn(t, [], { NO_COLOR: '1' }),
    await shownOn(t, [], { HOMING_LOG_FORMAT: 'json' }),
  ]
  t.match(plain, new RegExp(`^${TIME} warn  directory: worker does not answer`, 'm'))
  t.notMatch(plain, '\x1b')
  t.match(json, '"msg":"stopped"')
})

t.test('in a pipe the log is JSON, and text where that is asked for', async t => {
  const piped = new RunningCommand(t, IDLE)
  const asked = new RunningCommand(t, [...IDLE, '--log-format', 'text', '--log-level', 'trace'])
  for (const router of [piped, asked]) {
    await router.ready()
    router.child.kill('SIGTERM')
  }
  for (const line of (await piped.exit()).stderr.trim().split('\n'))
    t.match(JSON.parse(line), { msg: String })
  const { stdout, stderr } = await asked.exit()
  t.match(stdout, /^router ready on /)
  const lines = stderr.trim().split('\n')
  for (const line of lines) t.match(line, new RegExp(`^${TIME} (trace|debug|info|warn|error) {1,2}[\\w-]+: `))
})

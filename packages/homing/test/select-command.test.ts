/** Arguments of `homing select`, its output, and `startSelect`; test/system tests what it serves. */

import { parseSettings, selectCommand } from '@homing/config'
import t from 'tap'
import { startSelect } from '../src/index.ts'
import { RunningCommand, run } from './command.ts'

const QUIET = ['select', '--host', '127.0.0.1', '--port', '0', '--log-level', 'error']

t.test('settings that cannot be are told at once, with exit code 2', async t => {
  for (const [argv, message] of [
    // The rules of the router.
    [['--router-policy', 'auto', '--kv-overlap-score-weight', '2'], /has no effect on --router-policy auto/],
    [['--router-policy', 'linear', '--router-guard-share', '0'], /--router-guard-share has no effect on/],
    [['--router-session-affinity-mode', 'hard'], /have no effect without --router-session-affinity-ttl-secs/],
    [['--index-bytes', '1MiB', '--router-event-threads', '16'], /leaves 65536 bytes for each of/],
    [['--selection-module', '/nowhere.ts'], /--selection-module "\/nowhere.ts" cannot be loaded/],
    [['--max-active-requests', '0'], /--max-active-requests: "0" is out of range 1 … 10000000/],
    [['--max-bodies-bytes', '1MiB'], /is less than one body of --max-body-bytes/],
  ] as const) {
    const { code, stdout, stderr } = await run(t, ['select', ...argv])
    t.strictSame([code, stdout], [2, ''])
    t.match(stderr, message)
  }
})

t.test('it says where it is, ends on SIGTERM, and says in one line what cannot be had', async t => {
  const select = new RunningCommand(t, QUIET)
  const { port, pid } = await select.ready()
  t.equal(pid, select.child.pid)
  t.match(select.stdout, /^select ready on http:\/\/127\.0\.0\.1:\d+ \(pid \d+\)\n/)
  for (const [argv, message] of [
    [['--port', String(port)], /^homing: cannot listen on .*EADDRINUSE.*; choose another with --port .*\n$/],
    [['--access-log', '/nowhere/a.log'], /^homing: cannot open the access log \/nowhere\/a\.log: .*\n$/],
  ] as const) {
    const { code, stdout, stderr } = await run(t, [...QUIET, ...argv])
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr.replace(/^\{.*\}\n/gm, ''), message)
  }
  select.child.kill('SIGTERM')
  const { code, stdout } = await select.exit()
  t.equal(code, 0)
  t.match(stdout, /\nno workers yet: POST http:\/\/127\.0\.0\.1:\d+\/workers\n$/)
})

t.test('the help has every option, and its examples can be typed', async t => {
  const { code, stdout } = await run(t, ['select', '--help'])
  t.equal(code, 0)
  for (const { name } of selectCommand.settings)
    t.match(stdout, new RegExp(`^  --(\\[no-\\])?${name}\\b`, 'm'))
  for (const { line } of selectCommand.examples) {
    t.match(stdout, line)
    t.doesNotThrow(() => parseSettings(selectCommand, line.replaceAll("'", '').split(' ').slice(2), {}))
  }
})

t.test('two run in one process, and closing one leaves the other', async t => {
  const given = { host: '127.0.0.1', port: 0, logLevel: 'error' } as const
  const [a, b] = await Promise.all([startSelect(given), startSelect(given)])
  t.teardown(() => b.stop())
  t.not(a.port, b.port)
  await a.stop()
  t.equal((await fetch(`${b.url}/health`)).status, 200)
  await t.rejects(startSelect({ ...given, activeRequestsMax: 0 }), { code: 'HOMING_CONFIG_BAD_SETTINGS' })
})

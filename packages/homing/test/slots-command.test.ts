/** Arguments of `homing slots`, its output, and `startSlots`; test/system tests what it serves. */

import { parseSettings, slotsCommand } from '@homing/config'
import t from 'tap'
import { startSlots } from '../src/index.ts'
import { RunningCommand, run } from './command.ts'

const QUIET = ['slots', '--host', '127.0.0.1', '--port', '0', '--log-level', 'error']

t.test('settings that cannot be are told at once, with exit code 2', async t => {
  for (const [argv, message] of [
    [['--replica-peer', 'tcp://a:1'], /--replica-peer needs --replica-endpoint, .* such as tcp:\/\/\*:5801/],
    [['--replica-endpoint', 'tcp://*:0'], /--replica-endpoint: "tcp:\/\/\*:0" is not 'tcp:\/\/\*:PORT'/],
    [['--max-active-requests', '0'], /--max-active-requests: "0" is out of range 1 … 10000000/],
    [['--max-bodies-bytes', '1MiB'], /is less than one body of --max-body-bytes/],
  ] as const) {
    const { code, stdout, stderr } = await run(t, ['slots', ...argv])
    t.strictSame([code, stdout], [2, ''])
    t.match(stderr, message)
  }
})

t.test('it says where it is, ends on SIGTERM, and says in one line what cannot be had', async t => {
  const slots = new RunningCommand(t, QUIET)
  const { port, pid } = await slots.ready()
  t.equal(pid, slots.child.pid)
  t.match(slots.stdout, /^slots ready on http:\/\/127\.0\.0\.1:\d+ \(pid \d+\)\n/)
  for (const [argv, message] of [
    [['--port', String(port)], /^homing: cannot listen on .*EADDRINUSE.*; choose another with --port .*\n$/],
    [['--access-log', '/nowhere/a.log'], /^homing: cannot open the access log \/nowhere\/a\.log: .*\n$/],
  ] as const) {
    const { code, stdout, stderr } = await run(t, [...QUIET, ...argv])
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr.replace(/^\{.*\}\n/gm, ''), message)
  }
  slots.child.kill('SIGTERM')
  const { code, stdout } = await slots.exit()
  t.equal(code, 0)
  t.match(stdout, /\nno workers yet: POST http:\/\/127\.0\.0\.1:\d+\/register\n$/)
})

t.test('the help has every option, and its examples can be typed', async t => {
  const { code, stdout } = await run(t, ['slots', '--help'])
  t.equal(code, 0)
  for (const { name } of slotsCommand.settings)
    t.match(stdout, new RegExp(`^  --(\\[no-\\])?${name}\\b`, 'm'))
  for (const { line } of slotsCommand.examples) {
    t.match(stdout, line)
    t.doesNotThrow(() => parseSettings(slotsCommand, line.replaceAll("'", '').split(' ').slice(2), {}))
  }
})

t.test('two run in one process, and closing one leaves the other', async t => {
  const given = { host: '127.0.0.1', port: 0, logLevel: 'error' } as const
  const [a, b] = await Promise.all([startSlots(given), startSlots(given)])
  t.teardown(() => b.stop())
  t.not(a.port, b.port)
  await a.stop()
  t.equal((await fetch(`${b.url}/health`)).status, 200)
  await t.rejects(startSlots({ ...given, activeRequestsMax: 0 }), { code: 'HOMING_CONFIG_BAD_SETTINGS' })
})

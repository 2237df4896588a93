/** What a command of a service owes its operator: arguments, output, and its function for programs. */

import { type Command, parseSettings } from '@homing/config'
import type { Test } from 'tap'
import { RunningCommand, run } from './command.ts'

interface RunningService {
  readonly url: string
  readonly port: number
  stop(): Promise<unknown>
}

export interface ServiceCommand {
  readonly command: Command
  readonly start: (given: {
    readonly host: string
    readonly port: number
    readonly logLevel: 'error'
    readonly activeRequestsMax?: number
  }) => Promise<RunningService>
  /** Arguments that cannot be, and what is said of them; besides those that no service takes. */
  readonly wrong: readonly (readonly [argv: readonly string[], message: RegExp])[]
  /** Where the first worker is to be posted. */
  readonly firstRoute: string
}

const WRONG = [
  [['--max-active-requests', '0'], /--max-active-requests: "0" is out of range 1 … 10000000/],
  [['--max-bodies-bytes', '1MiB'], /is less than one body of --max-body-bytes/],
] as const

export function testServiceCommand(
  t: Pick<Test, 'test'>,
  { command, start, wrong, firstRoute }: ServiceCommand,
): void {
  const { name } = command
  const quiet = [name, '--host', '127.0.0.1', '--port', '0', '--log-level', 'error']

  t.test('settings that cannot be are told at once, with exit code 2', async t => {
    for (const [argv, message] of [...wrong, ...WRONG]) {
      const { code, stdout, stderr } = await run(t, [name, ...argv])
      t.strictSame([code, stdout], [2, ''])
      t.match(stderr, message)
    }
  })

  t.test('it says where it is, ends on SIGTERM, and says in one line what cannot be had', async t => {
    const running = new RunningCommand(t, quiet)
    const { port, pid } = await running.ready()
    t.equal(pid, running.child.pid)
    t.match(running.stdout, new RegExp(`^${name} ready on http://127\\.0\\.0\\.1:\\d+ \\(pid \\d+\\)\\n`))
    for (const [argv, message] of [
      [
        ['--port', String(port)],
        /^homing: cannot listen on .*EADDRINUSE.*; choose another with --port .*\n$/,
      ],
      [['--access-log', '/nowhere/a.log'], /^homing: cannot open the access log \/nowhere\/a\.log: .*\n$/],
    ] as const) {
      const { code, stdout, stderr } = await run(t, [...quiet, ...argv])
      t.strictSame([code, stdout], [1, ''])
      t.match(stderr.replace(/^\{.*\}\n/gm, ''), message)
    }
    running.child.kill('SIGTERM')
    const { code, stdout } = await running.exit()
    t.equal(code, 0)
    t.match(stdout, new RegExp(`\\nno workers yet: POST http://127\\.0\\.0\\.1:\\d+${firstRoute}\\n$`))
  })

  t.test('the help has every option, and its examples can be typed', async t => {
    const { code, stdout } = await run(t, [name, '--help'])
    t.equal(code, 0)
    for (const setting of command.settings)
      t.match(stdout, new RegExp(`^  --(\\[no-\\])?${setting.name}\\b`, 'm'))
    for (const { line } of command.examples) {
      t.match(stdout, line)
      t.doesNotThrow(() => parseSettings(command, line.replaceAll("'", '').split(' ').slice(2), {}))
    }
  })

  t.test('two run in one process, and closing one leaves the other', async t => {
    const given = { host: '127.0.0.1', port: 0, logLevel: 'error' } as const
    const [a, b] = await Promise.all([start(given), start(given)])
    t.teardown(() => b.stop())
    t.not(a.port, b.port)
    await a.stop()
    t.equal((await fetch(`${b.url}/health`)).status, 200)
    await t.rejects(start({ ...given, activeRequestsMax: 0 }), { code: 'HOMING_CONFIG_BAD_SETTINGS' })
  })
}

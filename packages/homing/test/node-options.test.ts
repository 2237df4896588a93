/** Node's own options: who gets which, and a router that began anew with them. */

import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import { startProcess } from '../../../test/system/fleet.ts'
import { lackingNodeOptions, type ProcessStart } from '../src/node-options.ts'

const OPTION = '--max-semi-space-size=8'

t.test('commands that run for long lack an option, unless it is given', async t => {
  const start: ProcessStart = {
    command: 'router',
    execArgv: ['--enable-source-maps'],
    nodeOptions: '--no-warnings',
    hasChannel: false,
  }
  const cases: readonly [what: string, change: Partial<ProcessStart>, lacking: readonly string[]][] = [
    ['a router', {}, [OPTION]],
    ['an indexer', { command: 'indexer' }, [OPTION]],
    ['a command that ends soon', { command: 'doctor' }, []],
    ['no command', { command: undefined }, []],
    ['begun anew', { execArgv: [OPTION] }, []],
    ['given by the operator', { execArgv: ['--max_semi_space_size=32'] }, []],
    ['given in NODE_OPTIONS', { nodeOptions: '--no-warnings --max-semi-space-size=64' }, []],
    ['a child with a channel', { hasChannel: true }, []],
  ]
  for (const [what, change, lacking] of cases)
    t.strictSame(lackingNodeOptions({ ...start, ...change }), lacking, what)
})

t.test(
  'a router begins anew under its pid, and ends as it should',
  { skip: !existsSync('/proc/self/cmdline') && 'the words of another process are read from /proc' },
  async t => {
    const router = await startProcess('router', [
      '--port',
      '0',
      '--worker',
      'http://127.0.0.1:9',
      '--host',
      '127.0.0.1',
    ])
    t.teardown(() => router.kill('SIGKILL'))
    const words = readFileSync(`/proc/${router.pid}/cmdline`, 'utf8').split('\0')
    t.equal(words.filter(word => word === OPTION).length, 1)
    router.kill('SIGTERM')
    t.equal(await router.ended, 0)
  },
)

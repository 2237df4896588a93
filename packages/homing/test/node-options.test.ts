/** Node's own options: who gets which, and a router that began anew with them. */

import { existsSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { startProcess } from '../../../test/system/fleet.ts'
import { type Lacking, lackingOf, type ProcessStart } from '../src/node-options.ts'

const OPTION = '--max-semi-space-size=8'

const ENV = {
  MALLOC_ARENA_MAX: '2',
  NODE_COMPILE_CACHE: join(tmpdir(), 'node-compile-cache'),
}

t.test('commands that run for long lack what they need, unless it is given', async t => {
  const start: ProcessStart = {
    command: 'router',
    execArgv: ['--enable-source-maps'],
    env: { NODE_OPTIONS: '--no-warnings' },
    hasChannel: false,
  }
  const all: Lacking = { options: [OPTION], env: ENV }
  const nothing: Lacking = { options: [], env: {} }
  const cache = { NODE_COMPILE_CACHE: ENV.NODE_COMPILE_CACHE }
  const arenas = { MALLOC_ARENA_MAX: ENV.MALLOC_ARENA_MAX }
  const cases: readonly [what: string, change: Partial<ProcessStart>, lacking: Lacking][] = [
    ['a router', {}, all],
    ['an indexer', { command: 'indexer' }, all],
    ['a command that ends soon', { command: 'doctor' }, nothing],
    ['no command', { command: undefined }, nothing],
    ['begun anew', { execArgv: [OPTION], env: ENV }, nothing],
    ['given by the operator', { execArgv: ['--max_semi_space_size=32'] }, { options: [], env: ENV }],
    [
      'given in NODE_OPTIONS',
      { env: { NODE_OPTIONS: '--no-warnings --max-semi-space-size=64' } },
      { options: [], env: ENV },
    ],
    ['arenas of the operator', { env: { MALLOC_ARENA_MAX: '8' } }, { options: [OPTION], env: cache }],
    [
      'arenas in the newer form',
      { env: { GLIBC_TUNABLES: 'glibc.malloc.arena_max=4' } },
      { options: [OPTION], env: cache },
    ],
    ['a cache elsewhere', { env: { NODE_COMPILE_CACHE: '/x' } }, { options: [OPTION], env: arenas }],
    ['no cache', { env: { NODE_DISABLE_COMPILE_CACHE: '1' } }, { options: [OPTION], env: arenas }],
    ['a child with a channel', { hasChannel: true }, nothing],
  ]
  for (const [what, change, lacking] of cases) t.strictSame(lackingOf({ ...start, ...change }), lacking, what)
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
    const environment = readFileSync(`/proc/${router.pid}/environ`, 'utf8').split('\0')
    t.equal(environment.filter(word => word === 'MALLOC_ARENA_MAX=2').length, 1)
    router.kill('SIGTERM')
    t.equal(await router.ended, 0)
  },
)

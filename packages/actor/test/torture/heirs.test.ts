/** What an heir finds in its rings, when its actors are not loaded yet. */

import { createActorSystem } from '@homing/actor'
import { silentLog } from '@homing/log'
import t from 'tap'
import { slow } from './slow-module.ts'

const soon = { timeout: '10s' } as const

t.test('what is told while a thread is away waits there until its actors are loaded', async t => {
  const system = await createActorSystem({
    pools: { p: { count: 1 } },
    log: silentLog,
    logLevel: 'silent',
    threadExecArgv: [],
    warmSpare: false,
  })
  t.teardown(() => system.shutdown({ deadline: '1s' }))
  const ref = system.spawn(slow, {
    name: 'small',
    args: undefined,
    thread: 'p-0',
    mailbox: { capacity: 64 },
    supervision: { directive: 'restart', max: 10, within: '1m', backoff: { min: 1, max: 1 } },
  })
  t.equal(await ref.ask({ type: 'notes' }, soon), 0)
  const killed = system.killThread('p-0')
  while ((await ref.ask({ type: 'notes' }, soon).catch(() => undefined)) !== undefined);
  const count = 10_000
  let taken = 0
  for (let n = 0; n < count; n++) if (ref.tell({ type: 'note' }) === 'ok') taken++
  t.equal(taken, count)
  await killed
  t.equal(await ref.ask({ type: 'notes' }, soon), count, 'none of them overflowed a mailbox')
})

/** The frames that an heir finds in its rings. */

import { type ActorSystem, createActorSystem } from '@homing/actor'
import { silentLog } from '@homing/base'
import t, { type Test } from 'tap'
import { slow } from './slow-module.ts'
import { floodWorker, HANDLED, MOST, slowWorker } from './slow-worker.ts'

const soon = { timeout: '1m' } as const

async function start(t: Test): Promise<ActorSystem> {
  const system = await createActorSystem({
    pools: { p: { count: 2 } },
    log: silentLog,
    logLevel: 'silent',
    threadExecArgv: [],
    warmSpare: false,
  })
  t.teardown(() => system.shutdown({ deadline: '1s' }))
  return system
}

t.test('what is told while a thread is away waits there until its actors are loaded', async t => {
  const system = await start(t)
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

t.test('a thread with a backlog that dies takes no more than one batch of each link with it', async t => {
  const system = await start(t)
  const handled = new Int32Array(new SharedArrayBuffer(8))
  const refs = [0, 1, 2, 3].map(i =>
    system.spawn(slowWorker, {
      name: `worker-${i}`,
      args: { handled },
      thread: 'p-0',
      mailbox: { capacity: 65_536 },
      supervision: { directive: 'restart', max: 10, within: '1m', backoff: { min: 1, max: 1 } },
    }),
  )
  const teller = system.spawn(floodWorker, { name: 'teller', args: undefined, thread: 'p-1' })
  // While its module loads, messages to an actor wait in its mailbox.
  for (const ref of refs) ref.tell({ type: 'work' })
  while (Atomics.load(handled, HANDLED) < refs.length) await nextRound()
  Atomics.store(handled, HANDLED, 0)
  const count = 3000
  // This life begins no more than half of what one side tells; the next one begins all.
  Atomics.store(handled, MOST, count / 2)
  teller.tell({ type: 'flood', refs, count })
  for (let n = 0; n < count; n++) refs[n % 4]!.tell({ type: 'work' })
  while (Atomics.load(handled, HANDLED) < count / 2) await nextRound()
  await system.killThread('p-0')
  const atDeath = Atomics.load(handled, HANDLED)
  t.ok(atDeath < 2 * count - 500, 'it died with a backlog')
  // Two batches may be lost, and the message in hand; what comes last shows that no more comes.
  const limitMs = performance.now() + 60_000
  const least = 2 * count - 2 * 64 - 1
  while (Atomics.load(handled, HANDLED) < least && performance.now() < limitMs) await nextRound()
  t.ok(
    Atomics.load(handled, HANDLED) >= least,
    `${2 * count - Atomics.load(handled, HANDLED)} messages were lost`,
  )
})

const nextRound = () => new Promise<void>(resolve => setImmediate(resolve))

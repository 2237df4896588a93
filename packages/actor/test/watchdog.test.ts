/** Threads that hang, threads that die with a spare ready and without one. */

import { type ActorRef, AskRefusedError, ThreadDownError } from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import t from 'tap'
import { type EchoMessage, echo } from './fixtures/echo.ts'
import { restart, soon, startThreads } from './thread-systems.ts'

/** Where the actor is, once it answers again. */
async function whereOf(ref: ActorRef<EchoMessage>): Promise<string> {
  const until = performance.now() + 60_000
  for (;;) {
    try {
      return await ref.ask({ type: 'where' }, soon)
    } catch (error) {
      const mayPass = error instanceof ThreadDownError || error instanceof AskRefusedError
      if (!mayPass || performance.now() > until) throw error
      await new Promise<void>(resolve => setImmediate(resolve))
    }
  }
}

t.test('a thread that hangs is replaced, and whoever watches on any thread is told why', async t => {
  const system = await startThreads(t, { hungAfter: '1s' })
  const hanging = system.spawn(echo, { name: 'hanging', args: {}, thread: 'p-0', supervision: restart })
  const bystander = system.spawn(echo, { name: 'bystander', args: {}, thread: 'p-1', supervision: restart })
  const probe = createProbe(system, 'watcher')
  probe.watch(hanging)
  await bystander.ask({ type: 'where' }, soon)
  await hanging.ask({ type: 'where' }, soon)
  const pending = hanging.ask({ type: 'spinAndAnswer' }, soon)
  await t.rejects(pending, ThreadDownError)
  t.equal((await probe.nextTerminated('1m')).reason, 'threadHung')
  t.equal(await whereOf(hanging), 'p-0', 'its actor is back')
  t.equal((await system.stats()).threadRestarts, 1, 'nobody else was replaced')
  t.match(
    system.flight('main', 100)!.filter(({ kind }) => kind === 'hung'),
    [{ type: 'p-0', detail: 1000 }],
    'main has it in its flight recorder',
  )
})

t.test('a busy thread is no hanging thread', async t => {
  const system = await startThreads(t, { hungAfter: '1s' })
  const busy = system.spawn(echo, { name: 'busy', args: {}, thread: 'p-0', mailbox: { capacity: 100_000 } })
  await whereOf(busy)
  // Two and a half seconds of work, told without a pause: the thread is never without messages.
  let accepted = 0
  for (let n = 0; n < 8000; n++) if (busy.tell({ type: 'work', ms: 0.3 }) === 'ok') accepted++
  t.equal(accepted, 8000)
  t.equal(await whereOf(busy), 'p-0')
  t.equal((await system.stats()).threadRestarts, 0)
})

for (const warmSpare of [true, false]) {
  t.test(`threads die one after the other ${warmSpare ? 'with' : 'without'} a spare`, async t => {
    const system = await startThreads(t, { warmSpare, threadBackoff: { min: 0, max: 0 } })
    const refs = ['p-0', 'p-1'].map(thread =>
      system.spawn(echo, { name: `on ${thread}`, args: {}, thread, supervision: restart }),
    )
    for (let round = 0; round < 4; round++) {
      await Promise.all([system.killThread('p-0'), system.killThread('p-1')])
      t.strictSame(await Promise.all(refs.map(ref => ref.ask({ type: 'where' }, soon))), ['p-0', 'p-1'])
    }
    t.equal((await system.stats()).threadRestarts, 8)
  })
}

/** Watches of actors that have ended before: what is known of them, also by a later life of their thread. */

import type { ActorRef } from '@homing/actor'
import { recordingLog } from '@homing/log'
import t from 'tap'
import { type Seen, type ThrowerMessage, thrower, watcher } from './fixtures/thrower.ts'
import { soon, startThreads } from './thread-systems.ts'

t.test('a late watch tells how an actor ended, also in an earlier life of its thread', async t => {
  const system = await startThreads(t)
  const spawn = async (name: string): Promise<ActorRef<ThrowerMessage>> => {
    const ref = system.spawn(thrower, { name, args: undefined, thread: 'p-0' })
    await ref.ask({ type: 'ready' }, soon)
    return ref
  }
  const [stopped, failed, lost] = [await spawn('stopped'), await spawn('failed'), await spawn('lost')]
  await system.stop(stopped)
  const end = system.whenTerminated(failed)
  failed.tell({ type: 'overspendNow' })
  await end
  await system.killThread('p-0')

  t.match(await system.whenTerminated(stopped), { reason: 'stopped' })
  t.match(await system.whenTerminated(failed), { reason: 'failed' })
  const { reason, error } = await system.whenTerminated(lost)
  t.equal(reason, 'threadExit')
  t.match(error, { code: 'HOMING_ACTOR_THREAD_DOWN', details: { thread: 'p-0', reason: 'threadExit' } })

  const far = system.spawn(watcher, { name: 'watcher', args: undefined, thread: 'p-1' })
  let seen: readonly Seen[] = []
  for (const ref of [stopped, failed, lost]) await far.ask({ type: 'watch', ref }, soon)
  while (seen.length < 3) seen = await far.ask({ type: 'seen' }, soon)
  t.strictSame(
    seen.map(({ reason }) => reason),
    ['stopped', 'failed', 'threadExit'],
  )

  const later = await spawn('later')
  await system.stop(later)
  t.match(await system.whenTerminated(later), { reason: 'stopped' }, 'of this life')
})

t.test('a dedicated thread whose actor does not come back is not said to be replaced', async t => {
  const log = recordingLog()
  const system = await startThreads(t, { log, hungAfter: '200ms' })
  for (const how of [{ type: 'exit', code: 3 }, { type: 'spin' }] as const) {
    const ref = system.spawn(thrower, { name: 'alone', args: undefined, thread: 'dedicated' })
    await ref.ask({ type: 'ready' }, soon)
    const ended = system.whenTerminated(ref)
    ref.tell(how)
    await ended
  }
  while (system.threads().some(({ name, state }) => name.startsWith('dedicated') && state !== 'ended')) {
    await new Promise<void>(resolve => setImmediate(resolve))
  }
  t.equal((await system.stats()).threadRestarts, 0)
  const texts = log.lines.map(({ text }) => text)
  t.notMatch(JSON.stringify(log.lines), /replaced|recycled|without a report/)
  t.equal(texts.filter(text => text === 'thread ended').length, 2)

  await system.killThread('p-0')
  t.ok(log.lines.some(({ text, fields }) => text === 'thread is replaced' && fields.peer === 'p-0'))
})

/** Watches of actors that have ended before: what is known of them, also by a later life of their thread. */

import type { ActorRef, ActorSystem, ThreadStatus } from '@homing/actor'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { type Seen, type ThrowerMessage, thrower, watcher } from './fixtures/thrower.ts'
import { soon, startThreads } from './thread-systems.ts'

/** A thread that spins counts as hung after that; one that waits for a core of a busy machine does not. */
const HUNG_AFTER = '1s'

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

t.test('a late watch tells the end of the life that the actor was lost with, not of a later one', async t => {
  const system = await startThreads(t, { hungAfter: HUNG_AFTER })
  const spawn = async (name: string): Promise<ActorRef<ThrowerMessage>> => {
    const ref = system.spawn(thrower, { name, args: undefined, thread: 'p-0' })
    await ref.ask({ type: 'ready' }, soon)
    return ref
  }
  const first = await spawn('first')
  const ended = system.whenTerminated(first)
  first.tell({ type: 'spin' })
  t.equal((await ended).reason, 'threadHung')
  await whenReplaced(system, 'p-0', 2)
  const second = await spawn('second')
  await system.killThread('p-0')
  await whenReplaced(system, 'p-0', 3)

  t.match(await system.whenTerminated(first), {
    reason: 'threadHung',
    error: { details: { reason: 'threadHung' } },
  })
  t.match(await system.whenTerminated(second), { reason: 'threadExit' })
})

async function whenReplaced(system: ActorSystem, thread: string, lives: number): Promise<void> {
  const isReplaced = ({ name, lives: lived, state }: ThreadStatus): boolean =>
    name === thread && lived === lives && state === 'running'
  while (!system.threads().some(isReplaced)) await new Promise<void>(resolve => setImmediate(resolve))
}

t.test('a dedicated thread whose actor does not come back is not said to be replaced', async t => {
  const log = recordingLog()
  const system = await startThreads(t, { log, hungAfter: HUNG_AFTER })
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

/** Shutting down: actors that run until it is their turn to stop. */

import type { Message, Supervision } from '@homing/actor'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { actor, startSystem } from './inline-actors.ts'

const RESTART: Supervision = {
  directive: 'restart',
  max: 3,
  within: '1m',
  backoff: { min: '10ms', max: '1s' },
}

t.test('an actor that wants a child while the system shuts down is no failure', async t => {
  type Said = Message & { type: 'wantsChild' }
  const log = recordingLog()
  const sys = startSystem(t, { log })
  const child = actor<Message>(() => ({}))
  const attempted: string[] = []
  const parent = actor<Said>(ctx => ({
    wantsChild() {
      attempted.push('running')
      ctx.spawn(child, { name: 'child', args: undefined })
    },
  }))
  const late = actor<Message>(ctx => {
    attempted.push('starting')
    ctx.spawn(child, { name: 'child', args: undefined })
    return {}
  })
  const wait = Promise.withResolvers<void>()
  const slow = actor<Message & { type: 'hang' }>(() => ({ hang: () => wait.promise }))
  const ref = sys.spawn(parent, { name: 'parent', args: undefined, supervision: RESTART })
  const slowRef = sys.spawn(slow, { name: 'slow', args: undefined })
  await sys.settle()
  slowRef.tell({ type: 'hang' })
  await sys.settle()
  // It has no turn before the shutdown begins.
  sys.spawn(late, { name: 'late', args: undefined })
  const shutdown = sys.shutdown({ deadline: '10s' })
  await sys.settle()
  // The last that was spawned stops first: the parent still runs while it waits for the slow one.
  ref.tell({ type: 'wantsChild' })
  ref.tell({ type: 'wantsChild' })
  await sys.settle()
  wait.resolve()
  await sys.settle()
  t.strictSame((await shutdown).slow, [])
  t.ok(attempted.filter(at => at === 'running').length === 2, 'it went on until it was its turn to stop')
  t.strictSame(
    log.lines.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
})

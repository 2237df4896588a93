/** Actors on threads of their own: the bounds of these, and their end. */

import { recordingLog } from '@homing/base'
import t from 'tap'
import { createActorSystem } from '../src/index.ts'
import { echo } from './fixtures/echo.ts'
import { soon, startThreads } from './thread-systems.ts'

t.test('a shutdown joins the end of dedicated threads and finds nobody slow', async t => {
  const log = recordingLog()
  const system = await createActorSystem({ log, threadExecArgv: [] })
  for (let i = 0; i < 3; i++) system.spawn(echo, { name: `echo-${i}`, args: {}, thread: 'dedicated' })
  await system.describe()
  const report = await system.shutdown({ deadline: '1m' })
  t.strictSame(report.slow, [])
  t.strictSame(
    log.lines.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
})

t.test('a dedicated thread may be busy for longer than others before it counts as hung', async t => {
  const system = await startThreads(t, { hungAfter: '200ms' })
  const busy = system.spawn(echo, { name: 'busy', args: {}, thread: { dedicated: { hungAfter: '1m' } } })
  const where = await busy.ask({ type: 'where' }, soon)
  t.match(where, /^dedicated-/)
  busy.tell({ type: 'work', ms: 1500 })
  t.equal(await busy.ask({ type: 'where' }, soon), where)
  // Those of the pool may have hung for 200 ms: the machine has other work.
  t.equal(system.threads().find(({ name }) => name === where)?.lives, 1)
})

t.test('a dedicated thread has the heap that it is given', async t => {
  const system = await startThreads(t, { threadHeapMb: 64 })
  const limitMb = async (heapMb?: number): Promise<number> => {
    const thread = { dedicated: heapMb === undefined ? {} : { heapMb } }
    const where = await system.spawn(echo, { name: 'echo', args: {}, thread }).ask({ type: 'where' }, soon)
    const counters = system.counters().threads.find(one => one.thread === where)
    return counters!.heapLimitBytes / 2 ** 20
  }
  const few = await limitMb()
  const many = await limitMb(256)
  t.ok(few < 128 && many >= 256 && many < 512, `${few} MB and ${many} MB`)
})

t.test('the end of an actor that is killed ends its dedicated thread, whatever that is doing', async t => {
  const log = recordingLog()
  const system = await createActorSystem({ log, threadExecArgv: [], hungAfter: 0 })
  const ref = system.spawn(echo, { name: 'echo', args: {}, thread: 'dedicated', shutdown: 'kill' })
  const where = await ref.ask({ type: 'where' }, soon)
  const answer = ref.ask({ type: 'spinAndAnswer' }, soon)
  answer.catch(() => {})
  t.equal((await system.stop(ref)).reason, 'stopped')
  await t.rejects(answer)
  while (system.threads().some(({ name, state }) => name === where && state !== 'ended'))
    await new Promise<void>(resolve => setImmediate(resolve))
  const report = await system.shutdown()
  t.strictSame(report.slow, [])
  // Whatever waits for such a thread in vain says so.
  t.strictSame(
    log.lines.filter(({ level }) => level === 'warn' || level === 'error'),
    [],
  )
})

t.test('what is no bound of a dedicated thread is refused', async t => {
  const system = await startThreads(t, {})
  const spawn = (dedicated: object) => () =>
    system.spawn(echo, { name: 'echo', args: {}, thread: { dedicated } as never })
  t.throws(spawn({ heapMb: 1 }), { message: 'cannot give threads a heap of 1 MB: use at least 16' })
  t.throws(spawn({ heap: 1 }), { message: "cannot use 'heap' in dedicated: use heapMb, hungAfter" })
  t.throws(spawn({ hungAfter: 'soon' }), RangeError)
})

/** A shutdown reports exactly its own actions, from every thread, however full the links are. */

import { createActorSystem } from '@homing/actor'
import { recordingLog } from '@homing/base'
import t from 'tap'
import { echo, setWord } from './fixtures/echo.ts'
import { actor, startSystem } from './inline-actors.ts'

type Told = { readonly type: 'hang' }

const hanging = actor<Told>(() => ({ hang: () => new Promise<void>(() => {}) }))

t.test('a shutdown reports what was dropped and abandoned since it began', async t => {
  const sys = startSystem(t)
  const spawn = (name: string, messages: number) => {
    const ref = sys.spawn(hanging, { name, args: undefined, shutdown: 10 })
    for (let n = 0; n < messages; n++) ref.tell({ type: 'hang' })
    return ref
  }
  const early = spawn('early', 6)
  await sys.settle()
  const stopped = sys.stop(early)
  await sys.advance('1s')
  await stopped
  spawn('late', 3)
  await sys.settle()
  const report = sys.shutdown()
  await sys.advance('1s')
  t.match(await report, { slow: ['late'], droppedMessages: 2 })
})

t.test('many abandoned actors are few lines of the log', async t => {
  const log = recordingLog()
  const sys = startSystem(t, { log })
  for (let n = 0; n < 200; n++) {
    sys.spawn(hanging, { name: `a${n}`, args: undefined, shutdown: 10 }).tell({ type: 'hang' })
  }
  await sys.settle()
  const report = sys.shutdown({ deadline: 10 })
  await sys.advance('1s')
  t.equal((await report).slow.length, 200)
  const lines = log.lines.filter(({ text }) => text === 'actor abandoned: it did not stop in time')
  t.equal(lines.length, 10)
})

t.test('a thread reports also when its link is full', async t => {
  const sys = await createActorSystem({ pools: { p: { count: 1 } }, logLevel: 'silent', threadExecArgv: [] })
  const ref = sys.spawn(echo, { name: 'a', args: {}, thread: 'p-0' })
  await ref.ask({ type: 'where' }, { timeout: '1m' })
  const words = new Int32Array(new SharedArrayBuffer(8))
  ref.tell({ type: 'holdTurn', words })
  t.not(await Atomics.waitAsync(words, 0, 0, 60_000).value, 'timed-out')
  while (ref.tell({ type: 'note', n: 0 }) === 'ok');
  const report = sys.shutdown({ deadline: 1 })
  // It takes nothing until it is abandoned: of two timers, the one that is due first fires first.
  setTimeout(() => setWord(words, 1), 10)
  t.strictSame((await report).slow, ['a'])
})

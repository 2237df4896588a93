/**
 * Supervision between threads: restarts of children elsewhere, budgets that escalate, mailboxes that sort.
 */

import { RestartBudgetError, type Supervision } from '@homing/actor'
import { createProbe } from '@homing/actor/testing'
import t, { type Test } from 'tap'
import { echo } from './fixtures/echo.ts'
import { type DiaryMessage, sorter, team } from './fixtures/team.ts'
import { soon, startThreads } from './thread-systems.ts'

const supervision: Supervision = {
  directive: 'restart',
  max: 10,
  within: '1m',
  backoff: { min: 5, max: 50 },
}

async function start(t: Test) {
  const system = await startThreads(t, { threadBackoff: { min: 5, max: 50 } })
  const diary = createProbe<DiaryMessage>(system, 'diary')
  /** The next lines, as many as asked for. */
  const lines = async (count: number): Promise<string[]> => {
    const read: string[] = []
    for (let i = 0; i < count; i++) read.push((await diary.next('1m')).line)
    return read
  }
  return { system, diary, lines }
}

t.test('the death of the thread of a child restarts it, and leaves its siblings alone', async t => {
  const { system, diary, lines } = await start(t)
  const threads = { a: 'p-0', b: 'main', c: 'p-1' }
  const args = { diary: diary.ref, threads, supervision }
  const parent = system.spawn(team, { name: 'team', args })
  const { a, b, c } = await parent.ask({ type: 'members' }, soon)
  await lines(3)
  for (const ref of [a!, b!, c!]) t.equal(await ref.ask({ type: 'count' }, soon), 1)
  await system.killThread('p-1')
  t.strictSame(await lines(1), ['c starts'])
  t.equal(await c!.ask({ type: 'count' }, soon), 1, 'a new instance')
  for (const ref of [a!, b!]) t.equal(await ref.ask({ type: 'count' }, soon), 2, 'left alone')
})

t.test('a budget that the deaths of a thread exhaust escalates when told to', async t => {
  const { system, diary, lines } = await start(t)
  const once: Supervision = { ...supervision, max: 1, whenExhausted: 'escalate' } as Supervision
  const args = { diary: diary.ref, threads: { a: 'p-0' }, supervision: once }
  const parent = system.spawn(team, { name: 'team', args })
  await lines(1)
  await system.killThread('p-0')
  await lines(1)
  const ended = system.whenTerminated(parent)
  await system.killThread('p-0')
  const { reason, error } = await ended
  t.equal(reason, 'failed')
  t.equal(error?.code, new RestartBudgetError('a', 1, 1, undefined).code)
})

t.test('failures and deaths of its thread use up one budget', async t => {
  const { system } = await start(t)
  const ref = system.spawn(echo, {
    name: 'echo',
    args: {},
    thread: 'p-0',
    supervision: { ...supervision, max: 3, within: '10m', backoff: { min: 0, max: 0 } },
  })
  const ended = system.whenTerminated(ref)
  for (let i = 0; i < 2; i++) {
    await t.rejects(ref.ask({ type: 'fail', text: 'told to' }, soon))
  }
  await system.killThread('p-0')
  t.equal(await ref.ask({ type: 'where' }, soon), 'p-0', 'its third restart')
  await t.rejects(ref.ask({ type: 'fail', text: 'told to' }, soon))
  const { reason, error } = await ended
  t.equal(reason, 'failed')
  t.match(error, { code: 'HOMING_ACTOR_RESTART_BUDGET' })
})

t.test('control and coalesced messages are sorted also when they come from another thread', async t => {
  const { system } = await start(t)
  const ref = system.spawn(sorter, {
    name: 'sorter',
    args: undefined,
    thread: 'p-0',
    mailbox: { capacity: 16, overflow: 'coalesce' },
  })
  await ref.ask({ type: 'seen' }, soon)
  ref.tell({ type: 'hold' })
  for (const n of [1, 2, 3]) ref.tell({ type: 'level', of: 'a', n })
  ref.tell({ type: 'level', of: 'b', n: 1 })
  for (const n of [1, 2]) ref.tell({ type: 'urgent', n })
  t.strictSame(await ref.ask({ type: 'seen' }, soon), ['urgent1', 'urgent2', 'a3', 'b1'])
  t.equal((await system.stats()).deadLettersByReason.coalesced, 2)
})

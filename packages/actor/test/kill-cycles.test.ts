/**
 * Threads are killed repeatedly under load. Whatever is lost, every ask settles, order per pair of
 * actors holds, nothing arrives twice, and nothing is left behind.
 */

import { type ActorRef, type Supervision, ThreadDownError } from '@homing/actor'
import { CodedError, seededRandom } from '@homing/base'
import t from 'tap'
import { type EchoMessage, echo } from './fixtures/echo.ts'
import { startThreads } from './thread-systems.ts'

const KILLS = 30
const ASKERS = 16
const ASK_MS_MAX = 60_000
const MAILBOX = 4096
const NOTES_AT_ONCE = 50
/**
 * Notes wait for the next life of their actor; however long that takes to start, they leave room for the asks
 * behind them.
 */
const NOTES_WAITING_MAX = MAILBOX / 2
const seed = Number(process.env['HOMING_SEED'] ?? 1)

t.test(`${KILLS} kills of a thread under load, seed ${seed}`, { timeout: 600_000 }, async t => {
  const system = await startThreads(t, {
    threadRestartsMax: KILLS * 3,
    threadBackoff: { min: 0, max: 0 },
  })
  const supervision: Supervision = {
    directive: 'restart',
    max: KILLS * 3,
    within: '5m',
    backoff: { min: 0, max: 0 },
  }
  const random = seededRandom(seed)
  const spawn = (name: string): ActorRef<EchoMessage> =>
    system.spawn(echo, { name, args: {}, thread: 'p-0', supervision, mailbox: { capacity: MAILBOX } })
  const asked = spawn('asked')
  const noted = spawn('noted')
  const outcomes = new Map<string, number>()
  const count = (outcome: string): void => void outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
  let isOver = false
  let sent = 0
  let slowestMs = 0

  const asker = async (): Promise<void> => {
    let last = 0
    while (!isOver) {
      const startMs = performance.now()
      try {
        const value = await asked.ask({ type: 'count' }, { timeout: ASK_MS_MAX })
        // One instance counts up; a new one starts again.
        count(value > last || value <= ASKERS * 2 ? 'answered' : 'out of order')
        last = value
      } catch (error) {
        count(error instanceof CodedError ? error.code : 'untyped')
        await nextRound()
      }
      slowestMs = Math.max(slowestMs, performance.now() - startMs)
    }
  }
  const teller = async (): Promise<void> => {
    let taken = 0
    while (!isOver) {
      for (let i = 0; i < NOTES_AT_ONCE && sent - taken < NOTES_WAITING_MAX; i++) {
        const status = noted.tell({ type: 'note', n: sent })
        if (status !== 'ok') count(`note ${status}`)
        sent++
      }
      // An answer means that those before it were taken, or lost with their thread: the load is as much as
      // the thread can do.
      const sentBefore = sent
      const where = await noted.ask({ type: 'where' }, { timeout: ASK_MS_MAX }).catch(nextRound)
      if (where !== undefined) taken = sentBefore
    }
  }
  const load = [...Array.from({ length: ASKERS }, asker), teller()]

  for (let kill = 0; kill < KILLS; kill++) {
    // A few answers first, so that kills fall into work and not into starts only.
    for (let left = 1 + random.below(10); left > 0; ) {
      const where = await asked.ask({ type: 'where' }, { timeout: ASK_MS_MAX }).catch(nextRound)
      if (where === 'p-0') left--
    }
    const notes = await noted.ask({ type: 'notes' }, { timeout: ASK_MS_MAX })
    for (let i = 1; i < notes.length; i++) {
      if (notes[i]! <= notes[i - 1]!) count('notes out of order')
    }
    const way = random.below(3)
    if (way === 0) await system.killThread('p-0')
    else {
      t.equal(noted.tell(way === 1 ? { type: 'exit', code: kill } : { type: 'throwOutside' }), 'ok')
      await t.rejects(noted.ask({ type: 'silent' }, { timeout: ASK_MS_MAX }), ThreadDownError)
    }
    // At times the next life is killed while it starts.
    if (random.below(4) === 0) await system.killThread('p-0')
  }
  isOver = true
  await Promise.all(load)
  for (const ref of [asked, noted]) {
    while ((await ref.ask({ type: 'where' }, { timeout: ASK_MS_MAX }).catch(nextRound)) !== 'p-0');
  }

  t.comment(Object.fromEntries(outcomes), { sent, slowestMs: Math.round(slowestMs) })
  t.ok((outcomes.get('answered') ?? 0) > KILLS, 'work went on between the kills')
  t.strictSame(
    [...outcomes.keys()].filter(code => !['answered', 'HOMING_ACTOR_THREAD_DOWN'].includes(code)),
    [],
    'asks are answered, or the thread is down, and every note is accepted, once and in order: nothing else',
  )
  t.ok(slowestMs < ASK_MS_MAX, 'no ask waited for its deadline')
  const stats = await system.stats()
  t.equal(stats.asksPending, 0, 'no ask is left')
  t.equal(stats.actors, 2, 'both actors are there, once')
  t.ok(stats.threadRestarts >= KILLS, 'every kill was one')
  const report = await system.shutdown()
  t.strictSame(report.slow, [])
})

function nextRound(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}

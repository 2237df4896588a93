/** What if, with questions that a test answers: one run at a time, its end in every way, and what is kept. */

import { type ActorDefinition, defineActor } from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import type { SettledRequest } from '@homing/actors/decision-log'
import type { TrackerMessage } from '@homing/actors/tracker'
import type { Fleet } from '@homing/fleet'
import type { WhatIfAnswer, WhatIfTask } from '@homing/simulate/what-if'
import t, { type Test } from 'tap'
import { whatIf } from '../src/index.ts'
import { type QuestionArgs, type QuestionWord, questionActor } from '../src/question.ts'

const ASK = { timeout: '10s' } as const
const QUESTION = { minutes: 5, profile: undefined, anyway: false }

/** A question that says what the test has it say. */
interface Scripted {
  readonly task: WhatIfTask
  readonly say: (word: QuestionWord) => void
  readonly fail: (reason: string) => void
  isStopped: boolean
}

async function start(t: Test) {
  const started: Scripted[] = []
  const scripted: ActorDefinition<{ readonly type: 'fail'; readonly reason: string }, QuestionArgs> =
    defineActor(
      import.meta.url,
      'scripted',
    )({
      setup({ self }, { task, run, whatIf }) {
        const one: Scripted = {
          task,
          say: word => whatIf.tell({ type: 'questionSaid', run, word }),
          fail: reason => self.tell({ type: 'fail', reason }),
          isStopped: false,
        }
        started.push(one)
        void system.whenTerminated(self).then(() => {
          one.isStopped = true
        })
        return {
          fail({ reason }) {
            throw new Error(reason)
          },
        }
      },
    })
  const system = createTestSystem({ provide: [[questionActor, scripted]] })
  t.teardown(() => system.shutdown())
  const tracker = system.probe<TrackerMessage>('tracker')
  const ref = system.spawn(whatIf, {
    name: 'what-if',
    mailbox: { capacity: 16 },
    args: {
      tracker: tracker.ref,
      minutesMax: 15,
      bytesMax: 2 ** 20,
      cpuShare: 0.25,
      timeMsMax: 60_000,
      selection: { mode: 'kv', policy: 'auto', overlapWeight: 1, temperature: 0, followsEvents: true },
    },
  })
  let settled = 0
  const settle = (wallMs = system.clock.wallMs(), more: Partial<SettledRequest> = {}) =>
    ref.tell({ type: 'settled', request: { ...request(wallMs), ...more }, number: settled++ })
  const report = () => ref.ask({ type: 'whatIfReport' }, ASK)
  /** Asked, and its thread is started. */
  const begin = async () => {
    const begun = await ref.ask({ type: 'askWhatIf', question: QUESTION }, ASK)
    await system.advance('6s')
    return begun
  }
  return { system, ref, started, settle, skip: () => settled++, report, begin }
}

function request(arrivedAtMs: number): SettledRequest {
  return {
    arrivedAtMs,
    promptTokens: 40,
    outputTokens: 7,
    blockSizeTokens: 16,
    sequenceHashes: Int32Array.of(1, 2, 3, 4),
    sessionId: undefined,
    model: 'm',
    worker: 'w:1/0',
    policy: 'auto',
    predictedTokens: 16,
    cachedTokens: 16,
    routerMs: 1,
    firstTokenMs: 10,
    totalMs: 20,
    outcome: 'ok',
    error: undefined,
    attempts: 1,
    wasTaken: true,
    knowledge: 'tokens',
  }
}

const ANSWER = { model: 'm', rows: [], cpuMs: 1500 } as unknown as WhatIfAnswer

t.test('what is settled is kept for its minutes, and what did not arrive is counted', async t => {
  const w = await start(t)
  w.settle()
  w.skip()
  w.settle()
  t.match((await w.report()).kept, { requests: 2, dropped: 1, minutesMax: 15 })
  await w.system.advance('10m')
  w.settle()
  t.match((await w.report()).kept, { requests: 3 })
  await w.system.advance('26m')
  t.match((await w.report()).kept, { requests: 0, bytes: 0 })
})

t.test(
  'a question gets what is kept, the fleet and what was learned; its answer stays until the next',
  async t => {
    const w = await start(t)
    const fleet = {
      version: 1,
      workers: [
        { keys: [{ key: 'w:1/0' }], models: [{ name: 'm' }], maxBatchedTokens: { value: 8192 }, state: 'up' },
      ],
    } as unknown as Fleet
    w.ref.tell({ type: 'fleet', fleet })
    w.settle()
    t.match(await w.begin(), { run: { state: 'running', question: QUESTION } })
    const [asked] = w.started
    t.match(asked!.task, {
      workers: [{ key: 'w:1/0', isUp: true }],
      cpuShare: 0.25,
      kept: { chunks: [{ texts: ['m', 'w:1/0'] }] },
    })
    const progress = { step: 2, steps: 9, what: 'one more worker', requests: 100, cpuMs: 800 }
    asked!.say({ kind: 'progress', progress })
    t.match(await w.report(), { run: { state: 'running', progress }, cpuMs: 800 })
    asked!.say({ kind: 'answer', answer: ANSWER })
    const done = await w.report()
    t.match(done, { run: { state: 'done', answer: ANSWER }, ended: { done: 1 }, cpuMs: 1500 })
    asked!.fail('its thread ended with code 0')
    await w.system.advance('2m')
    t.strictSame(await w.report(), done, 'its end, and the end of its time, change nothing')
  },
)

t.test('requests that no worker took are not kept, and count as settled', async t => {
  const w = await start(t)
  w.settle(undefined, { worker: undefined, outcome: 'refused', model: 'nobody has it' })
  w.settle(undefined, { wasTaken: false })
  w.settle()
  t.match((await w.report()).kept, { requests: 1, dropped: 0 })
})

t.test('minutes count by the times of requests, wherever the clock was set since', async t => {
  const w = await start(t)
  const arrivedMs = w.system.clock.wallMs() - 20 * 60_000
  w.settle(arrivedMs)
  await w.begin()
  const { sinceMs } = w.started[0]!.task
  t.equal(sinceMs, arrivedMs + 20 - QUESTION.minutes * 60_000)
})

t.test('one question at a time; one that is cancelled makes room, and is heard no more', async t => {
  const w = await start(t)
  await w.begin()
  t.match(await w.ref.ask({ type: 'askWhatIf', question: QUESTION }, ASK), {
    code: 'HOMING_WHAT_IF_BUSY',
    message: /since 6 s; DELETE \/what_if cancels it/,
  })
  t.match(await w.ref.ask({ type: 'cancelWhatIf' }, ASK), { run: { state: 'cancelled' } })
  const [first] = w.started
  t.equal(first!.isStopped, true)
  await w.begin()
  first!.say({ kind: 'answer', answer: ANSWER })
  t.match(await w.report(), { run: { state: 'running' }, ended: { cancelled: 1, done: 0 } })
})

t.test('one that is cancelled before its thread is there starts none', async t => {
  const w = await start(t)
  await w.ref.ask({ type: 'askWhatIf', question: QUESTION }, ASK)
  await w.ref.ask({ type: 'cancelWhatIf' }, ASK)
  await w.system.advance('10s')
  t.equal(w.started.length, 0)
  t.match(await w.ref.ask({ type: 'cancelWhatIf' }, ASK), {
    run: { state: 'cancelled' },
    ended: { cancelled: 1 },
  })
})

t.test('a thread that dies, says an error or takes too long fails its run, and says why', async t => {
  const w = await start(t)
  await w.begin()
  w.started[0]!.fail('out of memory')
  t.match(await w.report(), {
    run: { state: 'failed', error: { message: 'cannot say what would have been: out of memory' } },
  })
  await w.begin()
  w.started[1]!.say({
    kind: 'error',
    error: { name: 'E', code: 'X', message: 'no', details: {} } as never,
  })
  t.match(await w.report(), { run: { state: 'failed', error: { message: 'no' } } })
  await w.begin()
  await w.system.advance('60s')
  t.match(await w.report(), {
    run: {
      state: 'failed',
      error: { message: /took longer than 60 s \(--what-if-timeout\); ask about fewer/ },
    },
    ended: { failed: 3 },
  })
  t.equal(w.started[2]!.isStopped, true)
})

t.test('the thread ends with the actor', async t => {
  const w = await start(t)
  await w.begin()
  await w.system.stop(w.ref)
  t.equal(w.started[0]!.isStopped, true)
})

t.test('what a thread says last comes also while the mailbox is full', async t => {
  const lasts: ((asked: Scripted) => void)[] = [
    ({ say }) => say({ kind: 'answer', answer: ANSWER }),
    ({ say }) => say({ kind: 'error', error: { name: 'E', code: 'X', message: 'no', details: {} } as never }),
    ({ fail }) => fail('out of memory'),
  ]
  const states: unknown[] = []
  for (const sayLast of lasts) {
    const w = await start(t)
    await w.begin()
    while (w.settle() === 'ok');
    sayLast(w.started[0]!)
    await w.system.advance('1ms')
    const { run } = await w.report()
    states.push([run?.state, run?.answer?.cpuMs, run?.error?.message])
  }
  t.strictSame(states, [
    ['done', 1500, undefined],
    ['failed', undefined, 'no'],
    ['failed', undefined, 'cannot say what would have been: out of memory'],
  ])
})

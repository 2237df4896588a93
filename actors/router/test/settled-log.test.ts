/** What the decision log is told: one message for every request that is settled, whatever became of it. */

import { createTestSystem } from '@homing/actor/testing'
import type { DecisionLogMessage, SettledMessage } from '@homing/actors/decision-log'
import { SimulatedClock } from '@homing/base'
import { PROMPT_TOKENS_MAX, type RoutingRequest } from '@homing/placement'
import t, { type Test } from 'tap'
import { ASK, BLOCK, DELIVERED, fleetOf, GATEWAY, LEFT, request, start } from './router-world.ts'

const ORIGIN_MS = 1_700_000_000_000

async function startLogged(t: Test, fleet = fleetOf({ id: 'a', slots: [0] })) {
  const system = createTestSystem({ clock: new SimulatedClock(ORIGIN_MS) })
  const log = system.probe<DecisionLogMessage>('decision-log')
  const world = await start(t, fleet, { decisionLog: log.ref }, system)
  const told = () => log.waiting.filter((message): message is SettledMessage => message.type === 'settled')
  const refused = async (id: string, routing: RoutingRequest) => {
    await world.ref.ask({ type: 'decide', id, gateway: GATEWAY, request: routing }, ASK)
  }
  return { ...world, log, told, refused }
}

t.test('an answer is told with its times, from the arrival of the request on', async t => {
  const { system, ref, hold, decide, told } = await startLogged(t)
  hold(0, 'AB')
  await system.advance(100)
  const decision = await decide(request('ABC', { sessionId: 'chat' }))
  await system.advance(40)
  const delivery = { ...DELIVERED, waitedMs: 3, durationMs: 40, cachedTokens: 2 * BLOCK, streamEvents: 5 }
  ref.tell({ type: 'settled', id: decision.id, delivery, wasTaken: true })
  await system.settle()
  t.match(told(), [
    {
      number: 0,
      request: {
        arrivedAtMs: ORIGIN_MS + 97,
        promptTokens: 3 * BLOCK + 1,
        outputTokens: 4,
        blockSizeTokens: BLOCK,
        sequenceHashes: request('ABC').sequenceHashes,
        knowledge: 'tokens',
        sessionId: 'chat',
        model: 'm',
        worker: 'a/0',
        policy: 'linear',
        predictedTokens: 2 * BLOCK,
        cachedTokens: 2 * BLOCK,
        routerMs: 3,
        firstTokenMs: 15,
        totalMs: 43,
        outcome: 'ok',
        error: undefined,
        attempts: 1,
        wasTaken: true,
      },
    },
  ])
})

t.test('of a prompt in slices, what they computed is neither predicted nor cached', async t => {
  const { system, ref, hold, decide, told } = await startLogged(t)
  hold(0, 'AB')
  for (const cachedTokens of [2 * BLOCK, 0, undefined]) {
    const decision = await decide(request('ABC'))
    const delivery = { ...DELIVERED, cachedTokens, sliceTokens: BLOCK }
    ref.tell({ type: 'settled', id: decision.id, delivery, wasTaken: true })
    await system.settle()
  }
  t.strictSame(
    told().map(({ request: { predictedTokens, cachedTokens } }) => [predictedTokens, cachedTokens]),
    [
      [BLOCK, BLOCK],
      [BLOCK, 0],
      [BLOCK, undefined],
    ],
  )
})

t.test('an answer that is no stream has no first token', async t => {
  const { system, ref, decide, told } = await startLogged(t)
  const { id } = await decide(request('A'))
  ref.tell({ type: 'settled', id, delivery: DELIVERED, wasTaken: true })
  await system.settle()
  t.equal(told()[0]?.request.firstTokenMs, undefined)
})

t.test('every outcome is told exactly once', async t => {
  const { system, ref, decide, told, refused } = await startLogged(t)
  const error = { code: 'HOMING_X', message: '', details: {} }
  const settle = (id: string, delivery = DELIVERED, wasTaken = true): void => {
    ref.tell({ type: 'settled', id, delivery, wasTaken })
    // What comes twice, or has no decision, says nothing.
    ref.tell({ type: 'settled', id, delivery, wasTaken })
  }
  settle((await decide(request('A'))).id)
  settle((await decide(request('B'))).id, {
    ...DELIVERED,
    outcome: 'error',
    error,
    completionTokens: undefined,
  })
  settle((await decide(request('C'))).id, LEFT, false)
  const cut = { ...LEFT, streamEvents: 17, timeToFirstByteMs: 10 }
  settle((await decide(request('D'))).id, cut)
  await refused('no place', request('E', { model: 'other' }))
  settle('no place', { ...LEFT, outcome: 'error', error }, false)
  settle('never asked')
  await system.settle()
  t.match(
    told().map(message => message.request),
    [
      { outcome: 'ok', worker: 'a/0', attempts: 1 },
      { outcome: 'error', worker: 'a/0', error: 'HOMING_X', outputTokens: undefined },
      { outcome: 'aborted', wasTaken: false, firstTokenMs: undefined },
      { outcome: 'aborted', outputTokens: 17, firstTokenMs: 11 },
      { outcome: 'refused', worker: undefined, attempts: 0, error: 'HOMING_X' },
    ],
  )
  t.strictSame(
    told().map(({ number }) => number),
    [0, 1, 2, 3, 4],
  )
})

t.test('a request that is placed again is told once, with its last place', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] })
  const { system, ref, decide, told } = await startLogged(t, fleet)
  const first = await decide(request('A', { pinnedInstanceId: 0 }))
  const failed = { ...LEFT, outcome: 'error' } as const
  ref.tell({ type: 'settled', id: first.id, delivery: failed, wasTaken: true, isPlacedAgain: true })
  const second = await decide(request('A', { excludedWorkers: ['a'] }))
  ref.tell({ type: 'settled', id: second.id, delivery: DELIVERED, wasTaken: true })
  await system.settle()
  t.match(told(), [{ request: { worker: 'b/0', outcome: 'ok', attempts: 2 } }])
  t.equal(told().length, 1)
})

t.test('what a gateway left behind is told as aborted, since it was decided', async t => {
  const { system, ref, decide, told, refused } = await startLogged(t)
  await system.advance(10)
  await decide(request('A'))
  await refused('no place', request('E', { model: 'other' }))
  await system.advance(500)
  ref.tell({ type: 'gatewayStarted', gateway: { ...GATEWAY, life: 'two' } })
  await system.settle()
  t.match(
    told().map(message => message.request),
    [
      { outcome: 'aborted', arrivedAtMs: ORIGIN_MS + 10, totalMs: 500, worker: 'a/0' },
      { outcome: 'aborted', worker: undefined },
    ],
  )
})

t.test('an unknown prompt has the length that the engine reports', async t => {
  const { system, ref, decide, told } = await startLogged(t)
  const none = { localHashes: new Int32Array(0), sequenceHashes: new Int32Array(0), promptTokens: 0 }
  const unknown = await decide(request('', { ...none, unknownPromptReason: 'it has an image' }))
  ref.tell({ type: 'settled', id: unknown.id, delivery: { ...DELIVERED, promptTokens: 777 }, wasTaken: true })
  const text = await decide(request('AB', { textBlocksReason: 'no tokenizer' }))
  ref.tell({ type: 'settled', id: text.id, delivery: DELIVERED, wasTaken: true })
  await system.settle()
  t.match(
    told().map(message => message.request),
    [
      { promptTokens: 777, knowledge: 'none', policy: 'least-loaded' },
      { promptTokens: 2 * BLOCK + 1, knowledge: 'text', policy: 'linear' },
    ],
  )
})

t.test(
  'what an engine says of an unknown prompt is bounded: the log has a number for each block',
  async t => {
    const { system, ref, decide, told } = await startLogged(t)
    const none = { localHashes: new Int32Array(0), sequenceHashes: new Int32Array(0), promptTokens: 100 }
    for (const tokensMax of [2000, Number.POSITIVE_INFINITY, undefined]) {
      const estimate = tokensMax === undefined ? undefined : { tokensMax }
      const { id } = await decide(request('', { ...none, estimate, unknownPromptReason: 'it has an image' }))
      const delivery = { ...DELIVERED, promptTokens: 4_294_967_296 }
      ref.tell({ type: 'settled', id, delivery, wasTaken: true })
    }
    await system.settle()
    t.strictSame(
      told().map(message => message.request?.promptTokens),
      [2000, PROMPT_TOKENS_MAX, PROMPT_TOKENS_MAX],
    )
  },
)

t.test('the flush comes behind what was settled before', async t => {
  const { ref, decide, log, system } = await startLogged(t)
  const { id } = await decide(request('A'))
  ref.tell({ type: 'settled', id, delivery: DELIVERED, wasTaken: true })
  const flushed = ref.ask({ type: 'flushDecisionLog', timeoutMs: 100 }, { timeout: '1m' })
  await system.settle()
  t.strictSame(
    log.waiting.map(({ type }) => type),
    ['settled', 'flush'],
  )
  await system.advance(100)
  t.equal(await flushed, false, 'a log that does not answer holds nobody up')
})

t.test('without a decision log nothing is kept for it', async t => {
  const { ref } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  t.equal(await ref.ask({ type: 'flushDecisionLog', timeoutMs: 100 }, ASK), true)
})

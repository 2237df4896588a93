/** Receipts from decision to delivery, and the comparisons, messages and frees when one is settled. */

import { figureOf } from '@homing/load'
import t from 'tap'
import { ASK, BLOCK, DELIVERED, fleetOf, GATEWAY, LEFT, prompt, request, start } from './router-world.ts'

t.test('an explanation books nothing and is what the decision will be', async t => {
  const { ref, hold, decide, loads } = await start(
    t,
    fleetOf({ id: 'a', slots: [0] }, { id: 'b', slots: [1] }),
  )
  hold(1, 'AB')
  const explained = await ref.ask({ type: 'explain', request: request('ABC') }, ASK)
  if ('code' in explained) throw new Error(explained.message)
  t.equal(
    (await loads()).reduce((sum, row) => sum + row.activeRequests, 0),
    0,
  )
  t.equal(explained.worker, (await decide(request('ABC'))).worker)
  t.strictSame(
    explained.candidates.map(({ worker, overlapBlocks, prefillTokens, decodeBlocks, cost }) => {
      return { worker, overlapBlocks, prefillTokens, decodeBlocks, cost }
    }),
    [
      { worker: 'a/0', overlapBlocks: 0, prefillTokens: 49, decodeBlocks: 3, cost: 49 / 16 + 3 },
      { worker: 'b/0', overlapBlocks: 2, prefillTokens: 17, decodeBlocks: 3, cost: 17 / 16 + 3 },
    ],
  )
  t.equal(explained.runnerUp, 'a/0')
})

t.test('receipts are kept up to the bound, and completed with what was delivered', async t => {
  const { ref, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  const decision = await decide(request('A'))
  const ids = [decision.id]
  for (const letters of ['B', 'C', 'D']) ids.push((await decide(request(letters))).id)
  t.equal(new Set(ids).size, 4)
  t.equal(await ref.ask({ type: 'receipt', id: ids[0]! }, ASK), undefined)
  const latest = await ref.ask({ type: 'receipts', limit: 2 }, ASK)
  t.strictSame(
    latest.map(({ id }) => id),
    [ids[3], ids[2]],
  )
  const delivery = { ...DELIVERED, cachedTokens: 0 }
  ref.tell({ type: 'settled', id: ids[3]!, delivery, wasTaken: true })
  ref.tell({ type: 'settled', id: ids[0]!, delivery, wasTaken: true })
  t.strictSame((await ref.ask({ type: 'receipt', id: ids[3]! }, ASK))?.delivery, delivery)
  t.equal(await ref.ask({ type: 'receipt', id: ids[0]! }, ASK), undefined)
})

t.test('tokens are believed as far as all choices of a request can have them', async t => {
  const { ref, decide, loads } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  const counted = { by: 'router', route: 'chat' } as const
  const disbelieved = async (choicesCount: number, completionTokens: number): Promise<number> => {
    const { id } = await decide(request('A', { counted, outputTokensMax: 10, choicesCount }))
    ref.tell({ type: 'settled', id, delivery: { ...DELIVERED, completionTokens }, wasTaken: true })
    await ref.ask({ type: 'receipt', id }, ASK)
    return (await loads()).reduce((sum, row) => sum + (row.disbelieved ?? 0), 0)
  }
  t.equal(await disbelieved(3, 30), 0)
  t.equal(await disbelieved(1, 10), 0)
  t.equal(await disbelieved(1, 11), 1)
  t.equal(await disbelieved(3, 31), 2)
})

t.test('the tracker learns which share of a prompt was cached, from whole answers that say so', async t => {
  const { ref, trackerRef, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  const received = async (): Promise<number | undefined> => {
    const none = new Int32Array(0)
    const workerSlots = Int32Array.of(0)
    const ask = { type: 'project', workerSlots, sequenceHashes: none, wantsEngines: true } as const
    const { engines } = await trackerRef.ask(ask, ASK)
    return engines === undefined ? undefined : figureOf(engines, 0, 'receivedTokens')
  }
  const sent = 3 * BLOCK + 1
  for (const [cachedTokens, outcome, computed] of [
    [undefined, 'ok', sent],
    [34, 'error', sent],
    [0, 'ok', sent],
    [34, 'ok', sent - 2 * Math.round(sent / 3)],
  ] as const) {
    const before = (await received())!
    const { id } = await decide(request('ABC'))
    t.equal((await received())! - before, sent)
    // The engine counts its tokens otherwise.
    const delivery = { ...DELIVERED, outcome, promptTokens: 51, cachedTokens }
    ref.tell({ type: 'settled', id, delivery, wasTaken: true })
    await ref.ask({ type: 'receipt', id }, ASK)
    t.ok(Math.abs((await received())! - before - computed) <= 1, `${outcome}, ${cachedTokens} cached`)
  }
})

t.test('a tracker that is gone refuses requests and leaves the router and its receipts alone', async t => {
  const { system, ref, trackerRef, decide, refusal } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  const { id } = await decide(request('A'))
  await system.stop(trackerRef)
  t.equal(await refusal(request('B')), 'HOMING_ACTOR_TERMINATED')
  const explained = await ref.ask({ type: 'explain', request: request('B') }, ASK)
  t.match(explained, { code: 'HOMING_ACTOR_TERMINATED' })
  t.equal((await ref.ask({ type: 'receipt', id }, ASK))?.id, id)
})

t.test('answers are compared with predictions, and what follows is told to the directory', async t => {
  const { system, ref, reported, hold, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  hold(0, 'ABCD')
  const deliver = async (cachedTokens: number | undefined, outcome: 'ok' | 'aborted' = 'ok') => {
    const decision = await decide(request('ABCDE'))
    t.equal(decision.predictedTokens, 4 * BLOCK)
    const delivery = { ...DELIVERED, outcome, promptTokens: 81, cachedTokens }
    ref.tell({ type: 'settled', id: decision.id, delivery, wasTaken: true })
  }
  const audits = () => ref.ask({ type: 'audits' }, ASK)
  await deliver(0, 'aborted')
  t.strictSame(await audits(), [])
  await deliver(undefined)
  t.match(await audits(), [{ worker: 'a/0', state: 'unaudited' }])
  for (let i = 0; i < 4; i++) await deliver(0)
  t.match(await audits(), [{ state: 'audited', requests: 4, overPredictions: 4, precision: 0 }])
  await system.settle()
  t.match(reported(), [{ type: 'audit', workerSlot: 0, epoch: 1, verdict: 'contradicted' }])

  const [receipt] = await ref.ask({ type: 'receipts', limit: 1 }, ASK)
  t.equal(receipt?.candidates[0]?.creditFactor, 16 / 19, 'as measured by three answers before')
  const late = await decide(request('ABCDE'))
  ref.tell({ type: 'fleet', fleet: fleetOf({ id: 'b', slots: [0] }) })
  t.strictSame(await audits(), [], 'the slot serves another worker')
  const delivery = { ...DELIVERED, promptTokens: 81, cachedTokens: 0 }
  ref.tell({ type: 'settled', id: late.id, delivery, wasTaken: true })
  t.strictSame(await audits(), [], 'an answer of a worker that has left is not audited')
})

t.test(
  'what the engine computes although it is cached is predicted so, and says nothing of its events',
  async t => {
    const { system, ref, reported, hold, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }))
    hold(0, 'ABCD')
    for (const cacheUse of ['unread', 'unreported'] as const) {
      for (let i = 0; i < 12; i++) {
        const decision = await decide(request('ABCDEFG', { cacheUse }))
        t.equal(decision.predictedTokens, cacheUse === 'unread' ? 0 : 4 * BLOCK)
        const delivery = { ...DELIVERED, promptTokens: 113, cachedTokens: i === 0 ? 0 : undefined }
        ref.tell({ type: 'settled', id: decision.id, delivery, wasTaken: true })
      }
      const [receipt] = await ref.ask({ type: 'receipts', limit: 1 }, ASK)
      t.equal(receipt?.cacheUse, cacheUse)
    }
    t.strictSame(await ref.ask({ type: 'audits' }, ASK), [])
    await system.settle()
    t.strictSame(reported(), [])
  },
)

t.test('answers that count other tokens of their prompts are told to the directory', async t => {
  const { system, ref, reported, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  const counted = { by: 'router', route: 'chat' } as const
  const deliver = async (promptTokens: number, extra: object = { counted }) => {
    const { id } = await decide(request('AB', extra))
    ref.tell({ type: 'settled', id, delivery: { ...DELIVERED, promptTokens }, wasTaken: true })
    await system.settle()
  }
  const told = () => reported().filter(({ type }) => type === 'prompts')
  for (let i = 0; i < 6; i++) await deliver(40, {})
  for (let i = 0; i < 3; i++) await deliver(40)
  t.strictSame(told(), [])
  await deliver(40)
  const kind = { workerId: 'a', promptsEpoch: 0, model: 'm', ...counted }
  t.match(told(), [{ ...kind, verdict: 'differs', reason: /40 where 33/ }])
  t.match(await ref.ask({ type: 'audits' }, ASK), [{ worker: 'a/0', promptDifferences: 4 }])
})

t.test('the directory is told of blocks that were computed, now and then', async t => {
  const { system, ref, reported, hold, decide } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  hold(0, 'ABC')
  const deliver = async (letters: string, outcome: 'ok' | 'aborted' = 'ok', cachedTokens?: number) => {
    const decision = await decide(request(letters))
    const promptTokens = letters.length * BLOCK
    const delivery = { ...DELIVERED, outcome, promptTokens, durationMs: 70, cachedTokens }
    ref.tell({ type: 'settled', id: decision.id, delivery, wasTaken: true })
    await system.settle()
  }
  await deliver('ABCD')
  await deliver('ABCDE', 'aborted')
  t.strictSame(reported(), [], 'the last block may be cached; an answer that was cut says nothing')
  await deliver('ABCDE', 'ok', 4 * BLOCK)
  t.strictSame(reported(), [], 'another request had it computed since the decision')
  await deliver('ABCDE')
  await deliver('ABCDEF')
  const told = { type: 'computed', workerSlot: 0, epoch: 1, durationMs: 70 }
  t.strictSame(reported(), [told])
  await system.advance(1000)
  await deliver('ABCDEF')
  t.strictSame(reported(), [told, told])
})

t.test('what is settled before its answer was awaited leaves nothing', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0], trust: 'approximate' })
  const { ref, loads, told, system } = await start(t, fleet)
  await system.settle()
  const asked = ref.ask({ type: 'decide', id: 'left', gateway: GATEWAY, request: request('AB') }, ASK)
  ref.tell({ type: 'settled', id: 'left', delivery: LEFT, wasTaken: false })
  t.match(await asked, { kind: 'decided', decision: { id: 'left' } })
  await system.settle()
  t.equal((await loads())[0]?.activeRequests, 0)
  t.match(await ref.ask({ type: 'receipt', id: 'left' }, ASK), { delivery: LEFT })
  t.match(told('routed', 'unrouted'), [
    { type: 'routed', id: 'left' },
    { type: 'unrouted', id: 'left', localHashes: prompt('AB') },
  ])
  ref.tell({ type: 'settled', id: 'left', delivery: LEFT, wasTaken: false })
  await system.settle()
  t.equal(told('routed', 'unrouted').length, 2, 'once')
})

t.test('what a worker has begun stays guessed, whatever became of it', async t => {
  const fleet = fleetOf({ id: 'a', slots: [0], trust: 'approximate' })
  const { ref, decide, told, system } = await start(t, fleet)
  const { id } = await decide(request('AB'))
  ref.tell({ type: 'settled', id, delivery: LEFT, wasTaken: true })
  await system.settle()
  t.notOk(told('unrouted').length)
})

t.test('what a gateway has not settled is settled when its next life begins', async t => {
  const { system, ref, decide, loads } = await start(t, fleetOf({ id: 'a', slots: [0] }))
  const lost = await decide(request('AB'))
  const other = await decide(request('CD'), { name: 'other', life: 'one' })
  t.equal((await loads())[0]?.activeRequests, 2)
  ref.tell({ type: 'gatewayStarted', gateway: { ...GATEWAY, life: 'two' } })
  const next = await decide(request('EF'), { ...GATEWAY, life: 'two' })
  await system.settle()
  t.equal((await loads())[0]?.activeRequests, 2)
  const receipts = await Promise.all(
    [lost, other, next].map(({ id }) => ref.ask({ type: 'receipt', id }, ASK)),
  )
  t.strictSame(
    receipts.map(receipt => receipt?.delivery?.outcome),
    ['aborted', undefined, undefined],
  )
})

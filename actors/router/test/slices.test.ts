/** Prompts in slices, as the router places and books them. */

import { cutPrompt, type Decision, type RoutingRequest } from '@homing/placement'
import { sliceTokens } from '@homing/queue'
import t from 'tap'
import { ASK, BLOCK, DELIVERED, fleetOf, GATEWAY, request, start } from './router-world.ts'

/** Of all engines: a slice has seven blocks. */
const STEP = 8 * BLOCK
const FLEET = fleetOf(
  ...['a', 'b'].map((id, i) => ({
    ...{ id, slots: [i] },
    maxBatchedTokens: { value: STEP, source: 'given' as const },
  })),
)
const LETTERS = 'ABCDEFGHIJKLMNOPQRST'

type World = Awaited<ReturnType<typeof start>>

async function decide(
  { ref }: Pick<World, 'ref'>,
  id: string,
  routing: RoutingRequest,
  slicedBeside?: readonly string[],
): Promise<Decision> {
  const result = await ref.ask({ type: 'decide', id, gateway: GATEWAY, request: routing, slicedBeside }, ASK)
  if (result.kind !== 'decided') throw new Error(JSON.stringify(result))
  return result.decision
}

function rowsOf(loads: Awaited<ReturnType<World['loads']>>) {
  return loads.map(({ activeBlocks, activePrefillTokens, activeRequests }) => [
    activeBlocks,
    activePrefillTokens,
    activeRequests,
  ])
}

t.test('the worker is chosen for the whole prompt, and booked for the first slice', async t => {
  const world = await start(t, FLEET)
  const { hold, loads, ref, told } = world
  hold(1, 'ABC')
  const decision = await decide(world, 'one', request(LETTERS), [])
  t.match(decision, {
    worker: 'b/0',
    overlapBlocks: 3,
    slice: { endTokens: 10 * BLOCK, stepTokens: sliceTokens(STEP) },
  })
  t.strictSame(rowsOf(await loads()), [
    [0, 0, 0],
    [10, 7 * BLOCK, 1],
  ])
  t.strictSame(told('routed'), [])
  t.match(await ref.ask({ type: 'receipt', id: 'one' }, ASK), {
    promptTokens: LETTERS.length * BLOCK + 1,
    slices: { sent: 0, decisionId: 'one' },
  })
})

t.test('the first slice goes beside no other long prompt of its tenant if it need not', async t => {
  const world = await start(t, FLEET)
  world.hold(0, 'ABC')
  t.equal((await decide(world, 'one', request(LETTERS), ['a/0'])).worker, 'b/0')
  t.equal((await decide(world, 'two', request(LETTERS), ['a/0', 'b/0'])).worker, 'a/0')
})

t.test('further slices and the rest go to the same worker, and leave one receipt', async t => {
  const world = await start(t, FLEET, { decisionsKept: 10 })
  const { ref, loads, refusal } = world
  const whole = request(LETTERS)
  const first = await decide(world, 'one', whole, ['a/0'])
  const done = (id: string) =>
    ref.tell({ type: 'settled', id, delivery: DELIVERED, wasTaken: true, isPlacedAgain: true })
  done('one')
  const computedTokens = first.slice!.endTokens
  const slice = { worker: first.worker, computedTokens, sent: 1, isLast: false, decisionId: 'one' }
  world.hold(1, LETTERS.slice(0, 7))
  const second = await decide(world, 'two', { ...cutPrompt(whole, 14 * BLOCK), slice })
  t.match(second, { worker: 'b/0', slice: undefined })
  t.strictSame(rowsOf(await loads())[1], [14, 7 * BLOCK, 1])
  done('two')
  world.hold(1, LETTERS.slice(0, 14))
  const rest = { ...slice, computedTokens: 14 * BLOCK, sent: 2, isLast: true }
  await decide(world, 'rest', { ...whole, slice: rest })
  t.strictSame(rowsOf(await loads())[1], [20, 6 * BLOCK + 1, 1])
  const receipts = await ref.ask({ type: 'receipts', limit: 10 }, ASK)
  t.strictSame(
    receipts.map(({ id, slices }) => [id, slices]),
    [
      ['rest', { sent: 2, decisionId: 'one' }],
      ['one', { sent: 0, decisionId: 'one' }],
    ],
  )
  ref.tell({ type: 'settled', id: 'rest', delivery: DELIVERED, wasTaken: true })
  const hour = await ref.ask({ type: 'lastHour' }, ASK)
  t.match(hour, { requests: 1 }, 'it is one request of a client')
  t.strictSame(rowsOf(await loads())[1], [0, 0, 0], 'nothing is left')
  const gone = { ...rest, worker: 'c/0' }
  t.equal(await refusal({ ...whole, slice: gone }), 'HOMING_ROUTER_NO_WORKER')
})

t.test('a prompt that is short without what its worker holds is booked whole', async t => {
  const world = await start(t, FLEET)
  world.hold(1, LETTERS.slice(0, 16))
  const decision = await decide(world, 'one', request(LETTERS), [])
  t.equal(decision.slice, undefined)
  t.strictSame(rowsOf(await world.loads())[1], [20, 4 * BLOCK + 1, 1])
})

/** Placements: what must be told is told again until there is room for it. */

import type { ActorRef } from '@homing/actor'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { Delivery, RoutingRequest } from '@homing/placement'
import t from 'tap'
import { Placements } from '../src/placement.ts'

function placementsAt(queue: ActorRef<QueueMessage>): Placements {
  return new Placements({
    queue,
    router: { tell: () => 'ok' } as unknown as ActorRef<RouterMessage>,
    gateway: { name: 'gateway', life: 'one' },
    askMsMax: 1000,
    queueMsMax: 1000,
    newId: () => 'id',
  })
}

t.test('the queue hears of a long prompt that is computed, also if its mailbox was full', async t => {
  const told: string[] = []
  let isFull = true
  const queue = {
    ask: () => Promise.resolve({ kind: 'decided', decision: {}, isLong: true }),
    tell({ type }: QueueMessage) {
      if (!isFull) told.push(type)
      return isFull ? 'full' : 'ok'
    },
  } as unknown as ActorRef<QueueMessage>
  const placements = placementsAt(queue)
  const placement = placements.ask({ model: 'm' } as RoutingRequest, undefined, 0)
  await placement.answer
  placement.prefilled()
  placement.prefilled()
  t.equal(placements.untoldCount, 1)
  isFull = false
  placements.tellUntold()
  t.strictSame(told, ['prefillComplete'])
  t.equal(placements.untoldCount, 0)
})

t.test('the queue hears what the engine counts of an estimated prompt, once', async t => {
  const told: QueueMessage[] = []
  const queue = {
    ask: () => Promise.resolve({ kind: 'decided', decision: {}, isEstimated: true }),
    tell(message: QueueMessage) {
      told.push(message)
      return 'ok'
    },
  } as unknown as ActorRef<QueueMessage>
  const placements = placementsAt(queue)
  const settled = async (delivery: Partial<Delivery>) => {
    told.length = 0
    const placement = placements.ask({ model: 'm' } as RoutingRequest, undefined, 0)
    await placement.answer
    placement.settle(delivery as Delivery, true, false)
    placement.settle(delivery as Delivery, true, false)
    return [...told]
  }
  const message = { type: 'counted', id: 'id', model: 'm' } as const
  t.strictSame(await settled({ outcome: 'ok', promptTokens: 7, cachedTokens: 3 }), [
    { ...message, counted: { promptTokens: 7, cachedTokens: 3 } },
  ])
  const nothing = [{ ...message, counted: undefined }]
  t.strictSame(await settled({ outcome: 'ok' }), nothing)
  t.strictSame(await settled({ outcome: 'error', promptTokens: 7 }), nothing, 'a failure says nothing')
})

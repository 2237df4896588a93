/** Placements: what must be told is told again until there is room for it. */

import type { ActorRef } from '@homing/actor'
import type { QueueMessage } from '@homing/actors/queue'
import type { RouterMessage } from '@homing/actors/router'
import type { RoutingRequest } from '@homing/placement'
import t from 'tap'
import { Placements } from '../src/placement.ts'

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
  const placements = new Placements({
    queue,
    router: { tell: () => 'ok' } as unknown as ActorRef<RouterMessage>,
    gateway: { name: 'gateway', life: 'one' },
    askMsMax: 1000,
    queueMsMax: 1000,
    newId: () => 'id',
  })
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

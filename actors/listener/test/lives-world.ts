/**
 * What the tests of an engine's lives share: routers that join late, batches that are lost, and what must
 * hold then.
 */

import { encodeSnapshotReply, type SnapshotHeader } from '@homing/protocol'
import type { Test } from 'tap'
import { type ListenerWorld, listenerWorld, type WorldOptions } from './listener-world.ts'

/** Batches remembered: few, so that few are more than are remembered. */
export const FEW = { limits: { seenBatchesMax: 16 } }

/** A router that joined late: `replayed` batches came from the replay, and not one on the live socket. */
export async function lateWorld(
  t: Test,
  replayed: number,
  options: WorldOptions = {},
): Promise<ListenerWorld> {
  const world = await listenerWorld(t, options)
  world.lose(replayed)
  world.startListener()
  await world.system.settle()
  return world
}

/** Trust, and nothing held that is not cached, and where it is exact, all that is. */
export async function isTrue(t: Test, world: ListenerWorld, said = ''): Promise<void> {
  const held = await world.held()
  const cached = world.cached()
  if (world.trust().startsWith('exact')) t.strictSame(held, cached, `${said} ${world.trust()}`)
  else if (world.trust().startsWith('partial')) {
    t.ok(
      held.every(hash => cached.includes(hash)),
      `${said} ${world.trust()}`,
    )
  }
}

/** Stores only: no clear that would make a history whole again. */
export function loseStores(world: ListenerWorld, count: number): void {
  for (let i = 0; i < count; i++) world.source.publishStore()
}

/** As a publisher beside the engine that has seen all of it. */
export function answerSnapshots(world: ListenerWorld, says: Partial<SnapshotHeader> = {}): void {
  world.answerSnapshot = send => {
    const header = {
      publisherId: '0123456789abcdef',
      nextSequence: world.source.lastSequence + 1,
      isWhole: true,
      mayBeStale: false,
      ...says,
    }
    const batches = world.source.snapshot()
    for (const [part, payload] of batches.entries())
      send(
        encodeSnapshotReply(
          { form: 'tokens', offersHashes: false, ...header, part, parts: batches.length },
          payload,
        ),
      )
  }
}

/**
 * Transitions that are lost on the way: of blocks that an engine moves to pooled memory, as of all events,
 * a missing one is a gap. Once that is closed, the router credits no block as reachable that is not in the
 * pool. HOMING_FAULTS_SEED sets the seed.
 */

import process from 'node:process'
import { decodeKvBatch, type KvTransition, parseEventFrames } from '@homing/protocol'
import type { Frames } from '@homing/transport'
import t from 'tap'
import { ObservedFleet, type ObservedOptions } from './observed-fleet.ts'
import { poolsOf } from './pools.ts'

const SEED = Number(process.env['HOMING_FAULTS_SEED'] ?? 1)
const WARM_MS = 3000
const HEAL_MS = 6500
const LOST = 3
/** Smaller than the cache: blocks leave the pool that the device still holds, and the other way round. */
const ENGINE = { blocks: 40, poolId: 7, poolWorkers: ['9'], poolBlocks: 24 }

const KINDS: readonly {
  readonly name: string
  readonly hasReplay: boolean
  readonly options?: ObservedOptions
}[] = [
  { name: 'with a replay', hasReplay: true },
  { name: 'without a replay', hasReplay: false },
  { name: 'behind a sidecar', hasReplay: false, options: { hasSidecar: true } },
]

for (const state of ['in_transit', 'cxl_pooled', 'evicted'] as const) {
  for (const { name, hasReplay, options = {} } of KINDS) {
    t.test(`${name}, lost transitions to ${state} are a gap, and nothing is credited for them`, async t => {
      const observed = await ObservedFleet.start(SEED, { ...ENGINE, offersReplay: hasReplay }, options)
      const { fleet } = observed
      t.teardown(() => fleet.stop())
      observed.beginTraffic()
      await observed.run(WARM_MS)
      await observed.idle()
      const before = await poolsOf(fleet)
      t.ok(before.there.size > 0)
      t.strictSame([...before.credited].sort(), [...before.there].sort(), 'as it is')
      const gaps = async () => (await fleet.workers())[0]!.worker_keys[0]!.events?.gaps ?? 0
      const gapsBefore = await gaps()

      const endpoint = options.hasSidecar === true ? observed.sidecar.endpoint : fleet.engines[0]!.events
      let lost = 0
      fleet.network.faults.message = (place, frames) => {
        if (place !== endpoint || lost >= LOST || !movesTo(frames, state)) return 'deliver'
        lost++
        return 'drop'
      }
      observed.beginTraffic()
      await observed.run(HEAL_MS)
      await observed.idle()
      t.equal(lost, LOST)
      t.ok((await gaps()) > gapsBefore, 'a gap, as with all events')
      const { credited, there } = await poolsOf(fleet)
      t.strictSame(
        [...credited].filter(hash => !there.has(hash)),
        [],
        'none is credited that is not there',
      )
      if (hasReplay) t.equal(credited.size, there.size, 'and all that are')
      t.ok(credited.size > 0)
    })
  }
}

function movesTo(frames: Frames, state: KvTransition['state']): boolean {
  const { events } = decodeKvBatch(parseEventFrames(frames).payload)
  return events.some(event => event.kind === 'transition' && event.state === state)
}

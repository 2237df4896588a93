/**
 * Tracker: the slot manager, the sole writer of the load of every worker key.
 *
 * In     `project` and `book` from the router; first byte and end of answers from the dispatcher;
 *        lost worker keys from the fleet.
 * Out    replies only.
 * Owns   ActiveLoad: active blocks, prefill tokens and requests of every worker slot.
 * Order  a router that awaits each `book` before its next `project` never decides on stale load.
 * Fails  a booking that nobody touches for `idleMsMax` is freed and counted: its owner has lost it.
 *        Restarted, it starts empty; requests under way are then freed without effect.
 */

import { defineActor } from '@homing/actor'
import { ActiveLoad } from '@homing/load'
import type { TrackerMessage, WorkerLoad } from './messages.ts'

export interface TrackerArgs {
  readonly workerSlotsMax: number
  /** Requests booked at one time. */
  readonly requestsMax: number
  /** Bookings without a sign of life for this long are freed, in milliseconds. */
  readonly idleMsMax: number
}

const SWEEP_INTERVAL_MS = 5000

export const tracker = defineActor(
  import.meta.url,
  'tracker',
)<TrackerMessage, TrackerArgs>({
  setup(context, { workerSlotsMax, requestsMax, idleMsMax }) {
    const load = new ActiveLoad({ workerSlotsMax, requestsMax })
    let keysBySlot = new Map<number, string>()
    context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })

    return {
      fleet({ fleet }) {
        const present = new Map<number, string>()
        for (const worker of fleet.workers) {
          for (const { key, workerSlot } of worker.keys) present.set(workerSlot, key)
        }
        for (const [workerSlot, key] of keysBySlot) {
          if (present.get(workerSlot) !== key) load.freeWorker(workerSlot)
        }
        keysBySlot = present
      },

      project({ workerSlots, sequenceHashes, reply }) {
        const projection = load.project(sequenceHashes, sequenceHashes.length / 2, workerSlots)
        const { count } = projection
        reply({
          activeBlocks: projection.activeBlocks.slice(0, count),
          newBlocks: projection.newBlocks.slice(0, count),
          activePrefillTokens: projection.activePrefillTokens.slice(0, count),
          activeRequests: projection.activeRequests.slice(0, count),
        })
      },

      book({ booking, reply }) {
        const { requestId, workerSlot, sequenceHashes, promptTokens, prefillTokens } = booking
        reply(
          load.book(requestId, workerSlot, {
            sequenceHashes,
            count: sequenceHashes.length / 2,
            promptTokens,
            prefillTokens,
            nowMs: context.clock.nowMs(),
          }),
        )
      },

      prefillComplete({ requestId }) {
        load.prefillComplete(requestId, context.clock.nowMs())
      },

      touch({ requestId }) {
        load.touch(requestId, context.clock.nowMs())
      },

      free({ requestId }) {
        load.free(requestId)
      },

      loads({ reply }) {
        const rows: WorkerLoad[] = []
        for (const [workerSlot, worker] of keysBySlot) {
          const { activeBlocks, activePrefillTokens, activeRequests } = load.totals(workerSlot)
          rows.push({ worker, workerSlot, activeBlocks, activePrefillTokens, activeRequests })
        }
        reply({ rows, stats: load.stats })
      },

      sweep() {
        const expired = load.expire(context.clock.nowMs(), idleMsMax)
        for (const requestId of expired) {
          context.log.warn({ requestId, idleMsMax }, 'booking freed: no sign of life')
        }
        context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })
      },
    }
  },
})

/**
 * Tracker: the slot manager, the sole writer of the load of every worker key.
 *
 * In     `project`, `book` and `free` from the router; first byte and signs of life of answers from the gateway;
 *        lost worker keys from the fleet; new lives of gateways; what engines say of their KV caches.
 * Out    replies; to the queue, when it waits for that: load fell; to the directory: a worker that drains has no open request.
 * Owns   ActiveLoad: active blocks, prefill tokens and requests of every worker slot. EngineBook: what is before each in milliseconds, and what
 *        was learned of its speed. Beside them, never mixed with them: what each engine says of its own KV cache.
 * Order  a router that awaits each `book` before its next `project` never decides on stale load.
 * Fails  bookings of a gateway's ended life are freed when the next life begins. A booking that nobody touches for
 *        `idleMsMax` is freed and counted: its owner has lost it.
 *        After a restart the tracker is empty; freeing requests that were under way then has no effect.
 */

import { type ActorRef, defineActor } from '@homing/actor'
import { ActiveLoad, copyProjection, EngineBook } from '@homing/load'
import { newLife } from '@homing/replication'
import type {
  GatewayLife,
  LoadFellMessage,
  OwnOperationsMessage,
  TellAgainMessage,
  TrackerMessage,
  TrackerUsage,
  WorkerLoad,
} from './messages.ts'
import { OutputBlocks } from './output-blocks.ts'
import { ReplicaBookings } from './replica-bookings.ts'
import type { TrackerArgs } from './tracker-args.ts'
import { TRACK_ALL, trackedHashes, trackingOf } from './tracking.ts'

const SWEEP_INTERVAL_MS = 5000

export const tracker = defineActor(
  import.meta.url,
  'tracker',
)<TrackerMessage, TrackerArgs>({
  setup(
    context,
    { directory, workerSlotsMax, requestsMax, idleMsMax, tracking = TRACK_ALL, replicationMs, replicaSalt },
  ) {
    const load = new ActiveLoad({ workerSlotsMax, requestsMax })
    let keysBySlot = new Map<number, string>()
    let slotsByKey = new Map<string, number>()
    /** By id: who booked it. */
    const gateways = new Map<string, GatewayLife>()
    const book = new EngineBook({ workerSlotsMax })
    const outputs = tracking.outputBlocks ? new OutputBlocks(load) : undefined
    const replicas =
      replicationMs === undefined
        ? undefined
        : new ReplicaBookings({
            load,
            book,
            life: newLife(context.random, replicaSalt),
            nowMs: () => context.clock.nowMs(),
            slotOf: worker => slotsByKey.get(worker),
          })
    let bridge: ActorRef<OwnOperationsMessage | TellAgainMessage> | undefined
    let isFlushDue = false
    let flushedMs = Number.NEGATIVE_INFINITY
    /** After a pause at once, with all that waits in the mailbox; else when what was told last is so old that more may follow. */
    const flushLater = (): void => {
      if (replicas === undefined || isFlushDue || !replicas.outbox.isDue) return
      isFlushDue = true
      const waitMs = flushedMs + replicationMs! - context.clock.nowMs()
      if (waitMs > 0 || context.self.tell({ type: 'flushOperations' }) !== 'ok')
        context.schedule(Math.max(0, waitMs), { type: 'flushOperations' })
    }
    const flush = (): void => {
      isFlushDue = false
      if (replicas?.outbox.isDue !== true) return
      flushedMs = context.clock.nowMs()
      // What has no taker is in the next snapshot, as what is open.
      bridge?.tell({ type: 'ownOperations', batch: replicas.outbox.take() })
    }
    /** By worker slot. */
    const reported = new Map<number, NonNullable<WorkerLoad['reported']>>()
    let falls = 0
    let watcher: ActorRef<LoadFellMessage> | undefined
    /** Worker slots of those that drain, by worker id. */
    const draining = new Map<string, readonly number[]>()
    const tellDrained = (): void => {
      for (const [workerId, slots] of draining) {
        if (slots.some(slot => load.totals(slot).activeRequests > 0)) continue
        // Where its mailbox is full, the next fleet or the next request that ends says it again.
        if (directory?.tell({ type: 'drained', workerId }) === 'ok') draining.delete(workerId)
      }
    }
    const fell = (): void => {
      falls++
      if (draining.size > 0) tellDrained()
      watcher?.tell({ type: 'loadFell' })
      watcher = undefined
    }
    const free = (decisionId: string, { outputTokens, cachedShare }: TrackerUsage = {}): void => {
      gateways.delete(decisionId)
      outputs?.ended(decisionId)
      const isFreed = load.free(decisionId)
      replicas?.freed(decisionId, { outputTokens, cachedShare })
      flushLater()
      book.ended(decisionId, context.clock.nowMs(), outputTokens, cachedShare)
      if (isFreed) fell()
    }
    context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })

    return {
      fleet({ fleet }) {
        const present = new Map<number, string>()
        draining.clear()
        for (const worker of fleet.workers) {
          if (worker.isDraining === true)
            draining.set(
              worker.id,
              worker.keys.map(key => key.workerSlot),
            )
          for (const { key, workerSlot } of worker.keys) present.set(workerSlot, key)
        }
        for (const [workerSlot, key] of keysBySlot) {
          if (present.get(workerSlot) === key) continue
          for (const decisionId of load.freeWorker(workerSlot)) {
            gateways.delete(decisionId)
            outputs?.ended(decisionId)
            replicas?.freed(decisionId, {})
            replicas?.forgotten(decisionId, workerSlot)
          }
          book.forget(workerSlot)
          reported.delete(workerSlot)
        }
        const isNew = [...present.values()].some(key => !slotsByKey.has(key))
        keysBySlot = present
        slotsByKey = new Map([...present].map(([slot, key]) => [key, slot]))
        if (isNew) bridge?.tell({ type: 'tellAgain' })
        flushLater()
        fell()
      },

      project({
        workerSlots,
        sequenceHashes: given,
        tracking: ofRequest,
        wantsEngines,
        wantsReported,
        reply,
      }) {
        const sequenceHashes = trackedHashes(given, trackingOf(tracking, ofRequest), context.random)
        const projection = load.project(sequenceHashes, sequenceHashes.length / 2, workerSlots)
        const { count } = projection
        reply({
          activeBlocks: projection.activeBlocks.slice(0, count),
          newBlocks: projection.newBlocks.slice(0, count),
          soughtBlocks: sequenceHashes.length / 2,
          activePrefillTokens: projection.activePrefillTokens.slice(0, count),
          activeRequests: projection.activeRequests.slice(0, count),
          engines: wantsEngines
            ? copyProjection(book.project(workerSlots, context.clock.nowMs()))
            : undefined,
          reportedShares:
            wantsReported === true
              ? Float64Array.from(workerSlots, slot => reported.get(slot)?.share ?? Number.NaN)
              : undefined,
          falls,
        })
      },

      reportedUsage({ reports }) {
        let isLess = false
        for (const { worker, workerSlot, share, reason } of reports) {
          if (keysBySlot.get(workerSlot) !== worker) continue
          isLess ||= (share ?? 0) < (reported.get(workerSlot)?.share ?? 0)
          reported.set(workerSlot, { share, reason })
        }
        if (isLess) fell()
      },

      watchLoad(message) {
        watcher = message.watcher
        if (message.falls === falls) return
        watcher.tell({ type: 'loadFell' })
        watcher = undefined
      },

      book({ booking, reply }) {
        const { decisionId, gateway, workerSlot, promptTokens, prefillTokens } = booking
        const counts = trackingOf(tracking, booking.tracking)
        const sequenceHashes = trackedHashes(booking.sequenceHashes, counts, context.random)
        const { isStream, waitedMs = 0, stepTokens } = booking
        const outcome = load.book(decisionId, workerSlot, {
          sequenceHashes,
          count: sequenceHashes.length / 2,
          promptTokens,
          prefillTokens: counts.prefillTokens ? prefillTokens : 0,
          nowMs: context.clock.nowMs(),
        })
        if (outcome === 'booked') {
          gateways.set(decisionId, gateway)
          outputs?.booked(booking)
          const worker = keysBySlot.get(workerSlot)
          if (worker !== undefined) replicas?.booked(booking, worker, counts.prefillTokens)
          flushLater()
          const nowMs = context.clock.nowMs()
          const sent = { promptTokens, newTokens: prefillTokens, isStream, waitedMs, nowMs }
          book.sent(decisionId, workerSlot, sent, stepTokens)
        }
        reply(outcome)
      },

      prefillComplete({ decisionId }) {
        const isLess = load.prefillComplete(decisionId, context.clock.nowMs())
        book.firstToken(decisionId, context.clock.nowMs())
        replicas?.firstToken(decisionId)
        flushLater()
        if (isLess) fell()
      },

      touch({ decisionId, outputTokens }) {
        if (!load.touch(decisionId, context.clock.nowMs()) || outputTokens === undefined) return
        book.grew(decisionId, outputTokens, context.clock.nowMs())
        if (outputs?.grew(decisionId, outputTokens) === 'less') fell()
      },

      free({ decisionId, outputTokens, cachedShare }) {
        free(decisionId, { outputTokens, cachedShare })
      },

      gatewayStarted({ gateway }) {
        for (const [decisionId, { name, life }] of gateways)
          if (name === gateway.name && life !== gateway.life) free(decisionId)
      },

      loads({ reply }) {
        const rows: WorkerLoad[] = []
        for (const [workerSlot, worker] of keysBySlot) {
          const { activeBlocks, activePrefillTokens, activeRequests } = load.totals(workerSlot)
          const learned = book.learned(workerSlot)
          const says = reported.get(workerSlot)
          rows.push({
            worker,
            workerSlot,
            activeBlocks,
            activePrefillTokens,
            activeRequests,
            reported: says,
            learned,
          })
        }
        reply({ rows, stats: load.stats, replicas: replicas?.counts })
      },

      replicate(message) {
        bridge = message.bridge
        message.reply(replicas?.outbox.life)
        // Also where there is nothing to tell: then it says that nothing was lost.
        if (replicas !== undefined) bridge.tell({ type: 'ownOperations', batch: replicas.outbox.take() })
      },

      ownBookings({ reply }) {
        flush()
        reply(replicas?.outbox.snapshot())
      },

      replicaOperations({ replica, operations, isLate }) {
        if (replicas?.apply(replica, operations, isLate) === true) fell()
      },

      replicaBookings({ replica, bookings }) {
        if (replicas?.reset(replica, bookings) === true) fell()
      },

      replicasKnown({ replicas: known }) {
        if (replicas?.retain(known) === true) fell()
      },

      flushOperations: flush,

      sweep() {
        replicas?.keepAlive()
        const expired = load.expire(context.clock.nowMs(), idleMsMax)
        for (const decisionId of expired) {
          free(decisionId)
          context.log.warn({ decisionId, idleMsMax }, 'booking freed: no sign of life')
        }
        if (expired.length > 0) fell()
        context.schedule(SWEEP_INTERVAL_MS, { type: 'sweep' })
      },
    }
  },
})

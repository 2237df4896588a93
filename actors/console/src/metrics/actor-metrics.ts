/** Metrics of the actor runtime: per thread, read from shared memory, so that a stuck thread shows too. */

import type { SystemView, ThreadCounters } from '@homing/actor'
import type { MetricColumn, Metrics } from '@homing/metrics'

const LANES = ['object', 'inline'] as const

/** Each behind `homing_actor_`. */
const COLUMNS: readonly MetricColumn<ThreadCounters>[] = [
  ['sent_messages_total', 'Messages and asks that actors and the program sent.', one => one.sent],
  ['handled_messages_total', 'Messages that actors handled.', one => one.handled],
  ['dropped_messages_total', 'Messages that waited when their actor stopped.', one => one.dropped],
  ['refused_messages_total', 'Messages and asks that a full mailbox or link refused.', one => one.refused],
  ['restarts_total', 'Restarts of actors by their supervision.', one => one.restarts],
  ['asks_timed_out_total', 'Asks that were not answered by their deadline.', one => one.asksTimedOut],
  ['thread_lives_total', 'Starts of the thread; more than 1 means that it was replaced.', one => one.lives],
  ['turns_total', 'Bursts of messages handled in a row.', one => one.turns],
  [
    'busy_seconds_total',
    'Time that actors ran, without the work of async handlers after an await.',
    one => one.busyMs / 1000,
  ],
  ['doorbells_total', 'Other threads woken.', one => one.doorbells],
  ['parks_total', 'Waits of the thread for one of its links.', one => one.parks],
  ['inbound_batches_total', 'Batches of frames taken from links.', one => one.inboundBatches],
  ['live_actors', 'Actors on the thread.', one => one.actors],
  ['pending_asks', 'Asks of its actors that await an answer.', one => one.asksPending],
  [
    'mailbox_highwater_messages',
    'Most messages that ever waited in one mailbox.',
    one => one.mailboxHighWater,
  ],
  ['spill_highwater_messages', 'Most frames that ever waited for room in a ring.', one => one.spillHighWater],
  ['ring_highwater_bytes', 'Most bytes ever found in an inbound ring.', one => one.ringHighWaterBytes],
  ['heap_used_bytes', 'Heap in use, as the thread last saw it.', one => one.heapUsedBytes],
  [
    'heap_resident_bytes',
    'Memory that the heap takes, with its free room, as the thread last saw it.',
    one => one.heapResidentBytes,
  ],
  ['heap_limit_bytes', 'Most heap that the thread may use.', one => one.heapLimitBytes],
]

export function collectActors(metrics: Metrics, system: SystemView): void {
  const table = metrics.table(
    ['thread'],
    COLUMNS.map(([what, ...rest]) => [`homing_actor_${what}`, ...rest] as const),
  )
  const deadLetters = metrics.counter({
    name: 'homing_actor_dead_letters_total',
    help: 'Messages that nobody handled, by reason.',
    labels: ['thread', 'reason'],
  })
  const frames = metrics.counter({
    name: 'homing_actor_frames_total',
    help: 'Frames between threads, by direction and lane: object (cloned), inline (a primitive).',
    labels: ['thread', 'direction', 'lane'],
  })
  const states = metrics.gauge({
    name: 'homing_actor_thread_state',
    help: '1 for the current state of each thread: starting, running, hung, replacing, stopping, ended.',
    labels: ['thread', 'state'],
  })
  const bounds = system.counters().total.handlerTimes.boundsUs
  const times = metrics.histogramTotals({
    name: 'homing_actor_handler_seconds',
    help: 'Time of handlers, without awaited time, in one turn of 16.',
    labels: ['thread'],
    buckets: bounds.map(us => us / 1e6),
  })
  metrics.collect(() => {
    const { threads } = system.counters()
    table.replace(threads.map(row => ({ row, labels: { thread: row.thread } })))
    deadLetters.replaceTotals(
      threads.flatMap(({ thread, deadLettersByReason }) =>
        Object.entries(deadLettersByReason).map(([reason, total]) => ({ total, labels: { thread, reason } })),
      ),
    )
    frames.replaceTotals(
      threads.flatMap(({ thread, framesOut, framesIn }) =>
        LANES.flatMap(lane => [
          { total: framesOut[lane], labels: { thread, direction: 'out', lane } },
          { total: framesIn[lane], labels: { thread, direction: 'in', lane } },
        ]),
      ),
    )
    states.replace(system.threads().map(({ name, state }) => ({ value: 1, labels: { thread: name, state } })))
    times.replace(
      threads.map(({ thread, handlerTimes: { counts, sumUs } }) => ({
        counts,
        sum: sumUs / 1e6,
        labels: { thread },
      })),
    )
  })
}

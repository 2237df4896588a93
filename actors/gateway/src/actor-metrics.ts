/** What `/metrics` says of the actor runtime: per thread, read from shared memory, so that a stuck thread is seen too. */

import type { SystemView, ThreadCounters } from '@homing/actor'
import type { Metrics } from '@homing/metrics'

type Figure = (counters: ThreadCounters) => number

const LANES = ['coded', 'object', 'inline'] as const

const COUNTERS: readonly (readonly [what: string, help: string, figure: Figure])[] = [
  ['sent_messages', 'Messages and asks that actors and the program sent.', one => one.sent],
  ['handled_messages', 'Messages that actors handled.', one => one.handled],
  ['dropped_messages', 'Messages that waited when their actor stopped.', one => one.dropped],
  ['refused_messages', 'Messages and asks that a full mailbox or link refused.', one => one.refused],
  ['restarts', 'Restarts of actors by their supervision.', one => one.restarts],
  ['asks_timed_out', 'Asks that were not answered by their deadline.', one => one.asksTimedOut],
  ['thread_lives', 'Times that the thread was started; more than 1: it was replaced.', one => one.lives],
  ['turns', 'Bursts of messages handled in a row.', one => one.turns],
  ['busy_seconds', 'Time in rounds of the event loop in which actors had a turn.', one => one.busyMs / 1000],
  ['doorbells', 'Other threads woken.', one => one.doorbells],
  ['parks', 'Times that the thread waited for one of its links.', one => one.parks],
  ['inbound_batches', 'Batches of frames taken from links.', one => one.inboundBatches],
  ['layout_misfits', 'Messages that did not fit their layout and were cloned.', one => one.layoutMisfits],
]

const GAUGES: readonly (readonly [name: string, help: string, figure: Figure])[] = [
  ['live_actors', 'Actors on the thread.', one => one.actors],
  ['pending_asks', 'Asks of its actors that await their answer.', one => one.asksPending],
  [
    'mailbox_highwater_messages',
    'Most messages that ever waited in one mailbox.',
    one => one.mailboxHighWater,
  ],
  ['spill_highwater_messages', 'Most frames that ever waited for room in a ring.', one => one.spillHighWater],
  ['ring_highwater_bytes', 'Most bytes ever found in an inbound ring.', one => one.ringHighWaterBytes],
  ['heap_used_bytes', 'Heap in use, as the thread last saw it.', one => one.heapUsedBytes],
  ['heap_limit_bytes', 'Most heap that the thread may use.', one => one.heapLimitBytes],
]

export function collectActors(metrics: Metrics, system: SystemView): void {
  const counters = COUNTERS.map(([what, help, figure]) => ({
    figure,
    counter: metrics.counter({ name: `homing_actor_${what}_total`, help, labels: ['thread'] }),
  }))
  const gauges = GAUGES.map(([what, help, figure]) => ({
    figure,
    gauge: metrics.gauge({ name: `homing_actor_${what}`, help, labels: ['thread'] }),
  }))
  const deadLetters = metrics.counter({
    name: 'homing_actor_dead_letters_total',
    help: 'Messages that nobody handled, by reason.',
    labels: ['thread', 'reason'],
  })
  const frames = metrics.counter({
    name: 'homing_actor_frames_total',
    help: 'Frames between threads, by direction and lane: coded (by a layout), object (cloned), inline (a primitive).',
    labels: ['thread', 'direction', 'lane'],
  })
  const states = metrics.gauge({
    name: 'homing_actor_thread_state',
    help: '1 for the state each thread is in: starting, running, hung, replacing, stopping, ended.',
    labels: ['thread', 'state'],
  })
  const bounds = system.counters().total.handlerTimes.boundsUs
  const times = metrics.histogramTotals({
    name: 'homing_actor_handler_seconds',
    help: 'Time that handlers took, without what they await; of one turn in 16.',
    labels: ['thread'],
    buckets: bounds.map(us => us / 1e6),
  })
  metrics.collect(() => {
    const { threads } = system.counters()
    const by = (figure: Figure) =>
      threads.map(one => ({ value: figure(one), labels: { thread: one.thread } }))
    for (const { counter, figure } of counters) {
      counter.replaceTotals(by(figure).map(({ value, labels }) => ({ total: value, labels })))
    }
    for (const { gauge, figure } of gauges) gauge.replace(by(figure))
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

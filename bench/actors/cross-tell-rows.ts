/** The rows of tells from main to another thread: flat messages to many actors, and nested ones to one. */

import { type ActorRef, AskRefusedError } from '@homing/actor'
import {
  type AskTally,
  collector,
  type ObjectMessage,
  type Tally,
  type WorkMessage,
  worker,
} from './actors.ts'
import { type CpuTimes, costsOf, cpuTimes, Waiter } from './cpu.ts'
import { nextTurn, perSecond, requireEqual } from './loads.ts'
import { RawPort, RawRings, type RawTells } from './raw-cross.ts'
import { costMeasures, placed, type Row, requireNoDeadLetters, withThread } from './row.ts'
import { crossObjects, crossTargets, crossTells } from './sizes.ts'
import { inTurns } from './turns.ts'

/** Objects in a post, and objects told before a microtask lets the link send. */
const BATCH = 256
/** Posts of one message are ten times slower than ours, and need not take ten times as long. */
const PORT_SHARE = 1 / 10
/** Objects told before the event loop goes round. */
const TURN_OBJECTS = 1024
const TALLY_MS_MAX = 30_000
const TEXT = 'sixteen letters.'

export const crossTellRows: readonly Row[] = [
  {
    name: 'crossTell',
    threads: 2,
    targets: { crossTell: { floor: 0.7e6, goal: 1e6 } },
    async run() {
      const [rings, port] = [await RawRings.open(), await RawPort.open()]
      const medians = await withThread(async system => {
        const refs = Array.from({ length: crossTargets }, (_, i) =>
          system.spawn(worker, { ...placed(`worker-${i}`), args: undefined }),
        )
        await drained(refs, 0)
        let told = 0
        const result = await inTurns(crossTells, {
          ring: count => rings.tell(count),
          port: count => port.tell(Math.ceil(count * PORT_SHARE), 1, work),
          ours: async count => {
            const each = Math.ceil(count / crossTargets)
            const costs = await timed(refs, each * crossTargets, told + each, waiter =>
              tellAll(refs, told, told + each, waiter),
            )
            told += each
            return costs
          },
        })
        await requireNoDeadLetters(system)
        return result
      })
      await rings.close()
      await port.close()
      const { ours, ring, port: posts } = medians
      return {
        crossTell: { value: ours.perS, unit: 'msg/s', raw: { ring: ring.perS, port: posts.perS } },
        ...costMeasures('crossTell', ours, { port: posts }),
      }
    },
  },
  {
    name: 'crossObject',
    threads: 2,
    targets: {
      crossObject: { floor: 0.7e6, goal: 1e6 },
      crossObjectBatched: { floor: 0.7e6, goal: 2.5e6 },
    },
    async run() {
      const [port, portOfBatches] = [await RawPort.open(), await RawPort.open()]
      const medians = await withThread(async system => {
        const ref = system.spawn(collector, { ...placed('collector'), args: undefined })
        await drained([ref], 0)
        let told = 0
        const tell = async (count: number, perTurn: number): Promise<RawTells> => {
          const end = told + count
          const costs = await timed([ref], count, end, waiter => tellObjects(ref, told, end, perTurn, waiter))
          told = end
          return costs
        }
        const result = await inTurns(crossObjects, {
          port: count => port.tell(count, 1, object),
          ours: count => tell(count, 1),
          portOfBatches: count => portOfBatches.tell(count, BATCH, object),
          oursInBatches: count => tell(count, BATCH),
        })
        await requireNoDeadLetters(system)
        return result
      })
      await port.close()
      await portOfBatches.close()
      const { ours, port: posts, oursInBatches, portOfBatches: batches } = medians
      return {
        crossObject: { value: ours.perS, unit: 'msg/s', raw: { port: posts.perS } },
        ...costMeasures('crossObject', ours, { port: posts }),
        crossObjectBatched: { value: oursInBatches.perS, unit: 'msg/s', raw: { port: batches.perS } },
        ...costMeasures('crossObjectBatched', oursInBatches, { port: batches }),
      }
    },
  },
]

function work(n: number) {
  return { type: 'work', n, a: n + 1, b: -n, text: TEXT } as const
}

function object(n: number) {
  return { type: 'object', n, body: { a: n, b: TEXT } } as const
}

/** Tells `count` messages by `tell`, the last of them number `end`, until all are handled. */
async function timed(
  refs: readonly ActorRef<AskTally>[],
  count: number,
  end: number,
  tell: (waiter: Waiter) => Promise<void>,
): Promise<RawTells> {
  const waiter = new Waiter()
  const usage = (): Promise<CpuTimes> => cpuTimes(async () => (await tallyOf(refs[0]!)).cpuUs)
  const before = await usage()
  const from = performance.now()
  await tell(waiter)
  await drained(refs, end)
  const perS = perSecond(count, from)
  return { perS, ...costsOf(count, before, await usage(), waiter.us) }
}

/** Tells each of `refs` the numbers after `from`, up to `to`; a round of the event loop for each number. */
async function tellAll(
  refs: readonly ActorRef<WorkMessage>[],
  from: number,
  to: number,
  waiter: Waiter,
): Promise<void> {
  for (let n = from + 1; n <= to; n++) {
    for (const ref of refs) while (!isTaken(ref.tell(work(n)))) await waiter.turn()
    await nextTurn()
  }
}

/** `perTurn` objects before a microtask lets the link send. */
async function tellObjects(
  ref: ActorRef<ObjectMessage>,
  from: number,
  to: number,
  perTurn: number,
  waiter: Waiter,
): Promise<void> {
  for (let n = from + 1; n <= to; n++) {
    while (!isTaken(ref.tell(object(n)))) await waiter.turn()
    // The event loop has to go round as well: the other thread's word on what it took comes that way.
    if (n % TURN_OBJECTS === 0) await nextTurn()
    else if (n % perTurn === 0) await undefined
  }
}

function isTaken(status: 'ok' | 'full' | 'dead'): boolean {
  if (status === 'dead') throw new Error('an actor of the bench is dead')
  return status === 'ok'
}

/** Resolves when each of `refs` has handled all that it was told: the numbers up to `told`, in order. */
async function drained(refs: readonly ActorRef<AskTally>[], told: number): Promise<void> {
  const tallies = await Promise.all(refs.map(tallyOf))
  for (const { count, violations } of tallies)
    requireEqual('messages handled in order', count - violations, told)
}

/**
 * Asks again while the link is full of what was told before: that is its answer to too much, as `full` is.
 */
async function tallyOf(ref: ActorRef<AskTally>): Promise<Tally> {
  const untilMs = performance.now() + TALLY_MS_MAX
  for (;;) {
    try {
      return await ref.ask({ type: 'tally' }, { timeout: TALLY_MS_MAX })
    } catch (error) {
      if (!(error instanceof AskRefusedError) || performance.now() > untilMs) throw error
      await nextTurn()
    }
  }
}

/**
 * The rows of sizes: plain objects and moved buffers between two threads beside bare posts, and actors that
 * drain.
 */

import { once } from 'node:events'
import type { ActorRef } from '@homing/actor'
import type { Measures } from '../harness.ts'
import { type HeapMessage, heaper } from './actors.ts'
import { nextTurn, perSecond, requireEqual } from './loads.ts'
import { startRawWorker } from './raw-cross.ts'
import { placed, type Row, requireNoDeadLetters, withThread } from './row.ts'
import { drains, sizedBytes, sizedMessagesMax } from './sizes.ts'
import { inTurns } from './turns.ts'

/** Bytes of text in an object; about 1 KiB an item above that. */
const OBJECT_SIZES = [64, 1024, 16_384, 262_144] as const
const BUFFER_SIZES = [16_384, 1_048_576] as const
const ITEM_BYTES = 1024
/** Told before the event loop goes round. */
const TURN_MESSAGES = 64
const TALLY_MS_MAX = 60_000

type Load =
  | { readonly n: number; readonly items: readonly string[] }
  | { readonly n: number; readonly bytes: Uint8Array<ArrayBuffer> }

function objectOf(size: number): (n: number) => Load {
  const items = Array.from({ length: Math.ceil(size / ITEM_BYTES) }, () =>
    'x'.repeat(Math.min(size, ITEM_BYTES)),
  )
  return n => ({ n, items })
}

function bufferOf(size: number): (n: number) => Load {
  return n => ({ n, bytes: new Uint8Array(size) })
}

/** As many as make the size of the row. */
function countFor(size: number): number {
  return Math.max(20, Math.min(sizedMessagesMax, Math.floor(sizedBytes / size)))
}

/** The same load told to an actor and posted to a bare worker, a message for each post; in turns. */
async function against(
  count: number,
  make: (n: number) => Load,
): Promise<{ readonly ours: number; readonly port: number }> {
  const raw = await startRawWorker({ task: 'count' })
  let posted = 0
  let told = 0
  const medians = await withThread(async system => {
    const ref = system.spawn(heaper, placed('heaper'))
    await tallied(ref, 0)
    const result = await inTurns(count, {
      port: async share => {
        const from = performance.now()
        for (let end = posted + share; posted < end; ) {
          const load = make(++posted)
          raw.postMessage(load, 'bytes' in load ? [load.bytes.buffer] : [])
          if (posted % TURN_MESSAGES === 0) await nextTurn()
        }
        raw.postMessage(0)
        const [tally] = (await once(raw, 'message')) as [
          { readonly count: number; readonly violations: number },
        ]
        requireEqual('messages over a raw port', tally.count - tally.violations, posted)
        return { perS: perSecond(share, from) }
      },
      ours: async share => {
        const from = performance.now()
        for (let end = told + share; told < end; ) {
          const load = make(told + 1)
          const options = 'bytes' in load ? { transfer: [load.bytes.buffer] } : undefined
          const status = ref.tell({ type: 'load', ...load }, options)
          if (status === 'dead') throw new Error('an actor of the bench is dead')
          if (status === 'ok') told++
          if (status === 'full' || told % TURN_MESSAGES === 0) await nextTurn()
        }
        await tallied(ref, told)
        return { perS: perSecond(share, from) }
      },
    })
    await requireNoDeadLetters(system)
    return result
  })
  await raw.terminate()
  return { ours: medians.ours.perS, port: medians.port.perS }
}

async function tallied(ref: ActorRef<HeapMessage>, told: number): Promise<void> {
  const { count, violations } = await ref.ask({ type: 'tally' }, { timeout: TALLY_MS_MAX })
  requireEqual('messages handled in order', count - violations, told)
}

function nameOf(size: number): string {
  return size >= 1_048_576 ? `${size / 1_048_576}MiB` : size >= 1024 ? `${size / 1024}KiB` : `${size}B`
}

async function measure(
  row: string,
  sizes: readonly number[],
  make: (size: number) => (n: number) => Load,
): Promise<Measures> {
  const measures: Record<string, Measures[string]> = {}
  for (const size of sizes) {
    const { ours, port } = await against(countFor(size), make(size))
    measures[`${row}${nameOf(size)}`] = { value: ours, unit: 'msg/s', raw: { port } }
  }
  return measures
}

export const sizeRows: readonly Row[] = [
  {
    name: 'objectSizes',
    threads: 2,
    // Objects in no size slower than posts of one object each.
    targets: Object.fromEntries(
      OBJECT_SIZES.map(size => [`object${nameOf(size)}`, { floor: 1, goal: 1.5, timesRaw: 'port' }]),
    ),
    run: () => measure('object', OBJECT_SIZES, objectOf),
  },
  { name: 'transfer', threads: 2, targets: {}, run: () => measure('transfer', BUFFER_SIZES, bufferOf) },
  {
    name: 'drain',
    threads: 2,
    targets: {},
    async run() {
      const raw = await startRawWorker({ task: 'count' })
      const perActor = await withThread(async system => {
        const spawned = async (count: number): Promise<readonly ActorRef<HeapMessage>[]> => {
          const refs = Array.from({ length: count }, (_, i) => system.spawn(heaper, placed(`heaper-${i}`)))
          await Promise.all(refs.map(ref => tallied(ref, 0)))
          return refs
        }
        return inTurns(drains, {
          // The round trip of one bare post, which a stop of an actor on another thread cannot do without.
          port: async share => {
            const from = performance.now()
            for (let i = 0; i < share; i++) {
              raw.postMessage(0)
              await once(raw, 'message')
            }
            return { perS: perSecond(share, from) }
          },
          stop: async share => {
            const refs = await spawned(share)
            const from = performance.now()
            for (const ref of refs) await system.stop(ref)
            return { perS: perSecond(share, from) }
          },
          ours: async share => {
            const refs = await spawned(share)
            const from = performance.now()
            for (const ref of refs) {
              ref.tell({ type: 'load', n: 1, items: [] })
              await system.stop(ref, { after: 'mailbox', within: TALLY_MS_MAX })
            }
            return { perS: perSecond(share, from) }
          },
        })
      })
      await raw.terminate()
      return {
        drain: {
          value: perActor.ours.perS,
          unit: 'actor/s',
          raw: { stop: perActor.stop.perS, port: perActor.port.perS },
        },
      }
    },
  },
]

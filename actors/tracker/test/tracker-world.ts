/** A tracker as an actor, with two workers, and what is booked with it, for the tests of this folder. */

import { createTestSystem } from '@homing/actor/testing'
import type { DrainedMessage } from '@homing/actors/directory'
import type { Fleet } from '@homing/fleet'
import type { TrackingSettings } from '@homing/placement'
import { type Booking, type TrackerArgs, tracker } from '../src/index.ts'
import { TRACK_ALL } from '../src/tracking.ts'

export const ASK = { timeout: '1s' } as const
export const GATEWAY = { name: 'gateway', life: 'one' }
export const PROMPT = Int32Array.from({ length: 8 }, (_, i) => i + 1)

/** As a replica tells of it. */
export const BOOKED = {
  kind: 'booked',
  worker: 'a/0',
  activeBlocks: 7,
  promptTokens: 30,
  prefillTokens: 10,
  countsPrefill: true,
  isStream: true,
  waitedMs: 0,
  stepTokens: 8192,
} as const

export async function start(
  idleMsMax = 60_000,
  tracking: Partial<TrackingSettings> = {},
  more: Partial<TrackerArgs> = {},
) {
  const system = await createTestSystem()
  const directory = system.probe<DrainedMessage>('directory')
  const ref = system.spawn(tracker, {
    name: 'tracker',
    args: {
      directory: directory.ref,
      workerSlotsMax: 8,
      requestsMax: 100,
      idleMsMax,
      tracking: { ...TRACK_ALL, ...tracking },
      ...more,
    },
  })
  ref.tell({ type: 'fleet', fleet: fleetOf(['a/0', 0], ['b/0', 1]) })
  const book = (decisionId: string, workerSlot: number, gateway = GATEWAY, more: Partial<Booking> = {}) =>
    ref.ask(
      {
        type: 'book',
        booking: {
          decisionId,
          gateway,
          worker: `${'ab'[workerSlot]}/0`,
          workerSlot,
          sequenceHashes: PROMPT,
          promptTokens: 70,
          prefillTokens: 70,
          isStream: true,
          stepTokens: 8192,
          ...more,
        },
      },
      ASK,
    )
  const load = async (worker: string) => {
    const { rows } = await ref.ask({ type: 'loads' }, ASK)
    const row = rows.find(candidate => candidate.worker === worker)
    return row && [row.activeBlocks, row.activePrefillTokens, row.activeRequests]
  }
  return { system, ref, book, load, directory }
}

export const PLAIN = { models: [], taints: [] }

/** As much of a fleet as the tracker looks at. */
export function fleetOf(...keys: [key: string, workerSlot: number][]): Fleet {
  const records = keys.map(([key, workerSlot]) => ({ key, workerSlot }))
  return { version: 1, workers: [{ ...PLAIN, keys: records }] } as unknown as Fleet
}

/** Worker a has two ranks. */
export function drainingFleet(drain: Pick<Fleet['workers'][number], 'state' | 'isDraining'>): Fleet {
  const keys = ['a/0', 'a/1'].map((key, workerSlot) => ({ key, workerSlot }))
  return { version: 2, workers: [{ ...PLAIN, id: 'a', ...drain, keys }] } as unknown as Fleet
}

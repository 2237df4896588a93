/**
 * Router events: the blocks of a worker key as the `stored` events that other routers and indexes read, in
 * JSON. Played into an empty index, parents first, they give the same overlaps.
 *
 * Labels of blocks are in `moe_metadata` and `cxl_metadata` of a stored block, only where there are any. An
 * event has each list of workers once: later blocks have an empty one, and in `workers_of` the position in
 * the event of the block that has it. A reader that does not know that finds them reached by no other worker.
 * Members that this version does not know are written as they were read.
 *
 * Of blocks in pools that the worker key does not hold there is a `cxl_state_transition`, with
 * `sequence_hashes` beside the engine's own hashes: no stored block says where they are. Its `cxl_metadata`
 * has the members of their places that this version does not know.
 */

import { parseExactJson, wideJson } from '@homing/base'
import { type DumpedLabel, transitionOf } from './dumped-labels.ts'
import type { IndexedBlock } from './key-dumps.ts'
import { EVENT_BLOCKS_MAX } from './slice-ids.ts'

const NO_WORKERS = new Int32Array(0)

/**
 * The events of one rank as the items of a JSON list, without brackets; '' where there are none.
 * `nextEventId` numbers them.
 */
export function dumpEvents(
  instanceId: bigint,
  dpRank: number,
  blocks: Iterable<IndexedBlock>,
  nextEventId: () => number,
): string {
  const events: string[] = []
  let run: IndexedBlock[] = []
  const flush = (): void => {
    if (run.length === 0) return
    const parent = run[0]!.parentEngineHash
    const firsts = new Map<Int32Array, number>()
    const stored = {
      parent_hash: parent === undefined ? null : numberOf(parent),
      blocks: run.map((block, i) => ({
        block_hash: numberOf(block.engineHash),
        tokens_hash: numberOf(block.localHash),
        ...labelsOf(block.label, i, firsts),
      })),
    }
    const event = { event_id: nextEventId(), data: { stored }, dp_rank: dpRank }
    events.push(wideJson({ worker_id: instanceId, storage_tier: 'device', event }))
    run = []
  }
  for (const block of blocks) {
    const last = run.at(-1)
    if (last === undefined || last.engineHash !== block.parentEngineHash || run.length >= EVENT_BLOCKS_MAX) {
      flush()
    }
    run.push(block)
  }
  flush()
  return events.join(',')
}

/** The transitions of blocks in pools that a rank does not hold, as `dumpEvents` has its events. */
export function pooledEvents(
  instanceId: bigint,
  dpRank: number,
  labels: readonly DumpedLabel[],
  nextEventId: () => number,
): string {
  const events: string[] = []
  for (const run of runsOf(labels)) {
    const { members, ...place } = run[0]!.place!
    const { state, ...rest } = placeView(place)
    const moves = {
      block_hashes: run.map(({ engineHash }) => wordsNumber(...engineHash)),
      sequence_hashes: run.map(({ sequenceHash }) => wordsNumber(...sequenceHash)),
      new_state: state,
      ...rest,
      ...(run.some(({ moe }) => moe !== undefined) && {
        moe_metadata: run.map(({ moe }) => (moe === undefined ? null : expertView(moe))),
      }),
      ...(members !== undefined && { cxl_metadata: membersView(members) }),
    }
    const event = { event_id: nextEventId(), data: { cxl_state_transition: moves }, dp_rank: dpRank }
    events.push(wideJson({ worker_id: instanceId, storage_tier: 'device', event }))
  }
  return events.join(',')
}

/** Those with equal places, up to EVENT_BLOCKS_MAX each. */
function* runsOf(labels: readonly DumpedLabel[]): Generator<readonly DumpedLabel[], void, undefined> {
  // Labels with the same workers have the same array of them.
  const byWorkers = new Map<Int32Array | undefined, Map<string, DumpedLabel[]>>()
  for (const label of labels) {
    const workers = label.place?.accessibleWorkers
    const byPlace = byWorkers.get(workers) ?? new Map<string, DumpedLabel[]>()
    byWorkers.set(workers, byPlace)
    const run = byPlace.get(transitionOf(label))
    if (run === undefined) byPlace.set(transitionOf(label), [label])
    else run.push(label)
  }
  for (const byPlace of byWorkers.values())
    for (const run of byPlace.values())
      for (let at = 0; at < run.length; at += EVENT_BLOCKS_MAX) yield run.slice(at, at + EVENT_BLOCKS_MAX)
}

/** `firsts`: the positions in the event of blocks with a list of workers, to be added to. */
function labelsOf(label: DumpedLabel | undefined, position: number, firsts: Map<Int32Array, number>) {
  return {
    ...(label?.moe && { moe_metadata: expertView(label.moe) }),
    ...(label?.place && { cxl_metadata: storedPlaceView(label.place, position, firsts) }),
  }
}

type Place = NonNullable<DumpedLabel['place']>

function storedPlaceView(place: Place, position: number, firsts: Map<Int32Array, number>) {
  const { accessibleWorkers } = place
  const first = firsts.get(accessibleWorkers)
  if (first !== undefined && accessibleWorkers.length > 0)
    return { ...placeView({ ...place, accessibleWorkers: NO_WORKERS }), workers_of: first }
  firsts.set(accessibleWorkers, position)
  return placeView(place)
}

function expertView({ layerId, expertId, expertGroup, members }: NonNullable<DumpedLabel['moe']>) {
  return {
    ...membersView(members),
    layer_id: layerId,
    expert_id: expertId,
    ...(expertGroup !== undefined && { expert_group: expertGroup }),
  }
}

function placeView({ state, poolId, accessibleWorkers, members }: Place) {
  const accessible: bigint[] = []
  for (let at = 0; at < accessibleWorkers.length; at += 2)
    accessible.push(wordsNumber(accessibleWorkers[at]!, accessibleWorkers[at + 1]!))
  return {
    ...membersView(members),
    state,
    ...(poolId !== undefined && { pool_id: poolId }),
    accessible_workers: accessible,
  }
}

function membersView(members: string | undefined): object {
  return members === undefined ? {} : (parseExactJson(members) as object)
}

function wordsNumber(low: number, high: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
}

function numberOf(hexadecimal: string): bigint {
  return BigInt(`0x${hexadecimal}`)
}

/**
 * Router events: the blocks of a worker key as the `stored` events that other routers and indexes read, in
 * JSON. Played into an empty index, parents first, they give the same overlaps.
 *
 * Labels of blocks are in `moe_metadata` and `cxl_metadata` of a stored block, only where there are any. Of
 * blocks in pools that the worker key does not hold there is a `cxl_state_transition`, with `sequence_hashes`
 * beside the engine's own hashes: no stored block says where they are.
 */

import { wideJson } from '@homing/base'
import type { DumpedLabel, IndexedBlock } from './key-dumps.ts'

/** Runs of blocks share an event, up to this many. */
const EVENT_BLOCKS_MAX = 128

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
    const stored = {
      parent_hash: parent === undefined ? null : numberOf(parent),
      blocks: run.map(block => ({
        block_hash: numberOf(block.engineHash),
        tokens_hash: numberOf(block.localHash),
        ...labelsOf(block.label),
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
  for (let at = 0; at < labels.length; ) {
    const first = labels[at]!
    const from = at
    while (at < labels.length && at - from < EVENT_BLOCKS_MAX && isSamePlace(labels[at]!, first)) at++
    const run = labels.slice(from, at)
    const { state, ...rest } = placeView(first.place!)
    const moves = {
      block_hashes: run.map(({ engineHash }) => wordsNumber(...engineHash)),
      sequence_hashes: run.map(({ sequenceHash }) => wordsNumber(...sequenceHash)),
      new_state: state,
      ...rest,
      ...(run.some(({ moe }) => moe !== undefined) && {
        moe_metadata: run.map(({ moe }) => (moe === undefined ? null : expertView(moe))),
      }),
    }
    const event = { event_id: nextEventId(), data: { cxl_state_transition: moves }, dp_rank: dpRank }
    events.push(wideJson({ worker_id: instanceId, storage_tier: 'device', event }))
  }
  return events.join(',')
}

function isSamePlace({ place }: DumpedLabel, { place: other }: DumpedLabel): boolean {
  // Labels with the same workers have the same array of them.
  return (
    place?.state === other?.state &&
    place?.poolId === other?.poolId &&
    place?.accessibleWorkers === other?.accessibleWorkers
  )
}

function labelsOf(label: DumpedLabel | undefined) {
  return {
    ...(label?.moe && { moe_metadata: expertView(label.moe) }),
    ...(label?.place && { cxl_metadata: placeView(label.place) }),
  }
}

function expertView({ layerId, expertId, expertGroup }: NonNullable<DumpedLabel['moe']>) {
  return {
    layer_id: layerId,
    expert_id: expertId,
    ...(expertGroup !== undefined && { expert_group: expertGroup }),
  }
}

function placeView({ state, poolId, accessibleWorkers }: NonNullable<DumpedLabel['place']>) {
  const accessible: bigint[] = []
  for (let at = 0; at < accessibleWorkers.length; at += 2)
    accessible.push(wordsNumber(accessibleWorkers[at]!, accessibleWorkers[at + 1]!))
  return { state, ...(poolId !== undefined && { pool_id: poolId }), accessible_workers: accessible }
}

function wordsNumber(low: number, high: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0)
}

function numberOf(hexadecimal: string): bigint {
  return BigInt(`0x${hexadecimal}`)
}

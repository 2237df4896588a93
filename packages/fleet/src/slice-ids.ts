/**
 * Slice ids: how many ids of workers the text of a slice will have, so that a slice ends in time. Counted as
 * router-events.ts writes them: a list once in each event, so once for EVENT_BLOCKS_MAX blocks. Members that
 * are not known count as ids of as many bytes.
 */

import type { DumpedLabel } from './dumped-labels.ts'

/** In JSON, about. */
const ID_TEXT_BYTES = 20
const SLICE_IDS_MAX = 16_384
/** Runs of blocks share an event, up to this many. */
export const EVENT_BLOCKS_MAX = 128

export class SliceIds {
  #left = SLICE_IDS_MAX
  /** Blocks so far, by array of ids and what else is equal where a list is written once. */
  readonly #blocks = new Map<Int32Array, Map<number | string, number>>()

  /** `run`: labels of others never share a list with these. False: the slice is full. */
  add({ moe, place }: DumpedLabel, run: number | string): boolean {
    this.#left -= ((moe?.members?.length ?? 0) + (place?.members?.length ?? 0)) / ID_TEXT_BYTES
    const ids = place?.accessibleWorkers
    if (ids === undefined || ids.length === 0) return this.#left > 0
    let byRun = this.#blocks.get(ids)
    if (byRun === undefined) {
      byRun = new Map()
      this.#blocks.set(ids, byRun)
    }
    const before = byRun.get(run) ?? 0
    byRun.set(run, before + 1)
    if (before % EVENT_BLOCKS_MAX === 0) this.#left -= ids.length / 2
    return this.#left > 0
  }
}

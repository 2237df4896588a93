/** Labels of blocks, as dumps of an index have them. */

/** What a worker says of a block, by the names that events have. */
export interface DumpedLabel {
  readonly engineHash: readonly [low: number, high: number]
  readonly sequenceHash: readonly [low: number, high: number]
  readonly moe:
    | {
        readonly layerId: number
        readonly expertId: number
        readonly expertGroup: number | undefined
        /** Those that this version does not know: a JSON object. */
        readonly members?: string
      }
    | undefined
  readonly place:
    | {
        readonly state: string
        readonly poolId: number | undefined
        /** Ids of workers, pairs [lo, hi]. */
        readonly accessibleWorkers: Int32Array
        /** As those of `moe`. */
        readonly members?: string
      }
    | undefined
}

/** Labels of the blocks of an index, as a dump asks for them. */
export interface DumpedLabels {
  has(workerSlot: number): boolean
  /** `idsBySet`: workers that were read, to be added to: labels with the same ones have the same array. */
  of(
    workerSlot: number,
    low: number,
    high: number,
    idsBySet: Map<number, Int32Array>,
  ): DumpedLabel | undefined
  /**
   * Those of blocks in pools that the worker slot does not hold on the device, in parts: from `from` on, and
   * where the next part begins. It ends soon after `hasRoom` says no.
   */
  apart(
    workerSlot: number,
    from: number,
    hasRoom: (label: DumpedLabel) => boolean,
  ): { readonly labels: readonly DumpedLabel[]; readonly next: number | undefined }
}

/** What is equal in the labels that may share a transition, beside their workers. */
export function transitionOf({ place }: DumpedLabel): string {
  return `${place?.state} ${place?.poolId} ${place?.members}`
}

export function isInPool({ place }: DumpedLabel): boolean {
  return place?.state === 'in_transit' || place?.state === 'cxl_pooled'
}
